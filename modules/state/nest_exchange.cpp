// SPDX-License-Identifier: Apache-2.0
// The exchange between ranks of the metadata inside their shards.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.state;

namespace shardmesh::detail {
namespace {

struct member_place {
  std::size_t member;
  extents origin;
  nest_position position;
};

}  // namespace

// Writes the insides of one key: the key's name and their number. For each inside follow its position, its box in the
// whole tensor, and its shards relative to that box.
void known_insides::add(const std::string& key, const nest& members) {
  if (members.size() < 2) return;
  wire_writer insides;
  std::int64_t count = 0;
  std::vector<member_place> open{{0, extents::filled(members.front().size.rank(), 0), {}}};
  while (!open.empty()) {
    const member_place at = open.back();
    open.pop_back();
    const nest_member& member = members[at.member];
    const std::int32_t me = member.group.global(member.rank);
    std::size_t local = 0;
    for (std::size_t i = 0; i < member.metadata.shards().size(); ++i) {
      const shard_metadata_view shard = member.metadata.shards()[i];
      if (shard.rank() != me) continue;
      const std::int32_t inside = member.nested[local++];
      if (inside < 0) continue;
      // Flattening on this rank reports a shard that leaves its tensor.
      const extents& sizes = member.size;
      if (shard.sizes().size() != sizes.rank() || !shard.is_well_formed() ||
          !lies_within(shard.where(), box::whole(sizes)))
        continue;
      const box whole = shifted(shard.where(), at.origin);
      const nest_member& inner = members[static_cast<std::size_t>(inside)];
      ++count;
      nest_position position = at.position;
      position.push_back(static_cast<std::int32_t>(i));
      insides.number(static_cast<std::int64_t>(position.size()));
      for (const std::int32_t index : position) insides.number(index);
      insides.where(whole);
      insides.number(static_cast<std::int64_t>(inner.metadata.shards().size()));
      for (std::size_t one = 0; one < inner.metadata.shards().size(); ++one)
        write(insides, inner.metadata.shards()[one].copy());
      open.push_back({static_cast<std::size_t>(inside), whole.offsets, std::move(position)});
    }
  }
  sent_.text(key);
  sent_.number(count);
  sent_.raw(insides.written());
}

result<void> known_insides::read(std::span<const std::vector<std::byte>> received, const rank_group& group) {
  group_ = group;
  for (std::size_t from = 0; from < received.size(); ++from) {
    const std::int32_t owner = group.global(static_cast<std::int32_t>(from));
    const auto bad = [&] {
      return fail(errc::bad_format, "a message about nested shards is malformed").with_rank(owner);
    };
    wire_reader reader(received[from]);
    while (!reader.finished()) {
      if (!reader.ok()) return bad();
      const std::string key = reader.text();
      auto& of_key = known_[key];
      for (std::size_t left = reader.count(); left > 0 && reader.ok(); --left) {
        nest_position position;
        for (std::size_t levels = reader.count(); levels > 0 && reader.ok(); --levels)
          position.push_back(static_cast<std::int32_t>(reader.number()));
        const box where = reader.where();
        shard_metadata shard{where.offsets, where.sizes, std::nullopt};
        sharded_tensor_metadata inner;
        inner.size = shard.sizes;
        for (std::size_t shards = reader.count(); shards > 0 && reader.ok(); --shards)
          inner.shards.push_back(read_shard(reader));
        const bool makes_sense = reader.ok() && !position.empty() &&
                                 position.size() <= std::size_t{max_shard_nesting} &&
                                 shard.offsets.rank() == shard.sizes.rank() && is_well_formed(shard.where());
        if (!makes_sense) return bad();
        auto whole = inside_of(shard, inner);
        if (!whole) return std::move(whole).error().with_key(key);
        of_key[std::move(position)].push_back({owner, shard.where(), *std::move(whole)});
      }
    }
  }
  return {};
}

// If several ranks hold a shard, only the answer of the rank that the shard names counts. For a shard without a rank,
// the first answer with its box counts.
inner_answer known_insides::find(const std::string& key, const nest_position& at, const shard_metadata& shard) const {
  using what = inner_answer::what;
  const auto owner = shard.rank();
  const bool is_asked = owner && group_.group_rank(*owner);
  const inner_answer nothing{is_asked ? what::whole : what::unknown};
  const auto of_key = known_.find(key);
  if (of_key == known_.end()) return nothing;
  const auto here = of_key->second.find(at);
  if (here == of_key->second.end()) return nothing;
  for (const inside& one : here->second)
    if (one.where == shard.where() && (!owner || one.owner == *owner)) return {what::inner, one.shards, false};
  return nothing;
}

}  // namespace shardmesh::detail
