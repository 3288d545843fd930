// SPDX-License-Identifier: Apache-2.0
// Merges the states of all ranks. Their descriptions are in `said_state`.
module;
#include <range/v3/view/enumerate.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :rank_state;
import :said_state;

namespace shardmesh {
namespace {

template <class Merged>
std::ptrdiff_t find_rank(const Merged& merged, std::int32_t rank) {
  const auto found = std::lower_bound(merged.ranks.begin(), merged.ranks.end(), rank);
  if (found == merged.ranks.end() || *found != rank) return -1;
  return static_cast<std::ptrdiff_t>(merged.indices[static_cast<std::size_t>(found - merged.ranks.begin())]);
}

class merging {
 public:
  void add(std::int32_t rank, said_state said) {
    if (said.list != latest_) {
      latest_ = said.list;
      entries_.assign(latest_->tensors.size(), 0);
      is_matched_ = false;
    }
    const std::int64_t before = problem_count();
    std::span<const box> parts = said.parts;
    for (std::size_t i = 0; i < said.in_each.size(); ++i) {
      const std::span<const box> of_tensor = parts.first(said.in_each[i]);
      parts = parts.subspan(said.in_each[i]);
      if (is_matched_)
        add_parts(merged_.tensors[entries_[i]], rank, i, of_tensor);
      else
        add_tensor(rank, i, of_tensor);
    }
    // Without a contradiction, another rank with this list adds to the same tensors.
    is_matched_ = is_matched_ || problem_count() == before;
    for (auto&& [i, object] : ranges::views::enumerate(said.objects)) add_object(rank, i, std::move(object));
  }

  // The list of the rank that was added last; null before the first.
  const std::shared_ptr<const tensor_list>& latest() const { return latest_; }

  merged_state finish() && {
    for (merged_tensor& tensor : merged_.tensors)
      std::sort(tensor.boxes.begin(), tensor.boxes.end(), [](const rank_box& a, const rank_box& b) {
        return std::tie(a.where, a.rank, a.part) < std::tie(b.where, b.rank, b.part);
      });
    return std::move(merged_);
  }

 private:
  struct entry {
    bool is_object = false;
    std::size_t index = 0;
  };

  void complain(error e, const std::string& key, std::int32_t first, std::int32_t rank) {
    e = std::move(e).with_key(key).with_rank(first);
    if (first != rank) e = std::move(e).with_rank(rank);
    merged_.problems.add(std::move(e));
  }

  // Returns whether the rank may add to the entry with this key, and complains if not.
  template <class Merged>
  bool fits(const Merged& known, const path& where, std::int32_t rank) {
    if (known.where != where)
      complain(
          fail(errc::duplicate_key, "two paths have this name").with_values(to_string(known.where), to_string(where)),
          known.key, known.ranks.front(), rank);
    else if (known.ranks.back() == rank)
      complain(fail(errc::duplicate_key, "a rank has this key twice"), known.key, rank, rank);
    else
      return true;
    return false;
  }

  std::int64_t problem_count() const {
    return static_cast<std::int64_t>(merged_.problems.named.size()) + merged_.problems.more;
  }

  void add_tensor(std::int32_t rank, std::size_t index, std::span<const box> parts) {
    const listed_tensor& said = latest_->tensors[index];
    const auto [found, is_new] = by_key_.try_emplace(dotted(said.where), entry{false, merged_.tensors.size()});
    if (is_new) merged_.tensors.push_back({found->first, said.where, said.shape, said.type, {}, {}, {}});
    if (found->second.is_object) {
      const merged_object& object = merged_.objects[found->second.index];
      return complain(fail(errc::disagreement, "is an object on one rank and a tensor on another"), found->first,
                      object.ranks.front(), rank);
    }
    entries_[index] = found->second.index;
    merged_tensor& tensor = merged_.tensors[found->second.index];
    if (!is_new && !fits(tensor, said.where, rank)) return;
    if (tensor.shape != said.shape)
      return complain(fail(errc::shape_mismatch, "ranks disagree on the shape of the whole tensor")
                          .with_values(to_string(tensor.shape), to_string(said.shape)),
                      tensor.key, tensor.ranks.front(), rank);
    if (tensor.type != said.type)
      return complain(fail(errc::dtype_mismatch, "ranks disagree on the dtype")
                          .with_values(std::string(name(tensor.type)), std::string(name(said.type))),
                      tensor.key, tensor.ranks.front(), rank);
    add_parts(tensor, rank, index, parts);
  }

