// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

import shardmesh.kernels;

namespace shardmesh {
namespace {

using const_bytes = std::span<const std::byte>;
using bytes = std::span<std::byte>;

dtype wide(dtype type) {
  if (kind(type) == dtype_kind::floating && bits(type) < 32) return dtype::float32;
  return type == dtype::complex32 ? dtype::complex64 : type;
}

result<void> check_sizes(const message_group& group, const char* what, std::size_t expected, std::size_t found) {
  if (expected == found) return {};
  return fail(errc::invalid_argument, fmt::format("the sizes of the buffers of {} do not match", what))
      .with_rank(group.rank)
      .with_values(detail::counted(expected, "byte"), detail::counted(found, "byte"));
}

result<void> check_reduction(const message_group& group, const char* what, std::size_t size_bytes, dtype type,
                             reduce_op op) {
  if (bits(type) % 8 != 0 || !is_combinable(wide(type), op))
    return fail(errc::unsupported, fmt::format("{} of {} is not defined", to_string(op), name(type)))
        .with_rank(group.rank);
  const auto item = static_cast<std::size_t>(bits(type) / 8);
  if (size_bytes % item == 0) return {};
  return fail(errc::invalid_argument,
              fmt::format("the buffers of {} do not hold a whole number of {} elements", what, name(type)))
      .with_rank(group.rank)
      .with_values(fmt::format("a multiple of {} bytes", item), detail::counted(size_bytes, "byte"));
}

void copy_bytes(bytes to, const_bytes from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

// Starts an exchange with every other rank, without empty messages.
template <class SendTo, class ReceiveFrom>
result<pending> with_all(const message_group& group, const SendTo& send_to, const ReceiveFrom& receive_from,
                         const call_options& options) {
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < group.size; ++peer) {
    if (peer == group.rank) continue;
    if (const const_bytes part = send_to(peer); !part.empty()) sends.push_back({peer, part});
    if (const bytes room = receive_from(peer); !room.empty()) receives.push_back({peer, room});
  }
  return group.start(sends, receives, options);
}

tensor_view elements(std::byte* data, dtype type, std::int64_t count) {
  return {data, type, {}, {count}, {1}};
}
const_tensor_view elements(const std::byte* data, dtype type, std::int64_t count) {
  return {data, type, {}, {count}, {1}};
}

// A reduce_scatter or all_reduce in progress. It receives the terms of this rank's block and combines them; an
// all_reduce then sends the combined block to all ranks.
struct reduction final : pending::operation {
  message_group group;
  call_options options;
  const_bytes send;
  bytes receive;
  dtype type = dtype::undefined;
  reduce_op op = reduce_op::none;
  bool gathers = false;
  std::unique_ptr<std::byte[]> memory;  // the other ranks' terms, then the result in the wider type
  pending exchange;
  bool reduced = false;

  // The number of elements before the block of rank `r`.
  std::int64_t first(std::int32_t r) const {
    const auto count = static_cast<std::int64_t>(send.size()) / (bits(type) / 8);
    return count / group.size * r + std::min<std::int64_t>(count % group.size, r);
  }
  std::size_t begin(std::int32_t r) const { return static_cast<std::size_t>(first(r) * (bits(type) / 8)); }
  std::size_t size_of(std::int32_t r) const { return begin(r + 1) - begin(r); }
  const_bytes sent(std::int32_t r) const { return send.subspan(begin(r), size_of(r)); }
  bytes own_block() const { return gathers ? receive.subspan(begin(group.rank), size_of(group.rank)) : receive; }
  bytes room_of(std::int32_t r) const {
    const std::size_t block = size_of(group.rank);
    return {memory.get() + static_cast<std::size_t>(r < group.rank ? r : r - 1) * block, block};
  }

  result<void> start() {
    const auto terms = checked_multiply(static_cast<std::int64_t>(size_of(group.rank)), group.size - 1);
    const auto sum = checked_multiply(first(group.rank + 1) - first(group.rank), bits(wide(type)) / 8);
    const auto total = terms && sum ? checked_add(*terms, *sum) : std::nullopt;
    if (total) memory.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(*total)]);
    if (!memory)
      return fail(errc::no_memory, "there is not enough memory for the terms of a reduction").with_rank(group.rank);
    auto begun =
        with_all(group, [&](std::int32_t r) { return sent(r); }, [&](std::int32_t r) { return room_of(r); }, options);
    if (!begun) return std::move(begun).error();
    exchange = *std::move(begun);
    return {};
  }

