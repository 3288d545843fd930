// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.comm;
import :rank_share;
import :rank_state;
import :save_assignment;

namespace shardmesh {
namespace {

error cover_error(const cover_problem& problem, const std::string& key) {
  if (problem.kind == cover_kind::overlap)
    return fail(errc::overlap, "two ranks hold different boxes that overlap")
        .with_key(key)
        .with_rank(problem.first)
        .with_rank(problem.second)
        .with_box(problem.where);
  return fail(errc::gap, "is held by no rank").with_key(key).with_box(problem.where);
}

// A tensor to save.
struct kept_tensor {
  const merged_tensor* stored = nullptr;
  const selected* as = nullptr;
  std::vector<replica_range> boxes;
  std::vector<std::int32_t> writers;  // per box, the rank that writes it
};

void choose_writers(std::span<kept_tensor> tensors) {
  struct shared_box {
    std::int64_t bytes;
    std::size_t tensor, box;
  };
  load_balancer balance;
  std::vector<shared_box> shared;
  const auto holders_of = [&](std::size_t t, std::size_t b) {
    std::vector<owner_id> holders;
    const replica_range& range = tensors[t].boxes[b];
    for (std::size_t i = range.first; i < range.last; ++i) holders.push_back(tensors[t].stored->boxes[i].rank);
    return holders;
  };
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].writers.resize(tensors[t].boxes.size());
    for (std::size_t b = 0; b < tensors[t].boxes.size(); ++b) {
      const replica_range& range = tensors[t].boxes[b];
      const std::int64_t bytes =
          size_bytes(tensors[t].as->type, tensors[t].stored->boxes[range.first].where.volume()).value_or(0);
      if (range.last - range.first == 1) {
        const owner_id only = tensors[t].stored->boxes[range.first].rank;
        tensors[t].writers[b] = balance.give({&only, 1}, bytes);
      } else {
        shared.push_back({bytes, t, b});
      }
    }
  }
  std::sort(shared.begin(), shared.end(), [](const shared_box& a, const shared_box& b) {
    return std::tuple(-a.bytes, a.tensor, a.box) < std::tuple(-b.bytes, b.tensor, b.box);
  });
  for (const shared_box& one : shared)
    tensors[one.tensor].writers[one.box] = balance.give(holders_of(one.tensor, one.box), one.bytes);
}

class assigner {
 public:
  assigner(std::int32_t rank, bool lowest_rank_objects, std::span<detail::wire_writer> shares)
      : rank_(rank), lowest_rank_objects_(lowest_rank_objects), shares_(shares) {}

  save_assignment assign(const merged_state& all, std::span<const selected> kept, const const_local_state& held) {
    std::vector<kept_tensor> tensors;
    for (const selected& one : kept) {
      if (one.index >= all.tensors.size()) {
        assign_object(all.objects[one.index - all.tensors.size()], one.key);
        continue;
      }
      const merged_tensor& tensor = all.tensors[one.index];
      tensors.push_back({&tensor, &one, replicas_of(tensor), {}});
      check_tensor(tensor, tensors.back().boxes);
    }
    if (!made_.problems.empty()) return std::move(made_);
    choose_writers(tensors);
    for (const kept_tensor& tensor : tensors) {
      add_tensor(tensor, held);
      if (!shares_.empty()) share_out(tensor);
    }
    return std::move(made_);
  }

 private:
  void complain(error e) { made_.problems.add(std::move(e)); }

  void check_tensor(const merged_tensor& tensor, std::span<const replica_range> boxes) {
    std::vector<std::int64_t> offsets, sizes;
    std::vector<owner_id> owners;
    for (const replica_range& range : boxes) {
      const rank_box& one = tensor.boxes[range.first];
      offsets.insert(offsets.end(), one.where.offsets.begin(), one.where.offsets.end());
      sizes.insert(sizes.end(), one.where.sizes.begin(), one.where.sizes.end());
      owners.push_back(one.rank);
    }
    const cover_report cover = check_boxes(tensor.shape, offsets, sizes, owners, most_problems);
    for (const cover_problem& problem : cover.problems) complain(cover_error(problem, tensor.key));
    made_.problems.more += cover.total - static_cast<std::int64_t>(cover.problems.size());
    if (bits(tensor.type) % 8 != 0 && boxes.size() > 1)
      complain(fail(errc::unaligned, fmt::format("{} cannot be cut", name(tensor.type))).with_key(tensor.key));
  }

  void assign_object(const merged_object& object, const std::string& key) {
    const described_object& first = object.said.front();
    for (std::size_t i = 1; i < object.said.size() && !lowest_rank_objects_; ++i)
      if (object.said[i].digest != first.digest)
        return complain(fail(errc::disagreement, "ranks hold different values of an object")
                            .with_key(object.key)
                            .with_rank(object.ranks.front())
                            .with_rank(object.ranks[i])
                            .with_values(first.summary, object.said[i].summary)
                            .with_hint("pass lowest_rank_objects to take the lowest rank's value"));
    made_.objects.push_back({key, key == object.key ? object.where : path{key}, object.ranks.front(), {}, {}});
    made_.object_lengths.push_back(first.length);
    made_.object_indices.push_back(object.ranks.front() == rank_ ? object.index_on(rank_) : -1);
    if (shares_.empty() || object.ranks.front() == rank_) return;
    const auto index = static_cast<std::int64_t>(object.indices.front());
    write_share(share_of(object.ranks.front()), object_share{index, renamed(key, object.key)});
  }

