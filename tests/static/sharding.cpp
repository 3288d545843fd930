// SPDX-License-Identifier: Apache-2.0
// The concepts of room sharding: what is one and what is not. Compiling is the test.
#include <shardmesh/adapter.hpp>
#include <shardmesh/tensor_properties.hpp>

#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
import shardmesh;

namespace sharding_checks {

// A tensor that copies, cannot be made, and knows its properties.
struct view_only {
  float* data = nullptr;
};
// One that functions can make.
struct made {};
// No adapter.
struct foreign {};

// A type of another project that says who holds it.
struct replicated {
  std::int64_t length = 0;
};
inline shardmesh::result<shardmesh::distribution> distribution_of(const replicated&) {
  return shardmesh::distribution();
}
// One that says it in another way.
struct mistaken {};
inline shardmesh::distribution distribution_of(const mistaken&) {
  return {};
}

}  // namespace sharding_checks

template <>
struct shardmesh::adapter<sharding_checks::view_only> {
  static tensor_view view(const sharding_checks::view_only&) { return {}; }
  static tensor_properties properties(const sharding_checks::view_only&) { return {.requires_grad = true}; }
};
template <>
struct shardmesh::adapter<sharding_checks::made> {
  static tensor_view view(const sharding_checks::made&) { return {}; }
  static sharding_checks::made allocate(dtype, const extents&, device) { return {}; }
};

using namespace shardmesh;
using namespace sharding_checks;

namespace {

template <class T>
concept shardable = requires { typename shard<T>; } && requires { typename sharded_tensor<T>; };
static_assert(shardable<view_only> && shardable<made> && shardable<host_tensor>);
static_assert(!shardable<foreign> && !shardable<int> && !shardable<std::vector<float>>);

// Sharded tensors copy when their tensors do, and always move.
static_assert(std::copy_constructible<shard<view_only>> && std::copy_constructible<sharded_tensor<view_only>>);
static_assert(!std::copy_constructible<shard<host_tensor>> && !std::copy_constructible<sharded_tensor<host_tensor>>);
static_assert(std::movable<shard<host_tensor>> && std::movable<sharded_tensor<host_tensor>>);
static_assert(!std::default_initializable<shard<view_only>> && !std::default_initializable<sharded_tensor<view_only>>);

// What has a distribution.
static_assert(distributed<sharded_tensor<view_only>> && distributed<dtensor<host_tensor>>);
static_assert(distributed<layout> && distributed<distribution> && distributed<replicated>);
static_assert(!distributed<mistaken> && !distributed<view_only> && !distributed<shard<view_only>>);
static_assert(!distributed<sharding_spec> && !distributed<sharded_tensor_metadata> && !distributed<int>);

// Functions that make tensors need an adapter that can; the others do not.
template <class T>
concept gathers = requires(const sharded_tensor<T>& tensor, any_communicator& comm) { gather(tensor, 0, comm); };
template <class T>
concept gathers_into = requires(const sharded_tensor<T>& tensor, any_communicator& comm) {
  gather(tensor, 0, std::optional<tensor_view>(), comm);
};
template <class T>
concept reshards =
    requires(const sharded_tensor<T>& tensor, any_communicator& comm) { reshard(tensor, sharding_spec(), comm); };
template <class T>
concept deals =
    requires(const T* tensor, any_communicator& comm) { shard_tensor(tensor, sharding_spec(), 0, comm, rank_group()); };
static_assert(gathers<made> && gathers<host_tensor> && !gathers<view_only>);
static_assert(gathers_into<made> && gathers_into<view_only>);
static_assert(reshards<made> && reshards<host_tensor> && !reshards<view_only>);
static_assert(deals<made> && deals<host_tensor> && !deals<view_only> && !deals<foreign>);

static_assert(tensor_property<dtype> && tensor_property<bool> && tensor_property<extents>);
static_assert(!tensor_property<int> && !tensor_property<std::string>);
static_assert(size_number<int> && size_number<std::uint64_t> && !size_number<bool> && !size_number<char> &&
              !size_number<double>);
static_assert(size_range<std::vector<int>> && size_range<extents> && size_range<std::span<const short>> &&
              size_range<std::list<long>>);
static_assert(!size_range<std::string> && !size_range<std::vector<bool>> && !size_range<int>);

static_assert(std::regular<shard_metadata> && std::regular<sharded_tensor_metadata> && std::regular<sharding_spec> &&
              std::regular<chunk_sharding_spec> && std::regular<enumerable_sharding_spec> &&
              std::regular<tensor_properties> && std::regular<placed_device>);
static_assert(std::totally_ordered<shard_metadata>);

static_assert(get_split_size(10, 4) == 3 && get_chunked_dim_size(10, 3, 3) == 1 && get_chunked_dim_size(10, 3, 4) == 0);

}  // namespace

TEST_CASE("properties come from the adapter where it has them") {
  CHECK(properties_of(view_only{}).requires_grad);
  CHECK(properties_of(made{}) == tensor_properties{.type = dtype::undefined});
}
