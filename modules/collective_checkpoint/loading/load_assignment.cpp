// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.layout;
import shardmesh.transfer;
import :box_sets;
import :load_assignment;

namespace shardmesh {
namespace {

// Every rank reads tensors with smaller boxes for itself, unless `sharing` is `group`: a message costs as much as the
// read.
constexpr std::int64_t least_shared_bytes = std::int64_t{64} << 10;
// A rank that reads for itself reads runs of at least this length one by one, and covers shorter runs with a single
// read. For long runs, large reads whose pieces go to other ranks cost more.
constexpr read_options alone{.min_run_bytes = std::int64_t{64} << 10};
// The most chunks of a box that are examined to estimate its cost; the chunks of a tensor are alike.
constexpr std::int64_t most_chunks = 64;
constexpr std::int64_t least_piece_bytes = std::int64_t{256} << 10, most_piece_bytes = std::int64_t{8} << 20;
// Reads are even enough if no rank reads more at once than its share divided by this.
constexpr std::int64_t pieces_per_share = 8;

enum class way_of_reading : std::uint8_t { alone, once, in_pieces };

class assigning {
 public:
  assigning(const merged_state& all, const std::vector<bool>& is_there, const catalog& contents,
            const assignment_limits& limits)
      : all_(all), is_there_(is_there), contents_(contents), limits_(limits) {}

