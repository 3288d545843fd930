// SPDX-License-Identifier: Apache-2.0
// Batches as host functions on their stream: the host's kernels, for memory that the host can access.
module;
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import :launcher;

namespace shardmesh::cuda {
namespace {

// The first error of host functions that ran on a stream, and so could not return it.
struct late_error {
  std::mutex lock;
  std::optional<error> first;
  inline void keep(error e) {
    const std::scoped_lock locked(lock);
    if (!first) first = std::move(e);
  }
};

// The argument of a host function, which deletes it.
struct launched {
  std::shared_ptr<prepared_batch> batch;
  std::shared_ptr<late_error> late;
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;
};

void run_on_host(void* argument) {
  const std::unique_ptr<launched> work(static_cast<launched*>(argument));
  if (auto done = host_backend()->run(*work->batch, {work->to, work->from}, {}); !done)
    work->late->keep(std::move(done).error());
}

class host_batch final : public launchable {
 public:
  host_batch(const runtime& cuda, device where, std::shared_ptr<prepared_batch> batch, std::shared_ptr<late_error> late)
      : launchable(where, batch->items()), cuda_(cuda), batch_(std::move(batch)), late_(std::move(late)) {}
  result<void> launch(const batch_bases& bases, stream_ref stream) override {
    auto work = std::make_unique<launched>(
        launched{batch_, late_, {bases.to.begin(), bases.to.end()}, {bases.from.begin(), bases.from.end()}});
    SHARDMESH_TRY(cuda_.check(cuda_.call().launch_host_func(stream.handle, run_on_host, work.get()),
                              "launching a batch (cudaLaunchHostFunc)", where()));
    static_cast<void>(work.release());
    return {};
  }

 private:
  runtime cuda_;
  std::shared_ptr<prepared_batch> batch_;
  std::shared_ptr<late_error> late_;
};

class on_host final : public launcher {
 public:
  explicit on_host(const runtime& cuda) : cuda_(cuda) {}
  std::string_view name() const override { return "cuda (kernels on the host)"; }
  result<std::unique_ptr<launchable>> prepare(std::span<const batch_item> items, device where) override {
    SHARDMESH_TRY(auto batch, host_backend()->prepare(items, {}));
    return std::unique_ptr<launchable>(std::make_unique<host_batch>(cuda_, where, std::move(batch), late_));
  }
  std::optional<error> take_late_error() override {
    const std::scoped_lock locked(late_->lock);
    return std::exchange(late_->first, std::nullopt);
  }

 private:
  runtime cuda_;
  std::shared_ptr<late_error> late_ = std::make_shared<late_error>();
};

}  // namespace

std::shared_ptr<launcher> host_function_launcher(const runtime& cuda) {
  return std::make_shared<on_host>(cuda);
}

}  // namespace shardmesh::cuda
