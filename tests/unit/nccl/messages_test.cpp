// SPDX-License-Identifier: Apache-2.0
// Tests exchanges over NCCL on the double: their contents, with and without streams, and refusals.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <gpu_double/on_double.hpp>
#include <memory>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.conformance;
import shardmesh.test.gpu_ranks;

using namespace shardmesh;
using test::device_bytes;

namespace {

std::vector<std::byte> message(std::int32_t from, std::int32_t to, std::uint64_t number, std::size_t size) {
  dice bytes(static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) * 31 + number * 100'003 + 5);
  std::vector<std::byte> made(size);
  for (std::byte& b : made) b = static_cast<std::byte>(bytes.below(256));
  return made;
}

std::string text_of(const result<void>& done) {
  return done ? std::string() : to_string(done.error());
}

// One exchange between all ranks: both sides know the sizes, and some are 0.
struct running {
  std::vector<std::unique_ptr<device_bytes>> sent, received;
  std::vector<std::vector<std::byte>> expected;
  result<pending> work = pending();
  std::uint64_t number = 0;
};
running start(nccl_communicator& comm, std::uint64_t seed, std::uint64_t number, stream_ref stream) {
  running made;
  made.number = number;
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  const auto size_between = [&](std::int32_t from, std::int32_t to) {
    dice sizes(seed * 977 + number * 13 + static_cast<std::uint64_t>(from) * 101 + static_cast<std::uint64_t>(to));
    return static_cast<std::size_t>(sizes.one_in(4) ? 0 : sizes.up_to(sizes.one_in(5) ? 100'000 : 700));
  };
  for (std::int32_t peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    if (const auto bytes = message(comm.rank(), peer, number, size_between(comm.rank(), peer)); !bytes.empty()) {
      made.sent.push_back(std::make_unique<device_bytes>(comm.memory(), bytes));
      sends.push_back({peer, made.sent.back()->there()});
    }
    if (auto bytes = message(peer, comm.rank(), number, size_between(peer, comm.rank())); !bytes.empty()) {
      made.received.push_back(std::make_unique<device_bytes>(comm.memory(), bytes.size()));
      receives.push_back({peer, made.received.back()->there()});
      made.expected.push_back(std::move(bytes));
    }
  }
  call_options options;
  options.stream = stream;
  made.work = comm.start_exchange(sends, receives, options);
  return made;
}
std::string compare(const running& e) {
  for (std::size_t i = 0; i < e.received.size(); ++i)
    if (e.received[i]->here() != e.expected[i]) return "other bytes in exchange " + std::to_string(e.number);
  return {};
}

}  // namespace

TEST_CASE("a communicator over NCCL knows its ranks, its memory and that it is ordered") {
  const watchdog dog{std::chrono::seconds(60)};
  for (const std::int32_t size : {1, 2, 4, 8}) {
    const on_double fresh;
    CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, size,
                        [&](nccl_communicator& comm, any_communicator& control) -> std::string {
                          const communicator_ref any(comm);
                          if (any.size() != size || any.rank() != control.rank()) return "another rank";
                          if (any.memory() != device{device_type::cuda, static_cast<std::int16_t>(comm.rank())})
                            return "other memory";
                          if (!any.is_ordered() || !any.has_collectives() || any.shares_memory())
                            return "other abilities";
                          const auto all = any.all_gather(message(comm.rank(), 0, 1, 10), {});
                          if (!all) return to_string(all.error());
                          for (std::int32_t r = 0; r < size; ++r)
                            if ((*all)[static_cast<std::size_t>(r)] != message(r, 0, 1, 10)) return "other bytes";
                          return text_of(comm.status());
                        }) == "");
  }
}

TEST_CASE("exchanges of any sizes arrive whole, many at a time, waited for in any order") {
  const watchdog dog{std::chrono::seconds(120)};
  for (std::uint64_t seed = 1; seed <= random_seed::rounds(12); ++seed)
    for (const std::int32_t size : {2, 3, 4, 8}) {
      INFO("seed " << seed << ", " << size << " ranks");
      const on_double fresh(seed);
      CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator&) -> std::string {
              dice own(seed + static_cast<std::uint64_t>(comm.rank()) * 7919);
              std::vector<running> open;
              for (std::uint64_t number = 0; number < 6; ++number) {
                open.push_back(start(comm, seed, number, {}));
                if (!open.back().work) return to_string(open.back().work.error());
                while (!open.empty() && own.one_in(2)) {
                  const std::size_t i = own.one_of(open.size());
                  if (const auto done = open[i].work->wait(); !done) return to_string(done.error());
                  if (std::string wrong = compare(open[i]); !wrong.empty()) return wrong;
                  open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
                }
              }
              for (running& e : open) {
                if (const auto done = e.work->wait(); !done) return to_string(done.error());
                if (std::string wrong = compare(e); !wrong.empty()) return wrong;
              }
              return {};
            }) == "");
    }
}

