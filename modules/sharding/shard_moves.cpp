// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh::detail {

result<void> check_movable(const sharded_tensor_metadata& metadata, std::span<const const_tensor_view> views,
                           std::int32_t nesting, const rank_group& group, std::int32_t rank, communicator_ref comm) {
  SHARDMESH_TRY(check_same_ranks(comm, group));
  if (rank != comm.rank())
    return fail(errc::invalid_argument, "the tensor and the communicator are of different ranks")
        .with_rank(comm.rank())
        .with_values(std::to_string(comm.rank()), std::to_string(rank));
  if (nesting > 0)
    return fail(errc::unsupported, "a tensor with nested shards cannot be moved as it is")
        .with_rank(group.global(rank))
        .with_hint("flatten its shards first (flatten_nested_shards)");
  for (const const_tensor_view& view : views)
    if (view.type != metadata.properties.type)
      return fail(errc::dtype_mismatch, "a local shard does not have the tensor's dtype")
          .with_rank(group.global(rank))
          .with_values(std::string(name(metadata.properties.type)), std::string(name(view.type)));
  return check_reachable(views);
}

result<void> check_reachable(std::span<const const_tensor_view> views) {
  for (const const_tensor_view& view : views) SHARDMESH_TRY(shardmesh::check_reachable(view));
  return {};
}

error allocation_failed(const extents& sizes, std::string why) {
  return fail(errc::no_memory, fmt::format("a tensor of {} cannot be allocated: {}", to_string(sizes), why));
}

result<void> check_allocated(const const_tensor_view& made, dtype type, const extents& sizes) {
  if (made.type == type && made.sizes == sizes) return shardmesh::check_reachable(made);
  return fail(made.type == type ? errc::shape_mismatch : errc::dtype_mismatch,
              "the adapter's allocate did not make the requested tensor")
      .with_values(fmt::format("{} {}", name(type), to_string(sizes)),
                   fmt::format("{} {}", name(made.type), to_string(made.sizes)));
}

result<void> check_same_ranks(communicator_ref comm, const rank_group& group) {
  if (comm.size() == group.size()) return {};
  return fail(errc::invalid_argument, "the communicator and the group differ in size")
      .with_rank(comm.rank())
      .with_values(std::to_string(group.size()), std::to_string(comm.size()));
}

result<agreement_notes> begin(communicator_ref comm, const rank_group& group, std::string what,
                              std::vector<agreement_record> arguments, const result<void>& mine,
                              std::vector<std::byte> note, const call_options& call) {
  const auto globals = group.globals();
  const digest128 digest = digest_of(std::vector<std::int64_t>(globals.begin(), globals.end()));
  // The text of a long list is shortened; the digest distinguishes such lists.
  arguments.push_back(
      {"group", group.size() <= 16 ? to_string(group) : fmt::format("{} ({:x})", to_string(group), digest.low)});
  std::optional<error> problem;
  if (!mine) problem = comm.rank() < group.size() ? reported_by(mine.error(), group.global(comm.rank())) : mine.error();
  return agree(comm, arguments,
               {.what = std::move(what), .note = std::move(note), .problem = problem ? &*problem : nullptr}, call);
}

result<void> move(const distribution& from, const distribution& to, dtype type, std::vector<const_tensor_view> source,
                  std::vector<tensor_view> destination, communicator_ref comm, const call_options& call) {
  // Every rank computes the same plan or the same error.
  SHARDMESH_TRY(auto planned, plan({tensor_transfer{from, to, type, type}}));
  SHARDMESH_TRY(auto runner, executor::make(std::move(planned), comm, {}, {}, call));
  const const_tensor_binding sources{std::move(source)};
  const tensor_binding destinations{std::move(destination)};
  return runner.run(std::span(&sources, 1), std::span(&destinations, 1), call);
}

result<distribution> all_on(std::int32_t rank, const extents& size, const rank_group& group) {
  distribution_builder builder(size, owner_space::ranks);
  builder.at_least_owners(group.size());
  builder.add(rank, 0, extents::filled(size.rank(), 0), size);
  return builder.finish();
}

result<destination> destination_of(const sharding_spec& spec, const extents& size, const tensor_properties& properties,
                                   const rank_group& group) {
  SHARDMESH_TRY(auto metadata, build_metadata(spec, size, properties));
  SHARDMESH_TRY(auto held, distribution_of(spec, size, group));
  return destination{std::move(metadata), std::move(held)};
}

}  // namespace shardmesh::detail
