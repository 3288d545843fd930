// SPDX-License-Identifier: Apache-2.0
// Matches parts: a launch that has begun posts its parts, and a part runs once its counterparts are posted. Parts that
// cannot match (another kind or size in the same position) are reported and hang, as in NCCL.
#include "memory.hpp"
#include "nccl_world.hpp"

#include <algorithm>
#include <cstring>

namespace gpu_double {
namespace {

void matched(part& which) {
  which.matched = true;
  launch& in = *which.in;
  if (--in.unmatched == 0) engine::the().release(in.op);
}

void mismatch(clique& in, std::string text) {
  in.mismatched = true;
  engine::the().problem(std::move(text));
}

bool same_collective(const part& a, const part& b) {
  if (a.kind != b.kind || a.count != b.count || a.type != b.type) return false;
  const bool reduces =
      a.kind == part_kind::reduce_scatter || a.kind == part_kind::all_reduce || a.kind == part_kind::reduce;
  const bool has_root = a.kind == part_kind::broadcast || a.kind == part_kind::reduce;
  return (!reduces || a.reduction == b.reduction) && (!has_root || a.peer == b.peer);
}

void post_collective(clique& in, part& which) {
  std::vector<part*>& at = in.collectives[which.index];
  at.resize(in.members.size());
  at[static_cast<std::size_t>(which.in->comm->rank)] = &which;
  if (std::ranges::find(at, nullptr) != at.end()) return;
  for (const part* each : at)
    if (!same_collective(*at[0], *each)) {
      mismatch(in, "collectives that do not fit together: " + describe(*at[0]) + " of " + at[0]->in->comm->name() +
                       ", " + describe(*each) + " of " + each->in->comm->name());
      return;
    }
  const std::vector<part*> all = std::move(at);
  in.collectives.erase(which.index);
  carry_out(all);
  for (part* each : all) matched(*each);
}

void post_message(clique& in, part& which) {
  const int rank = which.in->comm->rank;
  const bool sends = which.kind == part_kind::send;
  auto& [out, into] = in.messages[sends ? std::pair(rank, which.peer) : std::pair(which.peer, rank)];
  (sends ? out : into).push_back(&which);
  while (!out.empty() && !into.empty()) {
    part& from = *out.front();
    part& to = *into.front();
    const std::size_t bytes = from.count * size_of_type(from.type);
    if (bytes != to.count * size_of_type(to.type)) {
      mismatch(in, "messages of different sizes: " + describe(from) + " of " + from.in->comm->name() + ", " +
                       describe(to) + " of " + to.in->comm->name());
      return;
    }
    out.pop_front();
    into.pop_front();
    const auto* const data = static_cast<const unsigned char*>(from.from);
    if (bytes > 0) to.result.assign(data, data + bytes);
    matched(from);
    matched(to);
  }
}

// Reports a deadlock: every rank is in a launch that waits for another. A communicator runs one launch at a time, so
// none can continue.
void look_for_deadlock(clique& in) {
  if (in.mismatched || in.deadlock_said) return;
  std::string text;
  for (const communicator* each : in.members) {
    if (!each || each->aborted || each->lost || each->error != 0) return;
    const launch* waiting = nullptr;
    for (const launch_ref& one : each->launches)
      if (one->begun && one->unmatched > 0 && one->planted.action == 0) waiting = one.get();
    if (!waiting) return;
    for (const part& one : waiting->parts)
      if (!one.matched) {
        text += "; " + each->name() + " waits in " + describe(one);
        break;
      }
  }
  in.deadlock_said = true;
  engine::the().problem("no rank can go on" + text);
}

}  // namespace

void post(launch& what) {
  clique& in = *what.comm->in;
  for (part& each : what.parts)
    if (each.kind == part_kind::send || each.kind == part_kind::receive)
      post_message(in, each);
    else
      post_collective(in, each);
  if (what.unmatched > 0) look_for_deadlock(in);
}

void withdraw(launch& what) {
  clique& in = *what.comm->in;
  const auto is_here = [&](const part* each) { return each && each->in == &what; };
  for (auto& [index, parts] : in.collectives) std::ranges::replace_if(parts, is_here, nullptr);
  for (auto& [who, queues] : in.messages) {
    std::erase_if(queues.first, is_here);
    std::erase_if(queues.second, is_here);
  }
}

std::size_t size_of_type(int type) {
  switch (type) {
    case nccl_float16:
    case nccl_bfloat16:
      return 2;
    case nccl_int32:
    case nccl_uint32:
    case nccl_float32:
      return 4;
    case nccl_int64:
    case nccl_uint64:
    case nccl_float64:
      return 8;
    default:
      return 1;
  }
}

std::string describe(const part& what) {
  constexpr const char* names[] = {"ncclSend to ",  "ncclRecv from ", "ncclAllGather",       "ncclReduceScatter",
                                   "ncclAllReduce", "ncclReduce to ", "ncclBroadcast from ", "ncclAlltoAll"};
  std::string text = names[static_cast<int>(what.kind)];
  if (text.back() == ' ') text += std::to_string(what.peer);
  return text + " of " + std::to_string(what.count) + " of type " + std::to_string(what.type);
}

}  // namespace gpu_double
