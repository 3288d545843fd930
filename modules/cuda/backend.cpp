// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import :launcher;
import :staging_pool;

namespace shardmesh {
namespace {

using cuda::current_device;
using cuda::functions;

class recorded_event final : public device_event {
 public:
  recorded_event(cuda::event event, std::shared_ptr<cuda::launcher> launcher)
      : event_(std::move(event)), launcher_(std::move(launcher)) {}
  result<bool> done() override {
    SHARDMESH_TRY(const bool is_done, event_.done());
    if (is_done) SHARDMESH_TRY(late());
    return is_done;
  }
  result<void> wait() override {
    SHARDMESH_TRY(event_.wait());
    return late();
  }
  result<void> hold(stream_ref stream) override { return event_.hold(stream); }

 private:
  result<void> late() const {
    if (auto e = launcher_->take_late_error()) return *std::move(e);
    return {};
  }
  cuda::event event_;
  std::shared_ptr<cuda::launcher> launcher_;
};

// The facts about a device, queried at its first use.
struct device_facts {
  bool has_pools = false;
  cuda::stream allocations;  // used only for allocations without a stream
};

class cuda_memory final : public kernel_backend {
 public:
  cuda_memory(cuda::runtime cuda, std::int32_t devices, std::shared_ptr<cuda::launcher> launcher,
              const cuda_options& options)
      : cuda_(std::move(cuda)),
        devices_(devices),
        launcher_(std::move(launcher)),
        options_(options),
        staging_(std::make_shared<cuda::staging_pool>(cuda_, options.staging_keep_bytes)) {}

  std::string_view name() const override { return launcher_->name(); }
  bool reaches(device where) const override { return where.type == device_type::cuda && where.index < devices_; }

  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) override;
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) override {
    SHARDMESH_TRY(where, cuda_.resolve(where));
    return staging_->take(size_bytes, where);
  }
  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device where) override {
    SHARDMESH_TRY(where, cuda_.resolve(where));
    const current_device at(cuda_, where);
    SHARDMESH_TRY(at.outcome());
    SHARDMESH_TRY(auto made, launcher_->prepare(items, where));
    return std::unique_ptr<prepared_batch>(std::move(made));
  }
  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref stream) override {
    auto& prepared = static_cast<cuda::launchable&>(batch);
    if (prepared.items() == 0) return {};
    const current_device at(cuda_, prepared.where());
    SHARDMESH_TRY(at.outcome());
    return prepared.launch(bases, stream);
  }
  result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                           std::int64_t size_bytes, stream_ref stream) override {
    if (size_bytes <= 0) return {};
    SHARDMESH_TRY(const device where, cuda_.resolve(to_device.type == device_type::cuda ? to_device : from_device));
    const current_device at(cuda_, where);
    SHARDMESH_TRY(at.outcome());
    return cuda_.check(
        cuda_.call().memcpy_async(to, from, static_cast<std::size_t>(size_bytes), cuda::copy_default, stream.handle),
        "cudaMemcpyAsync from " + to_string(from_device) + " to " + to_string(to_device), where);
  }
  result<std::unique_ptr<device_event>> record(device where, stream_ref stream) override {
    SHARDMESH_TRY(cuda::event made, cuda::event::make(cuda_, where));
    SHARDMESH_TRY(made.record(stream));
    return std::unique_ptr<device_event>(std::make_unique<recorded_event>(std::move(made), launcher_));
  }
  result<owned_stream> make_stream(device where) override {
    SHARDMESH_TRY(cuda::stream made, cuda::stream::make(cuda_, where));
    auto owner = std::make_shared<cuda::stream>(std::move(made));
    const stream_ref stream = owner->ref();
    return owned_stream{stream, std::move(owner)};
  }

 private:
  result<device_facts*> facts(device where);
  void open_pool(device where) const;

  cuda::runtime cuda_;
  std::int32_t devices_;
  std::shared_ptr<cuda::launcher> launcher_;
  cuda_options options_;
  std::shared_ptr<cuda::staging_pool> staging_;
  std::mutex lock_;
  std::map<std::int16_t, device_facts> facts_;
};

// Lets the other devices access the pool's memory, as they can access that of cudaMalloc. Threads of one process may be
// ranks with a device each, and NCCL then reads the other ranks' memory in place. A refusal of the pool is ignored.
void cuda_memory::open_pool(device where) const {
  const functions& f = cuda_.call();
  void* pool = nullptr;
  if (f.device_get_default_mem_pool == nullptr || f.device_get_default_mem_pool(&pool, where.index) != cuda::success)
    return static_cast<void>(f.get_last_error());
  if (options_.pool_keeps_memory && f.mem_pool_set_attribute != nullptr) {
    std::uint64_t keeps = ~std::uint64_t{0};
    if (f.mem_pool_set_attribute(pool, cuda::pool_release_threshold, &keeps) != cuda::success)
      static_cast<void>(f.get_last_error());
  }
  if (f.device_can_access_peer == nullptr || f.mem_pool_set_access == nullptr) return;
  for (std::int32_t peer = 0; peer < devices_; ++peer) {
    int can = 0;
    if (peer == where.index || f.device_can_access_peer(&can, peer, where.index) != cuda::success || can == 0) continue;
    const cuda::memory_access access{.device = peer};
    if (f.mem_pool_set_access(pool, &access, 1) != cuda::success) static_cast<void>(f.get_last_error());
  }
}