  load_assignment run() && {
    std::vector<way_of_reading> ways;
    std::int64_t once_bytes = 0, piece_bytes = 0;
    for (std::size_t t = 0; t < all_.tensors.size(); ++t) {
      ways.push_back(way_of(t));
      if (ways.back() == way_of_reading::once) once_bytes = sum(once_bytes, bytes_of(t));
    }
    // One rank alone does not read a box that is a large part of the total.
    const std::int64_t most = std::max(once_bytes / limits_.ranks, least_piece_bytes);
    for (std::size_t t = 0; t < ways.size(); ++t) {
      if (ways[t] == way_of_reading::once && largest_shared_bytes(t) > most) ways[t] = way_of_reading::in_pieces;
      if (ways[t] != way_of_reading::in_pieces) continue;
      made_.in_pieces.push_back(t);
      piece_bytes = sum(piece_bytes, bytes_of(t));
    }
    choose_readers(ways);
    const auto place = [&](std::size_t t) {
      const tensor_entry& stored = stored_of(t);
      const stored_range& first = contents_.chunk_places[static_cast<std::size_t>(stored.first_chunk)];
      return std::tuple(first.file, first.offset, stored.first_chunk);
    };
    std::sort(made_.in_pieces.begin(), made_.in_pieces.end(),
              [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
    made_.piece_bytes = std::max<std::int64_t>(
        1, std::min(std::clamp(piece_bytes / limits_.ranks / pieces_per_share, least_piece_bytes, most_piece_bytes),
                    limits_.staging_bytes / 4));
    find_unclear();
    return std::move(made_);
  }

 private:
  const tensor_entry& stored_of(std::size_t t) const { return *contents_.find(all_.tensors[t].key); }
  std::int64_t bytes_of(std::size_t t) const {
    return size_bytes(stored_of(t).type, box::whole(all_.tensors[t].shape).volume()).value_or(INT64_MAX);
  }
  static std::int64_t sum(std::int64_t a, std::int64_t b) { return checked_add(a, b).value_or(INT64_MAX); }

  way_of_reading way_of(std::size_t t) const {
    const merged_tensor& tensor = all_.tensors[t];
    if (limits_.sharing == read_sharing::each_rank || !is_there_[t] || tensor.boxes.empty())
      return way_of_reading::alone;
    const tensor_entry& stored = stored_of(t);
    if (limits_.ranks == 1 || bits(tensor.type) % 8 != 0 || bits(stored.type) % 8 != 0 || bytes_of(t) == INT64_MAX ||
        !stored.opaque_type.empty() || chunks_of(contents_, stored).empty())
      return way_of_reading::alone;
    std::vector<box> boxes;
    std::int64_t largest = 0;
    long double wanted = 0, once = 0, each = 0;  // bytes
    const auto chunks = contents_.distribution_of(stored);
    if (!chunks) return way_of_reading::alone;  // its read reports the error
    for (const replica_range& range : replicas_of(tensor)) {
      boxes.push_back(tensor.boxes[range.first].where);
      largest = std::max(largest, boxes.back().volume() * item_bytes(tensor.type));
      const long double cost = cost_of(boxes.back(), stored, *chunks);
      wanted += static_cast<long double>(boxes.back().volume() * item_bytes(stored.type));
      once += cost;
      each += cost * static_cast<long double>(range.last - range.first);
    }
    if (limits_.sharing == read_sharing::automatic && largest < least_shared_bytes) return way_of_reading::alone;
    if (!are_apart(tensor.shape.rank(), boxes)) return way_of_reading::in_pieces;
    if (each <= wanted || tensor.boxes.size() == 1) return way_of_reading::alone;
    return once <= wanted ? way_of_reading::once : way_of_reading::in_pieces;
  }

  // The bytes that reading this box alone takes.
  static long double cost_of(const box& where, const tensor_entry& stored, const distribution& chunks) {
    long double read = 0, wanted = 0;
    std::int64_t left = most_chunks;
    chunks.overlapping(where, [&](const fragment& chunk) {
      const box part = *intersect(chunk.where, where);
      const stored_tensor plain = contiguous_stored_tensor(stored.type, chunk.where.sizes, 0, 0);
      read += static_cast<long double>(read_cost_bytes(plain, relative_to(part, chunk.where), alone));
      wanted += static_cast<long double>(part.volume() * item_bytes(stored.type));
      return --left > 0;
    });
    const auto all = static_cast<long double>(where.volume() * item_bytes(stored.type));
    return read <= wanted ? all : all * (read / wanted);
  }

  std::int64_t largest_shared_bytes(std::size_t t) const {
    const merged_tensor& tensor = all_.tensors[t];
    std::int64_t largest = 0;
    for (const replica_range& range : replicas_of(tensor))
      if (range.last - range.first > 1)
        largest = std::max(largest, tensor.boxes[range.first].where.volume() * item_bytes(stored_of(t).type));
    return largest;
  }

  // Chooses the readers of boxes that are read whole. Boxes that only one rank can read are dealt out first.
  void choose_readers(std::span<const way_of_reading> ways) {
    load_balancer balance;
    for (std::size_t t = 0; t < all_.tensors.size(); ++t) {
      if (ways[t] == way_of_reading::in_pieces) continue;
      const merged_tensor& tensor = all_.tensors[t];
      for (const replica_range& range : replicas_of(tensor)) {
        const std::int64_t bytes = size_bytes(tensor.type, tensor.boxes[range.first].where.volume()).value_or(0);
        if (ways[t] == way_of_reading::once && range.last - range.first > 1) {
          made_.shared.push_back({t, range, 0, bytes});
          continue;
        }
        for (std::size_t i = range.first; i < range.last; ++i) {
          const owner_id only = tensor.boxes[i].rank;
          static_cast<void>(balance.give(std::span(&only, 1), bytes));
        }
      }
    }
    for (shared_box& one : made_.shared) {
      const merged_tensor& tensor = all_.tensors[one.tensor];
      std::vector<owner_id> holders;
      for (std::size_t i = one.holders.first; i < one.holders.last; ++i) holders.push_back(tensor.boxes[i].rank);
      const owner_id reader = balance.give(holders, one.bytes);
      one.reader = one.holders.first +
                   static_cast<std::size_t>(std::find(holders.begin(), holders.end(), reader) - holders.begin());
    }
  }

  // The metadata shows which items are compressed, but neither strides nor compression inside archives.
  void find_unclear() {
    for (const std::size_t t : made_.in_pieces) {
      const merged_tensor& tensor = all_.tensors[t];
      const tensor_entry& stored = stored_of(t);
      for (const std::int32_t chunk : chunks_of(contents_, stored)) {
        const std::int64_t bytes = contents_.chunk_box(stored, chunk).volume() * item_bytes(stored.type);
        if (bytes <= made_.piece_bytes || contents_.chunk_places[static_cast<std::size_t>(chunk)].transform != 0)
          continue;
        const std::size_t looks = made_.unclear.size() % tensor.boxes.size();
        made_.unclear.push_back({t, chunk, tensor.boxes[looks].rank});
      }
    }
  }

  const merged_state& all_;
  const std::vector<bool>& is_there_;
  const catalog& contents_;
  const assignment_limits& limits_;
  load_assignment made_;
};

}  // namespace

load_assignment assign_reads(const merged_state& all, const std::vector<bool>& is_there, const catalog& contents,
                             const assignment_limits& limits) {
  return assigning(all, is_there, contents, limits).run();
}

std::vector<std::int32_t> chunks_of(const catalog& contents, const tensor_entry& tensor) {
  std::vector<std::pair<box, std::int32_t>> found;
  const box whole = box::whole(tensor.shape);
  for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
    found.emplace_back(contents.chunk_box(tensor, chunk), chunk);
    if (!is_well_formed(found.back().first) || !lies_within(found.back().first, whole)) return {};
  }
  // The first of several replicas, as when a rank reads for itself.
  const auto place = [&](std::int32_t chunk) { return contents.chunk_places[static_cast<std::size_t>(chunk)].file; };
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return std::tuple(std::cref(a.first), place(a.second), a.second) <
           std::tuple(std::cref(b.first), place(b.second), b.second);
  });
  std::vector<box> boxes;
  std::vector<std::int32_t> chunks;
  std::int64_t volume = 0;
  for (const auto& [where, chunk] : found) {
    if (where.is_empty() || (!boxes.empty() && boxes.back() == where)) continue;
    boxes.push_back(where);
    chunks.push_back(chunk);
    volume += where.volume();
    if (volume > whole.volume()) return {};
  }
  if (volume != whole.volume() || !are_apart(tensor.shape.rank(), boxes)) return {};
  return chunks;
}

}  // namespace shardmesh
