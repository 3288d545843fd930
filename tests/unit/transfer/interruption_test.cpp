// SPDX-License-Identifier: Apache-2.0
// Tests that a cancellation or deadline ends the reading of items, even within an item. Also tests that reading never
// begins for memory that is not the host's.
#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

import shardmesh.transfer;

using namespace shardmesh;

namespace {

// Reads as zeros, and calls `at_read` at every read.
struct zeros {
  std::function<void()> at_read;
  bool in_order = false;
  int reads = 0;
  result<void> read(item_id, const box&, const tensor_view& to) {
    ++reads;
    at_read();
    std::memset(to.data, 0, static_cast<std::size_t>(numel(to)));
    return {};
  }
  bool reads_in_order(item_id) { return in_order; }
};

// 64 MiB, which are read in units of 8 MiB.
constexpr std::int64_t rows = 64, row = 1 << 20;

struct target {
  std::vector<std::byte> memory = std::vector<std::byte>(static_cast<std::size_t>(rows * row));
  distribution held = [] {
    distribution_builder builder({rows, row}, owner_space::items);
    builder.add(0, 0, extents{0, 0}, extents{rows, row});
    return builder.finish().value();
  }();
  memory_target all{0, box::whole({rows, row}), {memory.data(), dtype::uint8, {}, {rows, row}, {row, 1}}};
  std::vector<std::string> keys{"w"};

  error fails(zeros& source, item_run_options options) const {
    options.threads = 1;
    const auto done = run_to_memory({&held, 1}, keys, {&all, 1}, source, options);
    REQUIRE_FALSE(done);
    return done.error();
  }
};

}  // namespace

TEST_CASE("reads end soon after a cancellation or a deadline, also within an item that is read front to back") {
  const target to;
  for (const bool in_order : {false, true}) {
    INFO(in_order);
    std::stop_source stop;
    zeros source{[&] { stop.request_stop(); }, in_order};
    const error cancelled = to.fails(source, {.call = {.cancel = stop.get_token()}});
    CHECK(cancelled.code == errc::cancelled);
    CHECK(cancelled.key == "w");
    CHECK(source.reads == 1);

    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    zeros slow{[&] { std::this_thread::sleep_until(deadline); }, in_order};
    const error late = to.fails(slow, {.call = {.within = deadline}});
    CHECK(late.code == errc::deadline_exceeded);
    CHECK(late.key == "w");
    CHECK(slow.reads == 1);
  }
}

TEST_CASE("nothing is read into memory that is not the host's") {
  target to;
  to.all.to.where = {device_type::cuda, 1};
  zeros source{[] {}};
  const error refused = to.fails(source, {});
  CHECK(refused.code == errc::unsupported);
  CHECK(refused.key == "w");
  CHECK(refused.found == "cuda:1");
  CHECK(refused.boxes == std::vector<box>{box::whole({rows, row})});
  CHECK(source.reads == 0);
}
