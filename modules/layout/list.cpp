// SPDX-License-Identifier: Apache-2.0
// Distributions of any fragments: flat arrays with the tensor's rank, sorted by owner and slot, and a box_index. Also
// the distribution of a single fragment.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "box_index.hpp"
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

using numbers = std::vector<std::int64_t>;

box box_at(const numbers& offsets, const numbers& sizes, std::size_t rank, std::size_t i) {
  const auto part = [&](const numbers& all) { return extents(std::span(all).subspan(i * rank, rank)); };
  return {part(offsets), part(sizes)};
}

class list final : public distribution::model {
 public:
  numbers offsets, sizes, local_offsets;  // `rank` numbers per fragment in each
  std::vector<owner_id> owner;            // ascending
  std::vector<std::int32_t> slot, term;
  box_index index;

  void build_index() {
    std::vector<std::uint32_t> members;
    members.reserve(owner.size());
    const std::size_t rank = shape.rank();
    for (std::uint32_t i = 0; i < owner.size(); ++i)
      if (std::none_of(sizes.begin() + i * rank, sizes.begin() + (i + 1) * rank, [](std::int64_t s) { return s == 0; }))
        members.push_back(i);
    index = box_index(rank, offsets, sizes, std::move(members));
  }

  fragment at(std::size_t i) const {
    const std::size_t rank = shape.rank();
    return {box_at(offsets, sizes, rank, i), owner[i], slot[i],
            extents(std::span(local_offsets).subspan(i * rank, rank)), term[i]};
  }

  std::int64_t fragment_count() const override { return static_cast<std::int64_t>(owner.size()); }

  void fragments_of(owner_id wanted, fragment_visitor visit) const override {
    auto at_owner = std::lower_bound(owner.begin(), owner.end(), wanted);
    for (; at_owner != owner.end() && *at_owner == wanted; ++at_owner)
      if (!visit(at(static_cast<std::size_t>(at_owner - owner.begin())))) return;
  }

  boxes_view flat() const override { return {offsets, sizes, owner}; }

  void for_each_owner(function_ref<void(owner_id)> visit) const override {
    for (std::size_t i = 0; i < owner.size(); ++i)
      if (i == 0 || owner[i] != owner[i - 1]) visit(owner[i]);
  }

  void overlapping(const box& where, fragment_visitor visit) const override {
    if (where.is_empty()) return;
    extents end = where.offsets;
    for (std::size_t d = 0; d < end.rank(); ++d) end[d] += where.sizes[d];
    std::vector<std::uint32_t> found;
    index.query(where.offsets.data(), end.data(), [&](std::uint32_t i) { return found.push_back(i), true; });
    std::sort(found.begin(), found.end());
    for (const std::uint32_t i : found)
      if (!visit(at(i))) return;
  }
};

// Reorders `values` by `order`, `width` values at a time.
template <class T>
void reorder(std::vector<T>& values, const std::vector<std::uint32_t>& order, std::size_t width) {
  std::vector<T> sorted(values.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(order[i] * width), width,
                sorted.begin() + static_cast<std::ptrdiff_t>(i * width));
  values = std::move(sorted);
}

// A fragment whose numbers are stored elsewhere.
struct fragment_view {
  std::span<const std::int64_t> offsets, sizes, local_offsets;
  owner_id owner = 0;
  std::int32_t term = 0;
};

