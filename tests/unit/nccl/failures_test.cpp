// SPDX-License-Identifier: Apache-2.0
// Tests failures: a rank does not come, gives up, or is lost, or NCCL or the device fails. Every rank soon gets the
// same error, and the process continues.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gpu_double/on_double.hpp>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.gpu_ranks;

using namespace shardmesh;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using clock_type = std::chrono::steady_clock;
using test::device_bytes;

namespace {

// The ranks' errors in rank order, and the time that the slowest rank took.
struct outcome {
  std::vector<error> errors;
  clock_type::duration took{};
};

// Runs a call that must fail on all `size` ranks. Checks that afterwards, each rank's status is its error.
outcome failing(std::int32_t size, const std::function<result<void>(nccl_communicator&)>& call) {
  const watchdog dog{std::chrono::seconds(60)};
  outcome all{std::vector<error>(static_cast<std::size_t>(size)), {}};
  std::string problems;
  std::mutex lock;
  static_cast<void>(test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator& control) {
    static_cast<void>(control.all_gather({}, {}));  // all ranks are here before one fails
    const auto began = clock_type::now();
    auto done = call(comm);
    const auto took = clock_type::now() - began;
    std::string wrong;
    if (done) {
      wrong = "the call succeeded";
    } else {
      // The error reaches every rank, and stays.
      for (const auto end = clock_type::now() + 2s; comm.status() && clock_type::now() < end;)
        std::this_thread::yield();
      const auto after = comm.status();
      if (after) wrong = "the communicator is sound";
      if (!after && after.error() != done.error()) wrong = "another error afterwards: " + to_string(after.error());
      if (const auto told = control.all_gather({}, {}); told) wrong += " control is sound";
    }
    const std::scoped_lock locked(lock);
    all.took = std::max(all.took, took);
    all.errors[static_cast<std::size_t>(comm.rank())] = done ? error{} : done.error();
    if (!wrong.empty()) problems += "rank " + std::to_string(comm.rank()) + ": " + wrong + "\n";
    return std::string();
  }));
  CHECK(problems == "");
  return all;
}

result<void> receive(nccl_communicator& comm, std::int32_t from, const call_options& options) {
  device_bytes room(comm.memory(), 1000);
  const incoming one{from, room.there()};
  auto started = comm.start_exchange({}, {&one, 1}, options);
  return started ? started->wait() : result<void>(started.error());
}

result<void> reduce(nccl_communicator& comm, const call_options& options = {}) {
  device_bytes mine(comm.memory(), 4000);
  auto started = comm.all_reduce(mine.there(), mine.there(), dtype::float32, reduce_op::sum, options);
  return started ? started->wait() : result<void>(started.error());
}

call_options within(std::chrono::milliseconds time) {
  call_options made;
  made.within = time;
  return made;
}

// Waits until the communicator reports another rank's failure.
result<void> until_told(nccl_communicator& comm) {
  for (const auto end = clock_type::now() + 5s; clock_type::now() < end; std::this_thread::sleep_for(1ms))
    if (auto now = comm.status(); !now) return now;
  return {};
}

void check_all_equal(const outcome& all, errc code) {
  for (const error& e : all.errors) {
    CHECK(to_string(e) == to_string(all.errors[0]));
    CHECK(e.code == code);
  }
}

}  // namespace

TEST_CASE("a message that does not come is an error at the deadline, on every rank, that names who was waited for") {
  const on_double fresh;
  const auto all = failing(4, [](nccl_communicator& comm) -> result<void> {
    return comm.rank() == 0 ? receive(comm, 2, within(200ms)) : until_told(comm);
  });
  check_all_equal(all, errc::deadline_exceeded);
  CHECK(all.errors[0].ranks == std::vector<std::int32_t>{2});
  CHECK_THAT(all.errors[0].message,
             ContainsSubstring(" waiting for messages from rank 2 in an exchange over NCCL on cuda:0 (tag 0)"));
  CHECK(all.took >= 200ms);
  CHECK(all.took < 1200ms);
}

TEST_CASE("a collective to which a rank does not come ends at the deadline") {
  const on_double fresh;
  const auto all = failing(3, [](nccl_communicator& comm) -> result<void> {
    call_options options = within(150ms);
    options.name = "training";
    return comm.rank() < 2 ? reduce(comm, options) : until_told(comm);
  });
  check_all_equal(all, errc::deadline_exceeded);
  CHECK_THAT(all.errors[0].message, ContainsSubstring(" waiting for other ranks in all_reduce of training over NCCL"));
  CHECK(all.took < 1150ms);
}

