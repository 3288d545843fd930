// SPDX-License-Identifier: Apache-2.0
// Batches that run as kernels compiled by NVRTC. The host cuts a batch into tiles, as the library of kernels does.
module;
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/slots.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import :launcher;

namespace shardmesh::cuda {
namespace {

using kernel_bodies::tile_item;
using kernel_bodies::tile_tables;
using kernel_bodies::tiled_phase;

// A batch of at most this many copies runs as CUDA's own copies, so that no kernel needs to be compiled.
constexpr std::size_t few_copies = 16;

// A program in the runtime. Freed when no table uses it.
class loaded_kernel {
 public:
  explicit loaded_kernel(const runtime& cuda) : cuda_(cuda) {}
  loaded_kernel(const loaded_kernel&) = delete;
  loaded_kernel& operator=(const loaded_kernel&) = delete;
  ~loaded_kernel() {
    if (library_ != nullptr) static_cast<void>(cuda_.call().library_unload(library_));
  }
  result<void> load(const std::vector<char>& code, device where) {
    const functions& f = cuda_.call();
    SHARDMESH_TRY(cuda_.check(f.library_load_data(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                              "loading compiled kernels (cudaLibraryLoadData)", where));
    return cuda_.check(f.library_get_kernel(&kernel_, library_, kernel_program::kernel),
                       "finding a compiled kernel (cudaLibraryGetKernel)", where);
  }
  const void* get() const { return kernel_; }

 private:
  runtime cuda_;
  void* library_ = nullptr;
  void* kernel_ = nullptr;
};

// Memory of a device. Freeing it waits for the device's work.
class device_bytes {
 public:
  device_bytes(const runtime& cuda, device where) : cuda_(cuda), where_(where) {}
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;
  ~device_bytes() {
    const current_device at(cuda_, where_);
    if (memory_ != nullptr) static_cast<void>(cuda_.call().free(memory_));
  }
  // Allocates and copies. The bytes are no longer needed once it returns.
  result<void> upload(const void* bytes, std::size_t size) {
    const functions& f = cuda_.call();
    SHARDMESH_TRY(cuda_.check(f.malloc(&memory_, size), "allocating the table of a batch (cudaMalloc)", where_));
    SHARDMESH_TRY(cuda_.check(f.memcpy_async(memory_, bytes, size, copy_default, nullptr),
                              "copying the table of a batch (cudaMemcpyAsync)", where_));
    return cuda_.check(f.stream_synchronize(nullptr), "copying the table of a batch", where_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(memory_);
  }

 private:
  runtime cuda_;
  device where_;
  void* memory_ = nullptr;
};

// The number of slots that the items of a batch name. A kernel computes the address of a source even for an item that
// has none, so there is always room for one.
struct slot_counts {
  std::size_t to = 0, from = 0;
  inline std::size_t total() const { return to + std::max(from, std::size_t{1}); }
  inline bool are_few() const { return total() <= std::size_t{kernel_bodies::few_slots}; }
};

class table final : public launchable {
 public:
  table(const runtime& cuda, device where, std::size_t items, std::shared_ptr<const loaded_kernel> kernel,
        slot_counts slots)
      : launchable(where, items),
        cuda_(cuda),
        kernel_(std::move(kernel)),
        slots_(slots),
        tile_items_(cuda, where),
        first_tile_(cuda, where) {}
  result<void> upload(const tile_tables& tables) {
    for (std::size_t p = 0; p < tables.phase_count(); ++p)
      phases_.push_back({tables.phases[p], tables.phase(p).count, tables.phase(p).tiles()});
    SHARDMESH_TRY(tile_items_.upload(tables.items.data(), tables.items.size() * sizeof(tile_item)));
    return first_tile_.upload(tables.first_tile.data(), tables.first_tile.size() * sizeof(std::int64_t));
  }
  result<void> launch(const batch_bases& bases, stream_ref stream) override {
    if (bases.to.size() < slots_.to || bases.from.size() < slots_.from)
      return fail(errc::invalid_argument, "a batch was run with too few addresses")
          .with_values(std::to_string(slots_.to) + " to and " + std::to_string(slots_.from) + " from",
                       std::to_string(bases.to.size()) + " and " + std::to_string(bases.from.size()));
    return slots_.are_few() ? launch_with<kernel_bodies::few_slots>(bases, stream)
                            : launch_with<kernel_bodies::most_slots>(bases, stream);
  }

 private:
  struct phase {
    std::size_t first = 0;
    std::int64_t count = 0;
    std::int64_t tiles = 0;
  };

