// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.replicas;

import shardmesh.comm;
import shardmesh.digest;
import shardmesh.tree;
import :described_part;

namespace shardmesh {
namespace {

class part_merger {
 public:
  explicit part_merger(bool lowest_rank_objects) : lowest_rank_objects_(lowest_rank_objects) {}

  void add(std::int32_t rank, std::size_t index, const described_entry& said) {
    const auto [found, is_new] = by_key_.try_emplace(said.head.key, merged_.entries.size());
    if (is_new) {
      merged_.entries.push_back({said.head, said.digest, {}, {}});
      boxes_.emplace_back();
    }
    merged_entry& known = merged_.entries[found->second];
    if (!is_new && !fits(known, said, rank)) return;
    known.ranks.push_back({rank, index, 0});
    for (std::size_t k = 0; k < said.parts.size(); ++k)
      if (!said.parts[k].is_empty()) boxes_[found->second].push_back({said.parts[k], {rank, index, k}});
  }

  merged_parts finish() && {
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      std::sort(boxes_[i].begin(), boxes_[i].end(), [](const one_box& a, const one_box& b) {
        return std::tie(a.where, a.holder.rank, a.holder.part) < std::tie(b.where, b.holder.rank, b.holder.part);
      });
      std::vector<merged_box>& groups = merged_.entries[i].boxes;
      for (const one_box& one : boxes_[i]) {
        if (groups.empty() || groups.back().where != one.where) groups.push_back({one.where, {}});
        groups.back().holders.push_back(one.holder);
      }
    }
    return std::move(merged_);
  }

 private:
  struct one_box {
    box where;
    part_holder holder;
  };

  void complain(const merged_entry& known, std::int32_t rank, error e) {
    const std::int32_t first = known.ranks.front().rank;
    e = std::move(e).with_key(known.head.key).with_rank(first);
    if (first != rank) e = std::move(e).with_rank(rank);
    merged_.problems.add(std::move(e));
  }

  // Returns whether the rank holds the known entry.
  bool fits(const merged_entry& known, const described_entry& said, std::int32_t rank) {
    if (known.ranks.back().rank == rank)
      return complain(known, rank, fail(errc::duplicate_key, "a rank has this key twice")), false;
    if (known.head.is_object != said.head.is_object)
      return complain(known, rank, fail(errc::disagreement, "is an object on one rank and a tensor on another")), false;
    if (known.head.is_object && known.digest != said.digest) {
      if (!lowest_rank_objects_)
        complain(known, rank,
                 fail(errc::disagreement, "the object differs between ranks")
                     .with_hint("set lowest_rank_objects to keep the value of the lowest rank"));
      return false;
    }
    if (known.head.shape != said.head.shape)
      return complain(known, rank,
                      fail(errc::shape_mismatch, "ranks disagree on the shape of the whole tensor")
                          .with_values(to_string(known.head.shape), to_string(said.head.shape))),
             false;
    if (known.head.type != said.head.type)
      return complain(known, rank,
                      fail(errc::dtype_mismatch, "ranks disagree on the dtype")
                          .with_values(std::string(name(known.head.type)), std::string(name(said.head.type)))),
             false;
    return true;
  }

  bool lowest_rank_objects_;
  merged_parts merged_;
  std::vector<std::vector<one_box>> boxes_;  // per entry
  std::unordered_map<std::string, std::size_t> by_key_;
};

}  // namespace

void write_head(detail::wire_writer& out, const entry_head& head) {
  out.text(head.key);
  out.flag(head.is_object);
  out.numbers(head.shape);
  out.number(static_cast<std::int64_t>(head.type));
}

std::optional<entry_head> read_head(detail::wire_reader& in) {
  entry_head head;
  head.key = in.text();
  head.is_object = in.flag();
  head.shape = in.numbers();
  head.type = static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
  if (!in.ok() || !part_bytes(head.shape, head.type, box::whole(head.shape))) return std::nullopt;
  return head;
}

void write(detail::wire_writer& out, std::span<const described_entry> entries) {
  out.number(static_cast<std::int64_t>(entries.size()));
  for (const described_entry& entry : entries) {
    write_head(out, entry.head);
    out.digest(entry.digest);
    out.number(static_cast<std::int64_t>(entry.parts.size()));
    for (const box& part : entry.parts) out.where(part);
  }
}

std::optional<std::vector<described_entry>> read_entries(detail::wire_reader& in) {
  std::vector<described_entry> entries;
  const std::size_t count = in.count();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    std::optional<entry_head> head = read_head(in);
    if (!head) return std::nullopt;
    described_entry entry{*std::move(head), in.digest(), {}};
    const std::size_t parts = in.count();
    for (std::size_t k = 0; k < parts && in.ok(); ++k) {
      const box where = in.where();
      if (!in.ok() || !part_bytes(entry.head.shape, entry.head.type, where)) return std::nullopt;
      entry.parts.push_back(where);
    }
    entries.push_back(std::move(entry));
  }
  if (!in.ok()) return std::nullopt;
  return entries;
}

std::optional<std::int64_t> part_bytes(const extents& shape, dtype type, const box& where) {
  if (!checked_volume(shape) || where.rank() != shape.rank() || !is_well_formed(where) ||
      !lies_within(where, box::whole(shape)))
    return std::nullopt;
  return size_bytes(type, where.volume());
}

std::vector<described_entry> describe_tensors(const const_local_state& state) {
  std::vector<described_entry> entries;
  for (const const_local_state_tensor& tensor : state.tensors) {
    described_entry entry{{dotted(tensor.where), false, tensor.shape, tensor.type}, {}, {}};
    for (const const_local_part& part : tensor.parts) entry.parts.push_back(part.where);
    entries.push_back(std::move(entry));
  }
  return entries;
}

merged_parts merge_parts(std::span<const std::vector<described_entry>> by_rank, bool lowest_rank_objects) {
  part_merger merger(lowest_rank_objects);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (std::size_t i = 0; i < by_rank[rank].size(); ++i)
      merger.add(static_cast<std::int32_t>(rank), i, by_rank[rank][i]);
  return std::move(merger).finish();
}

}  // namespace shardmesh