TEST_CASE("a deadline on a stream is kept though nobody waits, and ends what the stream does") {
  const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
  REQUIRE(runtime);
  const on_double fresh;
  const auto all = failing(2, [&](nccl_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return until_told(comm);
    const auto stream = cuda::stream::make(*runtime, comm.memory());
    device_bytes room(comm.memory(), 1000);
    const incoming one{1, room.there()};
    call_options options = within(200ms);
    options.stream = stream->ref();
    auto started = comm.start_exchange({}, {&one, 1}, options);
    if (!started) return std::move(started).error();
    if (auto put = started->wait(); !put) return put;
    if (auto synchronized = stream->synchronize(); !synchronized) return synchronized;  // the abort ends it
    return until_told(comm);
  });
  check_all_equal(all, errc::deadline_exceeded);
  CHECK(all.took < 1200ms);
}

TEST_CASE("abort ends the waits of all ranks, with its reason") {
  const on_double fresh;
  const auto all = failing(3, [](nccl_communicator& comm) -> result<void> {
    if (comm.rank() != 1) return reduce(comm);
    std::this_thread::sleep_for(50ms);
    comm.abort(fail(errc::no_space, "this rank has had enough"));
    return comm.status();
  });
  check_all_equal(all, errc::no_space);
  CHECK(all.errors[0].ranks == std::vector<std::int32_t>{1});
  CHECK(all.took < 1050ms);
}

TEST_CASE("a cancelled wait ends on every rank") {
  const on_double fresh;
  const auto all = failing(2, [](nccl_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return until_told(comm);
    std::stop_source stop;
    call_options options;
    options.cancel = stop.get_token();
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(50ms);
      stop.request_stop();
    });
    return receive(comm, 1, options);
  });
  check_all_equal(all, errc::cancelled);
  CHECK(all.errors[0].ranks == std::vector<std::int32_t>{0});
}

TEST_CASE("an error of a call of NCCL reaches every rank with the operation and the library's text", "[double]") {
  const on_double fresh;
  double_inject("ncclAllReduce", 1, 1, double_fail, 2);
  const auto all = failing(3, [](nccl_communicator& comm) { return reduce(comm, within(5s)); });
  check_all_equal(all, errc::communication);
  CHECK(all.errors[0].ranks == std::vector<std::int32_t>{1});
  CHECK_THAT(all.errors[0].message,
             ContainsSubstring("all_reduce on cuda:1 failed: ") && ContainsSubstring("(NCCL error 2)"));
  CHECK(all.took < 1s);
}

TEST_CASE("an error that NCCL finds later reaches every rank", "[double]") {
  const on_double fresh;
  double_inject("ncclAllReduce", 0, 1, double_fail_later, 6);
  const auto all = failing(2, [](nccl_communicator& comm) { return reduce(comm, within(5s)); });
  check_all_equal(all, errc::communication);
  CHECK_THAT(all.errors[0].message, ContainsSubstring("(NCCL error 6)"));
  CHECK(all.took < 1s);
}

TEST_CASE("a lost rank gives every survivor an error within a second of the deadline", "[double]") {
  const watchdog dog{std::chrono::seconds(60)};
  double_reset(5);
  double_inject("ncclAllReduce", 2, 1, double_lose_rank, 0);
  std::mutex lock;
  std::vector<std::pair<std::int32_t, error>> errors;
  clock_type::duration slowest{};
  static_cast<void>(test::on_gpus(SHARDMESH_GPU_DOUBLE, 4, [&](nccl_communicator& comm, any_communicator& control) {
    static_cast<void>(control.all_gather({}, {}));
    const auto began = clock_type::now();
    const auto done = reduce(comm, within(300ms));
    const std::scoped_lock locked(lock);
    if (comm.rank() != 2) slowest = std::max(slowest, clock_type::now() - began);
    if (!done && comm.rank() != 2) errors.emplace_back(comm.rank(), done.error());
    return std::string();
  }));
  REQUIRE(errors.size() == 3);
  for (const auto& [rank, e] : errors) CHECK(e == errors[0].second);
  CHECK((errors[0].second.code == errc::deadline_exceeded || errors[0].second.code == errc::communication));
  CHECK(slowest < 1300ms);
}

TEST_CASE("a rank for which NCCL cannot be set up is told to all, who wait for it within NCCL", "[double]") {
  const watchdog dog{std::chrono::seconds(60)};
  double_reset(1);
  double_inject("ncclCommInitRankConfig", 1, 1, double_fail, 1);
  const std::string wrong = test::on_gpus(
      SHARDMESH_GPU_DOUBLE, 3, [](nccl_communicator&, any_communicator&) { return std::string("it was made"); });
  CHECK_THAT(wrong, ContainsSubstring("ncclCommInitRankConfig on cuda:1 failed: ") &&
                        ContainsSubstring("(NCCL error 1)") && ContainsSubstring("making a NCCL communicator"));
}

