// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>
#include <strided_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :route;

namespace shardmesh {
namespace {

using detail::byte_range;

detail::strided_memory memory_of(const const_tensor_view& view) {
  return detail::memory_of(view, bits(view.type));
}

// Whether some byte belongs to both views. Views that take too long to compare count as sharing.
bool share_memory(const const_tensor_view& a, const const_tensor_view& b) {
  return detail::share_a_byte(memory_of(a), memory_of(b)).value_or(true);
}

// Whether the rows of a sub-byte view are dense and begin at whole bytes. A slot that is one dense run and moves whole
// also passes.
bool has_whole_byte_rows(const const_tensor_view& view, const box& region) {
  const std::int64_t width = bits(view.type);
  const std::size_t rank = view.sizes.rank();
  if (width % 8 == 0 || rank == 0) return true;
  if (is_contiguous(view) && region == box::whole(view.sizes)) return true;
  bool whole = view.strides[rank - 1] == 1;
  for (std::size_t d = 0; d + 1 < rank; ++d) whole = whole && view.strides[d] * width % 8 == 0;
  return whole;
}

struct used_range {
  byte_range where;
  const slot_need* need = nullptr;
  bool is_source = false;
};

bool is_same_view(const const_tensor_view& a, const const_tensor_view& b) {
  return a.data == b.data && a.type == b.type && a.where == b.where && a.sizes == b.sizes && a.strides == b.strides;
}

template <tensor_view_type View>
bool have_same_shapes(const std::vector<View>& a, const std::vector<View>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const View& x, const View& y) {
    return x.type == y.type && x.sizes == y.sizes && x.strides == y.strides;
  });
}

}  // namespace

bound_memory::bound_memory(const transfer_plan& plan, owner_id rank, device memory)
    : plan_(plan),
      rank_(rank),
      memory_(memory),
      sources_(side_of<const_tensor_view>(plan, rank)),
      destinations_(side_of<tensor_view>(plan, rank)) {}

template <tensor_view_type View>
bound_memory::side<View> bound_memory::side_of(const transfer_plan& plan, owner_id rank) {
  side<View> made;
  std::size_t next = 0;
  for (std::size_t t = 0; t < plan.transfers().size(); ++t) {
    const tensor_transfer& transfer = plan.transfers()[t];
    std::vector<slot_need> needs;
    (made.is_source ? transfer.from : transfer.to).fragments_of(rank, [&](const fragment& f) {
      if (f.where.is_empty()) return true;
      if (needs.empty() || needs.back().slot != f.slot)  // in slot order
        needs.push_back({static_cast<std::uint32_t>(t), f.slot, {f.local_offsets, f.where.sizes}});
      box& region = needs.back().region;
      for (std::size_t d = 0; d < region.rank(); ++d) {
        const std::int64_t end = std::max(region.end(d), f.local_offsets[d] + f.where.sizes[d]);
        region.offsets[d] = std::min(region.offsets[d], f.local_offsets[d]);
        region.sizes[d] = end - region.offsets[d];
      }
      return true;
    });
    made.first.push_back(next);
    made.slots.push_back(needs.empty() ? 0 : static_cast<std::size_t>(needs.back().slot) + 1);
    next += made.slots.back();
    made.needs.insert(made.needs.end(), needs.begin(), needs.end());
  }
  made.bound.resize(next);
  made.views.resize(next);
  return made;
}

template <tensor_view_type View>
bool bound_memory::is_bound(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings) {
  for (std::size_t t = 0; t < s.slots.size(); ++t) {
    if (bindings[t].problem || bindings[t].slots.size() < s.slots[t]) return false;
    for (std::size_t i = 0; i < s.slots[t]; ++i)
      if (!is_same_view(bindings[t].slots[i], s.bound[s.first[t] + i])) return false;
  }
  return true;
}

