// SPDX-License-Identifier: Apache-2.0
// `start_load`: a load that runs in its own thread.
#pragma once
#include <shardmesh/c_api/start_load.h>
#include <shardmesh/c_api/checkpoint.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardmesh {
namespace c_api {

struct start_load_options {
  int threads = 0;  // 0: all cores
  bool allow_narrowing = false, check = false;
  std::chrono::milliseconds timeout{0};
  /// Called from the load's threads, one at a time. Returning false ends the load. An exception also ends it, and
  /// `wait` rethrows the exception.
  std::function<bool(const std::string& key)> on_arrival{};
  bool allow_shape_mismatch = false;
};

/// A running load. The destructor cancels it and waits. The checkpoint and the requests' memory must outlive it.
class loading {
 public:
  loading(const checkpoint& from, const std::vector<load_request>& requests, start_load_options options = {})
      : told_(new told{std::move(options.on_arrival), nullptr}) {
    const std::vector<shardmesh_load_request> wanted = pointers(requests);
    shardmesh_start_load_options how{};
    how.struct_size = sizeof how;
    if (told_->on_arrival) how.on_arrival = &tell;
    how.user = told_.get();
    how.timeout_milliseconds = options.timeout.count();
    how.threads = options.threads;
    how.allow_narrowing = options.allow_narrowing ? 1 : 0;
    how.check = options.check ? 1 : 0;
    how.allow_shape_mismatch = options.allow_shape_mismatch ? 1 : 0;
    shardmesh_loading* made = nullptr;
    checked([&](shardmesh_error** e) {
      return shardmesh_start_load(from.c(), wanted.data(), wanted.size(), &how, &made, e);
    });
    handle_.reset(made);
  }

  bool done() const { return described().done != 0; }
  std::int64_t bytes() const { return described().bytes; }
  void cancel() {
    checked([&](shardmesh_error** e) { return shardmesh_loading_cancel(handle_.get(), e); });
  }
  /// Returns the number of bytes read. Throws the error that ended the load.
  std::int64_t wait() {
    std::int64_t read = 0;
    error_slot slot;
    const shardmesh_status status = shardmesh_loading_wait(handle_.get(), &read, slot.out());
    if (told_->thrown) std::rethrow_exception(told_->thrown);
    slot.check(status);
    return read;
  }

 private:
  struct told {
    std::function<bool(const std::string&)> on_arrival;
    std::exception_ptr thrown;
  };
  static std::int32_t tell(void* user, shardmesh_text key) noexcept {
    auto& self = *static_cast<told*>(user);
    if (self.thrown) return 1;
    try {
      return self.on_arrival(to_string(key)) ? 0 : 1;
    } catch (...) {
      self.thrown = std::current_exception();
      return 1;
    }
  }
  shardmesh_loading_progress described() const {
    shardmesh_loading_progress made{};
    made.struct_size = sizeof made;
    checked([&](shardmesh_error** e) { return shardmesh_loading_describe(handle_.get(), &made, e); });
    return made;
  }
  std::unique_ptr<told> told_;  // outlives the load
  std::unique_ptr<shardmesh_loading, free_with<&shardmesh_loading_free>> handle_;
};

}  // namespace c_api
}  // namespace shardmesh
