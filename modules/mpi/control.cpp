// SPDX-License-Identifier: Apache-2.0
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :record;
import :session;

namespace shardmesh::mpi {

// Leaks the buffers that MPI still holds: their requests cannot be revoked, for example when a peer has died.
control_channel::~control_channel() {
  const bool up = is_up();
  if (arriving_ != MPI_REQUEST_NULL) {
    int over = 0;
    if (up && succeeds([&] { return MPI_Cancel(&arriving_); }))
      for (int attempt = 0; attempt < 100 && over == 0; ++attempt)
        if (!succeeds([&] { return MPI_Test(&arriving_, &over, MPI_STATUS_IGNORE); })) break;
    if (over == 0) static_cast<void>(buffer_.release());
  }
  if (!up || !is_flushed())
    for (departing& record : departing_) static_cast<void>(record.bytes.release());
}

result<void> control_channel::send(std::int32_t peer, const record_head& head, std::span<const std::byte> bytes) {
  const std::size_t size = sizeof(head) + bytes.size();
  departing record{std::make_unique_for_overwrite<std::byte[]>(size)};
  std::memcpy(record.bytes.get(), &head, sizeof(head));
  if (!bytes.empty()) std::memcpy(record.bytes.get() + sizeof(head), bytes.data(), bytes.size());
  constexpr std::string_view action = "cannot send a control record";
  // Store the record before MPI gets its address, so that no failure frees memory that MPI may still read.
  departing& sending = departing_.emplace_back(std::move(record));
  auto begun = called(
      [&] {
        return MPI_Isend(sending.bytes.get(), static_cast<int>(size), MPI_BYTE, peer, 0, comm_, &sending.request);
      },
      action);
  int sent = 0;
  if (begun) begun = called([&] { return MPI_Test(&sending.request, &sent, MPI_STATUS_IGNORE); }, action);
  if (sent != 0) departing_.pop_back();
  return begun;
}

result<void> control_channel::post() {
  return called(
      [&] {
        return MPI_Irecv(buffer_.get(), static_cast<int>(record_capacity), MPI_BYTE, MPI_ANY_SOURCE, 0, comm_,
                         &arriving_);
      },
      "cannot receive control records");
}

result<bool> control_channel::poll(handler handle) {
  constexpr int most = 64;  // per call, so that data makes progress as well
  static_cast<void>(is_flushed());
  if (arriving_ == MPI_REQUEST_NULL) SHARDMESH_TRY(post());
  for (int i = 0; i < most; ++i) {
    int came = 0, size = 0;
    MPI_Status status;
    constexpr std::string_view action = "cannot receive a control record";
    SHARDMESH_TRY(called([&] { return MPI_Test(&arriving_, &came, &status); }, action));
    if (came == 0) return i > 0;
    SHARDMESH_TRY(called([&] { return MPI_Get_count(&status, MPI_BYTE, &size); }, action));
    std::byte record[record_capacity];
    std::memcpy(record, buffer_.get(), static_cast<std::size_t>(size));
    SHARDMESH_TRY(post());
    record_head head;
    if (static_cast<std::size_t>(size) < sizeof(head)) continue;
    std::memcpy(&head, record, sizeof(head));
    handle(status.MPI_SOURCE, head, std::span(record).first(static_cast<std::size_t>(size)).subspan(sizeof(head)));
  }
  return true;
}

bool control_channel::is_flushed() {
  std::erase_if(departing_, [](departing& record) {
    int sent = 0;
    return succeeds([&] { return MPI_Test(&record.request, &sent, MPI_STATUS_IGNORE); }) && sent != 0;
  });
  return departing_.empty();
}

}  // namespace shardmesh::mpi