template <tensor_view_type View>
result<void> bound_memory::check(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings,
                                 function_ref<std::string(std::size_t)> name_of) const {
  const char* const word = s.is_source ? "source" : "destination";
  for (std::size_t t = 0; t < bindings.size(); ++t)
    if (bindings[t].problem) return error(*bindings[t].problem).with_key(name_of(t)).with_rank(rank_);
  for (const slot_need& need : s.needs) {
    const std::size_t t = need.transfer;
    const dtype type = s.is_source ? plan_.transfers()[t].from_type : plan_.transfers()[t].to_type;
    const auto problem = [&](errc code, const std::string& what) {
      return fail(code, fmt::format("slot {} of the {} {}", need.slot, word, what))
          .with_key(name_of(t))
          .with_rank(rank_)
          .with_box(need.region);
    };
    const std::vector<View>& slots = bindings[t].slots;
    if (static_cast<std::size_t>(need.slot) >= slots.size())
      return problem(errc::invalid_argument, "is not bound")
          .with_values(fmt::format("{} or more", detail::counted(need.slot + 1, "slot")),
                       fmt::format("{}", slots.size()));
    const View& view = slots[static_cast<std::size_t>(need.slot)];
    if (const auto reached = check_reachable(view); !reached)
      return problem(errc::unsupported, "lies in memory that no backend reaches")
          .with_values(reached.error().expected, reached.error().found)
          .with_hint(reached.error().hint);
    if (view.data == nullptr) return problem(errc::invalid_argument, "has no memory");
    if (view.type != type)
      return problem(errc::dtype_mismatch, "has another dtype")
          .with_values(std::string(name(type)), std::string(name(view.type)));
    extents least = need.region.sizes;
    for (std::size_t d = 0; d < least.rank(); ++d) least[d] = need.region.end(d);
    const bool may_be_larger = bindings[t].room == slot_room::larger;
    bool fits = view.sizes.rank() == least.rank() && view.strides.rank() == least.rank();
    for (std::size_t d = 0; fits && d < least.rank(); ++d) fits = least[d] <= view.sizes[d];
    if (!fits)
      return problem(errc::shape_mismatch, "does not hold its fragments")
          .with_values(fmt::format("{}{}", to_string(least), may_be_larger ? " or larger" : ""), to_string(view.sizes));
    if (!may_be_larger && view.sizes != least)
      return problem(errc::shape_mismatch, "is larger than this rank's part of the tensor")
          .with_values(to_string(least), to_string(view.sizes))
          .with_hint("bind only the part; in C++, slot_room::larger accepts a larger buffer");
    if (!s.is_source)
      if (const auto fillable = check_fillable(view); !fillable)
        return problem(errc::unsupported, "has several elements at one address")
            .with_values(fillable.error().expected, fillable.error().found)
            .with_hint(fillable.error().hint);
    if (!has_whole_byte_rows(view, need.region))
      return problem(errc::unaligned, "has rows that do not begin at byte boundaries");
  }
  return {};
}

template <tensor_view_type View>
result<void> bound_memory::keep(side<View>& s, std::span<const basic_tensor_binding<View>> bindings) {
  for (std::size_t t = 0; t < s.slots.size(); ++t)
    for (std::size_t i = 0; i < s.slots[t]; ++i) s.bound[s.first[t] + i] = bindings[t].slots[i];
  s.views = s.bound;
  for (const slot_need& need : s.needs) {
    View& view = s.views[s.first[need.transfer] + static_cast<std::size_t>(need.slot)];
    if (staging_copies::lies_in(view, memory_)) continue;
    extents reached = need.region.sizes;
    for (std::size_t d = 0; d < reached.rank(); ++d) reached[d] = need.region.end(d);
    view.sizes = reached;  // the slot may be larger
    if constexpr (side<View>::is_source) {
      SHARDMESH_TRY(view, copies_.of_source(view, memory_));
    } else {
      SHARDMESH_TRY(view, copies_.of_destination(view, memory_, is_written_whole(need)));
    }
  }
  return {};
}

// Whether the fragments of a destination's slot cover all of it, so that no old element remains visible.
bool bound_memory::is_written_whole(const slot_need& need) const {
  std::int64_t written = 0;
  plan_.transfers()[need.transfer].to.fragments_of(rank_, [&](const fragment& f) {
    if (f.slot == need.slot) written += f.where.volume();
    return true;
  });
  return need.region.offsets == extents::filled(need.region.rank(), 0) && written == need.region.volume();
}