  void add_parts(merged_tensor& tensor, std::int32_t rank, std::size_t index, std::span<const box> parts) {
    tensor.ranks.push_back(rank);
    tensor.indices.push_back(index);
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (!parts[k].is_empty()) tensor.boxes.push_back({parts[k], rank, static_cast<std::int32_t>(k)});
  }

  void add_object(std::int32_t rank, std::size_t index, described_object said) {
    const auto [found, is_new] = by_key_.try_emplace(dotted(said.where), entry{true, merged_.objects.size()});
    if (is_new) merged_.objects.push_back({found->first, said.where, {}, {}, {}});
    if (!found->second.is_object) {
      const merged_tensor& tensor = merged_.tensors[found->second.index];
      return complain(fail(errc::disagreement, "is a tensor on one rank and an object on another"), found->first,
                      tensor.ranks.front(), rank);
    }
    merged_object& object = merged_.objects[found->second.index];
    if (!is_new && !fits(object, said.where, rank)) return;
    object.ranks.push_back(rank);
    object.indices.push_back(index);
    object.said.push_back(std::move(said));
  }

  merged_state merged_;
  std::unordered_map<std::string, entry> by_key_;
  std::shared_ptr<const tensor_list> latest_;
  std::vector<std::size_t> entries_;  // per tensor of `latest_`, its index in `merged_`
  bool is_matched_ = false;           // whether `entries_` is complete and without contradiction
};

}  // namespace

std::ptrdiff_t merged_tensor::index_on(std::int32_t rank) const {
  return find_rank(*this, rank);
}
std::ptrdiff_t merged_object::index_on(std::int32_t rank) const {
  return find_rank(*this, rank);
}

result<merged_state> merge_states(std::span<const std::vector<std::byte>> notes) {
  merging all;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    auto said = read_state(notes[rank], all.latest());
    if (!said)
      return fail(errc::bad_format, "a rank's description of its entries is malformed")
          .with_rank(static_cast<std::int32_t>(rank));
    all.add(static_cast<std::int32_t>(rank), *std::move(said));
  }
  return std::move(all).finish();
}

std::vector<replica_range> replicas_of(const merged_tensor& tensor) {
  std::vector<replica_range> ranges;
  for (std::size_t i = 0; i < tensor.boxes.size(); ++i) {
    if (i == 0 || tensor.boxes[i].where != tensor.boxes[i - 1].where) ranges.push_back({i, i});
    ranges.back().last = i + 1;
  }
  return ranges;
}

result<agreement_notes> round_of_ranks::settle(const result<void>& mine, std::vector<std::byte> note,
                                               std::span<const agreement_record> records) const {
  return detail::settle_round(comm, call, mine, {.what = "checkpoint options", .note = std::move(note)}, records);
}

result<std::vector<std::byte>> round_of_ranks::settle_combined(const result<void>& mine, std::vector<std::byte> note,
                                                               note_combiner combine,
                                                               std::span<const agreement_record> records) const {
  agree_options options{.what = "checkpoint options", .note = std::move(note), .combine = std::move(combine)};
  SHARDMESH_TRY(agreement_notes told, detail::settle_round(comm, call, mine, std::move(options), records));
  return std::move(told.front());
}

result<std::vector<std::byte>> round_of_ranks::settle_with_root(const result<void>& mine,
                                                                std::vector<std::byte> note) const {
  return settle_combined(mine, std::move(note), [](std::vector<std::byte>&, std::span<const std::byte>) {});
}

}  // namespace shardmesh
