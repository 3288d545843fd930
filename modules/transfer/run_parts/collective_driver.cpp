// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :collective;
import :collective_driver;
import :route;
import :run_call;
import :scratch;
import :step_memory;

namespace shardmesh {
namespace {

// A slab of a fragment in its slot. `slab` is in the fragment's own index space.
template <tensor_view_type View>
View part_of(const View& slot, const fragment& f, const box& slab) {
  extents offsets = f.local_offsets;
  for (std::size_t d = 0; d < offsets.rank(); ++d) offsets[d] += slab.offsets[d];
  return *piece_of(slot, offsets, slab.sizes);
}

// The whole fragment in its slot.
template <tensor_view_type View>
View whole_of(const View& slot, const fragment& f) {
  return part_of(slot, f, box::whole(f.where.sizes));
}

// The slab in block `b` of the fragment: the block of rank b along the first dimension.
box in_block(const box& slab, const collective_use& use, std::int64_t b) {
  box moved = slab;
  if (b > 0) moved.offsets[0] += b * use.block()[0];
  return moved;
}

// The source of block `b` of the slab. Precondition: this rank holds something.
const_tensor_view source_of(const bound_memory& bound, const collective_use& use, const box& slab, std::int64_t b) {
  return part_of(bound.source(use.transfer, use.held->slot), *use.held, in_block(slab, use, b));
}

// The destination of block `b` of the slab. Only gathers have several blocks.
tensor_view target_of(const bound_memory& bound, const collective_use& use, const box& slab, std::int64_t b) {
  return part_of(bound.destination(use.transfer, use.wanted.slot), use.wanted, in_block(slab, use, b));
}

}  // namespace

collective_driver::collective_driver(communicator_ref comm, std::vector<communicator_ref> groups,
                                     std::vector<collective_use> uses, const route& r, const bound_memory& bound,
                                     run_call& call, scratch& host_room)
    : comm_(comm),
      groups_(std::move(groups)),
      uses_(std::move(uses)),
      route_(r),
      bound_(bound),
      call_(call),
      host_room_(host_room) {
  for (const collective_use& use : uses_) {
    const std::int64_t item = bits(type_of(use)) / 8;
    const std::int64_t slab_bytes = std::min(slab_elements(use) * item, box::whole(use.block()).volume() * item);
    // The packed slab, and the place where it arrives.
    room_bytes_ = std::max(room_bytes_, (use.sent() + use.received()) * slab_bytes);
  }
}

std::int64_t collective_driver::slab_elements(const collective_use& use) const {
  return std::max<std::int64_t>(use.slab_bytes / (bits(type_of(use)) / 8), 1);
}

void collective_driver::begin() {
  next_ = 0;
  slabs_.reset();
  slab_.reset();
}

result<bool> collective_driver::advance(bool may_block, std::byte* device_room) {
  while (next_ < uses_.size()) {
    const collective_use& use = uses_[next_];
    if (!slabs_) slabs_.emplace(box::whole(use.block()), slab_elements(use));
    if (!slab_) {
      slab_ = slabs_->next();
      if (!slab_) {
        slabs_.reset();
        ++next_;
        continue;
      }
      SHARDMESH_TRY(begin_slab(use, *slab_, device_room));
    }
    if (!may_block && !call_.is_on_stream() && !in_flight_.done()) return false;
    SHARDMESH_TRY(in_flight_.wait());
    SHARDMESH_TRY(end_slab(use, *slab_));
    slab_.reset();
  }
  return true;
}

void collective_driver::end_aborted() {
  static_cast<void>(in_flight_.wait());
}

// Starts the collective of one slab: a slab of the whole tensor, or the same slab of every rank's block.
result<void> collective_driver::begin_slab(const collective_use& use, const box& slab, std::byte* device_room) {
  const dtype type = type_of(use);
  const std::int64_t slab_bytes = slab.volume() * (bits(type) / 8);
  const std::int64_t sent = use.held ? use.sent() : 0, received = use.received();
  const bool is_whole = slab.sizes == use.block();
  // Blocks lie one after another, either in the tensor itself or packed.
  const bool sends_directly =
      sent == 0 ||
      (sent == 1 ? is_contiguous(source_of(bound_, use, slab, 0))
                 : is_whole && is_contiguous(whole_of(bound_.source(use.transfer, use.held->slot), *use.held)));
  const tensor_view target = target_of(bound_, use, slab, 0);
  const bool receives_directly =
      received == 1
          ? is_contiguous(target)
          : is_whole && is_contiguous(whole_of(bound_.destination(use.transfer, use.wanted.slot), use.wanted));
  const std::int64_t to_pack = sends_directly ? 0 : sent * slab_bytes;
  const std::int64_t to_receive = receives_directly ? 0 : received * slab_bytes;
  std::byte* room = device_room;
  if (room == nullptr) {
    SHARDMESH_TRY(room, host_room_.reserve(to_pack + to_receive));
  }
  const std::byte* out = sent == 0 ? nullptr : source_of(bound_, use, slab, 0).data;
  if (!sends_directly) {
    for (std::int64_t b = 0; b < sent; ++b)
      SHARDMESH_TRY(copy_between(row_major(room + b * slab_bytes, type, slab.sizes, comm_.memory()),
                                 source_of(bound_, use, slab, b), call_.on_stream()));
    out = room;
  }
  landing_ = receives_directly ? target.data : room + to_pack;
  SHARDMESH_TRY(in_flight_, start(use, {out, static_cast<std::size_t>(sent * slab_bytes)},
                                  {landing_, static_cast<std::size_t>(received * slab_bytes)}));
  return {};
}

result<pending> collective_driver::start(const collective_use& use, std::span<const std::byte> send,
                                         std::span<std::byte> receive) const {
  const call_options call = call_.on_stream();
  const communicator_ref comm = use.groups ? groups_[*use.groups] : comm_;
  switch (use.kind) {
    case collective_kind::all_reduce:
      return comm.all_reduce(send, receive, type_of(use), use.op, call);
    case collective_kind::reduce_scatter:
      return comm.reduce_scatter(send, receive, type_of(use), use.op, call);
    case collective_kind::all_gather:
      return comm.all_gather_into(send, receive, call);
    case collective_kind::broadcast:
      break;
  }
  return comm.broadcast(send, receive, use.root, call);
}

result<void> collective_driver::end_slab(const collective_use& use, const box& slab) {
  const dtype type = type_of(use);
  const std::int64_t slab_bytes = slab.volume() * (bits(type) / 8), received = use.received();
  if (target_of(bound_, use, slab, 0).data != landing_)
    for (std::int64_t b = 0; b < received; ++b)
      SHARDMESH_TRY(copy_between(target_of(bound_, use, slab, b),
                                 row_major(landing_ + b * slab_bytes, type, slab.sizes, comm_.memory()),
                                 call_.on_stream()));
  call_.report(received * slab_bytes);
  return call_.check_after(received * slab_bytes);
}

}  // namespace shardmesh
