// SPDX-License-Identifier: Apache-2.0
// The transfers of a run that are collectives of the communicator: slab by slab, before the batches. The choice of
// these transfers is in `collective`.
module;
#include <shardmesh/try.hpp>

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

// A slab of a fragment in its slot. `slab` is in the fragment's own index space.
template <tensor_view_type View>
View part_of(const View& slot, const fragment& f, const box& slab) {
  extents offsets = f.local_offsets;
  for (std::size_t d = 0; d < offsets.rank(); ++d) offsets[d] += slab.offsets[d];
  return *piece_of(slot, offsets, slab.sizes);
}

}  // namespace

// Starts the collective of one slab: a slab of the whole tensor, or the same slab of every rank's block.
result<void> executor::state::begin_slab(const collective_use& use) {
  const dtype type = plan.transfers()[use.transfer].from_type;
  const device where = comm_.memory();
  const std::int64_t slab_bytes = slab_.volume() * (bits(type) / 8);
  const std::int64_t sent = use.held ? use.sent() : 0, received = use.received();
  const auto source = [&](std::int64_t b) {
    return block_of(memory_.source(use.transfer, use.held->slot), use, true, b);
  };
  const bool is_whole = slab_.sizes == use.block();
  // Blocks lie one after another, either in the tensor itself or packed.
  const bool sends_directly =
      sent == 0 || (sent == 1 ? is_contiguous(source(0))
                              : is_whole && is_contiguous(part_of(memory_.source(use.transfer, use.held->slot),
                                                                  *use.held, box::whole(use.held->where.sizes))));
  const tensor_view target = target_block(use, 0);
  const bool receives_directly =
      received == 1 ? is_contiguous(target)
                    : is_whole && is_contiguous(part_of(memory_.destination(use.transfer, use.wanted.slot), use.wanted,
                                                        box::whole(use.wanted.where.sizes)));
  const std::int64_t to_pack = sends_directly ? 0 : sent * slab_bytes;
  const std::int64_t to_receive = receives_directly ? 0 : received * slab_bytes;
  std::byte* room = nullptr;
  if (batched_) {
    room = batched_->scratch.data();
  } else {
    SHARDMESH_TRY(room, scratch_.reserve(to_pack + to_receive));
  }
  const std::byte* out = sent == 0 ? nullptr : source(0).data;
  if (!sends_directly) {
    for (std::int64_t b = 0; b < sent; ++b)
      SHARDMESH_TRY(copy_between(row_major(room + b * slab_bytes, type, where, slab_.sizes), source(b), stream_call()));
    out = room;
  }
  landing_ = receives_directly ? target.data : room + to_pack;
  const std::span<const std::byte> send(out, static_cast<std::size_t>(sent * slab_bytes));
  const std::span<std::byte> receive(landing_, static_cast<std::size_t>(received * slab_bytes));
  SHARDMESH_TRY(exchange_, start_collective(use, type, send, receive));
  return {};
}

result<pending> executor::state::start_collective(const collective_use& use, dtype type,
                                                  std::span<const std::byte> send, std::span<std::byte> receive) const {
  const call_options call = stream_call();
  const communicator_ref comm = use.groups ? groups_[*use.groups] : comm_;
  switch (use.kind) {
    case collective_kind::all_reduce:
      return comm.all_reduce(send, receive, type, use.op, call);
    case collective_kind::reduce_scatter:
      return comm.reduce_scatter(send, receive, type, use.op, call);
    case collective_kind::all_gather:
      return comm.all_gather_into(send, receive, call);
    case collective_kind::broadcast:
      break;
  }
  return comm.broadcast(send, receive, use.root, call);
}

result<void> executor::state::end_slab(const collective_use& use) {
  const dtype type = plan.transfers()[use.transfer].from_type;
  const std::int64_t slab_bytes = slab_.volume() * (bits(type) / 8), received = use.received();
  if (target_block(use, 0).data != landing_)
    for (std::int64_t b = 0; b < received; ++b)
      SHARDMESH_TRY(copy_between(target_block(use, b),
                                 row_major(landing_ + b * slab_bytes, type, comm_.memory(), slab_.sizes),
                                 stream_call()));
  report(received * slab_bytes);
  return check_interruption(received * slab_bytes);
}

// The destination of block `b` of the slab. Only gathers have several blocks.
tensor_view executor::state::target_block(const collective_use& use, std::int64_t b) const {
  return block_of(memory_.destination(use.transfer, use.wanted.slot), use, false, b);
}

// Block `b` is the block of rank b along the first dimension.
template <tensor_view_type View>
View executor::state::block_of(const View& slot, const collective_use& use, bool is_source, std::int64_t b) const {
  box one = slab_;
  if (b > 0) one.offsets[0] += b * use.block()[0];
  return part_of(slot, is_source ? *use.held : use.wanted, one);
}

result<bool> executor::state::advance_collectives(bool may_block) {
  while (collective_ < collectives_.size()) {
    const collective_use& use = collectives_[collective_];
    if (!slabs_) {
      const std::int64_t item = bits(plan.transfers()[use.transfer].from_type) / 8;
      slabs_.emplace(box::whole(use.block()), std::max<std::int64_t>(use.slab_bytes / item, 1));
    }
    if (!in_slab_) {
      const auto slab = slabs_->next();
      if (!slab) {
        slabs_.reset();
        ++collective_;
        continue;
      }
      slab_ = *slab;
      SHARDMESH_TRY(begin_slab(use));
      in_slab_ = true;
    }
    if (!may_block && !is_on_stream() && !exchange_.done()) return false;
    SHARDMESH_TRY(exchange_.wait());
    in_slab_ = false;
    SHARDMESH_TRY(end_slab(use));
  }
  return true;
}

}  // namespace shardmesh
