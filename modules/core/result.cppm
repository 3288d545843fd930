// SPDX-License-Identifier: Apache-2.0
// result<T>: a value or an error, for calls that can fail in correct programs.
module;
#include <shardmesh/assert.hpp>
export module shardmesh.core:result;

import shardmesh.std;
import :error;

export namespace shardmesh {

/// A type that a `result` can hold: an object type that is neither an array nor an `error`. T may be incomplete here,
/// so that a class can declare a factory that returns a `result` of itself. T must be move-constructible where the
/// result is used.
template <class T>
concept result_value = std::is_object_v<T> && !std::is_array_v<T> && !std::same_as<std::remove_cv_t<T>, error>;

template <class T>
  requires(std::is_void_v<T> || result_value<T>)
class result;

namespace detail {
template <class R>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<result<T>> = true;
}  // namespace detail

/// Any `result` type. The callable of `and_then` returns one.
template <class R>
concept some_result = detail::is_result<std::remove_cvref_t<R>>;

/// A callable for `and_then`: it takes the value and returns another result.
template <class F, class... Value>
concept result_continuation = std::invocable<F, Value...> && some_result<std::invoke_result_t<F, Value...>>;

/// A T or an `error`, with the names of C++23's std::expected. It converts to true when it holds a T. `*r` and `r->`
/// require a T, and `error()` requires an error; `value()` throws `exception`. To pass an error on, write
/// `if (!r) return std::move(r).error();` or chain `and_then`, `transform`, and `or_else`.
template <class T>
  requires(std::is_void_v<T> || result_value<T>)
class [[nodiscard("a result says whether the call worked: test it, or call value(), which throws")]] result {
 public:
  using value_type = T;
  using error_type = shardmesh::error;
  result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  result(error_type e) : state_(std::in_place_index<1>, std::move(e)) {}

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
  /// Returns the value, or `otherwise` when there is none.
  template <std::convertible_to<T> Other>
  T value_or(Other&& otherwise) const& {
    return has_value() ? **this : static_cast<T>(std::forward<Other>(otherwise));
  }
  template <std::convertible_to<T> Other>
  T value_or(Other&& otherwise) && {
    return has_value() ? *std::move(*this) : static_cast<T>(std::forward<Other>(otherwise));
  }

  const error_type& error() const& { return SHARDMESH_ASSERT(!has_value()), *std::get_if<1>(&state_); }
  error_type&& error() && { return SHARDMESH_ASSERT(!has_value()), std::move(*std::get_if<1>(&state_)); }

  /// Returns the result of `next(value)`, or this error.
  template <result_continuation<const T&> Next>
  std::remove_cvref_t<std::invoke_result_t<Next, const T&>> and_then(Next&& next) const& {
    if (!has_value()) return error();
    return std::invoke(std::forward<Next>(next), **this);
  }
  template <result_continuation<T> Next>
  std::remove_cvref_t<std::invoke_result_t<Next, T>> and_then(Next&& next) && {
    if (!has_value()) return std::move(*this).error();
    return std::invoke(std::forward<Next>(next), *std::move(*this));
  }
  /// Returns a result that holds `change(value)`, or this error.
  template <std::invocable<const T&> Change>
  result<std::remove_cvref_t<std::invoke_result_t<Change, const T&>>> transform(Change&& change) const& {
    if (!has_value()) return error();
    return transformed(std::forward<Change>(change), **this);
  }
  template <std::invocable<T> Change>
  result<std::remove_cvref_t<std::invoke_result_t<Change, T>>> transform(Change&& change) && {
    if (!has_value()) return std::move(*this).error();
    return transformed(std::forward<Change>(change), *std::move(*this));
  }
  /// Returns the value, or `instead(error)`, which is a result of the same type or an error.
  template <std::invocable<error_type> Instead>
    requires std::convertible_to<std::invoke_result_t<Instead, error_type>, result>
  result or_else(Instead&& instead) && {
    if (has_value()) return std::move(*this);
    return std::invoke(std::forward<Instead>(instead), std::move(*this).error());
  }

 private:
  template <class Change, class Value>
  static auto transformed(Change&& change, Value&& value)
      -> result<std::remove_cvref_t<std::invoke_result_t<Change, Value>>> {
    if constexpr (std::is_void_v<std::invoke_result_t<Change, Value>>) {
      std::invoke(std::forward<Change>(change), std::forward<Value>(value));
      return {};
    } else {
      return std::invoke(std::forward<Change>(change), std::forward<Value>(value));
    }
  }
  void check() const {
    if (!has_value()) throw exception(error());
  }
  std::variant<T, error_type> state_;
};

/// Success, or an `error`.
template <>
class [[nodiscard("a result says whether the call worked: test it, or call value(), which throws")]] result<void> {
 public:
  using value_type = void;
  using error_type = shardmesh::error;
  // Not defaulted: `{}` would also zero the storage of the error, which slows small moves measurably.
  result() noexcept {}  // NOLINT(modernize-use-equals-default)
  result(error_type e) : error_(std::move(e)) {}

  bool has_value() const noexcept { return !error_; }
  explicit operator bool() const noexcept { return has_value(); }
  void operator*() const {}
  void value() const {
    if (error_) throw exception(*error_);
  }
  const error_type& error() const& { return SHARDMESH_ASSERT(error_), *error_; }
  error_type&& error() && { return SHARDMESH_ASSERT(error_), std::move(*error_); }

  /// Returns the result of `next()`, or this error.
  template <result_continuation<> Next>
  std::remove_cvref_t<std::invoke_result_t<Next>> and_then(Next&& next) && {
    if (error_) return std::move(*error_);
    return std::invoke(std::forward<Next>(next));
  }
  /// Returns a result that holds `change()`, or this error.
  template <std::invocable Change>
  result<std::remove_cvref_t<std::invoke_result_t<Change>>> transform(Change&& change) && {
    if (error_) return std::move(*error_);
    if constexpr (std::is_void_v<std::invoke_result_t<Change>>) {
      std::invoke(std::forward<Change>(change));
      return {};
    } else {
      return std::invoke(std::forward<Change>(change));
    }
  }
  /// Returns success, or `instead(error)`, which is a `result<void>` or an error.
  template <std::invocable<error_type> Instead>
    requires std::convertible_to<std::invoke_result_t<Instead, error_type>, result>
  result or_else(Instead&& instead) && {
    if (!error_) return {};
    return std::invoke(std::forward<Instead>(instead), std::move(*error_));
  }

 private:
  std::optional<error_type> error_;
};

}  // namespace shardmesh
