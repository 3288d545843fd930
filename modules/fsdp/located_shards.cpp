// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :located_shards;
import :offered_state;
import :rank_note;

namespace shardmesh::detail {
namespace {

// The union of the fragments that all ranks report.
result<located_shards> unite(const offered_state& mine, std::span<const std::size_t> sources,
                             std::span<const std::vector<std::byte>> parts) {
  located_shards located;
  std::map<std::size_t, distribution_builder> builders;
  for (const std::size_t i : sources) {
    builders.emplace(i, distribution_builder(mine.shape_of(mine.entries[i]), owner_space::ranks))
        .first->second.at_least_owners(mine.comm.size());
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto damaged = [&] {
      return fail(errc::communication, "a rank's description of its shards is damaged")
          .with_rank(static_cast<std::int32_t>(r));
    };
    wire_reader in(parts[r]);
    while (!in.finished()) {
      const auto entry = static_cast<std::size_t>(in.number());
      const auto builder = builders.find(entry);
      if (!in.ok() || builder == builders.end()) return damaged();
      const std::size_t rank = mine.shape_of(mine.entries[entry]).rank();
      for (std::size_t left = in.count(); left > 0; --left) {
        const auto slot = static_cast<std::int32_t>(in.in_range(0, std::numeric_limits<std::int32_t>::max()));
        const box where = in.where();
        const extents local = in.numbers();
        if (!in.ok() || where.offsets.rank() != rank || where.sizes.rank() != rank || local.rank() != rank)
          return damaged();
        builder->second.add(static_cast<owner_id>(r), slot, where.offsets, where.sizes, local);
      }
      located.try_emplace(entry);
    }
  }
  for (auto& [entry, where] : located) {
    auto made = builders.at(entry).finish();
    if (!made) return std::move(made).error().with_key(mine.entries[entry].key);
    where = *std::move(made);
  }
  return located;
}

}  // namespace

result<located_shards> locate_shards(const offered_state& mine, std::span<const std::size_t> sources,
                                     std::span<const rank_note> notes) {
  located_shards located;
  const bool is_alike =
      std::all_of(notes.begin(), notes.end(), [&](const rank_note& n) { return n.described == notes[0].described; });
  for (const std::size_t i : sources)
    if (is_alike && mine.values[i].where) located.emplace(i, *mine.values[i].where);
  if (is_alike) return located;
  wire_writer own;
  std::optional<error> problem;
  for (const std::size_t i : sources) {
    if (!mine.values[i].where) continue;
    if (mine.values[i].where->reduction() != reduce_op::none)
      problem = fail(errc::unsupported, "terms of a value that ranks describe differently cannot be loaded")
                    .with_key(mine.entries[i].key)
                    .with_rank(mine.comm.rank());
    std::vector<fragment> held;
    mine.values[i].where->fragments_of(mine.comm.rank(), [&](const fragment& f) { return held.push_back(f), true; });
    own.number(static_cast<std::int64_t>(i));
    own.number(static_cast<std::int64_t>(held.size()));
    for (const fragment& f : held) {
      own.number(f.slot);
      own.where(f.where);
      own.numbers(f.local_offsets);
    }
  }
  agree_options options{.what = "state dicts", .note = std::move(own).take()};
  if (problem) options.problem = &*problem;
  SHARDMESH_TRY(const auto parts, agree(mine.comm, std::span<const agreement_record>{}, options, mine.options.call));
  return unite(mine, sources, parts);
}

}  // namespace shardmesh::detail
