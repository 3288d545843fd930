// SPDX-License-Identifier: Apache-2.0
module;
#include <functional>

#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :engine;
import :record;
import :session;
import :staged;

namespace shardmesh {
namespace {

class exchange_operation final : public pending::operation {
 public:
  exchange_operation(std::shared_ptr<mpi::engine> engine, std::shared_ptr<mpi::exchange> exchange)
      : engine_(std::move(engine)), exchange_(std::move(exchange)) {}
  bool done() override { return engine_->would_not_block(*exchange_); }
  result<void> wait() override { return engine_->wait(*exchange_); }

 private:
  std::shared_ptr<mpi::engine> engine_;
  std::shared_ptr<mpi::exchange> exchange_;
};

}  // namespace

result<mpi_communicator> mpi_communicator::world(const mpi_options& options) {
  SHARDMESH_TRY(auto session, mpi::session::open(true));
  SHARDMESH_TRY(auto engine, mpi::engine::make(std::move(session), MPI_COMM_WORLD, options));
  return mpi_communicator(std::move(engine));
}

result<mpi_communicator> mpi_communicator::from_handle(std::int32_t fortran_handle, const mpi_options& options) {
  SHARDMESH_TRY(auto session, mpi::session::open(false));
  MPI_Comm const comm = MPI_Comm_f2c(fortran_handle);
  int between_groups = 0;
  // OpenMPI returns a null pointer for an unknown handle; a query on that would end the job.
  if (comm == MPI_COMM_NULL || comm == MPI_Comm{} ||
      !mpi::succeeds([&] { return MPI_Comm_test_inter(comm, &between_groups); }) || between_groups != 0)
    return fail(errc::invalid_argument, "the value is not the Fortran handle of an MPI intra-communicator")
        .with_values("a result of MPI_Comm_c2f", std::to_string(fortran_handle));
  SHARDMESH_TRY(auto engine, mpi::engine::make(std::move(session), comm, options));
  return mpi_communicator(std::move(engine));
}

std::int32_t mpi_communicator::rank() const {
  return engine_->rank();
}

std::int32_t mpi_communicator::size() const {
  return engine_->size();
}

result<std::vector<std::vector<std::byte>>> mpi_communicator::all_gather(std::span<const std::byte> bytes,
                                                                         const call_options& options) {
  return engine_->all_gather(bytes, options);
}

result<pending> mpi_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                 const call_options& options) {
  SHARDMESH_TRY(auto exchange, engine_->start(sends, receives, options));
  return pending(std::make_unique<exchange_operation>(engine_, std::move(exchange)));
}

namespace {

// The message group of a communicator. It holds a copy, which lives as long as the collectives need it.
message_group messages_of(const mpi_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

result<pending> mpi_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                  const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> mpi_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                             const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> mpi_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                 dtype type, reduce_op op, const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> mpi_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                             reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> mpi_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                            std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

void mpi_communicator::abort(const error& reason) {
  engine_->abort(reason);
}

object_numbers mpi_communicator::numbers() const {
  return engine_->numbers();
}

result<void> mpi_communicator::status() const {
  return engine_->status();
}

std::string mpi_communicator::trace() const {
  return engine_->trace();
}

std::int32_t mpi_communicator::readable_peers() const {
  return engine_->readable_peers();
}

}  // namespace shardmesh