  result<void> combine() {
    const bytes block = own_block();
    const std::int64_t count = first(group.rank + 1) - first(group.rank);
    if (count > 0) {
      const tensor_view sum =
          elements(memory.get() + size_of(group.rank) * static_cast<std::size_t>(group.size - 1), wide(type), count);
      for (std::int32_t r = 0; r < group.size; ++r) {
        const const_bytes held = r == group.rank ? sent(group.rank) : const_bytes(room_of(r));
        const const_tensor_view term = elements(held.data(), type, count);
        SHARDMESH_TRY(r == 0 ? copy(sum, term) : accumulate(sum, term, op));
      }
      if (op == reduce_op::avg) {
        SHARDMESH_TRY(divide(sum, group.size));
      }
      SHARDMESH_TRY(copy(elements(block.data(), type, count), sum));
    }
    reduced = true;
    if (!gathers) return {};
    auto begun = with_all(
        group, [&](std::int32_t) { return const_bytes(block); },
        [&](std::int32_t r) { return receive.subspan(begin(r), size_of(r)); }, options);
    if (!begun) return std::move(begun).error();
    exchange = *std::move(begun);
    return {};
  }

  std::optional<result<void>> failed;

  bool done() override {
    if (failed || !exchange.done()) return failed.has_value();
    if (reduced) return true;
    auto came = exchange.wait();
    if (came) came = combine();
    if (!came) failed = std::move(came);
    return failed.has_value() || exchange.done();
  }
  result<void> wait() override {
    if (failed) return *std::move(failed);
    SHARDMESH_TRY(exchange.wait());
    if (reduced) return {};
    SHARDMESH_TRY(combine());
    return exchange.wait();
  }
};

result<pending> reduced(message_group group, const_bytes send, bytes receive, dtype type, reduce_op op, bool gathers,
                        const call_options& options) {
  auto work = std::make_unique<reduction>();
  work->group = std::move(group);
  work->options = options;
  work->send = send;
  work->receive = receive;
  work->type = type;
  work->op = op;
  work->gathers = gathers;
  if (auto started = work->start(); !started) {
    // The other ranks do not know that this one has no memory, and would wait for its messages.
    if (started.error().code == errc::no_memory && work->group.abort) work->group.abort(started.error());
    return std::move(started).error();
  }
  return pending(std::move(work));
}

}  // namespace

result<pending> all_gather_into_by_messages(message_group group, const_bytes send, bytes receive,
                                            const call_options& options) {
  const auto size = static_cast<std::size_t>(group.size), block = send.size();
  SHARDMESH_TRY(check_sizes(group, "all_gather_into", block * size, receive.size()));
  const auto place = [&](std::int32_t r) { return receive.subspan(static_cast<std::size_t>(r) * block, block); };
  auto begun = with_all(group, [&](std::int32_t) { return send; }, place, options);
  if (begun) copy_bytes(place(group.rank), send);
  return begun;
}

result<pending> all_to_all_by_messages(message_group group, const_bytes send, bytes receive,
                                       const call_options& options) {
  SHARDMESH_TRY(check_sizes(group, "all_to_all", send.size(), receive.size()));
  const auto size = static_cast<std::size_t>(group.size), block = send.size() / size;
  SHARDMESH_TRY(check_sizes(group, "all_to_all", block * size, send.size()));
  const auto part = [&](auto all, std::int32_t r) { return all.subspan(static_cast<std::size_t>(r) * block, block); };
  auto begun = with_all(
      group, [&](std::int32_t r) { return part(send, r); }, [&](std::int32_t r) { return part(receive, r); }, options);
  if (begun) copy_bytes(part(receive, group.rank), part(send, group.rank));
  return begun;
}

result<pending> reduce_scatter_by_messages(message_group group, const_bytes send, bytes receive, dtype type,
                                           reduce_op op, const call_options& options) {
  SHARDMESH_TRY(
      check_sizes(group, "reduce_scatter", send.size(), receive.size() * static_cast<std::size_t>(group.size)));
  SHARDMESH_TRY(check_reduction(group, "reduce_scatter", receive.size(), type, op));
  return reduced(std::move(group), send, receive, type, op, false, options);
}

result<pending> all_reduce_by_messages(message_group group, const_bytes send, bytes receive, dtype type, reduce_op op,
                                       const call_options& options) {
  SHARDMESH_TRY(check_sizes(group, "all_reduce", send.size(), receive.size()));
  SHARDMESH_TRY(check_reduction(group, "all_reduce", receive.size(), type, op));
  return reduced(std::move(group), send, receive, type, op, true, options);
}

result<pending> broadcast_by_messages(message_group group, const_bytes send, bytes receive, std::int32_t root,
                                      const call_options& options) {
  if (root < 0 || root >= group.size)
    return fail(errc::invalid_argument, "the root of a broadcast is not in the group")
        .with_rank(group.rank)
        .with_values(fmt::format("ranks 0 to {}", group.size - 1), fmt::format("rank {}", root));
  const bool is_root = group.rank == root;
  SHARDMESH_TRY(check_sizes(group, "broadcast", is_root ? receive.size() : 0, send.size()));
  auto begun = with_all(
      group, [&](std::int32_t) { return is_root ? send : const_bytes(); },
      [&](std::int32_t r) { return r == root ? receive : bytes(); }, options);
  if (begun && is_root) copy_bytes(receive, send);
  return begun;
}

}  // namespace shardmesh