result<device_facts*> cuda_memory::facts(device where) {
  const std::scoped_lock locked(lock_);
  if (const auto found = facts_.find(where.index); found != facts_.end()) return &found->second;
  device_facts made;
  int has_pools = 0;
  SHARDMESH_TRY(cuda_.check(cuda_.call().device_get_attribute(&has_pools, cuda::attribute_memory_pools, where.index),
                            "cudaDeviceGetAttribute", where));
  made.has_pools = has_pools != 0;
  if (made.has_pools) {
    SHARDMESH_TRY(made.allocations, cuda::stream::make(cuda_, where));
    open_pool(where);
  }
  return &facts_.emplace(where.index, std::move(made)).first->second;
}

result<device_buffer> cuda_memory::allocate(std::int64_t size_bytes, device where, stream_ref stream) {
  SHARDMESH_TRY(where, cuda_.resolve(where));
  if (size_bytes <= 0) return device_buffer(nullptr, 0, where, nullptr);
  SHARDMESH_TRY(device_facts* const known, facts(where));
  const current_device at(cuda_, where);
  SHARDMESH_TRY(at.outcome());
  const functions& f = cuda_.call();
  const auto size = static_cast<std::size_t>(size_bytes);
  void* memory = nullptr;
  const auto refused = [&](int code, std::string_view operation) {
    return cuda_.check(code, "allocating " + human_bytes(size_bytes) + " (" + std::string(operation) + ")", where);
  };
  if (!known->has_pools) {
    SHARDMESH_TRY(refused(f.malloc(&memory, size), "cudaMalloc"));
    return device_buffer(static_cast<std::byte*>(memory), size_bytes, where,
                         std::shared_ptr<void>(memory, [cuda = cuda_, where](void* done) {
                           const current_device on(cuda, where);  // cudaFree waits for the whole device
                           static_cast<void>(cuda.call().free(done));
                         }));
  }
  // Without a stream the memory must be usable everywhere on return, so this waits: the pool may reuse memory that
  // enqueued work still uses.
  const stream_ref order = stream.handle != nullptr ? stream : known->allocations.ref();
  SHARDMESH_TRY(refused(f.malloc_async(&memory, size, order.handle), "cudaMallocAsync"));
  device_buffer made(static_cast<std::byte*>(memory), size_bytes, where,
                     std::shared_ptr<void>(memory, [cuda = cuda_, where, stream](void* done) {
                       const current_device on(cuda, where);
                       static_cast<void>(cuda.call().free_async(done, stream.handle));
                     }));
  if (stream.handle == nullptr) SHARDMESH_TRY(known->allocations.synchronize());
  return made;
}

// Chooses a library of kernels, or else NVRTC, or else CUDA's own copies.
result<std::shared_ptr<cuda::launcher>> device_launcher(const cuda::runtime& cuda, const cuda_options& options) {
  SHARDMESH_TRY(std::shared_ptr<cuda::launcher> found, cuda::library_launcher(cuda, options.kernels));
  if (found != nullptr) return found;
  const std::string chosen = cuda::kernel_library::named(options.kernels);
  if (chosen == "none") return cuda::copy_launcher(cuda);
  SHARDMESH_TRY(auto compiler, cuda::nvrtc::find(cuda, options.nvrtc));
  if (compiler != nullptr) return cuda::compiled_launcher(cuda, std::move(compiler));
  if (chosen != "nvrtc") return cuda::copy_launcher(cuda);
  return fail(errc::unsupported, "SHARDMESH_CUDA_KERNELS or cuda_options::kernels chose NVRTC, and none was found")
      .with_hint("install NVRTC of CUDA 12.8 or newer, or name its library in SHARDMESH_NVRTC");
}

}  // namespace

result<std::shared_ptr<kernel_backend>> cuda_backend(const cuda_options& options) {
  SHARDMESH_TRY(cuda::runtime cuda, cuda::runtime::load(options.cudart));
  SHARDMESH_TRY(const std::int32_t devices, cuda.device_count());
  if (devices == 0) return fail(errc::unsupported, "this machine has no CUDA device");
  std::shared_ptr<cuda::launcher> launcher;
  if (options.kernels_on_host) {
    launcher = cuda::host_function_launcher(cuda);
  } else {
    SHARDMESH_TRY(launcher, device_launcher(cuda, options));
  }
  return std::shared_ptr<kernel_backend>(
      std::make_shared<cuda_memory>(std::move(cuda), devices, std::move(launcher), options));
}

result<cuda_scope> cuda_scope::open(const cuda_options& options) {
  SHARDMESH_TRY(auto backend, cuda_backend(options));
  return cuda_scope(std::move(backend));
}

}  // namespace shardmesh
