// SPDX-License-Identifier: Apache-2.0
// Tests a fork in the function of a simulated rank: the child refuses every call, and the parent's ranks go on.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <forked_child.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;

bool is_refusal(const error& problem) {
  return problem.code == errc::invalid_argument &&
         to_string(problem) ==
             "the communicator of rank 0 belongs to the process that forked this one (rank 0); "
             "simulate ranks in the child, or make the call in the parent";
}

}  // namespace

TEST_CASE("a forked child's copy of a simulated rank refuses every call and leaves the parent's alone") {
  const watchdog dog(60s);
  const auto report = simulate_ranks(2, [](any_communicator& comm) -> result<void> {
    const bytes sent(100, std::byte{5});
    bytes received(100);
    const outgoing send{1 - comm.rank(), sent};
    const incoming receive{1 - comm.rank(), received};
    auto moving = comm.start_exchange({&send, 1}, {&receive, 1}, {});
    if (!moving) return moving.error();
    if (comm.rank() == 0) {
      const int status = status_of_child([&] {
        comm.abort(fail(errc::cancelled, "the child gave up"));
        const auto gathered = comm.all_gather({}, {});
        if (gathered || !is_refusal(gathered.error())) return 1;
        const auto started = comm.start_exchange({}, {}, {});
        if (started || !is_refusal(started.error())) return 2;
        if (!moving->done()) return 3;
        const auto waited = moving->wait();
        return waited || !is_refusal(waited.error()) ? 4 : 0;
      });
      CHECK(status == 0);
    }
    if (auto done = moving->wait(); !done) return done;
    if (received == sent) return {};
    return fail(errc::checksum_mismatch, "the message has other bytes");
  });
  REQUIRE(report.has_value());
  CHECK(report->ranks[0].received_bytes == 100);
  CHECK(report->ranks[1].received_bytes == 100);
}