// Whether the run leaves this slot unchanged: it only copies elements onto themselves.
bool bound_memory::stays_as_it_is(const route& r, const slot_need& need) const {
  const step_table& steps = r.steps.steps(need.transfer);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const step s = steps[i];
    if (s.to.owner != rank_ || s.to.side != buffer_side::destination || s.to.slot != need.slot) continue;
    if (s.kind != step_kind::copy || s.from.owner != rank_ || s.from.side != buffer_side::source) return false;
    const auto from = piece_of(sources_.bound[source_index(need.transfer, s.from.slot)], s.from.offsets, s.where.sizes);
    const auto to =
        piece_of(destinations_.bound[destination_index(need.transfer, s.to.slot)], s.to.offsets, s.where.sizes);
    if (!from || !to || !is_same_memory(*from, *to)) return false;
  }
  return true;
}

// The part of a slot that its fragments need.
const_tensor_view bound_memory::needed_part(const slot_need& need, bool is_source) const {
  const const_tensor_view slot =
      is_source ? sources_.bound[source_index(need.transfer, need.slot)]
                : const_tensor_view(destinations_.bound[destination_index(need.transfer, need.slot)]);
  return piece_of(slot, need.region.offsets, need.region.sizes).value_or(slot);
}

// Rejects memory that the run would both read and write. Sweeps over the slots by address.
result<void> bound_memory::check_sharing(const route& r, function_ref<std::string(std::size_t)> name_of) const {
  std::vector<used_range> all;
  for (const bool is_source : {true, false})
    for (const slot_need& need : is_source ? sources_.needs : destinations_.needs)
      all.push_back({memory_of(needed_part(need, is_source)).hull(), &need, is_source});
  std::sort(all.begin(), all.end(), [](const used_range& a, const used_range& b) {
    return a.where.begin != b.where.begin ? a.where.begin < b.where.begin : a.is_source > b.is_source;
  });
  std::vector<const used_range*> open;  // those that reach beyond the current one
  for (const used_range& one : all) {
    std::erase_if(open, [&](const used_range* other) { return other->where.end <= one.where.begin; });
    for (const used_range* other : open) {
      if (other->is_source == one.is_source) continue;
      const slot_need& from = *(one.is_source ? one : *other).need;
      const slot_need& to = *(one.is_source ? *other : one).need;
      if (!share_memory(needed_part(from, true), needed_part(to, false)) || stays_as_it_is(r, to)) continue;
      return fail(errc::invalid_argument,
                  fmt::format("slot {} of the destination shares memory with slot {} of the source of '{}', and "
                              "the transfer changes it",
                              to.slot, from.slot, name_of(from.transfer)))
          .with_key(name_of(to.transfer))
          .with_rank(rank_)
          .with_box(to.region)
          .with_hint("bind another destination");
    }
    open.push_back(&one);
  }
  return {};
}

result<void> bound_memory::bind(const route& r, std::span<const const_tensor_binding> from,
                                std::span<const tensor_binding> to, function_ref<std::string(std::size_t)> name_of) {
  const std::size_t transfers = plan_.transfers().size();
  for (const auto& [bindings, word] : {std::pair(from.size(), "source"), std::pair(to.size(), "destination")})
    if (bindings != transfers)
      return fail(errc::invalid_argument, fmt::format("the {} needs one binding per transfer", word))
          .with_rank(rank_)
          .with_values(fmt::to_string(transfers), fmt::to_string(bindings));
  if (bound_ && is_bound(sources_, from) && is_bound(destinations_, to)) return {};
  bound_ = false;
  copies_.clear();
  SHARDMESH_TRY(check(sources_, from, name_of));
  SHARDMESH_TRY(check(destinations_, to, name_of));
  const std::vector<const_tensor_view> sources = sources_.views;
  const std::vector<tensor_view> destinations = destinations_.views;
  SHARDMESH_TRY(keep(sources_, from));
  SHARDMESH_TRY(keep(destinations_, to));
  if (shapes_ == 0 || !have_same_shapes(sources, sources_.views) ||
      !have_same_shapes(destinations, destinations_.views))
    ++shapes_;
  SHARDMESH_TRY(check_sharing(r, name_of));
  bound_ = true;
  return {};
}

}  // namespace shardmesh
