// SPDX-License-Identifier: Apache-2.0
// An executor whose ranks list only their own fragments and those of their peers in them moves the same elements as
// one whose ranks list all fragments.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <fabric.hpp>
#include <functional>
#include <map>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

struct held_box {
  std::int32_t rank = 0;
  box where;
  std::size_t piece = 0;  // of a wanted box: the source box that holds it
};

// Boxes of one tensor: disjoint ones of the source, and wanted ones, each within one of these.
struct boxes_of_tensor {
  extents shape;
  dtype to_type = dtype::float32;
  std::vector<held_box> pieces, wanted;
};

// Cuts a tensor at random places, in each dimension.
std::vector<box> random_cells(dice& roll, const extents& shape) {
  std::vector<box> cells{box::whole(shape)};
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    std::vector<std::int64_t> cuts{0, shape[d]};
    for (std::int64_t k = roll.below(4); k > 0; --k) cuts.push_back(roll.up_to(shape[d]));
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<box> cut;
    for (const box& cell : cells)
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        cut.push_back(cell);
        cut.back().offsets[d] = cuts[i];
        cut.back().sizes[d] = cuts[i + 1] - cuts[i];
      }
    cells = std::move(cut);
  }
  return cells;
}

boxes_of_tensor random_boxes(dice& roll, std::int32_t ranks) {
  boxes_of_tensor made;
  for (std::int64_t d = 1 + roll.below(2); d > 0; --d) made.shape.push_back(1 + roll.below(30));
  if (roll.one_in(3)) made.to_type = dtype::float64;
  for (const box& cell : random_cells(roll, made.shape))
    made.pieces.push_back({static_cast<std::int32_t>(roll.below(ranks)), cell, 0});
  for (const box& cell : random_cells(roll, made.shape))
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      if (roll.one_in(2)) continue;
      for (std::size_t piece = 0; piece < made.pieces.size(); ++piece)
        if (auto part = intersect(cell, made.pieces[piece].where))
          made.wanted.push_back({rank, *std::move(part), piece});
    }
  return made;
}

distribution side_of_ranks(const extents& shape, std::span<const held_box> boxes) {
  distribution_builder made(shape, owner_space::ranks);
  std::map<std::int32_t, std::int32_t> slots;
  for (const held_box& one : boxes) made.add(one.rank, slots[one.rank]++, one.where.offsets, one.where.sizes);
  return made.finish().value();
}

// The boxes that a rank knows: its own, and those of its peers in them.
boxes_of_tensor known_to(const boxes_of_tensor& all, std::int32_t rank) {
  boxes_of_tensor made{all.shape, all.to_type, {}, {}};
  for (std::size_t piece = 0; piece < all.pieces.size(); ++piece) {
    const auto wants = [&](const held_box& one) { return one.rank == rank && one.piece == piece; };
    if (all.pieces[piece].rank == rank || std::any_of(all.wanted.begin(), all.wanted.end(), wants))
      made.pieces.push_back(all.pieces[piece]);
  }
  for (const held_box& one : all.wanted)
    if (one.rank == rank || all.pieces[one.piece].rank == rank) made.wanted.push_back(one);
  return made;
}

// The elements of a box are numbered in the order of the whole tensor.
std::vector<double> numbers_in(const box& where, const extents& shape) {
  std::vector<double> made;
  const extents strides = contiguous_strides(shape);
  for (std::int64_t i = 0; i < where.volume(); ++i) {
    std::int64_t rest = i, number = 0;
    for (std::size_t d = where.rank(); d-- > 0;) {
      number += (where.offsets[d] + rest % where.sizes[d]) * strides[d];
      rest /= where.sizes[d];
    }
    made.push_back(static_cast<double>(number));
  }
  return made;
}

// The elements of a view of float32 or float64 that is contiguous.
std::vector<double> numbers_of(const tensor_view& view) {
  const auto count = static_cast<std::size_t>(numel(view));
  std::vector<double> made(count);
  if (view.type == dtype::float64) {
    std::memcpy(made.data(), view.data, count * sizeof(double));
    return made;
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), view.data, count * sizeof(float));
  std::copy(values.begin(), values.end(), made.begin());
  return made;
}

struct moved {
  std::string wrong;
  std::int64_t bytes = 0;  // between all ranks
  friend bool operator==(const moved&, const moved&) = default;
};

