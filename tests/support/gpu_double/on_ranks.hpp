// SPDX-License-Identifier: Apache-2.0
// Tests of the double's NCCL: one thread per rank, with its device, stream, and communicator. Catch2's assertions are
// not thread-safe, so ranks record problems and the test's thread reports them.
#pragma once
#include "nccl_abi.h"
#include "on_double.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

struct rank_on_double {
  int rank = 0;
  int ranks = 1;
  bool blocking = true;
  void* comm = nullptr;
  void* stream = nullptr;
  std::mutex* lock = nullptr;
  std::vector<std::string>* wrong = nullptr;

  void check(bool good, const std::string& what) {
    if (good) return;
    const std::scoped_lock guard(*lock);
    wrong->push_back("rank " + std::to_string(rank) + ": " + what);
  }
  void ok(int result, const std::string& what) { check(result == 0, what + " returned " + std::to_string(result)); }

  /// The state of its communicator, once it is no longer in progress.
  int state() const {
    int found = gpu_double::nccl_in_progress;
    while (found == gpu_double::nccl_in_progress)
      if (const int asked = ncclCommGetAsyncError(comm, &found); asked != 0) return asked;
    return found;
  }
  /// Checks a call's result; if it is "in progress", polls until it is final.
  void ready(int result, const std::string& what) {
    if (result == gpu_double::nccl_in_progress) result = state();
    ok(result, what);
  }
  void synchronize() { ok(cudaStreamSynchronize(stream), "synchronize"); }
};

/// A rank's own stream. The rank records problems: Catch2's assertions are for one thread.
class rank_stream {
 public:
  explicit rank_stream(rank_on_double& at) : at_(&at) {
    at.ok(cudaStreamCreateWithFlags(&handle_, gpu_double::stream_non_blocking), "create a stream");
  }
  rank_stream(const rank_stream&) = delete;
  rank_stream& operator=(const rank_stream&) = delete;
  ~rank_stream() { at_->ok(cudaStreamDestroy(handle_), "destroy a stream"); }
  operator void*() const { return handle_; }

 private:
  rank_on_double* at_;
  void* handle_ = nullptr;
};

/// Device memory of a rank, filled and read through its stream.
class device_bytes {
 public:
  device_bytes(rank_on_double& at, std::size_t bytes, unsigned char value) : bytes_(bytes), at_(&at) {
    at.ok(cudaMallocAsync(&memory_, bytes, at.stream), "allocate");
    at.ok(cudaMemsetAsync(memory_, value, bytes, at.stream), "fill");
  }
  device_bytes(device_bytes&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), at_(other.at_) {}
  device_bytes& operator=(device_bytes&&) = delete;
  ~device_bytes() {
    if (memory_) at_->ok(cudaFreeAsync(memory_, at_->stream), "free");
  }
  void* data() const { return memory_; }
  std::vector<unsigned char> read(rank_on_double& at) const {
    std::vector<unsigned char> seen(bytes_);
    at.ok(cudaMemcpyAsync(seen.data(), memory_, bytes_, gpu_double::device_to_host, at.stream), "read");
    at.synchronize();
    return seen;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
  rank_on_double* at_;
};

template <class T>
class device_values {
 public:
  device_values(rank_on_double& at, std::size_t count, const std::function<T(std::size_t)>& value)
      : count_(count), host_(count), memory_(at, count * sizeof(T), 0) {
    for (std::size_t i = 0; i < count; ++i) host_[i] = value(i);
    at.ok(cudaMemcpyAsync(memory_.data(), host_.data(), count * sizeof(T), gpu_double::host_to_device, at.stream),
          "write");
    at.synchronize();
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> read(rank_on_double& at) const {
    std::vector<T> seen(count_);
    at.ok(cudaMemcpyAsync(seen.data(), memory_.data(), count_ * sizeof(T), gpu_double::device_to_host, at.stream),
          "read");
    at.synchronize();
    return seen;
  }

 private:
  std::size_t count_;
  std::vector<T> host_;
  device_bytes memory_;
};

inline gpu_double::nccl_config nccl_config_of(bool blocking) {
  using gpu_double::nccl_undefined;
  return {sizeof(gpu_double::nccl_config),
          gpu_double::nccl_config_magic,
          22703,
          blocking ? 1 : 0,
          nccl_undefined,
          nccl_undefined,
          nccl_undefined,
          nullptr,
          nccl_undefined,
          nccl_undefined,
          nullptr,
          nccl_undefined,
          nccl_undefined,
          nccl_undefined,
          nccl_undefined};
}

struct ranks_options {
  bool ready = true;    // communicators are complete before the body runs
  bool destroy = true;  // and are destroyed after it
};

/// Runs the body on threads, one per rank with its own device; reports the problems that they recorded.
inline void nccl_on_ranks(int ranks, bool blocking, const std::function<void(rank_on_double&)>& body,
                          ranks_options options = {}) {
  gpu_double::nccl_unique_id id{};
  REQUIRE(ncclGetUniqueId(&id) == 0);
  std::mutex lock;
  std::vector<std::string> wrong;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      rank_on_double at{rank, ranks, blocking, nullptr, nullptr, &lock, &wrong};
      at.ok(cudaSetDevice(rank), "set device");
      at.ok(cudaStreamCreateWithFlags(&at.stream, gpu_double::stream_non_blocking), "stream");
      gpu_double::nccl_config config = nccl_config_of(blocking);
      const int made = ncclCommInitRankConfig(&at.comm, ranks, id, rank, &config);
      if (options.ready) at.ready(made, "init");
      body(at);
      if (options.destroy) at.ok(ncclCommDestroy(at.comm), "destroy");
      at.ok(cudaStreamDestroy(at.stream), "end of stream");
    });
  for (std::thread& each : threads) each.join();
  std::string text;
  for (const std::string& each : wrong) text += each + "\n";
  CHECK(text == "");
}