TEST_CASE("with a stream, wait does not wait for the device, and the stream's order is kept") {
  const watchdog dog{std::chrono::seconds(120)};
  const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
  REQUIRE(runtime);
  for (std::uint64_t seed = 1; seed <= random_seed::rounds(12); ++seed) {
    INFO("seed " << seed);
    const on_double fresh(seed);
    CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 3, [&](nccl_communicator& comm, any_communicator&) -> std::string {
            const auto stream = cuda::stream::make(*runtime, comm.memory());
            if (!stream) return to_string(stream.error());
            const auto backend = backend_for(comm.memory());
            // A ring: each round sends what the round before received. Only the stream orders the rounds.
            const std::int32_t next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
            device_bytes buffers[2] = {{comm.memory(), message(comm.rank(), 0, seed, 5000)}, {comm.memory(), 5000}};
            call_options options;
            options.stream = stream->ref();
            for (std::size_t round = 0; round < 5; ++round) {
              const outgoing send{next, buffers[round % 2].there()};
              const incoming receive{previous, buffers[(round + 1) % 2].there()};
              auto work = comm.start_exchange({&send, 1}, {&receive, 1}, options);
              if (!work) return to_string(work.error());
              if (const auto put = work->wait(); !put) return to_string(put.error());
            }
            std::vector<std::byte> last(5000);
            if (const auto copied = (*backend)->copy_across(last.data(), {}, buffers[1].there().data(), comm.memory(),
                                                            5000, stream->ref());
                !copied)
              return to_string(copied.error());
            if (const auto done = stream->synchronize(); !done) return to_string(done.error());
            // Five steps around three ranks.
            return last == message((comm.rank() + 1) % 3, 0, seed, 5000) ? "" : "other bytes at the end of the ring";
          }) == "");
  }
}

TEST_CASE("a pending on a stream is done when the device is") {
  const watchdog dog{std::chrono::seconds(60)};
  const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          const auto stream = cuda::stream::make(*runtime, comm.memory());
          device_bytes bytes(comm.memory(), message(0, 1, 3, 900));
          call_options options;
          options.stream = stream->ref();
          const std::int32_t peer = 1 - comm.rank();
          const outgoing send{peer, bytes.there()};
          const incoming receive{peer, bytes.there()};
          auto work = comm.rank() == 0 ? comm.start_exchange({&send, 1}, {}, options)
                                       : comm.start_exchange({}, {&receive, 1}, options);
          if (!work) return to_string(work.error());
          while (!work->done()) std::this_thread::yield();
          return text_of(work->wait()) + (bytes.here() == message(0, 1, 3, 900) ? "" : "other bytes");
        }) == "");
}

TEST_CASE("memory that is not the device's is refused before anything moves") {
  const watchdog dog{std::chrono::seconds(60)};
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          std::vector<std::byte> host(64);
          device_bytes elsewhere({device_type::cuda, 5}, 64);
          const std::int32_t peer = 1 - comm.rank();
          const auto refused = [&](const result<pending>& started, const std::string& found) -> std::string {
            if (started) return "nothing was refused";
            const error& e = started.error();
            if (e.code != errc::unsupported || e.ranks != std::vector{comm.rank()} || e.found != found ||
                e.expected != to_string(comm.memory()))
              return "another error: " + to_string(e);
            return {};
          };
          const outgoing from_host{peer, host}, from_elsewhere{peer, elsewhere.there()};
          const incoming to_host{peer, host};
          std::string wrong = refused(comm.start_exchange({&from_host, 1}, {}, {}), "cpu");
          wrong += refused(comm.start_exchange({}, {&to_host, 1}, {}), "cpu");
          wrong += refused(comm.start_exchange({&from_elsewhere, 1}, {}, {}), "cuda:5");
          wrong += refused(comm.all_reduce(host, host, dtype::int32, reduce_op::sum, {}), "cpu");
          wrong += refused(comm.broadcast({}, elsewhere.there(), 1 - comm.rank(), {}), "cuda:5");
          return wrong + text_of(comm.status());
        }) == "");
}

TEST_CASE("the installed suite holds over NCCL, through memory of the device", "[double]") {
  const watchdog dog{std::chrono::seconds(240)};
  for (const std::int32_t size : {1, 2, 4})
    for (const conformance_check& check : conformance_checks()) {
      INFO(size << " ranks: " << check.name);
      double_reset(static_cast<std::uint64_t>(size));
      const std::string wrong =
          test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator&) -> std::string {
            test::staged_communicator staged(comm);
            std::string text;
            for (const conformance_problem& p : run_check(check, staged)) text += to_string(p) + "\n";
            return text;
          });
      CHECK(wrong == "");
      // One check sends messages of two sizes on purpose, and the double reports it.
      const bool is_meant = check.name == "sizes that differ on the two sides are an error" && size > 1;
      CHECK((std::string(double_problem_text()).find("messages of different sizes") == 0) == is_meant);
      CHECK((double_problems() > 0) == is_meant);
      CHECK(std::string(double_leak_text()) == "");
    }
}