  void add_tensor(const kept_tensor& kept, const const_local_state& held) {
    const merged_tensor& tensor = *kept.stored;
    const std::span<const replica_range> boxes = kept.boxes;
    output_tensor made;
    made.key = kept.as->key;
    made.where = made.key == tensor.key ? tensor.where : path{made.key};
    made.type = made.bytes.to_type = kept.as->type;
    made.bytes.from_type = tensor.type;
    distribution_builder sources(tensor.shape, owner_space::items);
    const std::ptrdiff_t index = tensor.index_on(rank_);
    made.chunks.reserve(boxes.size());
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      const box& where = tensor.boxes[boxes[b].first].where;
      made.chunks.push_back({where, kept.writers[b]});
      if (kept.writers[b] != rank_) continue;
      for (std::size_t i = boxes[b].first; i < boxes[b].last; ++i) {
        if (tensor.boxes[i].rank != rank_) continue;
        const auto part = static_cast<std::size_t>(tensor.boxes[i].part);
        sources.add(0, static_cast<std::int32_t>(made_.source.views.size()), where.offsets, where.sizes);
        made_.source.views.push_back(held.tensors[static_cast<std::size_t>(index)].parts[part].memory);
        made_.places.push_back({static_cast<std::size_t>(index), part});
      }
    }
    // A tensor without elements has one empty chunk.
    if (boxes.empty()) made.chunks.push_back({box::whole(tensor.shape), tensor.ranks.front()});
    auto from = sources.finish();
    if (!from) return complain(std::move(from).error().with_key(tensor.key));
    made.bytes.from = *std::move(from);
    made_.tensors.push_back(std::move(made));
  }

  detail::wire_writer& share_of(std::int32_t rank) { return shares_[static_cast<std::size_t>(rank)]; }

  static std::optional<std::string> renamed(const std::string& key, const std::string& own) {
    return key == own ? std::nullopt : std::optional(key);
  }

  // Writes the tensor's parts to the shares of the other writers, for each rank in the order of the chunks.
  void share_out(const kept_tensor& kept) {
    const merged_tensor& tensor = *kept.stored;
    struct written_part {
      std::int32_t rank;
      std::size_t chunk;
      std::int64_t part;
    };
    std::vector<written_part> parts;
    for (std::size_t b = 0; b < kept.boxes.size(); ++b) {
      std::size_t i = kept.boxes[b].first;
      while (tensor.boxes[i].rank != kept.writers[b]) ++i;
      parts.push_back({tensor.boxes[i].rank, b, tensor.boxes[i].part});
    }
    const auto by_rank = [](const written_part& a, const written_part& b) { return a.rank < b.rank; };
    std::sort(parts.begin(), parts.end(), [](const written_part& a, const written_part& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.chunk < b.chunk;
    });
    const auto write = [&](std::int32_t rank, std::vector<std::int64_t> of_rank) {
      if (rank == rank_) return;
      write_share(share_of(rank), tensor_share{tensor.index_on(rank), renamed(kept.as->key, tensor.key), kept.as->type,
                                               std::move(of_rank)});
    };
    if (parts.empty()) write(tensor.ranks.front(), {});
    for (auto first = parts.begin(); first != parts.end();) {
      const auto last = std::upper_bound(first, parts.end(), *first, by_rank);
      std::vector<std::int64_t> of_rank;
      for (; first != last; ++first) of_rank.push_back(first->part);
      write((last - 1)->rank, std::move(of_rank));
    }
  }

  std::int32_t rank_;
  bool lowest_rank_objects_;
  std::span<detail::wire_writer> shares_;
  save_assignment made_;
};

}  // namespace

selection_result select_saved(const merged_state& all, const selection_options& options) {
  std::vector<selectable> entries;
  for (const merged_tensor& tensor : all.tensors) entries.push_back({tensor.key, tensor.type, true});
  for (const merged_object& object : all.objects) entries.push_back({object.key, dtype::undefined, false});
  return select_keys(entries, options);
}

save_assignment assign_writers(const merged_state& all, std::span<const selected> kept, const const_local_state& held,
                               std::int32_t rank, bool lowest_rank_objects, std::span<detail::wire_writer> shares) {
  return assigner(rank, lowest_rank_objects, shares).assign(all, kept, held);
}

void bind_views(save_assignment& work, const const_local_state& held) {
  work.source.views.clear();
  for (const held_place& place : work.places)
    work.source.views.push_back(held.tensors[place.tensor].parts[place.part].memory);
}

}  // namespace shardmesh
