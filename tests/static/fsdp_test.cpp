// SPDX-License-Identifier: Apache-2.0
// Visitors of streamed tensors, and flat parameters as values.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
import shardmesh;
import shardmesh.fsdp;

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

// One type lacks one of the six functions, and another returns the wrong type.
struct cannot_gather {
  result<flattened_parameter<host_tensor>> pre_flatten_transform(state_value<host_tensor>) const;
  result<dtensor<host_tensor>> post_unflatten_transform(host_tensor, const layout&, std::int32_t) const;
  result<sharded_tensor<host_tensor>> chunk_tensor(const state_value<host_tensor>&, std::int32_t,
                                                   const rank_group&) const;
  result<dtensor<host_tensor>> chunk_dtensor(const state_value<host_tensor>&, std::int32_t) const;
  result<sharded_tensor<host_tensor>> pre_load_state_dict_transform(sharded_tensor<host_tensor>) const;
};
struct can_gather : cannot_gather {
  result<host_tensor> all_gather_dtensor(const dtensor<host_tensor>&, communicator_ref) const;
};
struct gathers_dtensors : cannot_gather {
  result<dtensor<host_tensor>> all_gather_dtensor(const dtensor<host_tensor>&, communicator_ref) const;
};

static_assert(fsdp_extension<tensor_parallel_extension, host_tensor>);
static_assert(fsdp_extension<can_gather, host_tensor>);
static_assert(!fsdp_extension<cannot_gather, host_tensor>);
static_assert(!fsdp_extension<gathers_dtensors, host_tensor>);
static_assert(!fsdp_extension<tensor_parallel_extension, int>);  // int is not a tensor

static_assert(std::regular<parallel_parameter_info>);
static_assert(std::semiregular<parallel_parameters>);
static_assert(std::regular<parameter_info>);
static_assert(std::regular<load_entry>);
// A local view of a model knows whether it is read or written.
static_assert(std::movable<local_model_view> && !std::copyable<local_model_view>);
static_assert(std::same_as<decltype(std::declval<local_model_view&>().to_save()), result<const_local_state>>);
static_assert(std::same_as<decltype(std::declval<const local_model_view&>().to_load()), local_state>);
static_assert(std::copyable<staging_pool> && std::regular<staging_use>);
static_assert(std::copyable<flat_parameter> && std::equality_comparable<flat_parameter>);
static_assert(std::copyable<shard_group> && std::equality_comparable<shard_group>);
static_assert(std::is_default_constructible_v<flat_parameter> && std::is_default_constructible_v<shard_group>);
static_assert(!std::copyable<saved_state<host_tensor>> && std::movable<saved_state<host_tensor>>);

}  // namespace

TEST_CASE("the concepts of state dict streams hold") {
  SUCCEED();
}
