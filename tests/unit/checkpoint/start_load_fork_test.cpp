// SPDX-License-Identifier: Apache-2.0
// Tests a fork during a load: the child has a copy of the load, but not its thread.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <forked_child.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

import shardmesh.checkpoint;

using namespace shardmesh;

TEST_CASE("a forked child neither waits for a load of its parent nor hangs where its copy ends") {
  std::atomic<bool> may_end = false;
  std::optional<load_in_progress> running = load_in_progress::start([&]() -> result<load_report> {
                                              while (!may_end) std::this_thread::yield();
                                              load_report report;
                                              report.bytes_read = 7;
                                              return report;
                                            }).value();
  CHECK(status_of_child([&] {
          const result<load_report>& refused = running->wait();
          const bool says_why = !refused && refused.error().problem_count() == 1 &&
                                refused.error().code == errc::invalid_argument &&
                                refused.error().message == "the load runs in the process that forked this one";
          running.reset();
          return says_why ? 0 : 1;
        }) == 0);
  may_end = true;
  CHECK(running->wait().value().bytes_read == 7);
}
