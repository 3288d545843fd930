// SPDX-License-Identifier: Apache-2.0
// What is a tensor, what can be in a result, what prints, and what is not. Compiling is the test.
#include <shardmesh/adapter.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
import shardmesh;

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
}  // namespace user

template <>
struct shardmesh::adapter<user::matrix> {
  static tensor_view view(const user::matrix&);
  static user::matrix allocate(dtype, const extents&, device);
};
template <>
struct shardmesh::adapter<user::borrowed> {
  static tensor_view view(const user::borrowed&);
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

static_assert(allocatable_tensor<user::matrix> && allocatable_tensor<host_tensor>);
static_assert(!allocatable_tensor<user::borrowed>, "an adapter without allocate");
static_assert(!allocatable_tensor<user::misshapen>, "allocate alone is not enough");

static_assert(result_value<int> && result_value<std::string> && result_value<std::unique_ptr<int>>);
static_assert(!result_value<int&> && !result_value<int[3]> && !result_value<error> && !result_value<const error>);

static_assert(printable<box> && printable<extents> && printable<layout> && printable<path> &&
              printable<dtype_kind> == false);
static_assert(!printable<user::plain> && !printable<int>);

// The smallest models of what the executor reads from and writes to.
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
struct sink_of_mutable_bytes {
  result<void> write(item_id, std::int64_t, std::span<std::byte>);
};

static_assert(item_source<zeros> && item_source<any_item_source>);
static_assert(!item_source<nothing_in_order> && !item_source<reads_without_result> && !item_source<sink>);
static_assert(item_sink<sink> && item_sink<any_item_sink>);
static_assert(!item_sink<sink_of_mutable_bytes> && !item_sink<zeros>);

}  // namespace
