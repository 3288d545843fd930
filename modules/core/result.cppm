// SPDX-License-Identifier: Apache-2.0
// result<T>: a value or an error, for what can fail in good programs.
module;
#include <shardmesh/assert.hpp>
export module shardmesh.core:result;

import shardmesh.std;
import :error;

export namespace shardmesh {

/// What a result can hold: an object type that is not itself an error. T may still be incomplete here, so that a class
/// can declare a factory that returns result of itself; it must be move-constructible where the result is used.
template <class T>
concept result_value = std::is_object_v<T> && !std::is_array_v<T> && !std::same_as<std::remove_cv_t<T>, error>;

/// A T or an `error`. Tests as true when it holds a T. `*r` and `r->` require that; `value()` throws `exception`.
template <class T>
  requires(std::is_void_v<T> || result_value<T>)
class [[nodiscard]] result {
 public:
  using value_type = T;
  result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  result(error e) : state_(std::in_place_index<1>, std::move(e)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& operator*() & { return SHARDMESH_ASSERT(has_value()), *std::get_if<0>(&state_); }
  const T& operator*() const& { return SHARDMESH_ASSERT(has_value()), *std::get_if<0>(&state_); }
  T&& operator*() && { return SHARDMESH_ASSERT(has_value()), std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return SHARDMESH_ASSERT(has_value()), std::get_if<0>(&state_); }
  const T* operator->() const { return SHARDMESH_ASSERT(has_value()), std::get_if<0>(&state_); }

  T& value() & { return check(), **this; }
  const T& value() const& { return check(), **this; }
  T&& value() && { return check(), *std::move(*this); }

  const error& cause() const { return SHARDMESH_ASSERT(!has_value()), *std::get_if<1>(&state_); }
  error take_error() && { return SHARDMESH_ASSERT(!has_value()), std::move(*std::get_if<1>(&state_)); }

 private:
  void check() const {
    if (!has_value()) throw exception(cause());
  }
  std::variant<T, error> state_;
};

/// Success, or an `error`.
template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;
  result() = default;
  result(error e) : error_(std::move(e)) {}

  bool has_value() const noexcept { return !error_; }
  explicit operator bool() const noexcept { return has_value(); }
  void operator*() const {}
  void value() const {
    if (error_) throw exception(*error_);
  }
  const error& cause() const { return SHARDMESH_ASSERT(error_), *error_; }
  error take_error() && { return SHARDMESH_ASSERT(error_), std::move(*error_); }

 private:
  std::optional<error> error_;
};

}  // namespace shardmesh