// Moves all tensors, of which this rank knows `known`, and compares every element.
moved move_all(any_communicator& comm, const std::vector<boxes_of_tensor>& known, std::int64_t memory_bytes,
               const run_options& options) {
  std::vector<tensor_transfer> transfers;
  std::vector<std::vector<std::vector<float>>> held(known.size());
  std::vector<std::vector<std::vector<double>>> wanted(known.size());  // memory of either dtype
  std::vector<const_tensor_binding> from(known.size());
  std::vector<tensor_binding> to(known.size());
  for (std::size_t t = 0; t < known.size(); ++t) {
    const boxes_of_tensor& one = known[t];
    transfers.push_back(
        {side_of_ranks(one.shape, one.pieces), side_of_ranks(one.shape, one.wanted), dtype::float32, one.to_type});
    for (const held_box& piece : one.pieces) {
      if (piece.rank != comm.rank()) continue;
      const std::vector<double> numbers = numbers_in(piece.where, one.shape);
      const std::vector<float>& values = held[t].emplace_back(numbers.begin(), numbers.end());
      from[t].slots.push_back({reinterpret_cast<const std::byte*>(values.data()),
                               dtype::float32,
                               {},
                               piece.where.sizes,
                               contiguous_strides(piece.where.sizes)});
    }
    for (const held_box& box_of : one.wanted) {
      if (box_of.rank != comm.rank()) continue;
      std::vector<double>& values = wanted[t].emplace_back(static_cast<std::size_t>(box_of.where.volume()), -1.0);
      to[t].slots.push_back({reinterpret_cast<std::byte*>(values.data()),
                             one.to_type,
                             {},
                             box_of.where.sizes,
                             contiguous_strides(box_of.where.sizes)});
    }
  }
  auto planned = plan(std::move(transfers), {.memory_bytes = memory_bytes});
  if (!planned) return {to_string(planned.error())};
  auto made = executor::make(*std::move(planned), comm, {}, options);
  if (!made) return {to_string(made.error())};
  if (auto done = made->run(from, to); !done) return {to_string(done.error())};
  for (std::size_t t = 0; t < known.size(); ++t) {
    std::size_t slot = 0;
    for (const held_box& one : known[t].wanted) {
      if (one.rank != comm.rank()) continue;
      if (numbers_of(to[t].slots[slot++]) != numbers_in(one.where, known[t].shape))
        return {"tensor " + std::to_string(t) + " differs in " + to_string(one.where)};
    }
  }
  return {{}, made->moved_bytes()};
}

}  // namespace

TEST_CASE("ranks that list only their own part of a plan move what a whole plan moves") {
  const watchdog dog(std::chrono::seconds(300));
  for (int round = 0; round < fabric::rounds(30); ++round) {
    const std::uint64_t seed = fabric::seed() + 977 * static_cast<std::uint64_t>(round);
    INFO("SHARDMESH_SEED=" << fabric::seed() << " round " << round);
    on_all_sizes([&](any_communicator& comm) -> std::string {
      dice roll(seed);
      std::vector<boxes_of_tensor> all, own;
      for (std::int64_t t = 1 + roll.below(4); t > 0; --t) {
        all.push_back(random_boxes(roll, comm.size()));
        own.push_back(known_to(all.back(), comm.rank()));
      }
      const std::int64_t memory_bytes = roll.pick({std::int64_t{0}, std::int64_t{16} << 10});
      const bool in_place = roll.one_in(2);
      const moved whole = move_all(comm, all, memory_bytes, {.in_place = in_place});
      if (!whole.wrong.empty()) return "whole: " + whole.wrong;
      const moved part = move_all(comm, own, memory_bytes, {.in_place = in_place, .whole_plan = false});
      if (!part.wrong.empty()) return "own part: " + part.wrong;
      return part == whole ? "" : "other numbers of bytes travel";
    });
  }
}

TEST_CASE("ranks that list different transfers, or of which one alone lists a whole plan, are refused") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    if (comm.size() == 1) return {};
    const auto made = [&](const extents& shape, bool whole_plan) {
      const std::vector<held_box> none;
      auto planned = plan({{side_of_ranks(shape, none), side_of_ranks(shape, none), dtype::float32, dtype::float32}});
      return executor::make(std::move(planned), comm, {"w"}, {.whole_plan = whole_plan});
    };
    const bool is_last = comm.rank() == comm.size() - 1;
    auto other_shape = made({is_last ? 4 : 5}, false);
    if (other_shape || other_shape.error().code != errc::disagreement || other_shape.error().key != "w")
      return "another shape was not refused";
    auto other_knowledge = made({5}, is_last);
    if (other_knowledge || other_knowledge.error().code != errc::disagreement) return "a whole plan was not refused";
    return made({5}, false) ? "" : "equal transfers were refused";
  });
}
