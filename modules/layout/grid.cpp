// SPDX-License-Identifier: Apache-2.0
// The distribution of a layout: computes its answers and never enumerates the mesh.
module;
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.layout;

import :grid_axis;
import :model;

namespace shardmesh {
namespace {

using runs = std::vector<index_run>;

class grid final : public distribution::model {
 public:
  explicit grid(std::shared_ptr<const layout::description> parts) : parts_(std::move(parts)) {
    shape = parts_->shape;
    owners = parts_->mesh.rank_limit();
    reduction = parts_->reduction;
    divisor = parts_->divisor;
    terms = static_cast<std::int32_t>(parts_->terms);
    is_complete = true;
  }

  digest128 description_digest() const override {
    constexpr std::int64_t kind = 0x6469726720736968;  // makes it differ from every list's digest
    const device_mesh& mesh = parts_->mesh;
    std::vector<std::int64_t> numbers{kind, static_cast<std::int64_t>(shape.rank()),
                                      static_cast<std::int64_t>(mesh.rank())};
    numbers.insert(numbers.end(), shape.begin(), shape.end());
    numbers.insert(numbers.end(), mesh.sizes().begin(), mesh.sizes().end());
    for (std::size_t m = 0; m < mesh.rank(); ++m) {
      const placement& p = parts_->placements[m];
      const auto& ends = parts_->rules[m].ends();
      for (const auto value :
           {static_cast<std::int64_t>(p.kind), static_cast<std::int64_t>(p.reduction), std::int64_t{p.dim},
            p.split_factor, static_cast<std::int64_t>(parts_->rules[m].policy()),
            static_cast<std::int64_t>(ends.size())})
        numbers.push_back(value);
      numbers.insert(numbers.end(), ends.begin(), ends.end());
      if (p.kind != placement_kind::shard_segments) continue;
      numbers.push_back(p.segment_count);
      for (const std::int64_t size : p.segments()) numbers.push_back(size);
    }
    if (!mesh.is_in_order())
      for (std::int64_t i = 0; i < mesh.size(); ++i) numbers.push_back(mesh.rank_of_position(i));
    return digest_of(numbers);
  }

  std::int64_t fragment_count() const override {
    std::call_once(counted_, [this] {
      std::int64_t count = 1;
      for (const std::int64_t size : parts_->mesh.sizes()) count *= size;
      // Mesh dimensions that cut nothing repeat the fragments. Every tensor dimension multiplies them by its runs over
      // all coordinates that cut it.
      for (std::size_t m = 0; m < parts_->placements.size(); ++m)
        if (parts_->placements[m].is_shard()) count /= parts_->mesh.sizes()[m];
      for (std::size_t d = 0; d < shape.rank(); ++d) count *= count_runs(d, 0, whole_dimension(shape[d]));
      count_ = count;
    });
    return count_;
  }

  void fragments_of(owner_id owner, fragment_visitor visit) const override {
    const auto coordinate = parts_->mesh.coordinate_of(owner);
    if (!coordinate) return;
    std::vector<runs> held(shape.rank());
    for (std::size_t d = 0; d < held.size(); ++d) held[d] = parts_->runs(*coordinate, d);
    static_cast<void>(emit(owner, *coordinate, held, visit));
  }

  void overlapping(const box& where, fragment_visitor visit) const override {
    if (where.is_empty()) return;
    search s{*this, where, visit, {}, {}};
    s.coordinate = extents::filled(parts_->mesh.rank(), 0);
    for (std::size_t d = 0; d < shape.rank(); ++d) s.held.push_back(whole_dimension(shape[d]));
    if (parts_->mesh.is_in_order()) {
      static_cast<void>(s.descend(0));
      return;
    }
    // With any other numbering: collect the fragments, then visit them in owner order.
    std::vector<fragment> found;
    auto gather = [&](const fragment& f) { return found.push_back(f), true; };
    search all{*this, where, gather, s.held, s.coordinate};
    static_cast<void>(all.descend(0));
    std::sort(found.begin(), found.end(), [](const fragment& a, const fragment& b) {
      return a.owner != b.owner ? a.owner < b.owner : a.local_offsets < b.local_offsets;
    });
    for (const fragment& f : found)
      if (!visit(f)) return;
  }

  std::optional<fragment_product> product_within(const box& where) const override {
    const device_mesh& mesh = parts_->mesh;
    if (reduction != reduce_op::none || !mesh.is_in_order()) return std::nullopt;
    std::vector<std::int64_t> strides(mesh.rank(), 1);
    for (std::size_t m = mesh.rank(); m-- > 1;) strides[m - 1] = strides[m] * mesh.sizes()[m];
    fragment_product made;
    for (std::size_t d = 0; d < shape.rank(); ++d)
      made.dims.push_back(axis_of(parts_->cuts[d], strides, shape[d], {where.offsets[d], where.sizes[d]}));
    add_replicas(0, 0, strides, made.replicas);
    return made;
  }

