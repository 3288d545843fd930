// SPDX-License-Identifier: Apache-2.0
// The distributions of parameters that tensor parallelism and FSDP cut. The shards of one rank are in
// `parallel_parameters`.
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {
namespace {

// Narrows a fragment to `part`, which lies in it.
fragment narrowed(const fragment& f, const box& part) {
  fragment made = f;
  made.where = part;
  for (std::size_t d = 0; d < part.rank(); ++d) made.local_offsets[d] += part.offsets[d] - f.where.offsets[d];
  return made;
}

// Adds the fragments of `inner` that lie in the box at `where.local_offsets` of a local tensor, as fragments of the
// global tensor.
void add_inside(distribution_builder& to, const distribution& inner, const placed_box& where) {
  const box local{where.local_offsets, where.where.sizes};
  inner.overlapping(local, [&](const fragment& f) {
    const auto part = intersect(f.where, local);
    if (!part) return true;
    fragment moved = narrowed(f, *part);
    moved.where = shifted(relative_to(*part, local), where.where.offsets);
    to.add(moved);
    return true;
  });
}

// Cuts every fragment of `d` along the boxes of `cuts`.
result<distribution> cut_at(const distribution& d, const distribution& cuts) {
  distribution_builder builder(d.global_shape(), owner_space::ranks);
  builder.at_least_owners(d.owners());
  d.for_each_owner([&](owner_id owner) {
    d.fragments_of(owner, [&](const fragment& f) {
      cuts.overlapping(f.where, [&](const fragment& other) {
        if (const auto part = intersect(f.where, other.where)) builder.add(narrowed(f, *part));
        return true;
      });
      return true;
    });
  });
  return builder.finish();
}

// The columns, from `first` on, that hold the same boxes of a parameter as column `first`.
std::vector<std::int32_t> alike(const parallel_parameters& unit, const layout& l, std::int32_t first) {
  std::vector<std::int32_t> columns;
  const auto boxes = l.boxes(unit.rank_in(first));
  for (std::int32_t c = first; c < unit.columns(); ++c)
    if (l.boxes(unit.rank_in(c)) == boxes) columns.push_back(c);
  return columns;
}

// The distribution of the local tensor that these columns share.
result<distribution> shared_local(const parallel_parameters& unit, std::size_t parameter,
                                  std::span<const std::int32_t> columns) {
  std::vector<distribution> parts;
  bool is_cut_alike = true;
  for (const std::int32_t c : columns) {
    SHARDMESH_TRY(parts.emplace_back(), distribution_of(unit.flat(c), parameter, unit.group(c)));
    const flat_parameter &flat = unit.flat(c), &first = unit.flat(columns[0]);
    is_cut_alike &= flat.offset(parameter) == first.offset(parameter) && flat.sharded_numel() == first.sharded_numel();
  }
  if (is_cut_alike) return merge(parts);
  std::vector<distribution> cuts;  // one holder per box, so that replicas do not cut twice
  for (const distribution& part : parts) {
    SHARDMESH_TRY(cuts.emplace_back(), deduplicate(part));
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t k = 0; k < cuts.size(); ++k) {
      if (i == k) continue;
      SHARDMESH_TRY(parts[i], cut_at(parts[i], cuts[k]));
    }
  return merge(parts);
}

}  // namespace

result<distribution> distribution_of(const parallel_parameters& unit, std::size_t parameter) {
  const layout& l = unit.placed(parameter);
  distribution_builder builder(l.shape(), owner_space::ranks);
  builder.at_least_owners(unit.group().ranks());
  std::vector<bool> is_done(static_cast<std::size_t>(unit.columns()), false);
  for (std::int32_t c = 0; c < unit.columns(); ++c) {
    if (is_done[static_cast<std::size_t>(c)]) continue;
    const auto boxes = l.boxes(unit.rank_in(c));
    if (boxes.empty()) continue;  // no elements here: empty local shapes may differ
    const auto columns = alike(unit, l, c);
    for (const std::int32_t same : columns) is_done[static_cast<std::size_t>(same)] = true;
    SHARDMESH_TRY(const distribution local, shared_local(unit, parameter, columns));
    for (const placed_box& b : boxes) add_inside(builder, local, b);
  }
  return builder.finish();
}

result<distribution> within_column(const parallel_parameters& unit, std::size_t parameter, std::int32_t rank,
                                   const distribution& inner) {
  const layout& l = unit.placed(parameter);
  distribution_builder builder(l.shape(), owner_space::ranks);
  builder.at_least_owners(unit.group().ranks());
  for (const placed_box& b : l.boxes(rank)) add_inside(builder, inner, b);
  return builder.finish();
}

std::int64_t flat_offset(const parallel_parameters& unit, std::int32_t column) {
  std::int64_t offset = 0;
  for (std::int32_t c = 0; c < column; ++c) offset += unit.flat(c).unsharded_numel();
  return offset;
}

result<distribution> flat_distribution(const parallel_parameters& unit) {
  distribution_builder builder({flat_offset(unit, unit.columns())}, owner_space::ranks);
  builder.at_least_owners(unit.group().ranks());
  for (std::int32_t c = 0; c < unit.columns(); ++c) {
    SHARDMESH_TRY(const distribution flat, flat_distribution(unit.flat(c), unit.group(c)));
    add_inside(builder, flat, {{{flat_offset(unit, c)}, {unit.flat(c).unsharded_numel()}}, {0}});
  }
  return builder.finish();
}

}  // namespace shardmesh
