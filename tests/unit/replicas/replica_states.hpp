// SPDX-License-Identifier: Apache-2.0
// A state that tests keep on one mesh and resume on another, and helpers that lose ranks. It imports, so it is the last
// header that a test includes.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.replicas;

namespace replica_states {

using namespace shardmesh;

/// A mesh of `rows` x `columns` ranks, row-major.
struct cut {
  std::int32_t rows = 1, columns = 1;
  std::int32_t ranks() const { return rows * columns; }
  bool operator==(const cut&) const = default;
};

/// Part `index` of `parts` of a dimension: sizes that differ by at most one.
inline std::pair<std::int64_t, std::int64_t> part_of(std::int64_t size, std::int32_t parts, std::int32_t index) {
  const std::int64_t begin = size * index / parts;
  return {begin, size * (index + 1) / parts - begin};
}

/// One rank's part: "w" is cut by rows and columns, "half" by rows only, "whole" lies on every rank, and "none" has no
/// elements. Each value names its step and its place in the whole tensor.
struct model {
  cut mesh;
  std::int32_t rank = 0;
  std::vector<float> w, half;
  std::vector<std::int32_t> whole;
  std::int64_t step = 0;

  model(cut mesh_, std::int32_t rank_) : mesh(mesh_), rank(rank_) {
    w.resize(static_cast<std::size_t>(box_of_w().volume()));
    half.resize(static_cast<std::size_t>(box_of_half().volume()));
    whole.resize(5);
  }
  box box_of_w() const {
    const auto [row, rows] = part_of(16, mesh.rows, rank / mesh.columns);
    const auto [column, columns] = part_of(9, mesh.columns, rank % mesh.columns);
    return {{row, column}, {rows, columns}};
  }
  box box_of_half() const {
    const auto [row, rows] = part_of(11, mesh.rows, rank / mesh.columns);
    return {{row, 0}, {rows, 2}};
  }
  /// The values after training up to `to`.
  void train(std::int64_t to) {
    step = to;
    const auto fill = [&](auto& values, const box& where, std::int64_t row_length, std::int64_t base) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t row = where.offsets[0] + static_cast<std::int64_t>(i) / where.sizes[1];
        const std::int64_t column = where.offsets[1] + static_cast<std::int64_t>(i) % where.sizes[1];
        values[i] = static_cast<std::remove_cvref_t<decltype(values[i])>>(base + 1000 * to + row * row_length + column);
      }
    };
    fill(w, box_of_w(), 9, 0);
    fill(half, box_of_half(), 2, 500);
    fill(whole, {{0, 0}, {1, 5}}, 5, 900);
  }
  bool operator==(const model&) const = default;
};

inline result<local_state> local_view(model& mine) {
  const auto view = [](auto& values, dtype type, const extents& sizes) {
    return tensor_view{reinterpret_cast<std::byte*>(values.data()), type, {}, sizes, contiguous_strides(sizes)};
  };
  local_state part;
  const box w = mine.box_of_w(), half = mine.box_of_half(), whole{{0}, {5}};
  part.tensors.push_back({{"w"}, {16, 9}, dtype::float32, {{w, view(mine.w, dtype::float32, w.sizes)}}});
  part.tensors.push_back({{"half"}, {11, 2}, dtype::float32, {{half, view(mine.half, dtype::float32, half.sizes)}}});
  part.tensors.push_back({{"whole"}, {5}, dtype::int32, {{whole, view(mine.whole, dtype::int32, whole.sizes)}}});
  part.tensors.push_back({{"none"}, {0, 3}, dtype::float32, {}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

inline result<void> set_objects(model& mine, std::span<const local_state_object> objects) {
  for (const local_state_object& object : objects) {
    const auto* const step = std::get_if<std::int64_t>(&object.leaves.front());
    if (step == nullptr) return fail(errc::dtype_mismatch, "is no integer").with_key("step");
    mine.step = *step;
  }
  return {};
}

/// The state of a rank after training up to `step`.
inline model trained(cut mesh, std::int32_t rank, std::int64_t step) {
  model made(mesh, rank);
  made.train(step);
  return made;
}

inline std::string text_of(const auto& done) {
  return done ? "" : to_string(done.error());
}

/// An error if `is_true` is false, for bodies of ranks.
inline result<void> expect(bool is_true, const std::string& what) {
  if (!is_true) return fail(errc::invalid_argument, what);
  return {};
}

/// Runs the body on each rank; any error fails the test.
inline void on_ranks(std::int32_t ranks, function_ref<result<void>(any_communicator&)> body) {
  const auto ran = run_ranks(ranks, body);
  INFO(text_of(ran));
  REQUIRE(ran);
}

/// The options of ranks of which `per_node` consecutive ones are a node.
inline replicas_options on_nodes(std::int32_t copies, std::int32_t per_node) {
  replicas_options made;
  made.copies = copies;
  made.failure_domain = [per_node](std::int32_t rank) { return "node " + std::to_string(rank / per_node); };
  return made;
}

/// One object per rank.
using memories = std::vector<step_replicas>;
inline memories make_memories(std::int32_t ranks, const replicas_options& options) {
  memories made;
  for (std::int32_t rank = 0; rank < ranks; ++rank) made.push_back(step_replicas::make(options).value());
  return made;
}

/// Keeps a step on all ranks of the mesh.
inline void keep_step(memories& all, cut mesh, std::int64_t step) {
  on_ranks(mesh.ranks(), [&](any_communicator& comm) -> result<void> {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto kept = all[rank].keep(step, trained(mesh, comm.rank(), step), comm);
    if (!kept) return kept.error();
    return expect(kept->step == step && all[rank].kept_bytes() == kept->kept_bytes, "another report");
  });
}

/// The ranks that are left, in order, when these are lost.
inline std::vector<step_replicas*> survivors(memories& all, const std::set<std::int32_t>& lost) {
  std::vector<step_replicas*> left;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!lost.contains(static_cast<std::int32_t>(rank))) left.push_back(&all[rank]);
  return left;
}

/// A box with its key, for comparisons.
using keyed_box = std::pair<std::string, box>;
inline std::set<keyed_box> boxes_in(const std::vector<step_replicas*>& ranks) {
  std::set<keyed_box> found;
  for (const step_replicas* rank : ranks)
    for (const kept_copy& copy : rank->copies()) found.emplace(copy.key, copy.where);
  return found;
}

/// The boxes that an error names.
inline std::set<keyed_box> boxes_in(const error& problem) {
  std::set<keyed_box> found;
  for (const error& one : problem.problems())
    for (const box& where : one.boxes) found.emplace(one.key, where);
  return found;
}

/// Damages one copy on this rank.
inline void flip_byte(const step_replicas& rank, const std::string& key, const box& where) {
  int found = 0;
  for (const kept_copy& copy : rank.copies())
    if (copy.key == key && copy.where == where) {
      const_cast<std::byte*>(copy.memory.data)[0] ^= std::byte{1};
      ++found;
    }
  REQUIRE(found == 1);
}

}  // namespace replica_states
