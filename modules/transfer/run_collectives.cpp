// SPDX-License-Identifier: Apache-2.0
// The part of a run that collectives of the communicator do, slab by slab, before the batches. Not here: which
// transfers (collective).
module;
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :collective;
import :rank_plan;
import :route;
import :run;

namespace shardmesh {
namespace {

tensor_view row_major(std::byte* data, dtype type, device where, const extents& sizes) {
  return {data, type, where, sizes, contiguous_strides(sizes)};
}

// A slab of a fragment in its slot. `slab` is of the fragment's own index space.
template <tensor_view_type View>
View part_of(const View& slot, const fragment& f, const box& slab) {
  extents offsets = f.local_offsets;
  for (std::size_t d = 0; d < offsets.rank(); ++d) offsets[d] += slab.offsets[d];
  return *piece_of(slot, offsets, slab.sizes);
}

}  // namespace

// One slab at a time: of the whole tensor, or of every rank's block alike.
result<void> executor::state::begin_slab(const collective_use& use) {
  const dtype type = plan.transfers()[use.transfer].from_type;
  const std::int64_t item = bits(type) / 8;
  const auto blocks = use.scatters ? static_cast<std::int64_t>(comm_.size()) : std::int64_t{1};
  const std::int64_t slab_bytes = slab_.volume() * item;
  const const_tensor_view& source = memory_.source(use.transfer, use.held.slot);
  const tensor_view target = part_of(memory_.destination(use.transfer, use.wanted.slot), use.wanted, slab_);
  const bool receives_directly = is_contiguous(target);
  const const_tensor_view first = part_of(source, use.held, slab_);
  const bool sends_directly =
      use.scatters ? slab_.sizes == use.wanted.where.sizes && is_contiguous(part_of(source, use.held, use.held.where))
                   : is_contiguous(first);
  const std::int64_t to_pack = sends_directly ? 0 : blocks * slab_bytes;
  std::byte* room = nullptr;
  if (batched_) {
    room = batched_->scratch.data();
  } else {
    SHARDMESH_TRY(room, scratch_.reserve(to_pack + (receives_directly ? 0 : slab_bytes)));
  }
  const device where = comm_.memory();
  const std::byte* sent = first.data;
  if (!sends_directly) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      box one = slab_;
      if (use.scatters) one.offsets[0] += b * use.wanted.where.sizes[0];
      SHARDMESH_CHECK(copy_between(row_major(room + b * slab_bytes, type, where, slab_.sizes),
                                   part_of(source, use.held, one), stream_call()));
    }
    sent = room;
  }
  landing_ = receives_directly ? target.data : room + to_pack;
  const std::span<const std::byte> send(sent, static_cast<std::size_t>(blocks * slab_bytes));
  const std::span<std::byte> receive(landing_, static_cast<std::size_t>(slab_bytes));
  SHARDMESH_TRY(exchange_, use.scatters ? comm_.reduce_scatter(send, receive, type, use.op, stream_call())
                                        : comm_.all_reduce(send, receive, type, use.op, stream_call()));
  return {};
}

result<void> executor::state::end_slab(const collective_use& use) {
  const dtype type = plan.transfers()[use.transfer].from_type;
  const tensor_view target = part_of(memory_.destination(use.transfer, use.wanted.slot), use.wanted, slab_);
  if (target.data != landing_) {
    SHARDMESH_CHECK(copy_between(target, row_major(landing_, type, comm_.memory(), slab_.sizes), stream_call()));
  }
  const std::int64_t size_bytes = slab_.volume() * (bits(type) / 8);
  report(size_bytes);
  return check_interruption(size_bytes);
}

result<bool> executor::state::advance_collectives(bool may_block) {
  while (collective_ < collectives_.size()) {
    const collective_use& use = collectives_[collective_];
    if (!slabs_) {
      const std::int64_t item = bits(plan.transfers()[use.transfer].from_type) / 8;
      const std::int64_t parts = use.scatters ? comm_.size() : 1;
      slabs_.emplace(box::whole(use.wanted.where.sizes), collective_bytes(plan) / item / parts);
    }
    if (!in_slab_) {
      const auto slab = slabs_->next();
      if (!slab) {
        slabs_.reset();
        ++collective_;
        continue;
      }
      slab_ = *slab;
      SHARDMESH_CHECK(begin_slab(use));
      in_slab_ = true;
    }
    if (!may_block && !is_on_stream() && !exchange_.done()) return false;
    SHARDMESH_CHECK(exchange_.wait());
    in_slab_ = false;
    SHARDMESH_CHECK(end_slab(use));
  }
  return true;
}

}  // namespace shardmesh
