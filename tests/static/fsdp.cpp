// SPDX-License-Identifier: Apache-2.0
// What streams of tensors are given to, and that flat parameters are values.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <string_view>
#include <type_traits>
import shardmesh;

using namespace shardmesh;

namespace {

struct takes_tensor {
  void operator()(std::string_view key, host_tensor tensor);
};
struct can_fail {
  result<void> operator()(std::string_view key, host_tensor tensor);
};
struct takes_key_only {
  void operator()(std::string_view key);
};
struct answers_otherwise {
  bool operator()(std::string_view key, host_tensor tensor);
};

static_assert(tensor_visitor<takes_tensor, host_tensor>);
static_assert(tensor_visitor<can_fail, host_tensor>);
static_assert(!tensor_visitor<takes_key_only, host_tensor>);
static_assert(!tensor_visitor<answers_otherwise, host_tensor>);  // an answer that nobody reads

static_assert(std::regular<parameter_info>);
static_assert(std::regular<flat_box>);
static_assert(std::regular<load_entry>);
static_assert(std::copyable<flat_parameter> && std::equality_comparable<flat_parameter>);
static_assert(std::copyable<shard_group> && std::equality_comparable<shard_group>);
static_assert(std::is_default_constructible_v<flat_parameter> && std::is_default_constructible_v<shard_group>);
static_assert(!std::copyable<saved_state<host_tensor>> && std::movable<saved_state<host_tensor>>);

}  // namespace

TEST_CASE("the concepts of state dict streams hold") {
  SUCCEED();
}
