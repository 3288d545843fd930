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

result<dtype> agreed_type(std::optional<dtype> mine, communicator_ref comm, const call_options& call) {
  agree_options agreement{.what = "arguments of redistribute"};
  if (mine) agreement.note.push_back(static_cast<std::byte>(*mine));
  SHARDMESH_TRY(const agreement_notes notes, agree(comm, std::span<const agreement_record>(), agreement, call));
  std::optional<dtype> found;
  std::int32_t first = 0;
  for (std::int32_t rank = 0; rank < comm.size(); ++rank) {
    const std::vector<std::byte>& note = notes[static_cast<std::size_t>(rank)];
    if (note.empty()) continue;
    const auto type = static_cast<dtype>(note[0]);
    if (!found) found = type, first = rank;
    if (type != *found)
      return fail(errc::dtype_mismatch, fmt::format("ranks {} and {} hold parts of different dtypes", first, rank))
          .with_rank(rank)
          .with_values(std::string(name(*found)), std::string(name(type)));
  }
  if (!found) return fail(errc::invalid_argument, "no rank of the communicator holds a part of the tensor");
  return *found;
}

result<void> redistribute(layout_change work, const result<void>& mine, communicator_ref comm,
                          const redistribute_options& options) {
  const auto planned = [&]() -> result<transfer_plan> {
    if (!mine) return mine.error();
    SHARDMESH_TRY(check_reachable(work.source));
    for (const tensor_view& view : work.destination) SHARDMESH_TRY(shardmesh::check_reachable(view));
    // A rank beyond the group is an error even when it would hold nothing: such a mesh is meant for another group.
    for (const device_mesh* mesh : {&work.from.mesh(), &work.to.mesh()})
      if (mesh->rank_limit() > comm.size())
        return fail(errc::invalid_argument,
                    fmt::format("the mesh {} has a rank that is not in the group", to_string(*mesh)))
            .with_rank(mesh->rank_limit() - 1)
            .with_values(fmt::format("ranks 0 to {}", comm.size() - 1), fmt::format("rank {}", mesh->rank_limit() - 1));
    SHARDMESH_TRY(distribution here, distribute(work.from));
    SHARDMESH_TRY(distribution there, distribute(work.to));
    const plan_options how{.memory_bytes = options.memory_bytes,
                           .allow_narrowing = options.allow_narrowing,
                           .deterministic = options.deterministic};
    std::vector<tensor_transfer> one{{std::move(here), std::move(there), work.type, work.type}};
    return options.cache != nullptr ? options.cache->plan(std::move(one), how) : plan(std::move(one), how);
  };
  const call_options call = options.call.named("redistribute");
  SHARDMESH_TRY(executor runner,
                executor::make(planned(), comm, {}, {.check = options.check, .progress = options.progress}, call));
  const const_tensor_binding sources{std::move(work.source)};
  const tensor_binding destinations{std::move(work.destination)};
  return runner.run(std::span(&sources, 1), std::span(&destinations, 1), call);
}

}  // namespace shardmesh::detail
