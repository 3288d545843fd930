// SPDX-License-Identifier: Apache-2.0
// The concepts of module sharding, with types that satisfy them and types that do not. Compiling is the test.
#include <shardmesh/shard_adapter.hpp>

#include <array>
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
import shardmesh.layout;
import shardmesh.sharding;

namespace sharding_checks {

// A tensor that can be copied, cannot be allocated, and has properties.
struct view_only {
  float* data = nullptr;
};
// A tensor that functions can allocate.
struct made {};
// A type without an adapter.
struct foreign {};

// A type of another project that has its own `distribution_of`.
struct replicated {
  std::int64_t length = 0;
};
inline shardmesh::result<shardmesh::distribution> distribution_of(const replicated&) {
  return shardmesh::distribution();
}
// Metadata, a shard, and a sharded tensor of another project.
struct piece {
  std::vector<std::int64_t> at, length;
};
struct piece_elsewhere : piece {};  // an adapter without placement
struct piece_of_floats : piece {};  // an adapter that returns numbers of another kind
struct piece_by_value : piece {};   // an adapter that returns a temporary vector
struct all_pieces {
  std::vector<piece> pieces;
};
struct held {};
struct held_by_value {};  // an adapter that returns temporary metadata
struct cut {};

// A type whose `distribution_of` has another signature.
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

template <>
struct shardmesh::shard_metadata_adapter<sharding_checks::piece> {
  static const std::vector<std::int64_t>& offsets(const sharding_checks::piece& p) { return p.at; }
  static extents sizes(const sharding_checks::piece& p) { return extents(p.length); }
  static std::optional<remote_device> placement(const sharding_checks::piece&) { return std::nullopt; }
};
template <>
struct shardmesh::shard_metadata_adapter<sharding_checks::piece_elsewhere> {
  static extents offsets(const sharding_checks::piece& p) { return extents(p.at); }
  static extents sizes(const sharding_checks::piece& p) { return extents(p.length); }
};
template <>
struct shardmesh::shard_metadata_adapter<sharding_checks::piece_of_floats>
    : shard_metadata_adapter<sharding_checks::piece> {
  static std::vector<float> sizes(const sharding_checks::piece&) { return {}; }
};
template <>
struct shardmesh::shard_metadata_adapter<sharding_checks::piece_by_value>
    : shard_metadata_adapter<sharding_checks::piece> {
  static std::vector<std::int64_t> sizes(const sharding_checks::piece& p) { return p.length; }
};
template <>
struct shardmesh::sharded_tensor_metadata_adapter<sharding_checks::all_pieces> {
  static std::span<const sharding_checks::piece> shards(const sharding_checks::all_pieces& a) { return a.pieces; }
  static extents size(const sharding_checks::all_pieces&) { return {}; }
  static tensor_properties properties(const sharding_checks::all_pieces&) { return {}; }
};
template <>
struct shardmesh::shard_adapter<sharding_checks::held> {
  static const sharding_checks::piece& metadata(const sharding_checks::held&);
  static tensor_view view(const sharding_checks::held&);
};
template <>
struct shardmesh::shard_adapter<sharding_checks::held_by_value> {
  static sharding_checks::piece metadata(const sharding_checks::held_by_value&);
  static tensor_view view(const sharding_checks::held_by_value&);
};
template <>
struct shardmesh::sharded_tensor_adapter<sharding_checks::cut> {
  static const sharding_checks::all_pieces& metadata(const sharding_checks::cut&);
  static std::span<const sharding_checks::held> local_shards(const sharding_checks::cut&);
  static std::vector<std::int32_t> global_ranks(const sharding_checks::cut&);
  static std::int32_t rank(const sharding_checks::cut&);
};

using namespace shardmesh;
using namespace sharding_checks;

namespace {

template <class T>
concept shardable = requires { typename shard<T>; } && requires { typename sharded_tensor<T>; };
static_assert(shardable<view_only> && shardable<made> && shardable<host_tensor>);
static_assert(!shardable<foreign> && !shardable<int> && !shardable<std::vector<float>>);

// Sharded tensors copy if their tensors do, and always move.
static_assert(std::copy_constructible<shard<view_only>> && std::copy_constructible<sharded_tensor<view_only>>);
static_assert(!std::copy_constructible<shard<host_tensor>> && !std::copy_constructible<sharded_tensor<host_tensor>>);
static_assert(std::movable<shard<host_tensor>> && std::movable<sharded_tensor<host_tensor>>);
static_assert(!std::default_initializable<shard<view_only>> && !std::default_initializable<sharded_tensor<view_only>>);

// Types with a distribution.
static_assert(distributed<sharded_tensor<view_only>> && distributed<dtensor<host_tensor>>);
static_assert(distributed<layout> && distributed<distribution> && distributed<replicated>);
static_assert(!distributed<mistaken> && !distributed<view_only> && !distributed<shard<view_only>>);
static_assert(distributed_object<layout> && distributed_object<replicated> && !distributed_object<distribution> &&
              !distributed_object<view_only>);
static_assert(!distributed<sharding_spec> && !distributed<sharded_tensor_metadata> && !distributed<int>);

// Functions that make tensors need an adapter that can allocate; the others do not.
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

// Every distributed type can be queried, planned, drawn, and moved.
template <class D>
concept asked = requires(const D& d, host_tensor& local) {
  { fragments_of(d, 0) } -> std::same_as<result<std::vector<fragment>>>;
  { plan(d, d, dtype::float32) } -> std::same_as<result<transfer_plan>>;
  {
    for_each_element(d, 0, [](const extents&, const extents&) {})
  } -> std::same_as<result<void>>;
  {
    for_each_element<float>(d, 0, local, [](const extents&, float&) {})
  } -> std::same_as<result<void>>;
};
template <class D, class Side, class Report, class Text>
concept answered = requires(const D& d, host_tensor& local) {
  { side_of(d, local) } -> std::same_as<Side>;
  { side_of(d, dtype::float32) } -> std::same_as<Side>;
  { check_cover(d) } -> std::same_as<Report>;
  { draw_layout(d) } -> std::same_as<Text>;
  { svg_layout(d) } -> std::same_as<Text>;
};
template <class D>
concept answered_or_not = answered<D, result<tensor_side>, result<cover_report>, result<std::string>>;
static_assert(asked<layout> && asked<distribution> && asked<dtensor<host_tensor>> && asked<sharded_tensor<view_only>> &&
              asked<replicated>);
static_assert(!asked<mistaken> && !asked<view_only> && !asked<sharded_tensor_metadata>);
static_assert(answered_or_not<layout> && answered_or_not<dtensor<made>> && answered_or_not<sharded_tensor<made>> &&
              answered_or_not<replicated>);
static_assert(answered<distribution, tensor_side, cover_report, std::string> && !answered_or_not<mistaken> &&
              !answered_or_not<int>);

// Numbers that an adapter may return: references to existing ones, or extents.
static_assert(shard_numbers<extents> && shard_numbers<const extents&> && shard_numbers<std::span<const std::int64_t>> &&
              shard_numbers<const std::vector<std::int64_t>&> && shard_numbers<std::array<std::int64_t, 2>&>);
static_assert(!shard_numbers<std::vector<std::int64_t>> && !shard_numbers<const std::vector<int>&> &&
              !shard_numbers<std::int64_t>);
static_assert(shard_metadata_like<shard_metadata> && shard_metadata_like<piece>);
static_assert(!shard_metadata_like<piece_elsewhere> && !shard_metadata_like<piece_of_floats> &&
              !shard_metadata_like<piece_by_value> && !shard_metadata_like<foreign> && !shard_metadata_like<box> &&
              !shard_metadata_like<sharded_tensor_metadata>);
static_assert(shard_metadata_range<std::vector<piece>> && shard_metadata_range<std::span<const shard_metadata>> &&
              shard_metadata_range<std::array<shard_metadata, 3>>);
static_assert(!shard_metadata_range<std::list<piece>> && !shard_metadata_range<std::vector<box>> &&
              !shard_metadata_range<shard_metadata>);
static_assert(std::convertible_to<std::vector<piece>, shard_metadata_list> &&
              std::convertible_to<std::span<const shard_metadata>, shard_metadata_list> &&
              !std::convertible_to<std::vector<box>, shard_metadata_list>);
static_assert(sharded_tensor_metadata_like<sharded_tensor_metadata> && sharded_tensor_metadata_like<all_pieces>);
static_assert(!sharded_tensor_metadata_like<piece> && !sharded_tensor_metadata_like<std::vector<piece>>);
static_assert(gathered_metadata_range<std::vector<std::optional<sharded_tensor_metadata>>> &&
              gathered_metadata_range<std::vector<all_pieces>> &&
              gathered_metadata_range<std::vector<const all_pieces*>>);
static_assert(!gathered_metadata_range<std::vector<piece>> &&
              !gathered_metadata_range<std::list<sharded_tensor_metadata>> && !gathered_metadata_range<int>);
static_assert(shard_like<held> && shard_like<const held> && shard_like<shard<host_tensor>> &&
              shard_like<shard<view_only>>);
static_assert(!shard_like<held_by_value> && !shard_like<piece> && !shard_like<host_tensor> && !shard_like<foreign>);
static_assert(shard_range<std::vector<held>> && shard_range<std::span<const shard<host_tensor>>>);
static_assert(!shard_range<std::list<held>> && !shard_range<held> && !shard_range<std::vector<host_tensor>>);
static_assert(sharded_tensor_like<cut> && sharded_tensor_like<sharded_tensor<host_tensor>>);
static_assert(!sharded_tensor_like<held> && !sharded_tensor_like<dtensor<host_tensor>> && !sharded_tensor_like<int>);

// Functions that are called with elements.
using of_indices = decltype([](const extents&, const extents&) {});
using of_elements = decltype([](const extents&, float&) {});
using of_const_elements = decltype([](const extents&, const float&) { return 1; });
static_assert(index_visitor<of_indices> && !index_visitor<of_elements> && !index_visitor<int>);
static_assert(element_visitor<of_elements, float> && element_visitor<of_const_elements, const float> &&
              element_visitor<of_const_elements, float>);
static_assert(!element_visitor<of_elements, const float> && !element_visitor<of_indices, float> &&
              !element_visitor<of_elements, double>);
template <class X, class F>
concept visited = requires(X& x, F f) { for_each_element<float>(x, f); };
static_assert(visited<dtensor<host_tensor>, of_elements> && visited<const dtensor<host_tensor>, of_const_elements> &&
              visited<shard<host_tensor>, of_elements> && visited<held, of_elements>);
static_assert(!visited<const dtensor<host_tensor>, of_elements> && !visited<const held, of_elements> &&
              !visited<dtensor<host_tensor>, of_indices> && !visited<view_only, of_elements>);
template <class T>
concept allocates = requires(const layout& l) { dtensor<T>::allocate(l, 0, dtype::float32); };
static_assert(allocates<host_tensor> && allocates<made> && !allocates<view_only>);
static_assert(std::copy_constructible<dtensor<view_only>> && !std::copy_constructible<dtensor<host_tensor>> &&
              std::movable<dtensor<host_tensor>>);

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

static_assert(split_size(10, 4) == 3 && chunked_dim_size(10, 3, 3) == 1 && chunked_dim_size(10, 3, 4) == 0);

}  // namespace

TEST_CASE("properties come from the adapter where it has them") {
  CHECK(properties_of(view_only{}).requires_grad);
  CHECK(properties_of(made{}) == tensor_properties{.type = dtype::undefined});
}
