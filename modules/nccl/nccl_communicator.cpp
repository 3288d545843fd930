// SPDX-License-Identifier: Apache-2.0
// Exchanges, and the making of communicators. Collectives are in collectives.cpp.
module;
#include "includes.hpp"
module shardmesh.nccl;

import :engine;

namespace shardmesh {
namespace {

using nccl::engine;
using nccl::functions;
using nccl::operation;
using const_bytes = std::span<const std::byte>;
using bytes = std::span<std::byte>;

std::string of_rank(const engine& on) {
  return "rank " + std::to_string(on.rank());
}

template <class Message>
result<void> check_messages(const engine& on, std::span<const Message> messages, std::string_view verb) {
  std::vector<std::int32_t> peers;
  for (const Message& m : messages) {
    const auto problem = [&](const std::string& what) {
      return fail(errc::invalid_argument, of_rank(on) + " " + std::string(verb) + " " + what).with_rank(m.peer);
    };
    const std::string peer = "rank " + std::to_string(m.peer);
    if (m.peer == on.rank()) return problem("itself");
    if (m.peer < 0 || m.peer >= on.size())
      return problem(peer + ", but the group has " + std::to_string(on.size()) + (on.size() == 1 ? " rank" : " ranks"));
    if (m.bytes.empty()) return problem(peer + ", but the message is empty");
    SHARDMESH_TRY(on.check_memory(m.bytes.data(), "an exchange"));
    peers.push_back(m.peer);
  }
  std::ranges::sort(peers);
  const auto twice = std::ranges::adjacent_find(peers);
  if (twice == peers.end()) return {};
  return fail(errc::invalid_argument,
              of_rank(on) + " " + std::string(verb) + " rank " + std::to_string(*twice) + " twice in one call")
      .with_rank(*twice);
}

}  // namespace

nccl_registration::~nccl_registration() {
  if (engine_) engine_->deregister(handle_);
}

result<nccl_communicator> nccl_communicator::make(communicator_ref control, device where, const nccl_options& options,
                                                  const call_options& call) {
  SHARDMESH_TRY(auto made, engine::make(control, where, options, call));
  return nccl_communicator(std::move(made));
}

std::int32_t nccl_communicator::rank() const {
  return engine_->rank();
}
std::int32_t nccl_communicator::size() const {
  return engine_->size();
}
device nccl_communicator::memory() const {
  return engine_->made_of().where;
}

result<std::vector<std::vector<std::byte>>> nccl_communicator::all_gather(const_bytes given,
                                                                          const call_options& options) {
  return engine_->all_gather(given, options);
}

result<pending> nccl_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                  const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "an exchange"));
  SHARDMESH_TRY(check_messages(*engine_, sends, "sends to"));
  SHARDMESH_TRY(check_messages(*engine_, receives, "receives from"));
  if (sends.empty() && receives.empty()) return pending();
  auto op = std::make_shared<operation>();
  op->what = "an exchange";
  for (const outgoing& m : sends) op->takers.push_back(m.peer);
  for (const incoming& m : receives) op->senders.push_back(m.peer);
  op->launch = [&f = engine_->made_of().nccl.call(), out = std::vector(sends.begin(), sends.end()),
                in = std::vector(receives.begin(), receives.end())](void* comm, void* stream) {
    int first = nccl::success;
    const auto keep = [&](int code) {
      if (first == nccl::success && code != nccl::in_progress) first = code;
    };
    for (const incoming& m : in) keep(f.recv(m.bytes.data(), m.bytes.size(), nccl::type_uint8, m.peer, comm, stream));
    for (const outgoing& m : out) keep(f.send(m.bytes.data(), m.bytes.size(), nccl::type_uint8, m.peer, comm, stream));
    return first;
  };
  return engine_->start(std::move(op), options);
}

void nccl_communicator::abort(const error& reason) {
  engine_->abort(reason);
}

result<std::optional<nccl_communicator>> nccl_communicator::split(std::int32_t group, std::int32_t order,
                                                                  const call_options& call) {
  SHARDMESH_TRY(auto made, engine_->split(group, order, call));
  if (made == nullptr) return std::optional<nccl_communicator>();
  return std::optional(nccl_communicator(std::move(made)));
}

result<nccl_communicator*> nccl_communicator::groups(std::span<const std::int32_t> group_of, const call_options& call) {
  if (std::ssize(group_of) != size() || std::ranges::any_of(group_of, [](std::int32_t group) { return group < 0; }))
    return fail(errc::invalid_argument, "groups need one number for each rank, and none below 0")
        .with_rank(rank())
        .with_values(
            std::to_string(size()) + " numbers",
            std::to_string(group_of.size()) + (std::ssize(group_of) == size() ? ", some of them below 0" : ""));
  if (engine_->is_forked()) return engine_->of_another_process();
  if (nccl_communicator* const known = engine_->kept_group(group_of)) return known;
  SHARDMESH_TRY(auto made,
                split(group_of[static_cast<std::size_t>(rank())], rank(), call.named("nccl_communicator::groups")));
  return engine_->keep_group(group_of, *std::move(made));
}

result<nccl_communicator> nccl_communicator::duplicate(const call_options& call) {
  SHARDMESH_TRY(auto made, engine_->split(0, rank(), call.named("nccl_communicator::duplicate")));
  return nccl_communicator(std::move(made));
}

result<nccl_registration> nccl_communicator::register_memory(bytes memory) {
  if (engine_->is_forked()) return engine_->of_another_process();
  SHARDMESH_TRY(engine_->check_memory(memory.data(), "a registration"));
  nccl_registration made;
  SHARDMESH_TRY(made.handle_, engine_->register_memory(memory));
  made.engine_ = engine_;
  return made;
}

result<void> nccl_communicator::status() const {
  return engine_->status();
}
object_numbers nccl_communicator::numbers() const {
  return engine_->numbers();
}

}  // namespace shardmesh
