// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>
#include <torch/c10d_channel.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.comm;
import :c10d_engine;

namespace shardmesh {
namespace {

class exchange_operation final : public pending::operation {
 public:
  exchange_operation(std::shared_ptr<c10d_detail::engine> engine, std::shared_ptr<c10d_detail::exchange> exchange)
      : engine_(std::move(engine)), exchange_(std::move(exchange)) {}
  bool done() override { return engine_->would_not_block(*exchange_); }
  result<void> wait() override { return engine_->wait(*exchange_); }

 private:
  std::shared_ptr<c10d_detail::engine> engine_;
  std::shared_ptr<c10d_detail::exchange> exchange_;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// The messages of a copy of this communicator, which lives as long as they need it.
message_group messages_of(const c10d_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

// The last handle only makes the engine leave: the engine's threads keep it alive until all ranks have left.
template <class Open>
result<c10d_communicator> c10d_communicator::make(Open&& open) {
  if (c10d_detail::engine::groups_are_of_parent())
    return fail(errc::unsupported, "the c10d process groups belong to the process that forked this one")
        .with_hint("fork before the first communicator is made");
  try {
    const auto engine = std::make_shared<c10d_detail::engine>(open());
    engine->begin();
    return c10d_communicator(
        std::shared_ptr<c10d_detail::engine>(engine.get(), [engine](c10d_detail::engine*) { engine->leave(); }));
  } catch (const std::length_error& problem) {
    return fail(errc::unsupported, problem.what())
        .with_hint("destroy communicators of the group that are no longer needed, or make another group");
  } catch (const std::invalid_argument& problem) {
    return fail(errc::unsupported, first_line(problem.what()))
        .with_hint("make the group with the backend gloo, or \"cpu:gloo,cuda:nccl\"; room nccl is for NCCL alone");
  } catch (const std::bad_alloc&) {
    return fail(errc::no_memory, "there is not enough memory for a c10d communicator");
  } catch (const std::system_error& problem) {
    return fail(errc::communication, "cannot start a thread for the process group").with_values("", problem.what());
  } catch (const std::exception& problem) {
    error made = fail(errc::invalid_argument, "cannot create a process group");
    made.found = first_line(problem.what());
    return made;
  }
}

result<c10d_communicator> c10d_communicator::of(c10d::ProcessGroup& group) {
  return make([&] { return c10d_detail::channel::of(group); });
}

result<c10d_communicator> c10d_communicator::named(const std::string& group_name) {
  return make([&] { return c10d_detail::channel::named(group_name); });
}

std::int32_t c10d_communicator::rank() const {
  return engine_->rank();
}

std::int32_t c10d_communicator::size() const {
  return engine_->size();
}

result<std::vector<std::vector<std::byte>>> c10d_communicator::all_gather(std::span<const std::byte> bytes,
                                                                          const call_options& options) {
  return engine_->all_gather(bytes, options);
}

result<pending> c10d_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                  const call_options& options) {
  SHARDMESH_TRY(auto exchange, engine_->start(sends, receives, options));
  return pending(std::make_unique<exchange_operation>(engine_, std::move(exchange)));
}

result<pending> c10d_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                   const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> c10d_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                              const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> c10d_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                  dtype type, reduce_op op, const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> c10d_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                              reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> c10d_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                             std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

void c10d_communicator::abort(const error& reason) {
  engine_->abort(reason);
}

object_numbers c10d_communicator::numbers() const {
  return engine_->numbers();
}

result<void> c10d_communicator::status() const {
  return engine_->status();
}

}  // namespace shardmesh
