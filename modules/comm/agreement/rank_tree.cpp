// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {
namespace {

// The difference between the waits of neighbours. All steps of 100,000 ranks are less than half a second, because a
// rank must get its error within a second of the deadline.
constexpr std::chrono::milliseconds step_of_patience(20);

// 64 bits: the numbers of the children of a rank that has none may be large.
std::int64_t first_child(std::int64_t rank) {
  return rank * rank_tree::fan_out + 1;
}

}  // namespace

std::int32_t rank_tree::parent() const {
  SHARDMESH_ASSERT(!is_root());
  return (rank - 1) / fan_out;
}

std::vector<std::int32_t> rank_tree::children() const {
  std::vector<std::int32_t> made;
  const std::int64_t first = first_child(rank), last = std::min<std::int64_t>(first + fan_out, size);
  for (std::int64_t child = first; child < last; ++child) made.push_back(static_cast<std::int32_t>(child));
  return made;
}

std::int32_t rank_tree::depth() const {
  std::int32_t levels = 0;
  for (std::int32_t at = rank; at != 0; at = (at - 1) / fan_out) ++levels;
  return levels;
}

std::int32_t rank_tree::height() const {
  std::int32_t levels = 0;
  // No descendant is deeper than the first children.
  for (std::int64_t at = first_child(rank); at < size; at = first_child(at)) ++levels;
  return levels;
}

std::int32_t rank_tree::patience_with_children() const {
  return height() - 1;
}

std::int32_t rank_tree::patience_with_parent() const {
  return rank_tree{0, size}.height() + depth();
}

tree_messages::tree_messages(communicator_ref comm, const call_options& call)
    : comm_(comm), place_{comm.rank(), comm.size()}, children_(place_.children()), call_(call) {
  call_.tag = tree_tag;
}

call_options tree_messages::patient(std::int32_t steps) const {
  call_options made = call_;
  if (!made.within) return made;
  const time_limit::time_point end = *made.within;
  // A call that begins too late fails at once.
  if (end <= std::chrono::steady_clock::now() || end > time_limit::time_point::max() - std::chrono::seconds(1))
    return made;
  made.within = time_limit(end + steps * step_of_patience);
  return made;
}

result<std::vector<std::vector<std::byte>>> tree_messages::receive_from_children(std::size_t size_bytes) const {
  std::vector<std::vector<std::byte>> received(children_.size(), std::vector<std::byte>(size_bytes));
  if (received.empty()) return received;
  std::vector<incoming> receives;
  for (std::size_t i = 0; i < received.size(); ++i) receives.push_back({children_[i], received[i]});
  SHARDMESH_TRY(move_messages(comm_, {}, receives, patient(place_.patience_with_children())));
  return received;
}

result<std::vector<std::byte>> tree_messages::ask_parent(std::span<const std::byte> message,
                                                         std::size_t answer_bytes) const {
  std::vector<std::byte> answer(answer_bytes);
  const outgoing send{place_.parent(), message};
  const incoming receive{place_.parent(), answer};
  SHARDMESH_TRY(move_messages(comm_, {&send, 1}, {&receive, 1}, patient(place_.patience_with_parent())));
  return answer;
}

result<void> tree_messages::send_to_children(std::span<const std::byte> bytes) const {
  std::vector<outgoing> sends;
  for (const std::int32_t child : children_) sends.push_back({child, bytes});
  return move_messages(comm_, sends, {}, call_);
}

result<std::vector<std::vector<std::byte>>> tree_messages::receive_any_from_children() const {
  return receive_sized(comm_, children_, call_);
}

result<void> tree_messages::send_any_to_parent(std::span<const std::byte> bytes) const {
  if (place_.is_root()) return {};
  const outgoing message{place_.parent(), bytes};
  return send_sized(comm_, {&message, 1}, call_);
}

result<std::vector<std::byte>> tree_messages::broadcast(std::vector<std::byte> bytes) const {
  if (!place_.is_root()) {
    const std::int32_t parent = place_.parent();
    SHARDMESH_TRY(std::vector<std::vector<std::byte>> received, receive_sized(comm_, {&parent, 1}, call_));
    bytes = std::move(received.front());
  }
  std::vector<outgoing> messages;
  for (const std::int32_t child : children_) messages.push_back({child, bytes});
  SHARDMESH_TRY(send_sized(comm_, messages, call_));
  return bytes;
}

result<std::vector<std::byte>> tree_messages::bring_to_root(std::int32_t from, std::vector<std::byte> bytes) const {
  if (from == 0) return place_.is_root() ? std::move(bytes) : std::vector<std::byte>();
  if (place_.rank == from) {
    const outgoing message{0, bytes};
    SHARDMESH_TRY(send_sized(comm_, {&message, 1}, call_));
  }
  if (!place_.is_root()) return std::vector<std::byte>();
  SHARDMESH_TRY(std::vector<std::vector<std::byte>> received, receive_sized(comm_, {&from, 1}, call_));
  return std::move(received.front());
}

}  // namespace shardmesh::detail
