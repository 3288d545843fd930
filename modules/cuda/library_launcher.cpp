// SPDX-License-Identifier: Apache-2.0
// Batches that a library of kernels runs (cuda_kernels.h).
module;
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
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
  std::shared_ptr<const kernel_library> library;
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
    SHARDMESH_TRY(check_architecture(where));
    void* made = nullptr;
    std::size_t refused = 0;
    const int code = kernels_->create(items.data(), items.size(), where.index, &refused, &made);
    if (code == SHARDMESH_CUDA_KERNELS_NO_KERNEL)
      return fail(errc::unsupported, kernels_->library->library.file() + " has no kernel for " +
                                         (refused < items.size() ? describe(items[refused]) : "an item") + " on " +
                                         to_string(where));
    SHARDMESH_TRY(cuda_.check(code, "making the table of a batch", where));
    return std::unique_ptr<launchable>(std::make_unique<table>(cuda_, kernels_, where, items.size(), made));
  }

 private:
  // Without code for the device, the first launch would fail, when other ranks already wait for its bytes.
  result<void> check_architecture(device where) const {
    const kernel_library& library = *kernels_->library;
    if (library.architectures.empty()) return {};
    SHARDMESH_TRY(const int architecture, cuda_.architecture(where));
    if (library.runs_on(architecture)) return {};
    return fail(errc::unsupported, library.library.file() + " has no kernels for " + to_string(where))
        .with_values("code for architecture " + std::to_string(architecture), library.build)
        .with_hint(
            "set SHARDMESH_CUDA_KERNELS=nvrtc, so that NVRTC compiles them, or build the component cuda_kernels "
            "with CMAKE_CUDA_ARCHITECTURES=" +
            std::to_string(architecture));
  }

  runtime cuda_;
  std::shared_ptr<const kernel_functions> kernels_;
};

}  // namespace

result<std::shared_ptr<launcher>> library_launcher(const runtime& cuda, const std::string& path) {
  SHARDMESH_TRY(auto library, kernel_library::find(path));
  if (library == nullptr) return std::shared_ptr<launcher>();
  auto kernels = std::make_shared<kernel_functions>();
  function_loader load(library->library);
  load("shardmesh_cuda_table_create", kernels->create);
  load("shardmesh_cuda_table_launch", kernels->launch);
  load("shardmesh_cuda_table_destroy", kernels->destroy);
  SHARDMESH_TRY(load.outcome());
  kernels->library = std::move(library);
  return std::shared_ptr<launcher>(std::make_shared<from_library>(cuda, std::move(kernels)));
}

}  // namespace shardmesh::cuda