  template <int Slots>
  result<void> launch_with(const batch_bases& bases, stream_ref stream) const {
    kernel_bodies::slot_addresses<Slots> slots{};
    slots.sources = static_cast<std::uint32_t>(slots_.to);
    for (std::size_t i = 0; i < slots_.to; ++i) slots.at[i] = bases.to[i];
    for (std::size_t i = 0; i < slots_.from; ++i) slots.at[slots_.to + i] = const_cast<std::byte*>(bases.from[i]);
    for (const phase& each : phases_) {
      const unsigned blocks = kernel_bodies::blocks_for(each.tiles);
      if (blocks == 0) continue;
      tiled_phase what{tile_items_.as<tile_item>() + each.first, first_tile_.as<std::int64_t>() + each.first,
                       each.count};
      void* arguments[] = {&what, &slots};  // copied by the call
      SHARDMESH_TRY(cuda_.check(
          cuda_.call().launch_kernel(kernel_->get(), grid_size{blocks, 1, 1},
                                     grid_size{kernel_bodies::threads_per_tile, 1, 1}, arguments, 0, stream.handle),
          "launching a batch (cudaLaunchKernel)", where()));
    }
    return {};
  }

  runtime cuda_;
  std::shared_ptr<const loaded_kernel> kernel_;  // unloaded after the memory is freed, so after the last launch
  slot_counts slots_;
  device_bytes tile_items_, first_tile_;
  std::vector<phase> phases_;
};

bool moves_only(const tile_tables& tables) {
  return std::ranges::all_of(tables.items, [](const tile_item& item) {
    return item.kind == kernel_bodies::tile_kind::runs || item.kind == kernel_bodies::tile_kind::planes;
  });
}

class from_nvrtc final : public launcher {
 public:
  from_nvrtc(const runtime& cuda, std::shared_ptr<const nvrtc> with)
      : cuda_(cuda), nvrtc_(std::move(with)), copies_(copy_launcher(cuda, few_copies)) {}
  std::string_view name() const override { return "cuda (NVRTC)"; }
  result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) override {
    if (auto copied = copies_->prepare(items, where)) return copied;
    SHARDMESH_TRY(const slot_counts slots, checked(items, where));
    const tile_tables tables = kernel_bodies::cut_all(items.data(), items.size(), kernel_bodies::device_tiles);
    SHARDMESH_TRY(const int architecture, cuda_.architecture(where));
    SHARDMESH_TRY(auto kernel,
                  kernel_of({.architecture = architecture,
                             .computes = !moves_only(tables),
                             .slots = slots.are_few() ? kernel_bodies::few_slots : kernel_bodies::most_slots},
                            where));
    auto made = std::make_unique<table>(cuda_, where, items.size(), std::move(kernel), slots);
    SHARDMESH_TRY(made->upload(tables));
    return std::unique_ptr<launchable>(std::move(made));
  }

 private:
  // Returns the slots of a batch for which there are kernels.
  result<slot_counts> checked(std::span<const batch_item> items, device where) const {
    slot_counts slots;
    for (const batch_item& item : items) {
      if (!kernel_bodies::has_kernel(item))
        return fail(errc::unsupported, "there is no kernel for " + describe(item) + " on " + to_string(where));
      slots.to = std::max(slots.to, std::size_t{item.to_slot} + 1);
      if (kernel_bodies::reads(item.op)) slots.from = std::max(slots.from, std::size_t{item.from_slot} + 1);
    }
    if (slots.total() <= std::size_t{kernel_bodies::most_slots}) return slots;
    return fail(errc::unsupported, "a batch has too many slots for a launch on " + to_string(where))
        .with_values("at most " + std::to_string(kernel_bodies::most_slots), std::to_string(slots.total()));
  }

  // Threads that need the same program wait for the first one.
  result<std::shared_ptr<const loaded_kernel>> kernel_of(const kernel_program& program, device where) {
    const std::scoped_lock locked(lock_);
    if (const auto found = kernels_.find(program); found != kernels_.end()) return found->second;
    SHARDMESH_TRY(const std::vector<char> code, cached_or_compiled(*nvrtc_, cache_, program));
    auto made = std::make_shared<loaded_kernel>(cuda_);
    SHARDMESH_TRY(made->load(code, where));
    return kernels_.emplace(program, std::move(made)).first->second;
  }

  runtime cuda_;
  std::shared_ptr<const nvrtc> nvrtc_;
  std::shared_ptr<launcher> copies_;
  kernel_cache cache_;
  std::mutex lock_;
  std::map<kernel_program, std::shared_ptr<const loaded_kernel>> kernels_;
};

}  // namespace

std::shared_ptr<launcher> compiled_launcher(const runtime& cuda, std::shared_ptr<const nvrtc> with) {
  return std::make_shared<from_nvrtc>(cuda, std::move(with));
}

}  // namespace shardmesh::cuda