 private:
  // Appends the terms of owner numbers that the mesh dimensions without a cut contribute, in ascending order.
  void add_replicas(std::size_t mesh_dim, std::int64_t owner, std::span<const std::int64_t> strides,
                    run_axis& replicas) const {
    if (mesh_dim == parts_->mesh.rank()) return replicas.append({owner, 0, 0, owner});
    const std::int64_t size = parts_->placements[mesh_dim].is_shard() ? 1 : parts_->mesh.sizes()[mesh_dim];
    for (std::int64_t c = 0; c < size; ++c)
      add_replicas(mesh_dim + 1, owner + c * strides[mesh_dim], strides, replicas);
  }

  // Walks over the mesh dimensions from left to right and enters only coordinates that hold part of `where`.
  struct search {
    const grid& g;
    const box& where;
    fragment_visitor visit;
    std::vector<runs> held;  // per tensor dimension, after the cuts so far
    extents coordinate;

    bool descend(std::size_t mesh_dim) {
      const auto& parts = *g.parts_;
      if (mesh_dim == parts.mesh.rank()) return leaf();
      const std::int64_t size = parts.mesh.sizes()[mesh_dim];
      if (!parts.placements[mesh_dim].is_shard()) {
        for (std::int64_t c = 0; c < size; ++c) {
          coordinate[mesh_dim] = c;
          if (!descend(mesh_dim + 1)) return false;
        }
        return true;
      }
      const auto d = static_cast<std::size_t>(parts.placements[mesh_dim].dim);
      const dimension_cut cut = detail::cut_of(parts.placements[mesh_dim], size, parts.rules[mesh_dim]);
      const runs before = held[d];
      for (const auto& [first, last] : coordinates_that_hold(before, cut, where.offsets[d], where.end(d)))
        for (std::int64_t c = first; c <= last; ++c) {
          coordinate[mesh_dim] = c;
          held[d] = cut_runs(before, cut, c);
          if (!held[d].empty() && !descend(mesh_dim + 1)) return false;
        }
      held[d] = before;
      return true;
    }

    bool leaf() {
      std::vector<runs> touching(held.size());
      for (std::size_t d = 0; d < held.size(); ++d)
        std::copy_if(held[d].begin(), held[d].end(), std::back_inserter(touching[d]), [&](const index_run& r) {
          return r.global < where.end(d) && r.global + r.size > where.offsets[d];
        });
      return g.emit(g.parts_->mesh.rank_at(coordinate), coordinate, touching, visit);
    }
  };

  bool emit(owner_id owner, const extents& coordinate, const std::vector<runs>& held, fragment_visitor visit) const {
    fragment f;
    f.owner = owner;
    f.term = detail::term_at(parts_->mesh.sizes(), parts_->placements, coordinate);
    return for_each_box(held, [&](const box& where, const extents& local) {
      f.where = where;
      f.local_offsets = local;
      return visit(f);
    });
  }

  // Counts the runs of dimension d over all coordinates of the cuts from `level` on. A plain cut of one run is counted
  // once per part size, since equal lengths are cut alike.
  std::int64_t count_runs(std::size_t d, std::size_t level, const runs& held) const {
    if (held.empty()) return 0;
    if (level == parts_->cuts[d].size()) return static_cast<std::int64_t>(held.size());
    const dimension_cut& cut = parts_->cuts[d][level].cut;
    std::int64_t count = 0, same_length = -1, same_count = 0;
    for (std::int64_t c = 0; c < cut.parts; ++c) {
      const runs part = cut_runs(held, cut, c);
      const std::int64_t length = length_of(part);
      const bool simple = part.size() == 1 && only_plain_after(d, level);
      if (simple && length == same_length) {
        count += same_count;
        continue;
      }
      const std::int64_t below = count_runs(d, level + 1, part);
      count += below;
      if (simple) same_length = length, same_count = below;
    }
    return count;
  }

  bool only_plain_after(std::size_t d, std::size_t level) const {
    for (std::size_t l = level + 1; l < parts_->cuts[d].size(); ++l)
      if (!parts_->cuts[d][l].cut.is_plain()) return false;
    return true;
  }

  std::shared_ptr<const layout::description> parts_;
  mutable std::once_flag counted_;
  mutable std::int64_t count_ = 0;
};

}  // namespace

result<distribution> distribute(const layout& l) {
  return distribution(std::make_shared<const grid>(l.parts()));
}

}  // namespace shardmesh
