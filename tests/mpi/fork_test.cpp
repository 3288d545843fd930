// SPDX-License-Identifier: Apache-2.0
// A fork copies an MPI rank, with connections that belong to the parent.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <forked_child.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "world.hpp"

import shardmesh.mpi;

using namespace shardmesh;

TEST_CASE("a forked child's copy of an MPI communicator refuses calls and leaves the parent's alone") {
  std::optional<mpi_communicator> comm = mpi_communicator::from_handle(world_handle()).value();
  CHECK(status_of_child([&] {
          const auto is_refused = [](const error& e) {
            return e.code == errc::invalid_argument && e.message.find("forked") != std::string::npos;
          };
          if (!is_refused(comm->all_gather({}, {}).error()) || !is_refused(comm->status().error())) return 1;
          comm->abort(fail(errc::cancelled, "by the child"));
          if (mpi_communicator::from_handle(world_handle()).error().code != errc::unsupported) return 2;
          comm.reset();
          return 0;
        }) == 0);
  const std::int32_t rank = comm->rank(), size = comm->size();
  const auto all = comm->all_gather(message_bytes(rank, 0, 0, 100'000), {.within = in_seconds(20)});
  INFO((all ? "no error" : to_string(all.error())));
  REQUIRE(all.has_value());
  for (std::int32_t other = 0; other < size; ++other)
    CHECK((*all)[static_cast<std::size_t>(other)] == message_bytes(other, 0, 0, 100'000));
}
