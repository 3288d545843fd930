// SPDX-License-Identifier: Apache-2.0
// state_value<T>: one leaf of a state dict, a tensor of some kind or a plain value. Comparing two of them is in
// difference; trees of them are in dict.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.state:value;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :indirect;

export namespace shardmesh {

/// The kind of a leaf. The order is that of the alternatives of `state_value`.
enum class value_kind : std::uint8_t {
  none,
  boolean,
  integer,
  floating,
  text,
  bytes,
  object,
  tensor,
  sharded_tensor,
  dtensor
};

/// "none", "bool", "int", "float", "str", "bytes", "object", "tensor", "sharded tensor", "dtensor".
std::string_view name(value_kind kind);

/// Integer types whose values all fit in 64 signed bits; not bool and not characters.
template <class I>
concept state_integer = std::integral<I> && !std::same_as<I, bool> && !std::same_as<I, char> &&
                        !std::same_as<I, wchar_t> && !std::same_as<I, char8_t> && !std::same_as<I, char16_t> &&
                        !std::same_as<I, char32_t> && (sizeof(I) < 8 || (sizeof(I) == 8 && std::is_signed_v<I>));

/// float or double.
template <class F>
concept state_float = std::same_as<F, float> || std::same_as<F, double>;

/// One leaf: nothing, a plain value, a tensor T, or a sharded tensor or dtensor of T. Copyable if T is. A moved-from
/// value is unspecified.
template <local_tensor T>
class state_value {
 public:
  using tensor_type = T;

  state_value() = default;
  template <std::same_as<bool> B>
  state_value(B value) : held_(std::in_place_index<1>, value) {}  // NOLINT: implicit, like all of these
  template <state_integer I>
  state_value(I value) : held_(std::in_place_index<2>, static_cast<std::int64_t>(value)) {}  // NOLINT
  template <state_float F>
  state_value(F value) : held_(std::in_place_index<3>, static_cast<double>(value)) {}             // NOLINT
  state_value(std::string value) : held_(std::in_place_index<4>, std::move(value)) {}             // NOLINT
  state_value(std::string_view value) : held_(std::in_place_index<4>, value) {}                   // NOLINT
  state_value(const char* value) : held_(std::in_place_index<4>, value) {}                        // NOLINT
  state_value(std::vector<std::byte> value) : held_(std::in_place_index<5>, std::move(value)) {}  // NOLINT
  state_value(opaque_object value) : held_(std::in_place_index<6>, std::move(value)) {}           // NOLINT
  state_value(T value) : held_(std::in_place_index<7>, std::move(value)) {}                       // NOLINT
  state_value(shardmesh::sharded_tensor<T> value)
      : held_(std::in_place_index<8>, sharded_box(std::move(value))) {}                                       // NOLINT
  state_value(shardmesh::dtensor<T> value) : held_(std::in_place_index<9>, dtensor_box(std::move(value))) {}  // NOLINT

  /// Refuses a number of another type, which might lose its value.
  template <class N>
    requires(std::is_arithmetic_v<N> && !std::same_as<N, bool> && !state_integer<N> && !state_float<N>)
  state_value(N value) = SHARDMESH_REFUSE(
      "a state dict holds integers of 64 signed bits, float and double: say which, by a static_cast to one of them");

  value_kind kind() const { return static_cast<value_kind>(held_.index()); }
  bool is_none() const { return held_.index() == 0; }

  // Each returns the held value, or null if the leaf has another kind.
  bool* boolean() { return std::get_if<1>(&held_); }
  const bool* boolean() const { return std::get_if<1>(&held_); }
  std::int64_t* integer() { return std::get_if<2>(&held_); }
  const std::int64_t* integer() const { return std::get_if<2>(&held_); }
  double* floating() { return std::get_if<3>(&held_); }
  const double* floating() const { return std::get_if<3>(&held_); }
  std::string* text() { return std::get_if<4>(&held_); }
  const std::string* text() const { return std::get_if<4>(&held_); }
  std::vector<std::byte>* bytes() { return std::get_if<5>(&held_); }
  const std::vector<std::byte>* bytes() const { return std::get_if<5>(&held_); }
  opaque_object* object() { return std::get_if<6>(&held_); }
  const opaque_object* object() const { return std::get_if<6>(&held_); }
  T* tensor() { return std::get_if<7>(&held_); }
  const T* tensor() const { return std::get_if<7>(&held_); }
  shardmesh::sharded_tensor<T>* sharded_tensor() { return inside<8>(held_); }
  const shardmesh::sharded_tensor<T>* sharded_tensor() const { return inside<8>(held_); }
  shardmesh::dtensor<T>* dtensor() { return inside<9>(held_); }
  const shardmesh::dtensor<T>* dtensor() const { return inside<9>(held_); }

 private:
  using sharded_box = detail::indirect<shardmesh::sharded_tensor<T>, std::copy_constructible<T>>;
  using dtensor_box = detail::indirect<shardmesh::dtensor<T>, std::copy_constructible<T>>;

  template <std::size_t I, class Variant>
  static auto inside(Variant& held) -> decltype(&**std::get_if<I>(&held)) {
    auto* box = std::get_if<I>(&held);
    return box ? &**box : nullptr;
  }

  std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::byte>, opaque_object, T,
               sharded_box, dtensor_box>
      held_;
};

/// Returns whether the value is a T, a sharded tensor, or a dtensor. PyTorch counts these as tensors when it decides
/// which containers to descend into.
template <local_tensor T>
bool is_tensor(const state_value<T>& value) {
  return value.kind() >= value_kind::tensor;
}

}  // namespace shardmesh
