// SPDX-License-Identifier: Apache-2.0
// Memory of tensors, and the small values of the C interface as C++ types.
#pragma once
#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/values.h>
#include <shardmesh/c_api/error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardmesh {
namespace c_api {

/// The element type of a C++ type; UNDEFINED if there is none.
template <class T>
constexpr shardmesh_dtype dtype_of() {
  using plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<plain, bool>) return SHARDMESH_DTYPE_BOOL;
  if constexpr (std::is_same_v<plain, float>) return SHARDMESH_DTYPE_FLOAT32;
  if constexpr (std::is_same_v<plain, double>) return SHARDMESH_DTYPE_FLOAT64;
  if constexpr (std::is_integral_v<plain> && !std::is_same_v<plain, bool>) {
    constexpr bool is_signed = std::is_signed_v<plain>;
    if constexpr (sizeof(plain) == 1) return is_signed ? SHARDMESH_DTYPE_INT8 : SHARDMESH_DTYPE_UINT8;
    if constexpr (sizeof(plain) == 2) return is_signed ? SHARDMESH_DTYPE_INT16 : SHARDMESH_DTYPE_UINT16;
    if constexpr (sizeof(plain) == 4) return is_signed ? SHARDMESH_DTYPE_INT32 : SHARDMESH_DTYPE_UINT32;
    if constexpr (sizeof(plain) == 8) return is_signed ? SHARDMESH_DTYPE_INT64 : SHARDMESH_DTYPE_UINT64;
  }
  return SHARDMESH_DTYPE_UNDEFINED;
}

/// Memory with another owner. Empty strides mean row-major. `Void` is `void` for writable memory, `const void` for
/// read-only.
template <class Void>
struct basic_tensor {
  Void* data = nullptr;
  shardmesh_dtype dtype = SHARDMESH_DTYPE_UNDEFINED;
  std::vector<std::int64_t> sizes, strides{};

  /// The C form; points into this object.
  auto c() const {
    std::conditional_t<std::is_const_v<Void>, shardmesh_const_tensor, shardmesh_tensor> made{};
    if (!strides.empty() && strides.size() != sizes.size())
      throw std::invalid_argument("a tensor must have as many strides as sizes, or none");
    made.data = data;
    made.sizes = sizes.data();
    made.strides = strides.empty() ? nullptr : strides.data();
    made.dtype = dtype;
    made.rank = static_cast<std::int32_t>(sizes.size());
    return made;
  }
};
using tensor = basic_tensor<void>;
using const_tensor = basic_tensor<const void>;

/// Memory whose elements have a C++ type.
template <class T>
tensor view(T* data, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {}) {
  static_assert(dtype_of<T>() != SHARDMESH_DTYPE_UNDEFINED,
                "no element type has this C++ type: make the tensor itself");
  return {data, dtype_of<T>(), std::move(sizes), std::move(strides)};
}
template <class T>
const_tensor view(const T* data, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {}) {
  static_assert(dtype_of<T>() != SHARDMESH_DTYPE_UNDEFINED,
                "no element type has this C++ type: make the tensor itself");
  return {data, dtype_of<T>(), std::move(sizes), std::move(strides)};
}

/// Options for watching a long call. `progress` runs on the calling thread, receives the number of bytes so far, and
/// returns false to stop. An exception from it stops the call and is rethrown.
struct watching {
  std::function<bool(std::int64_t bytes)> progress{};
  std::chrono::milliseconds timeout{0};
};

/// The `shardmesh_call` of a `watching`; valid while this object lives.
class watched_call {
 public:
  explicit watched_call(const watching& how) : how_(how) {
    call_.struct_size = sizeof call_;
    call_.user = this;
    call_.timeout_milliseconds = how.timeout.count();
    if (how.progress) call_.progress = &tell;
  }
  watched_call(const watched_call&) = delete;
  watched_call& operator=(const watched_call&) = delete;
  const shardmesh_call* c() const { return &call_; }

  /// As `checked`, but an exception of `progress` takes precedence.
  template <class Call>
  void run(Call&& call) {
    error_slot slot;
    const shardmesh_status status = call(slot.out());
    if (thrown_) std::rethrow_exception(thrown_);
    slot.check(status);
  }

 private:
  static std::int32_t tell(void* user, std::int64_t bytes) noexcept {
    auto& self = *static_cast<watched_call*>(user);
    try {
      return self.thrown_ || !self.how_.progress(bytes) ? 1 : 0;
    } catch (...) {
      self.thrown_ = std::current_exception();
      return 1;
    }
  }

  const watching& how_;
  shardmesh_call call_{};
  std::exception_ptr thrown_;
};

inline std::string to_string(const shardmesh_text& text) {
  return std::string(text.bytes, text.size);
}

/// The C form of a text, which must not contain a null character. \throws std::invalid_argument
inline const char* c_text(const std::string& text) {
  if (text.find('\0') != std::string::npos) throw std::invalid_argument("a text with a null character in it");
  return text.c_str();
}

/// The C form of `texts`, into which it points.
inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> made;
  for (const std::string& text : texts) made.push_back(c_text(text));
  return made;
}

/// A deleter that frees a handle of the C interface with `Free`.
template <auto Free>
struct free_with {
  template <class Handle>
  void operator()(Handle* handle) const {
    Free(handle);
  }
};

/// Receives a handle from a call, and frees it on every path.
template <class Handle, auto Free>
class made_handle {
 public:
  made_handle() = default;
  made_handle(const made_handle&) = delete;
  made_handle& operator=(const made_handle&) = delete;
  ~made_handle() { Free(made_); }
  Handle** out() { return &made_; }
  const Handle* get() const { return made_; }

 private:
  Handle* made_ = nullptr;
};

}  // namespace c_api
}  // namespace shardmesh
