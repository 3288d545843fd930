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

template <class T>
  requires(std::is_void_v<T> || result_value<T>)
class result;

namespace detail {
template <class R>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<result<T>> = true;
}  // namespace detail

/// A `result` of something: what a function gives that `and_then` and `or_else` can go on with.
template <class R>
concept some_result = detail::is_result<std::remove_cvref_t<R>>;

/// What `and_then` calls with the value: it gives another result.
template <class F, class... Value>
concept result_continuation = std::invocable<F, Value...> && some_result<std::invoke_result_t<F, Value...>>;

/// A T or an `error`, with the names of C++23's std::expected. Tests as true when it holds a T. `*r` and `r->` require
/// that, `error()` the opposite; `value()` throws `exception`. An error goes on to the caller by
/// `if (!r) return std::move(r).error();`, or a chain of `and_then`, `transform` and `or_else` carries it.
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
  /// The value, or `otherwise` where there is none.
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

  /// `next(value)`, which is a result; or this one's error.
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
  /// A result of what `change(value)` gives; or this one's error.
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
  /// The value; or `instead(error)`, which is a result of the same type or of another error.
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
  // Not defaulted: `{}` would clear the room of the error too, which small moves would feel.
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

  /// `next()`, which is a result; or this one's error.
  template <result_continuation<> Next>
  std::remove_cvref_t<std::invoke_result_t<Next>> and_then(Next&& next) && {
    if (error_) return std::move(*error_);
    return std::invoke(std::forward<Next>(next));
  }
  /// A result of what `change()` gives; or this one's error.
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
  /// Success; or `instead(error)`, which is a result<void> or another error.
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
