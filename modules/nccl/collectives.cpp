// SPDX-License-Identifier: Apache-2.0
// The collectives: NCCL's dtypes and reductions, and the checks before NCCL is called.
module;
#include "includes.hpp"
module shardmesh.nccl;

import :engine;

namespace shardmesh {
namespace {

using nccl::engine;
using nccl::operation;
using const_bytes = std::span<const std::byte>;
using bytes = std::span<std::byte>;

// An element as NCCL combines it; a complex number is two of them.
struct element {
  int type = 0;
  std::int64_t size_bytes = 1;
};

std::optional<element> element_of(dtype type) {
  switch (type) {
    case dtype::int8:
      return element{nccl::type_int8, 1};
    case dtype::uint8:
      return element{nccl::type_uint8, 1};
    case dtype::int32:
      return element{nccl::type_int32, 4};
    case dtype::uint32:
      return element{nccl::type_uint32, 4};
    case dtype::int64:
      return element{nccl::type_int64, 8};
    case dtype::uint64:
      return element{nccl::type_uint64, 8};
    case dtype::float16:
    case dtype::complex32:
      return element{nccl::type_float16, 2};
    case dtype::bfloat16:
      return element{nccl::type_bfloat16, 2};
    case dtype::float32:
    case dtype::complex64:
      return element{nccl::type_float32, 4};
    case dtype::float64:
    case dtype::complex128:
      return element{nccl::type_float64, 8};
    default:
      return std::nullopt;
  }
}

std::optional<int> reduction_of(dtype type, reduce_op op) {
  switch (op) {
    case reduce_op::sum:
      return nccl::sum;
    case reduce_op::avg:
      return kind(type) == dtype_kind::integer ? std::nullopt : std::optional<int>(nccl::average);
    case reduce_op::product:
      return kind(type) == dtype_kind::complex ? std::nullopt : std::optional<int>(nccl::product);
    case reduce_op::min:
      return kind(type) == dtype_kind::complex ? std::nullopt : std::optional<int>(nccl::min);
    case reduce_op::max:
      return kind(type) == dtype_kind::complex ? std::nullopt : std::optional<int>(nccl::max);
    default:
      return std::nullopt;
  }
}

result<void> check_sizes(const engine& on, const char* what, std::size_t expected, std::size_t found) {
  if (expected == found) return {};
  return fail(errc::invalid_argument, std::string("the sizes of the buffers of ") + what + " do not match")
      .with_rank(on.rank())
      .with_values(std::to_string(expected) + " bytes", std::to_string(found) + " bytes");
}

// A reduction in NCCL's terms.
struct combining {
  int type = 0, op = 0;
  std::size_t item = 1;  // bytes
};
result<combining> combining_of(const engine& on, const char* what, std::size_t size_bytes, dtype type, reduce_op op) {
  const auto element = element_of(type);
  const auto reduction = reduction_of(type, op);
  if (!element || !reduction)
    return fail(errc::unsupported, std::string(what) + " over NCCL: " + std::string(to_string(op)) + " of " +
                                       std::string(name(type)) + " is not defined")
        .with_rank(on.rank());
  if (size_bytes % static_cast<std::size_t>(item_bytes(type)) != 0)
    return fail(errc::invalid_argument, std::string("the buffers of ") + what + " do not hold a whole number of " +
                                            std::string(name(type)) + " elements")
        .with_rank(on.rank())
        .with_values("a multiple of " + std::to_string(item_bytes(type)) + " bytes",
                     std::to_string(size_bytes) + " bytes");
  return combining{element->type, *reduction, static_cast<std::size_t>(element->size_bytes)};
}

// Starts a collective. Without bytes it is done at once.
result<pending> start(engine& on, const char* what, const_bytes send, bytes receive, const call_options& options,
                      std::function<int(void*, void*)> launch) {
  if (send.empty() && receive.empty()) return pending();
  for (const std::byte* const address : {send.data(), const_cast<const std::byte*>(receive.data())})
    if (address != nullptr) SHARDMESH_TRY(on.check_memory(address, what));
  auto op = std::make_shared<operation>();
  op->what = what;
  op->launch = std::move(launch);
  return on.start(std::move(op), options);
}

}  // namespace

bool nccl_reduces(dtype type, reduce_op op) {
  return element_of(type).has_value() && reduction_of(type, op).has_value();
}

result<pending> nccl_communicator::all_gather_into(const_bytes send, bytes receive, const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "all_gather_into"));
  SHARDMESH_TRY(
      check_sizes(*engine_, "all_gather_into", send.size() * static_cast<std::size_t>(size()), receive.size()));
  return start(*engine_, "all_gather_into", send, receive, options,
               [&f = engine_->made_of().nccl.call(), send, receive](void* comm, void* stream) {
                 return f.all_gather(send.data(), receive.data(), send.size(), nccl::type_uint8, comm, stream);
               });
}

