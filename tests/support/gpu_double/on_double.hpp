// SPDX-License-Identifier: Apache-2.0
// Shared by tests on the double: a fresh double for a seed, and its verdict at the end.
#pragma once
#include <catch2/catch_test_macros.hpp>

#include "cuda_abi.h"
#include "gpu_double.h"

#include <cstdint>
#include <string>

/// A fresh double; at the end of the scope it must have seen no error and no leak.
class on_double {
 public:
  explicit on_double(std::uint64_t seed = 1, int devices = 8) {
    double_reset(seed);
    double_set_devices(devices);
  }
  on_double(const on_double&) = delete;
  on_double& operator=(const on_double&) = delete;
  ~on_double() {
    CHECK(std::string(double_problem_text()) == "");
    CHECK(std::string(double_leak_text()) == "");
  }
};

/// A stream that is destroyed at the end of the scope.
class own_stream {
 public:
  explicit own_stream(unsigned flags = gpu_double::stream_non_blocking) {
    REQUIRE(cudaStreamCreateWithFlags(&handle_, flags) == 0);
  }
  own_stream(const own_stream&) = delete;
  own_stream& operator=(const own_stream&) = delete;
  ~own_stream() { CHECK(cudaStreamDestroy(handle_) == 0); }
  operator void*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

class own_event {
 public:
  own_event() { REQUIRE(cudaEventCreateWithFlags(&handle_, gpu_double::event_disable_timing) == 0); }
  own_event(const own_event&) = delete;
  own_event& operator=(const own_event&) = delete;
  ~own_event() { CHECK(cudaEventDestroy(handle_) == 0); }
  operator void*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

/// Device memory of the current device, freed at the end of the scope.
template <class T>
class on_device {
 public:
  explicit on_device(std::size_t count) { REQUIRE(cudaMalloc(&memory_, count * sizeof(T)) == 0); }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;
  ~on_device() { CHECK(cudaFree(memory_) == 0); }
  T* data() const { return static_cast<T*>(memory_); }

 private:
  void* memory_ = nullptr;
};