// Checks that the fragment lies within the tensor, and that its owner, term, and local offsets are valid.
result<void> check(const distribution::model& tensor, const fragment_view& f) {
  const std::size_t rank = tensor.shape.rank();
  bool within = true;
  for (std::size_t d = 0; d < rank && within; ++d)
    within = f.offsets[d] >= 0 && f.sizes[d] >= 0 && f.offsets[d] <= tensor.shape[d] &&
             f.sizes[d] <= tensor.shape[d] - f.offsets[d];
  bool local = true;
  for (std::size_t d = 0; d < rank && local; ++d)
    local = f.local_offsets[d] >= 0 && checked_add(f.local_offsets[d], f.sizes[d]);
  const bool term = f.term == 0 || (tensor.reduction != reduce_op::none && f.term > 0 &&
                                    f.term < std::numeric_limits<std::int32_t>::max());
  if (within && local && term && f.owner >= 0 && f.owner < std::numeric_limits<owner_id>::max()) return {};
  const box where{extents(f.offsets), extents(f.sizes)};
  error e =
      !within ? (is_well_formed(where)
                     ? fail(errc::out_of_bounds, "a fragment extends beyond the tensor")
                           .with_values("a box within " + to_string(tensor.shape), to_string(where))
                     : fail(errc::out_of_bounds, fmt::format("a fragment has offsets {} and sizes {}",
                                                             to_string(where.offsets), to_string(where.sizes))))
      : !term ? fail(errc::invalid_argument, fmt::format("a fragment is term {} of a tensor that has no terms", f.term))
                    .with_box(where)
      : !local ? fail(errc::invalid_argument, "a fragment has negative or too large local offsets").with_box(where)
               : fail(errc::invalid_argument, "a fragment's owner is negative or too large").with_box(where);
  return std::move(e).with_rank(f.owner);
}

// A single fragment, as for most tensors of most checkpoints. It needs neither arrays nor an index.
class one_fragment final : public distribution::model {
 public:
  fragment held;

  std::int64_t fragment_count() const override { return 1; }
  void fragments_of(owner_id wanted, fragment_visitor visit) const override {
    if (wanted == held.owner) visit(held);
  }
  boxes_view flat() const override { return {held.where.offsets, held.where.sizes, std::span(&held.owner, 1)}; }
  void for_each_owner(function_ref<void(owner_id)> visit) const override { visit(held.owner); }
  void overlapping(const box& where, fragment_visitor visit) const override {
    if (intersect(held.where, where)) visit(held);
  }
};

}  // namespace

struct distribution_builder::state {
  std::shared_ptr<list> made = std::make_shared<list>();
  error first_error;  // errc::ok: none

  bool before(std::uint32_t a, std::uint32_t b) const;
};

bool distribution_builder::state::before(std::uint32_t a, std::uint32_t b) const {
  const list& l = *made;
  if (l.owner[a] != l.owner[b]) return l.owner[a] < l.owner[b];
  if (l.slot[a] != l.slot[b]) return l.slot[a] < l.slot[b];
  const std::size_t rank = l.shape.rank();
  for (const numbers* values : {&l.offsets, &l.sizes, &l.local_offsets})
    for (std::size_t d = 0; d < rank; ++d)
      if ((*values)[a * rank + d] != (*values)[b * rank + d]) return (*values)[a * rank + d] < (*values)[b * rank + d];
  return l.term[a] < l.term[b];
}

distribution_builder::distribution_builder(const extents& shape, owner_space space, reduce_op reduction,
                                           std::int64_t divisor)
    : state_(std::make_unique<state>()) {
  state_->made->shape = shape;
  state_->made->space = space;
  state_->made->reduction = reduction;
  state_->made->divisor = reduction == reduce_op::avg ? divisor : 1;
  if (const auto valid = check_shape(shape); !valid) state_->first_error = valid.error();
}
distribution_builder::distribution_builder(distribution_builder&&) noexcept = default;
distribution_builder& distribution_builder::operator=(distribution_builder&&) noexcept = default;
distribution_builder::~distribution_builder() = default;

void distribution_builder::reserve(std::size_t fragments) {
  list& l = *state_->made;
  for (numbers* values : {&l.offsets, &l.sizes, &l.local_offsets}) values->reserve(fragments * l.shape.rank());
  l.owner.reserve(fragments);
  l.slot.reserve(fragments);
  l.term.reserve(fragments);
}

