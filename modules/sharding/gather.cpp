// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh::detail {
namespace {

result<void> check_arguments(const movable_tensor& tensor, std::int32_t destination_rank,
                             const result<std::optional<tensor_view>>& destination, communicator_ref comm) {
  SHARDMESH_TRY(check_movable(tensor.metadata, tensor.views, tensor.nesting, tensor.group, tensor.rank, comm));
  if (destination_rank < 0 || destination_rank >= tensor.group.size())
    return fail(errc::invalid_argument, "the destination rank is not in the group")
        .with_values(fmt::format("0 to {}", tensor.group.size() - 1), std::to_string(destination_rank));
  if (!destination) return destination.error();
  const std::int32_t here = tensor.group.global(tensor.rank), there = tensor.group.global(destination_rank);
  SHARDMESH_TRY(validate_output_tensor_for_gather(here, there, tensor.metadata.size, *destination));
  if (*destination && (*destination)->type != tensor.metadata.properties.type)
    return fail(errc::dtype_mismatch, "the destination tensor of a gather does not have the tensor's dtype")
        .with_rank(here)
        .with_values(std::string(name(tensor.metadata.properties.type)), std::string(name((*destination)->type)));
  if (*destination) return shardmesh::check_reachable(**destination);
  return {};
}

}  // namespace

result<void> gather(movable_tensor tensor, std::int32_t destination_rank,
                    const result<std::optional<tensor_view>>& destination, communicator_ref comm,
                    const call_options& call) {
  auto mine = check_arguments(tensor, destination_rank, destination, comm);
  auto from = distribution_of(tensor.metadata, tensor.group);
  if (mine && !from) mine = from.error();
  SHARDMESH_TRY(const auto begun,
                begin(comm, tensor.group, "arguments of gather",
                      {{"destination rank", std::to_string(destination_rank)}, {"tensor", to_string(tensor.metadata)}},
                      mine, {}, call));
  SHARDMESH_TRY(const auto to, all_on(destination_rank, tensor.metadata.size, tensor.group));
  std::vector<tensor_view> whole;
  if (*destination) whole.push_back(**destination);
  return move(*from, to, tensor.metadata.properties.type, std::move(tensor.views), std::move(whole), comm, call);
}

}  // namespace shardmesh::detail
