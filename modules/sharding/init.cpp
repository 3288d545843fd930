// SPDX-License-Identifier: Apache-2.0
module;
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
namespace {

using maybe_metadata = std::optional<sharded_tensor_metadata>;

// The metadata of this rank's shards; empty when it has none.
result<maybe_metadata> metadata_of(std::span<const local_shard_facts> shards, const std::optional<extents>& global_size,
                                   communicator_ref comm, const rank_group& group) {
  SHARDMESH_TRY(check_same_ranks(comm, group));
  if (global_size) SHARDMESH_TRY(check_shape(*global_size));
  if (shards.empty()) return maybe_metadata();
  const extents unknown = extents::filled(shards.front().sizes.rank(), 0);
  SHARDMESH_TRY(auto built, build_metadata(shards, global_size.value_or(unknown), comm.rank(), group));
  return maybe_metadata(std::move(built));
}

std::vector<std::byte> to_bytes(const maybe_metadata& metadata) {
  wire_writer out;
  out.flag(metadata.has_value());
  if (metadata) {
    write(out, metadata->properties);
    out.numbers(metadata->size);
    out.number(static_cast<std::int64_t>(metadata->shards.size()));
    for (const shard_metadata& one : metadata->shards) write(out, one);
  }
  return std::move(out).take();
}

result<maybe_metadata> from_bytes(std::span<const std::byte> bytes, std::int32_t rank) {
  wire_reader in(bytes);
  maybe_metadata made;
  if (in.flag()) {
    made = sharded_tensor_metadata{{}, {}, read_properties(in)};
    made->size = in.numbers();
    for (std::size_t left = in.count(); in.ok() && left > 0; --left) made->shards.push_back(read_shard(in));
  }
  if (in.finished()) return made;
  return fail(errc::bad_format, "a rank's metadata of its shards cannot be read").with_rank(rank);
}

}  // namespace

result<agreed_metadata> agree_on_metadata(std::span<const local_shard_facts> shards,
                                          const std::optional<extents>& global_size, communicator_ref comm,
                                          const rank_group& group, const init_options& options) {
  const auto mine = metadata_of(shards, global_size, comm, group);
  SHARDMESH_TRY(const auto notes,
                begin(comm, group, "arguments of init_from_local_shards",
                      {{"global_size", global_size ? to_string(*global_size) : "not known"},
                       {"dim", global_size ? "not used" : std::to_string(options.dim)},
                       {"properties", to_string(options.properties)}},
                      mine ? result<void>() : result<void>(mine.error()),
                      mine ? to_bytes(*mine) : std::vector<std::byte>(), options.call.named("init_from_local_shards")));

  // From here on, every rank computes the same result from the same metadata.
  std::vector<maybe_metadata> metadata;
  std::size_t first_local = 0;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const auto rank = static_cast<std::int32_t>(i);
    SHARDMESH_TRY(auto one, from_bytes(notes[i], rank));
    if (rank < comm.rank() && one) first_local += one->shards.size();
    metadata.push_back(std::move(one));
  }
  SHARDMESH_TRY(auto whole, build_global_metadata(metadata, {.recalculate = !global_size,
                                                             .dim = options.dim,
                                                             .group = group,
                                                             .global_size = global_size,
                                                             .properties = options.properties}));
  return agreed_metadata{std::move(whole), first_local};
}

}  // namespace shardmesh::detail
