// SPDX-License-Identifier: Apache-2.0
// A call of a function that the double implements: holds the engine's lock, counts the call, and takes the fault that a
// test planted for it.
#pragma once
#include "engine.hpp"
#include "gpu_double.h"

#include <optional>
#include <string_view>

namespace gpu_double {

struct fault {
  int action = 0;
  int code = 0;
};

class call {
 public:
  /// `who` is the device (libcudart) or the rank (libnccl).
  call(const char* function, int who);
  /// The code to return at once, if a planted fault fails this call.
  std::optional<int> failed_at_once() const;
  /// The fault that the work will have.
  fault planted() const { return fault_; }
  bool is(int action) const { return fault_.action == action; }
  engine_lock& lock() { return lock_; }
  const char* function() const { return function_; }

  static void reset();
  static std::int64_t count(std::string_view function);
  static std::int64_t count_of_children();
  static void plant(std::string function, int who, int nth, fault what);

 private:
  engine_lock lock_;
  const char* function_;
  fault fault_;
};

}  // namespace gpu_double
