// SPDX-License-Identifier: Apache-2.0
// Your own transport, complete: ranks that communicate over sockets. It models `communicator` and passes the
// conformance suite, so every function that takes a communicator accepts it: here `redistribute`. The ranks are threads
// with socket pairs, so that the example needs no network; the class would serve processes just as well.
#include <sys/socket.h>
#include <shardmesh/try.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "socket_communicator.hpp"

import shardmesh.conformance;
import shardmesh.transfer;

using namespace shardmesh;
using namespace sockets;

namespace {

// Makes socket pairs between all ranks, and returns the ranks that own their ends.
result<std::vector<socket_communicator>> connect(std::int32_t size) {
  const auto count = static_cast<std::size_t>(size);
  std::vector<std::vector<peer_link>> links(count);
  for (auto& of_rank : links) of_rank.resize(count);
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a + 1; b < count; ++b)
      for (file_descriptor peer_link::* member : {&peer_link::data, &peer_link::control}) {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
          return fail(errc::io, std::string("no socket pair: ") + std::strerror(errno));
        links[a][b].*member = file_descriptor(ends[0]);
        links[b][a].*member = file_descriptor(ends[1]);
      }
  std::vector<socket_communicator> ranks;
  for (std::int32_t rank = 0; rank < size; ++rank)
    ranks.emplace_back(std::make_shared<socket_rank>(rank, std::move(links[static_cast<std::size_t>(rank)])));
  return ranks;
}

// --- using it ---

constexpr std::int32_t ranks = 3;

// Returns the n-th group to each rank's n-th request.
class groups {
 public:
  result<any_communicator> next(std::int32_t rank) {
    const std::scoped_lock locked(lock_);
    std::size_t& mine = asked_[static_cast<std::size_t>(rank)];
    if (made_.size() <= mine) {
      SHARDMESH_TRY(auto group, connect(ranks));
      made_.push_back(std::move(group));
    }
    return any_communicator(std::move(made_[mine++][static_cast<std::size_t>(rank)]));
  }

 private:
  std::mutex lock_;
  std::vector<std::vector<socket_communicator>> made_;
  std::array<std::size_t, ranks> asked_{};
};

// Moves rows on every rank to columns: 4 x 6 numbers; number n is at row n / 6, column n % 6.
result<void> move_rows_to_columns(socket_communicator& comm) {
  const extents shape{4, 6};
  const std::int64_t sizes[] = {ranks};
  SHARDMESH_TRY(const auto mesh, device_mesh::make(sizes));
  SHARDMESH_TRY(const auto rows, layout::make(mesh, {placement::shard(0)}, shape));
  SHARDMESH_TRY(const auto columns, layout::make(mesh, {placement::shard(1)}, shape));
  SHARDMESH_TRY(auto from, host_tensor::make(dtype::int64, rows.local_shape(comm.rank())));
  SHARDMESH_TRY(auto to, host_tensor::make(dtype::int64, columns.local_shape(comm.rank())));
  std::int64_t number = comm.rank() * 2 * 6;  // torch.chunk: rows 0-1, 2-3, none
  for (std::int64_t& value : from.values<std::int64_t>()) value = number++;

  SHARDMESH_TRY(const auto source, side_of(rows, from));
  SHARDMESH_TRY(const auto destination, side_of(columns, to));
  redistribute_options options;
  options.call.within = std::chrono::seconds(20);
  SHARDMESH_TRY(const auto moved, redistribute(source, destination, comm, options));  // the transport itself

  std::int64_t place = 0;
  for (const std::int64_t value : to.values<std::int64_t>()) {
    const std::int64_t row = place / 2, column = comm.rank() * 2 + place % 2;
    if (value != row * 6 + column) return fail(errc::checksum_mismatch, "a number is not where it belongs");
    ++place;
  }
  std::printf("rank %d has its columns; it sent %lld bytes\n", comm.rank(), static_cast<long long>(moved.sent_bytes));
  return {};
}

}  // namespace

int main() {
  groups fresh;
  auto group = connect(ranks);
  if (!group) return std::fprintf(stderr, "%s\n", to_string(group.error()).c_str()), 1;
  std::array<conformance_report, ranks> reports;
  std::array<std::optional<error>, ranks> failures;
  {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        reports[at] = check_communicator([&] { return fresh.next(rank); });
        if (!reports[at].ok()) return;
        if (auto moved = move_rows_to_columns((*group)[at]); !moved) failures[at] = moved.error();
      });
  }
  std::printf("%s\n", to_string(reports[0]).c_str());
  for (const auto& failure : failures)
    if (failure) return std::fprintf(stderr, "%s\n", to_string(*failure).c_str()), 1;
  return reports[0].ok() ? 0 : 1;
}