TEST_CASE("setting up NCCL ends at the deadline when a rank hangs in it", "[double]") {
  const watchdog dog{std::chrono::seconds(60)};
  double_reset(1);
  double_inject("ncclCommInitRankConfig", 1, 1, double_hang, 0);
  const auto began = clock_type::now();
  const auto done = run_ranks(3, [](any_communicator& control) -> result<void> {
    const auto made =
        nccl_communicator::make(control, {device_type::cuda, static_cast<std::int16_t>(control.rank())},
                                {.nccl = SHARDMESH_GPU_DOUBLE, .cudart = SHARDMESH_GPU_DOUBLE}, within(300ms));
    return made ? result<void>{} : result<void>(made.error());
  });
  REQUIRE(!done);
  CHECK(done.error().code == errc::deadline_exceeded);
  CHECK_THAT(done.error().message, ContainsSubstring("waiting for other ranks in ncclCommInitRankConfig"));
  CHECK(clock_type::now() - began < 1300ms);
  double_release();
}

TEST_CASE("ranks that start different collectives, or messages of different sizes, have an error at the deadline",
          "[double]") {
  for (const bool are_messages : {false, true}) {
    double_reset(1);
    const auto all = failing(2, [&](nccl_communicator& comm) -> result<void> {
      device_bytes mine(comm.memory(), comm.rank() == 0 ? 400 : 800);
      const call_options options = within(200ms);
      result<pending> started = pending();
      if (are_messages) {
        const outgoing send{1, mine.there()};
        const incoming receive{0, mine.there()};
        started = comm.rank() == 0 ? comm.start_exchange({&send, 1}, {}, options)
                                   : comm.start_exchange({}, {&receive, 1}, options);
      } else {
        started = comm.rank() == 0 ? comm.broadcast(mine.there(), mine.there(), 0, options)
                                   : comm.all_reduce(mine.there(), mine.there(), dtype::int32, reduce_op::sum, options);
      }
      return started ? started->wait() : result<void>(started.error());
    });
    check_all_equal(all, errc::deadline_exceeded);
    CHECK(all.took < 1200ms);
    CHECK(double_problems() > 0);  // the double saw it as well
    CHECK(std::string(double_leak_text()) == "");
  }
}

TEST_CASE("a device that fails while NCCL works is an error on every rank with CUDA's text", "[double]") {
  const on_double fresh;
  double_inject("cudaEventQuery", -1, 1, double_fail, 700);
  const auto all = failing(2, [](nccl_communicator& comm) {
    const auto done = reduce(comm, within(5s));
    return done ? until_told(comm) : done;  // its own part may have ended before
  });
  check_all_equal(all, errc::communication);
  CHECK_THAT(all.errors[0].message, ContainsSubstring("(CUDA error 700)"));
  REQUIRE(all.errors[0].ranks.size() == 1);  // the rank that saw it first
  CHECK_THAT(all.errors[0].message, ContainsSubstring("on cuda:" + std::to_string(all.errors[0].ranks[0])));
}

TEST_CASE("a call after the deadline of another has its error, and nothing is started") {
  const on_double fresh;
  const auto all = failing(2, [](nccl_communicator& comm) -> result<void> {
    call_options late;
    late.within = clock_type::now() - 1s;
    if (comm.rank() == 0) return reduce(comm, late);
    return until_told(comm);
  });
  check_all_equal(all, errc::deadline_exceeded);
  CHECK_THAT(all.errors[0].message, ContainsSubstring("the deadline of rank 0 had passed before all_reduce (tag 0)"));
  CHECK(double_calls("ncclAllReduce") == 0);
}

TEST_CASE("a call that failed returns when no kernel can use its memory any more, however long that takes",
          "[double]") {
  const on_double fresh;
  std::atomic<bool> is_released = false;
  const auto all = failing(2, [&](nccl_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return until_told(comm);
    // NCCL waits for work on the default stream. That work hangs for longer than any wait that gives up.
    device_bytes other(comm.memory(), 64);
    double_inject("cudaMemsetAsync", 0, 1, double_hang, 0);
    if (cudaSetDevice(0) != 0 || cudaMemsetAsync(other.there().data(), 0, 64, nullptr) != 0)
      return fail(errc::io, "the test cannot hold the default stream");
    const std::jthread later([&] {
      std::this_thread::sleep_for(11s);
      is_released = true;
      double_release();
    });
    auto done = reduce(comm, within(200ms));
    if (!is_released) return fail(errc::io, "returned while the kernel had not run");
    return done;
  });
  check_all_equal(all, errc::deadline_exceeded);
  CHECK(all.took >= 11s);
}
