// SPDX-License-Identifier: Apache-2.0
// all_gather: every rank sends its bytes to every other rank; the receivers learn the sizes from the messages. MPI's
// own collectives are not used, because they can neither be cancelled nor name the missing ranks.
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :engine;
import :record;
import :session;
import :staged;

namespace shardmesh::mpi {

result<std::vector<std::vector<std::byte>>> engine::all_gather(std::span<const std::byte> bytes,
                                                               const call_options& options) {
  if (is_forked()) return of_another_process();
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_));  // outlives an exception in `guarded`
  guard locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->tag = options.tag;
  e->call = options.name;
  e->is_gather = true;
  SHARDMESH_TRY(guarded(locked, *e, [&]() -> result<void> {
    SHARDMESH_TRY(begin_call(*e, options));
    all[static_cast<std::size_t>(rank_)].assign(bytes.begin(), bytes.end());
    e->event =
        trace_.begin("all_gather", e->tag, 2 * (size_ - 1), static_cast<std::int64_t>(bytes.size()), options.name);
    // Each rank begins with its neighbour, so that the ranks do not all send to the same rank at once.
    for (std::int32_t i = 1; i < size_ && !poison_; ++i) {
      const std::int32_t from = (rank_ + size_ - i) % size_;
      expect({.peer = from, .owner = e, .grows = &all[static_cast<std::size_t>(from)]});
    }
    for (std::int32_t i = 1; i < size_ && !poison_; ++i)
      announce({.peer = (rank_ + i) % size_, .bytes = bytes, .owner = e});
    if (poison_) return *poison_;
    return wait_for(locked, *e);
  }));
  trace_.end(e->event);
  return all;
}

}  // namespace shardmesh::mpi
