// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.torch_file;
import :rank_state;
import :save_assignment;

namespace shardmesh {
namespace {

error cover_error(const cover_problem& problem, const std::string& key) {
  if (problem.kind == cover_kind::overlap)
    return fail(errc::overlap, "two ranks hold boxes that are not equal and share cells")
        .with_key(key)
        .with_rank(problem.first)
        .with_rank(problem.second)
        .with_box(problem.where);
  return fail(errc::gap, "is held by no rank").with_key(key).with_box(problem.where);
}

// Per tensor and box, which of its holders writes it.
std::vector<std::vector<std::int32_t>> choose_writers(const merged_state& all,
                                                      std::span<const std::vector<replica_range>> boxes) {
  struct shared_box {
    std::int64_t bytes;
    std::size_t tensor, box;
  };
  load_balancer balance;
  std::vector<std::vector<std::int32_t>> writers(boxes.size());
  std::vector<shared_box> shared;
  const auto holders_of = [&](std::size_t t, std::size_t b) {
    std::vector<owner_id> holders;
    for (std::size_t i = boxes[t][b].first; i < boxes[t][b].last; ++i) holders.push_back(all.tensors[t].boxes[i].rank);
    return holders;
  };
  for (std::size_t t = 0; t < boxes.size(); ++t) {
    writers[t].resize(boxes[t].size());
    for (std::size_t b = 0; b < boxes[t].size(); ++b) {
      const replica_range& range = boxes[t][b];
      const std::int64_t bytes =
          size_bytes(all.tensors[t].type, all.tensors[t].boxes[range.first].where.volume()).value_or(0);
      if (range.last - range.first == 1)
        writers[t][b] = balance.give(holders_of(t, b), bytes);
      else
        shared.push_back({bytes, t, b});
    }
  }
  std::sort(shared.begin(), shared.end(), [](const shared_box& a, const shared_box& b) {
    return std::tuple(-a.bytes, a.tensor, a.box) < std::tuple(-b.bytes, b.tensor, b.box);
  });
  for (const shared_box& one : shared)
    writers[one.tensor][one.box] = balance.give(holders_of(one.tensor, one.box), one.bytes);
  return writers;
}

class assigner {
 public:
  assigner(std::int32_t rank, bool lowest_rank_objects) : rank_(rank), lowest_rank_objects_(lowest_rank_objects) {}

  save_assignment assign(const merged_state& all, const const_held_state& held) {
    std::vector<std::vector<replica_range>> boxes;
    for (const merged_tensor& tensor : all.tensors) {
      boxes.push_back(replicas_of(tensor));
      check_tensor(tensor, boxes.back());
    }
    for (const merged_object& object : all.objects) assign_object(object);
    if (!made_.problems.empty()) return std::move(made_);
    const std::vector<std::vector<std::int32_t>> writers = choose_writers(all, boxes);
    for (std::size_t t = 0; t < all.tensors.size(); ++t) add_tensor(all.tensors[t], boxes[t], writers[t], held);
    return std::move(made_);
  }

 private:
  void complain(error e) { made_.problems.add(std::move(e)); }

  void check_tensor(const merged_tensor& tensor, std::span<const replica_range> boxes) {
    if (auto can = torch_file::tensor_archive::make(tensor.type, tensor.shape); !can)
      return complain(std::move(can).error().with_key(tensor.key));
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
      complain(fail(errc::unaligned, fmt::format("{} is not cut", name(tensor.type))).with_key(tensor.key));
  }

  void assign_object(const merged_object& object) {
    const described_object& first = object.said.front();
    for (std::size_t i = 1; i < object.said.size() && !lowest_rank_objects_; ++i)
      if (object.said[i].digest != first.digest)
        return complain(fail(errc::disagreement, "ranks hold different values of an object")
                            .with_key(object.key)
                            .with_rank(object.ranks.front())
                            .with_rank(object.ranks[i])
                            .with_values(first.summary, object.said[i].summary)
                            .with_hint("lowest_rank_objects takes the lowest rank's"));
    made_.objects.push_back({object.key, object.where, object.ranks.front(), {}, {}});
    made_.object_lengths.push_back(first.length);
    made_.object_indices.push_back(object.ranks.front() == rank_ ? object.index_on(rank_) : -1);
  }

  void add_tensor(const merged_tensor& tensor, std::span<const replica_range> boxes,
                  std::span<const std::int32_t> writers, const const_held_state& held) {
    output_tensor made;
    made.key = tensor.key;
    made.where = tensor.where;
    made.type = made.bytes.from_type = made.bytes.to_type = tensor.type;
    distribution_builder sources(tensor.shape, owner_space::items);
    const std::ptrdiff_t index = tensor.index_on(rank_);
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      const box& where = tensor.boxes[boxes[b].first].where;
      made.chunks.push_back({where, writers[b]});
      if (writers[b] != rank_) continue;
      for (std::size_t i = boxes[b].first; i < boxes[b].last; ++i) {
        if (tensor.boxes[i].rank != rank_) continue;
        const auto part = static_cast<std::size_t>(tensor.boxes[i].part);
        sources.add(0, static_cast<std::int32_t>(made_.source.views.size()), where.offsets, where.sizes);
        made_.source.views.push_back(held.tensors[static_cast<std::size_t>(index)].parts[part].memory);
      }
    }
    // A tensor without elements has one empty chunk.
    if (boxes.empty()) made.chunks.push_back({box::whole(tensor.shape), tensor.ranks.front()});
    auto from = sources.finish();
    if (!from) return complain(std::move(from).error().with_key(tensor.key));
    made.bytes.from = *std::move(from);
    made_.tensors.push_back(std::move(made));
  }

  std::int32_t rank_;
  bool lowest_rank_objects_;
  save_assignment made_;
};

}  // namespace

save_assignment assign_writers(const merged_state& all, const const_held_state& held, std::int32_t rank,
                               bool lowest_rank_objects) {
  return assigner(rank, lowest_rank_objects).assign(all, held);
}

}  // namespace shardmesh
