// SPDX-License-Identifier: Apache-2.0
// Which types are tensors, can be in a result, or print, and which are not. Compiling is the test.
#include <shardmesh/adapter.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.core;
import shardmesh.transfer;

namespace user {
struct matrix {
  std::vector<float> values;
  std::int64_t rows = 0, columns = 0;
};
struct borrowed {
  float* values = nullptr;
};
struct misshapen {};
struct plain {};
struct read_only {
  std::vector<float> values;
};
struct owner {
  std::vector<float> values;
};
}  // namespace user

template <>
struct shardmesh::adapter<user::matrix> {
  static tensor_view view(user::matrix&);
  static user::matrix allocate(dtype, const extents&, device);
};
template <>
struct shardmesh::adapter<user::borrowed> {
  static tensor_view view(const user::borrowed&);
};
template <>
struct shardmesh::adapter<user::read_only> {
  static const_tensor_view view(const user::read_only&);
};
template <>
struct shardmesh::adapter<user::owner> {
  static tensor_view view(user::owner&);
  static const_tensor_view view(const user::owner&);
};
template <>
struct shardmesh::adapter<user::misshapen> {
  static float* view(const user::misshapen&);
  static user::misshapen allocate(dtype, const extents&, device);
};

namespace {
using namespace shardmesh;

static_assert(local_tensor<user::matrix> && local_tensor<const user::matrix>);
static_assert(local_tensor<host_tensor>);
static_assert(local_tensor<user::borrowed>);
static_assert(!local_tensor<user::misshapen>, "a view is a tensor_view");
static_assert(!local_tensor<user::plain>, "no adapter");
static_assert(!local_tensor<user::matrix*> && !local_tensor<float> && !local_tensor<std::vector<float>>);

static_assert(local_tensor<user::owner> && local_tensor<const user::owner>);
static_assert(!local_tensor<user::read_only>, "what cannot be written cannot be loaded into");

// A writable view converts to a read-only one, never the reverse.
static_assert(std::is_convertible_v<tensor_view, const_tensor_view>);
static_assert(!std::is_convertible_v<const_tensor_view, tensor_view>);
static_assert(!std::is_constructible_v<tensor_view, const_tensor_view>);
static_assert(std::is_same_v<decltype(const_tensor_view::data), const std::byte*>);
static_assert(tensor_view_type<tensor_view> && tensor_view_type<const_tensor_view>);
static_assert(!tensor_view_type<const tensor_view> && !tensor_view_type<box> && !tensor_view_type<std::byte*>);
template <class T>
using view_of_lvalue = decltype(view_of(std::declval<T&>()));
static_assert(std::is_same_v<view_of_lvalue<host_tensor>, tensor_view>);
static_assert(std::is_same_v<view_of_lvalue<const host_tensor>, const_tensor_view>);
static_assert(std::is_same_v<view_of_lvalue<user::owner>, tensor_view>);
static_assert(std::is_same_v<view_of_lvalue<const user::owner>, const_tensor_view>);
// Adapters with a single view function: for a non-const tensor, or for a handle whose constness does not matter.
static_assert(std::is_same_v<view_of_lvalue<const user::matrix>, const_tensor_view>);
static_assert(std::is_same_v<view_of_lvalue<const user::borrowed>, const_tensor_view>);
template <class T>
concept viewed_as_temporary = requires(T&& t) { view_of(std::move(t)); };
static_assert(!viewed_as_temporary<host_tensor> && !viewed_as_temporary<const host_tensor>);

// The same holds for types made of views: bindings, sides of a move, and local states.
template <class Writable, class Read>
inline constexpr bool is_one_way = std::is_convertible_v<Writable, Read> && !std::is_convertible_v<Read, Writable>;
static_assert(is_one_way<tensor_binding, const_tensor_binding>);
static_assert(is_one_way<tensor_side, const_tensor_side>);
static_assert(is_one_way<local_part, const_local_part> && is_one_way<local_state_tensor, const_local_state_tensor>);
static_assert(is_one_way<local_state, const_local_state>);
static_assert(std::is_same_v<decltype(side_of(distribution(), std::declval<host_tensor&>())), tensor_side>);
static_assert(std::is_same_v<decltype(side_of(distribution(), std::declval<const host_tensor&>())), const_tensor_side>);
static_assert(
    std::is_same_v<decltype(local_view(std::declval<const state_dict<host_tensor>&>())), result<const_local_state>>);

static_assert(allocatable_tensor<user::matrix> && allocatable_tensor<host_tensor>);
static_assert(!allocatable_tensor<user::borrowed>, "an adapter without allocate");
static_assert(!allocatable_tensor<user::misshapen>, "allocate alone is not enough");

static_assert(result_value<int> && result_value<std::string> && result_value<std::unique_ptr<int>>);
static_assert(!result_value<int&> && !result_value<int[3]> && !result_value<error> && !result_value<const error>);

static_assert(printable<box> && printable<extents> && printable<layout> && printable<path> &&
              printable<dtype_kind> == false);
static_assert(!printable<user::plain> && !printable<int>);

// The smallest models of the executor's sources and sinks.
struct zeros {
  result<void> read(item_id, const box&, const tensor_view&);
  bool reads_in_order(item_id);
};
struct nothing_in_order {
  result<void> read(item_id, const box&, const tensor_view&);
};
struct reads_without_result {
  void read(item_id, const box&, const tensor_view&);
  bool reads_in_order(item_id);
};
struct sink {
  result<void> write(item_id, std::int64_t, std::span<const std::byte>);
};
struct reads_into_const {
  result<void> read(item_id, const box&, const_tensor_view&);
  bool reads_in_order(item_id);
};
struct sink_of_mutable_bytes {
  result<void> write(item_id, std::int64_t, std::span<std::byte>);
};

static_assert(item_source<zeros> && item_source<any_item_source>);
static_assert(!item_source<nothing_in_order> && !item_source<reads_without_result> && !item_source<sink>);
static_assert(!item_source<reads_into_const>, "a source fills what it is given");
static_assert(item_sink<sink> && item_sink<any_item_sink>);
static_assert(!item_sink<sink_of_mutable_bytes> && !item_sink<zeros>);

}  // namespace
