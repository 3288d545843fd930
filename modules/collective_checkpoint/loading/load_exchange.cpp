// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.layout;
import shardmesh.transfer;
import :load_exchange;
import :load_share;
import :rank_requests;
import :rank_side;

namespace shardmesh {

result<load_exchange> exchange_of(const load_share& share, const rank_requests& requests, const catalog& contents,
                                  std::int32_t rank) {
  load_exchange made;
  for (const shared_tensor& tensor : share.shared) {
    const tensor_entry& stored = contents.tensors[tensor.stored];
    rank_side readers(stored.shape), receivers(stored.shape);
    const_tensor_binding source;
    tensor_binding destination;
    for (const shared_part& one : tensor.parts) {
      const load_request& mine = *requests.part_of(tensor.stored, one.part);
      readers.add(one.reads ? rank : one.peers.front(), mine.where);
      if (one.reads) {
        source.slots.push_back(mine.to);
        for (const std::int32_t peer : one.peers) receivers.add(peer, mine.where);
      } else {
        destination.slots.push_back(mine.to);
        receivers.add(rank, mine.where);
        made.received_bytes += bytes_of(mine);
      }
    }
    SHARDMESH_TRY(distribution held, readers.finish(stored.key));
    SHARDMESH_TRY(distribution wanted, receivers.finish(stored.key));
    made.transfers.push_back({std::move(held), std::move(wanted), tensor.type, tensor.type});
    made.keys.push_back(stored.key);
    made.from.push_back(std::move(source));
    made.to.push_back(std::move(destination));
  }
  return made;
}

std::int64_t bytes_of(const load_request& part) {
  return size_bytes(part.to.type, part.where.volume()).value_or(0);
}

}  // namespace shardmesh
