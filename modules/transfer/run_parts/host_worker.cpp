// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :host_worker;
import :lent_pieces;
import :message_packing;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :scratch;
import :step_memory;
import :transfer_names;

namespace shardmesh {

host_worker::host_worker(step_memory& steps, const transfer_names& names, run_call& call, scratch& room,
                         lent_pieces& lenders, round_messages& messages, std::size_t most_receives)
    : steps_(steps),
      names_(names),
      call_(call),
      messages_(messages),
      packing_(steps, names, call, room, lenders, messages, most_receives) {}

result<void> host_worker::start_round(const route_cursor& at) {
  if (!at.is_delivering()) SHARDMESH_TRY(packing_.reserve(at.batch()));
  SHARDMESH_TRY(packing_.start(at));
  return work_through(at.round().early, at);
}

result<void> host_worker::read_round(const route_cursor& at) {
  for (const task& work : at.round().late) {
    const step s = steps_.step_of(work);
    if (work.message == no_message) {
      SHARDMESH_TRY(carry_out(work, s, steps_.source_of(work, s, at), at));
    } else if (messages_.lends()) {
      SHARDMESH_TRY(carry_out(work, s, messages_.borrowed_piece(work.message, work.piece), at));
    } else if (std::byte* const message = packing_.arrived(work.message); message != nullptr) {
      const dtype type = steps_.type_in_message(work, s);
      SHARDMESH_TRY(carry_out(work, s, row_major(message + work.offset, type, s.where.sizes), at));
    } else {
      call_.report(steps_.bytes_in_message(work, s));
    }
  }
  return {};
}

result<void> host_worker::end_round(const route_cursor& at) {
  if (at.is_delivering()) return work_through(at.batch().finish, at);
  SHARDMESH_TRY(work_through(at.batch().middle, at));
  return round_sums(at.batch());
}

result<void> host_worker::work_through(std::span<const task> tasks, const route_cursor& at) {
  for (const task& work : tasks) {
    const step s = steps_.step_of(work);
    SHARDMESH_TRY(carry_out(work, s, steps_.source_of(work, s, at), at));
  }
  return {};
}

result<void> host_worker::carry_out(const task& work, const step& s, const const_tensor_view& from,
                                    const route_cursor& at) {
  const tensor_view to = steps_.target_of(work, s, at);
  const auto act = [&]() -> result<void> {
    switch (s.kind) {
      case step_kind::copy:
        return is_same_memory(to, from) ? result<void>() : copy(to, from);
      case step_kind::accumulate:
        return accumulate(to, from, s.reduction);
      case step_kind::fill:
        return fill_identity(to, s.reduction);
      case step_kind::divide:  // multiplying by 1 / n would round twice
        return divide(to, static_cast<double>(s.factor));
      case step_kind::scale:
        break;
    }
    return scale(to, static_cast<double>(s.factor));
  };
  if (auto done = act(); !done) return names_.located(std::move(done).error(), work, s);
  const std::int64_t size_bytes = steps_.bytes_in_message(work, s);
  if (s.kind == step_kind::copy || s.kind == step_kind::accumulate) call_.report(size_bytes);
  return check_interruption(size_bytes);
}

// Rounds sums in a wider type to the source's type, in place. Rounded elements are narrower, so writing them never
// overtakes reading.
result<void> host_worker::round_sums(const batch_route& batch) {
  constexpr std::int64_t block = 1024;
  std::byte rounded[block * 16];
  for (const staging_region& region : batch.regions) {
    const transfer_types& types = steps_.types_of(region.transfer);
    if (types.sum == types.from) continue;
    const std::int64_t wide = item_bytes(types.sum), narrow = item_bytes(types.from);
    std::byte* const begin = steps_.staging() + region.offset;
    for (std::int64_t i = 0; i < region.volume; i += block) {
      const std::int64_t n = std::min(block, region.volume - i);
      SHARDMESH_TRY(copy(row_major(rounded, types.from, {n}), row_major(begin + i * wide, types.sum, {n})));
      std::memcpy(begin + i * narrow, rounded, static_cast<std::size_t>(n * narrow));
    }
  }
  return {};
}

// Checks between pieces of work whether the run must stop.
result<void> host_worker::check_interruption(std::int64_t bytes) {
  if (!call_.is_check_due(bytes)) return {};
  SHARDMESH_TRY(call_.check());
  return messages_.check_interruption();
}

}  // namespace shardmesh
