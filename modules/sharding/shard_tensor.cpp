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

result<void> check_source(std::int32_t source_rank, const std::optional<tensor_facts>& mine, communicator_ref comm,
                          const rank_group& group) {
  SHARDMESH_TRY(check_same_ranks(comm, group));
  if (source_rank < 0 || source_rank >= group.size())
    return fail(errc::invalid_argument, "the source rank is not in the group")
        .with_values(fmt::format("0 to {}", group.size() - 1), std::to_string(source_rank));
  if (comm.rank() == source_rank && !mine)
    return fail(errc::invalid_argument, "the source rank has no tensor to shard").with_rank(group.global(source_rank));
  return {};
}

}  // namespace

result<tensor_facts> facts_from(std::int32_t source_rank, const std::optional<tensor_facts>& mine,
                                communicator_ref comm, const rank_group& group, const call_options& call) {
  wire_writer note;
  if (mine) {
    note.numbers(mine->size);
    write(note, mine->properties);
  }
  SHARDMESH_TRY(const auto notes,
                begin(comm, group, "arguments of shard_tensor", {{"source rank", std::to_string(source_rank)}},
                      check_source(source_rank, mine, comm, group), std::move(note).take(), call));
  wire_reader in(notes[static_cast<std::size_t>(source_rank)]);
  tensor_facts found{in.numbers(), read_properties(in)};
  if (in.finished()) return found;
  return fail(errc::bad_format, "the source rank's description of its tensor cannot be read")
      .with_rank(group.global(source_rank));
}

}  // namespace shardmesh::detail
