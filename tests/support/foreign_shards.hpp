// SPDX-License-Identifier: Apache-2.0
// The shards of another framework: its own types, and the adapters that its header would have, without any module. Its
// metadata has 64-bit offsets, 32-bit lengths, and a process number. Include before imports.
#pragma once
#include <shardmesh/shard_adapter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace foreign {

struct piece {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> length;  // not our type: its adapter returns extents
  int process = -1;                  // -1: nowhere
  shardmesh::device where{};
  std::string worker{};
};

struct tensor_facts {
  std::vector<piece> pieces;
  std::vector<std::int64_t> shape;
  shardmesh::tensor_properties properties{};
};

struct cut_tensor;

// A piece that this process holds: values, or a cut tensor.
struct held_piece {
  piece place;
  std::shared_ptr<std::vector<std::int64_t>> values;
  std::vector<std::int64_t> sizes, strides;
  shardmesh::dtype type = shardmesh::dtype::int64;
  std::shared_ptr<cut_tensor> inside;
};

struct cut_tensor {
  tensor_facts facts;
  std::vector<held_piece> mine;
  std::vector<std::int32_t> processes;
  std::int32_t me = 0;
};

inline shardmesh::extents as_extents(const std::vector<std::int32_t>& numbers) {
  shardmesh::extents made;
  for (const std::int32_t n : numbers) made.push_back(n);
  return made;
}

}  // namespace foreign

template <>
struct shardmesh::shard_metadata_adapter<foreign::piece> {
  static std::span<const std::int64_t> offsets(const foreign::piece& p) { return p.begin; }
  static extents sizes(const foreign::piece& p) { return foreign::as_extents(p.length); }
  static std::optional<remote_device> placement(const foreign::piece& p) {
    if (p.process < 0 && p.worker.empty()) return std::nullopt;
    return remote_device{p.process < 0 ? std::nullopt : std::optional(p.process), p.worker, p.where};
  }
};

template <>
struct shardmesh::sharded_tensor_metadata_adapter<foreign::tensor_facts> {
  static const std::vector<foreign::piece>& shards(const foreign::tensor_facts& f) { return f.pieces; }
  static const std::vector<std::int64_t>& size(const foreign::tensor_facts& f) { return f.shape; }
  static tensor_properties properties(const foreign::tensor_facts& f) { return f.properties; }
};

template <>
struct shardmesh::shard_adapter<foreign::held_piece> {
  static const foreign::piece& metadata(const foreign::held_piece& h) { return h.place; }
  static tensor_view view(const foreign::held_piece& h) {
    auto* data = reinterpret_cast<std::byte*>(h.values->data());
    return {data, h.type, h.place.where, extents(h.sizes), extents(h.strides)};
  }
  static const foreign::cut_tensor* nested(const foreign::held_piece& h) { return h.inside.get(); }
};

template <>
struct shardmesh::sharded_tensor_adapter<foreign::cut_tensor> {
  static const foreign::tensor_facts& metadata(const foreign::cut_tensor& t) { return t.facts; }
  static const std::vector<foreign::held_piece>& local_shards(const foreign::cut_tensor& t) { return t.mine; }
  static const std::vector<std::int32_t>& global_ranks(const foreign::cut_tensor& t) { return t.processes; }
  static std::int32_t rank(const foreign::cut_tensor& t) { return t.me; }
};

namespace foreign {

/// Converts our metadata to its form: anything with offsets, sizes, and a placement.
template <class Metadata>
piece piece_of(const Metadata& ours) {
  piece made{{ours.offsets.begin(), ours.offsets.end()}, {}, -1, {}, {}};
  for (const std::int64_t n : ours.sizes) made.length.push_back(static_cast<std::int32_t>(n));
  if (!ours.placement) return made;
  made.process = ours.placement->rank.value_or(-1);
  made.where = ours.placement->where;
  made.worker = ours.placement->worker;
  return made;
}

template <class Shards>
std::vector<piece> pieces_of(const Shards& ours) {
  std::vector<piece> made;
  for (const auto& one : ours) made.push_back(piece_of(one));
  return made;
}

template <class Metadata>
tensor_facts facts_of(const Metadata& ours) {
  return {pieces_of(ours.shards), {ours.size.begin(), ours.size.end()}, ours.properties};
}

/// Converts one of our sharded tensors of row-major int64 to its form; `values_of(tensor)` returns the elements.
template <class Sharded, class Values>
cut_tensor cut_tensor_of(const Sharded& ours, const Values& values_of) {
  cut_tensor made{facts_of(ours.metadata()), {}, ours.group().globals(), ours.rank()};
  for (const auto& one : ours.local_shards()) {
    held_piece held{piece_of(one.metadata()), nullptr, {}, {}, ours.metadata().properties.type, nullptr};
    if (one.is_nested()) {
      held.inside = std::make_shared<cut_tensor>(cut_tensor_of(one.nested(), values_of));
    } else {
      held.values = std::make_shared<std::vector<std::int64_t>>(values_of(one.tensor()));
      const auto view = shardmesh::adapter<std::remove_cvref_t<decltype(one.tensor())>>::view(one.tensor());
      held.type = view.type;
      held.sizes = {view.sizes.begin(), view.sizes.end()};
      held.strides = {view.strides.begin(), view.strides.end()};
    }
    made.mine.push_back(std::move(held));
  }
  return made;
}

}  // namespace foreign
