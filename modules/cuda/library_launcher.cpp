// SPDX-License-Identifier: Apache-2.0
// Batches that a library of kernels runs (cuda_kernels.h).
module;
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.cuda;

import :launcher;

namespace shardmesh::cuda {
namespace {

struct kernel_functions {
  shared_library library;
  decltype(&shardmesh_cuda_kernels_version) version = nullptr;
  decltype(&shardmesh_cuda_kernels_item_bytes) item_bytes = nullptr;
  decltype(&shardmesh_cuda_table_create) create = nullptr;
  decltype(&shardmesh_cuda_table_launch) launch = nullptr;
  decltype(&shardmesh_cuda_table_destroy) destroy = nullptr;
};

class table final : public launchable {
 public:
  table(const runtime& cuda, std::shared_ptr<const kernel_functions> kernels, device where, std::size_t items,
        void* made)
      : launchable(where, items), cuda_(cuda), kernels_(std::move(kernels)), table_(made) {}
  table(const table&) = delete;
  table& operator=(const table&) = delete;
  ~table() override {
    const current_device at(cuda_, where());
    kernels_->destroy(table_);
  }
  result<void> launch(const batch_bases& bases, stream_ref stream) override {
    // Passes the addresses as unsigned bytes, because C has no std::byte.
    return cuda_.check(
        kernels_->launch(table_, reinterpret_cast<unsigned char* const*>(bases.to.data()), bases.to.size(),
                         reinterpret_cast<const unsigned char* const*>(bases.from.data()), bases.from.size(),
                         stream.handle),
        "launching a batch", where());
  }

 private:
  runtime cuda_;
  std::shared_ptr<const kernel_functions> kernels_;
  void* table_ = nullptr;
};

class from_library final : public launcher {
 public:
  from_library(const runtime& cuda, std::shared_ptr<const kernel_functions> kernels)
      : cuda_(cuda), kernels_(std::move(kernels)) {}
  std::string_view name() const override { return "cuda"; }
  result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) override {
    void* made = nullptr;
    std::size_t refused = 0;
    const int code = kernels_->create(items.data(), items.size(), where.index, &refused, &made);
    if (code == SHARDMESH_CUDA_KERNELS_NO_KERNEL)
      return fail(errc::unsupported, kernels_->library.name() + " has no kernel for " +
                                         (refused < items.size() ? describe(items[refused]) : "an item") + " on " +
                                         to_string(where));
    SHARDMESH_TRY(cuda_.check(code, "making the table of a batch", where));
    return std::unique_ptr<launchable>(std::make_unique<table>(cuda_, kernels_, where, items.size(), made));
  }

 private:
  runtime cuda_;
  std::shared_ptr<const kernel_functions> kernels_;
};

}  // namespace

result<std::shared_ptr<launcher>> library_launcher(const runtime& cuda, const std::string& path) {
  constexpr const char* variable = "SHARDMESH_CUDA_KERNELS";
  const char* const chosen = std::getenv(variable);
  const bool is_named = !path.empty() || (chosen != nullptr && *chosen != '\0');
  auto library = shared_library::open("the library of CUDA kernels", path, variable, {"libshardmesh_cuda_kernels.so"});
  if (!library && !is_named) return std::shared_ptr<launcher>();
  auto kernels = std::make_shared<kernel_functions>();
  SHARDMESH_TRY(kernels->library, std::move(library));
  function_loader load(kernels->library);
  load("shardmesh_cuda_kernels_version", kernels->version);
  load("shardmesh_cuda_kernels_item_bytes", kernels->item_bytes);
  load("shardmesh_cuda_table_create", kernels->create);
  load("shardmesh_cuda_table_launch", kernels->launch);
  load("shardmesh_cuda_table_destroy", kernels->destroy);
  SHARDMESH_TRY(load.outcome());
  if (const int version = kernels->version(); version != SHARDMESH_CUDA_KERNELS_VERSION)
    return fail(errc::unsupported, kernels->library.name() + " is of another version")
        .with_values(std::to_string(SHARDMESH_CUDA_KERNELS_VERSION), std::to_string(version));
  if (const std::size_t size = kernels->item_bytes(); size != sizeof(batch_item))
    return fail(errc::unsupported, kernels->library.name() + " has items of another size")
        .with_values(std::to_string(sizeof(batch_item)) + " bytes", std::to_string(size) + " bytes");
  return std::shared_ptr<launcher>(std::make_shared<from_library>(cuda, std::move(kernels)));
}

}  // namespace shardmesh::cuda