void distribution_builder::add(owner_id owner, std::int32_t slot, std::span<const std::int64_t> offsets,
                               std::span<const std::int64_t> sizes, std::span<const std::int64_t> local_offsets,
                               std::int32_t term) {
  list& l = *state_->made;
  const std::size_t rank = l.shape.rank();
  if (offsets.size() != rank || sizes.size() != rank || (!local_offsets.empty() && local_offsets.size() != rank)) {
    if (state_->first_error.code == errc::ok)
      state_->first_error = fail(errc::shape_mismatch, fmt::format("a fragment has {}, but its tensor has {}",
                                                                   detail::counted(sizes.size(), "dimension"), rank))
                                .with_rank(owner);
    return;
  }
  l.offsets.insert(l.offsets.end(), offsets.begin(), offsets.end());
  l.sizes.insert(l.sizes.end(), sizes.begin(), sizes.end());
  if (local_offsets.empty())
    l.local_offsets.resize(l.local_offsets.size() + rank, 0);
  else
    l.local_offsets.insert(l.local_offsets.end(), local_offsets.begin(), local_offsets.end());
  l.owner.push_back(owner);
  l.slot.push_back(slot);
  l.term.push_back(term);
}

void distribution_builder::at_least_owners(owner_id count) {
  state_->made->owners = std::max(state_->made->owners, count);
}

result<distribution> distribution_builder::finish() {
  list& l = *state_->made;
  if (state_->first_error.code != errc::ok) return state_->first_error;
  if (l.owner.size() > std::numeric_limits<std::uint32_t>::max() / 4)
    return fail(errc::overflow, "the distribution has more than 2^30 fragments");
  bool sorted = true;
  for (std::uint32_t i = 0; i < l.owner.size(); ++i) {
    const std::size_t rank = l.shape.rank();
    const auto of = [&](const numbers& all) { return std::span(all).subspan(i * rank, rank); };
    if (const auto valid = check(l, {of(l.offsets), of(l.sizes), of(l.local_offsets), l.owner[i], l.term[i]}); !valid)
      return valid.error();
    l.owners = std::max(l.owners, l.owner[i] + 1);
    l.terms = std::max(l.terms, l.term[i] + 1);
    sorted = sorted && (i == 0 || !state_->before(i, i - 1));
  }
  if (!sorted) {
    // Owner, slot, and first offset nearly always decide the order. They are stored beside the index, so that sorting
    // stays in cache.
    struct entry {
      std::uint64_t place;
      std::int64_t first;
      std::uint32_t index;
    };
    std::vector<entry> entries(l.owner.size());
    const std::size_t rank = l.shape.rank();
    for (std::uint32_t i = 0; i < entries.size(); ++i)
      entries[i] = {static_cast<std::uint64_t>(static_cast<std::uint32_t>(l.owner[i])) << 32 |
                        (static_cast<std::uint32_t>(l.slot[i]) ^ 0x80000000U),
                    rank == 0 ? 0 : l.offsets[i * rank], i};
    std::sort(entries.begin(), entries.end(), [&](const entry& a, const entry& b) {
      if (a.place != b.place) return a.place < b.place;
      return a.first != b.first ? a.first < b.first : state_->before(a.index, b.index);
    });
    std::vector<std::uint32_t> order(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) order[i] = entries[i].index;
    for (numbers* values : {&l.offsets, &l.sizes, &l.local_offsets}) reorder(*values, order, l.shape.rank());
    reorder(l.owner, order, 1);
    reorder(l.slot, order, 1);
    reorder(l.term, order, 1);
  }
  for (numbers* values : {&l.offsets, &l.sizes, &l.local_offsets}) values->shrink_to_fit();
  l.build_index();
  return distribution(std::exchange(state_->made, std::make_shared<list>()));
}

result<distribution> distribution::from_fragments(const extents& shape, std::span<const fragment> fragments,
                                                  owner_space space, reduce_op reduction) {
  if (fragments.size() == 1 && reduction == reduce_op::none && fragments[0].where.rank() == shape.rank() &&
      fragments[0].local_offsets.rank() == shape.rank()) {
    const auto made = std::make_shared<one_fragment>();
    made->shape = shape;
    made->space = space;
    made->held = fragments[0];
    const fragment& f = made->held;
    SHARDMESH_TRY(check_shape(shape));
    SHARDMESH_TRY(check(*made, {f.where.offsets, f.where.sizes, f.local_offsets, f.owner, f.term}));
    made->owners = f.owner + 1;
    return distribution(made);
  }
  distribution_builder builder(shape, space, reduction);
  builder.reserve(fragments.size());
  for (const fragment& f : fragments) builder.add(f);
  return builder.finish();
}

}  // namespace shardmesh