result<pending> nccl_communicator::all_to_all(const_bytes send, bytes receive, const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "all_to_all"));
  SHARDMESH_TRY(check_sizes(*engine_, "all_to_all", send.size(), receive.size()));
  const auto ranks = static_cast<std::size_t>(size());
  if (send.size() % ranks != 0)
    return fail(errc::invalid_argument, "the buffers of all_to_all cannot be divided into equal blocks for all ranks")
        .with_rank(rank())
        .with_values("a multiple of " + std::to_string(ranks) + " bytes", std::to_string(send.size()) + " bytes");
  return start(*engine_, "all_to_all", send, receive, options,
               [&f = engine_->made_of().nccl.call(), send, receive, ranks](void* comm, void* stream) {
                 const std::size_t block = send.size() / ranks;
                 int first = nccl::success;
                 for (std::size_t r = 0; r < ranks; ++r)
                   for (const int code :
                        {f.recv(receive.data() + r * block, block, nccl::type_uint8, static_cast<int>(r), comm, stream),
                         f.send(send.data() + r * block, block, nccl::type_uint8, static_cast<int>(r), comm, stream)})
                     if (first == nccl::success && code != nccl::in_progress) first = code;
                 return first;
               });
}

result<pending> nccl_communicator::reduce_scatter(const_bytes send, bytes receive, dtype type, reduce_op op,
                                                  const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "reduce_scatter"));
  SHARDMESH_TRY(
      check_sizes(*engine_, "reduce_scatter", receive.size() * static_cast<std::size_t>(size()), send.size()));
  SHARDMESH_TRY(const combining by, combining_of(*engine_, "reduce_scatter", receive.size(), type, op));
  return start(*engine_, "reduce_scatter", send, receive, options,
               [&f = engine_->made_of().nccl.call(), send, receive, by](void* comm, void* stream) {
                 return f.reduce_scatter(send.data(), receive.data(), receive.size() / by.item, by.type, by.op, comm,
                                         stream);
               });
}

result<pending> nccl_communicator::all_reduce(const_bytes send, bytes receive, dtype type, reduce_op op,
                                              const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "all_reduce"));
  SHARDMESH_TRY(check_sizes(*engine_, "all_reduce", send.size(), receive.size()));
  SHARDMESH_TRY(const combining by, combining_of(*engine_, "all_reduce", send.size(), type, op));
  return start(*engine_, "all_reduce", send, receive, options,
               [&f = engine_->made_of().nccl.call(), send, receive, by](void* comm, void* stream) {
                 return f.all_reduce(send.data(), receive.data(), send.size() / by.item, by.type, by.op, comm, stream);
               });
}

result<pending> nccl_communicator::broadcast(const_bytes send, bytes receive, std::int32_t root,
                                             const call_options& options) {
  SHARDMESH_TRY(engine_->check_call(options, "broadcast"));
  if (root < 0 || root >= size())
    return fail(errc::invalid_argument, "rank " + std::to_string(rank()) + " broadcasts from rank " +
                                            std::to_string(root) + ", but the group has " + std::to_string(size()) +
                                            (size() == 1 ? " rank" : " ranks"))
        .with_rank(root);
  SHARDMESH_TRY(check_sizes(*engine_, "broadcast", rank() == root ? receive.size() : 0, send.size()));
  return start(*engine_, "broadcast", send, receive, options,
               [&f = engine_->made_of().nccl.call(), send, receive, root](void* comm, void* stream) {
                 return f.broadcast(send.data(), receive.data(), receive.size(), nccl::type_uint8, root, comm, stream);
               });
}

}  // namespace shardmesh
