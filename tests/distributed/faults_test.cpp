// SPDX-License-Identifier: Apache-2.0
// Faults among ranks: every rank gets an error that names key, rank, and box, at most a second after the deadline. No
// rank waits forever.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fabric.hpp>
#include <functional>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.transfer;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

distribution on_all(std::int32_t ranks, const placement& p, const extents& shape) {
  const std::int64_t sizes[] = {ranks};
  return distribute(layout::make(device_mesh::make(sizes).value(), {p}, shape).value()).value();
}

// A transfer from rows to columns.
tensor_transfer turn(std::int32_t ranks, const extents& shape, dtype type = dtype::float32) {
  return {on_all(ranks, placement::shard(0), shape), on_all(ranks, placement::shard(1), shape), type, type};
}

// A rank's tensors for transfers with one slot each.
struct tensors {
  std::vector<host_tensor> memory;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;

  tensors(const transfer_plan& plan, owner_id rank) {
    for (const tensor_transfer& t : plan.transfers()) {
      from.push_back(bind(t.from, t.from_type, rank));
      to.push_back(bind(t.to, t.to_type, rank));
    }
  }
  tensor_binding bind(const distribution& d, dtype type, owner_id rank) {
    tensor_binding made;
    d.fragments_of(rank, [&](const fragment& f) {
      memory.push_back(host_tensor::make(type, f.where.sizes).value());
      made.slots.push_back(adapter<host_tensor>::view(memory.back()));
      return true;
    });
    return made;
  }
};

constexpr auto& on_ranks = fabric::on_ranks<any_communicator>;

// Returns "" if the call failed with this code and its text contains all of `texts`. A failing rank's error may reach
// another rank that still agrees on the executor; then `make` must return that error.
template <class T>
[[nodiscard]] std::string must_fail(const result<T>& got, errc code, const std::vector<std::string>& texts) {
  if (got.has_value()) return "there was no error";
  const std::string text = to_string(got.error());
  if (got.error().code != code) return "another code: " + text;
  for (const std::string& part : texts)
    if (text.find(part) == std::string::npos) return "it does not say '" + part + "': " + text;
  return {};
}

// The description that a rank may change before it makes an executor.
struct description {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  plan_options options;
};

std::string disagree(any_communicator& comm, const std::function<void(description&)>& change,
                     const std::vector<std::string>& texts) {
  const std::int32_t n = comm.size();
  description mine{{turn(n, {8, 8}), turn(n, {6, 5}), turn(n, {4, 4}, dtype::int8)}, {"a", "b", "c"}, {}};
  if (comm.rank() == 1) change(mine);
  const auto made = executor::make(plan(mine.transfers, mine.options).value(), comm, mine.keys);
  if (std::string wrong = must_fail(made, errc::disagreement, texts); !wrong.empty()) return wrong;
  // The communicator still works: the ranks can agree now.
  const auto again = executor::make(plan({turn(n, {8, 8})}).value(), comm);
  return again ? std::string() : to_string(again.error());
}

}  // namespace

TEST_CASE("ranks that disagree on a dtype get the key and both sides") {
  on_ranks({2, 4}, [](any_communicator& comm) {
    return disagree(comm, [](description& d) { d.transfers[1].from_type = d.transfers[1].to_type = dtype::int32; },
                    {"ranks disagree on 1 of 4 transfers", "'b' is", "[6, 5] float32", "[6, 5] int32", "on rank 1"});
  });
}

TEST_CASE("ranks that disagree on a shape get the key and both sides") {
  on_ranks({2, 3, 8}, [](any_communicator& comm) {
    return disagree(comm, [&](description& d) { d.transfers[0] = turn(comm.size(), {8, 9}); },
                    {"ranks disagree on 1 of 4 transfers", "'a' is", "[8, 8] float32", "[8, 9] float32"});
  });
}

TEST_CASE("ranks that disagree on a layout get the key") {
  on_ranks({2, 5}, [](any_communicator& comm) {
    return disagree(comm,
                    [&](description& d) { d.transfers[2].to = on_all(comm.size(), placement::replicate(), {4, 4}); },
                    {"ranks disagree on 1 of 4 transfers", "'c' is [4, 4] int8 from"});
  });
}

TEST_CASE("ranks with different key sets get the keys that are missing") {
  on_ranks({2, 4}, [](any_communicator& comm) {
    return disagree(comm,
                    [](description& d) {
                      d.transfers.pop_back();
                      d.keys = {"a", "x"};
                    },
                    {"'b' is", "'c' is", "'x' is", "missing on rank 1"});
  });
}

TEST_CASE("ranks that list transfers in different orders are told where") {
  on_ranks({2, 4}, [](any_communicator& comm) {
    return disagree(comm,
                    [](description& d) {
                      std::swap(d.transfers[1], d.transfers[2]);
                      std::swap(d.keys[1], d.keys[2]);
                    },
                    {"ranks list the same transfers in different orders, first at position 1", "c on rank 1"});
  });
}

TEST_CASE("ranks that disagree on options are told so") {
  on_ranks({2}, [](any_communicator& comm) {
    return disagree(comm, [](description& d) { d.options.memory_bytes = 1 << 20; },
                    {"'(options)' is", "memory 1048576", "memory 0"});
  });
}

TEST_CASE("a distribution over ranks that the group lacks is refused on every rank, naming key and rank") {
  on_ranks({1, 2, 3}, [](any_communicator& comm) {
    const auto made = executor::make(plan({turn(comm.size() + 2, {8, 8})}).value(), comm, {"w"});
    return must_fail(
        made, errc::invalid_argument,
        {"w: the source is held by a rank that is not in the group", "rank " + std::to_string(comm.size())});
  });
}

TEST_CASE("an executor refuses items, undefined reductions and a wrong number of keys") {
  on_ranks({1, 2}, [](any_communicator& comm) -> std::string {
    const fragment whole{box::whole({4}), 0, 0, {0}, 0};
    const distribution items = distribution::from_fragments({4}, std::span(&whole, 1), owner_space::items).value();
    const distribution all = on_all(comm.size(), placement::replicate(), {4});
    std::string wrong = must_fail(executor::make(plan({{items, all, dtype::int8, dtype::int8}}).value(), comm),
                                  errc::unsupported, {"transfer 0: the source is held by items"});
    if (!wrong.empty()) return wrong;
    const distribution average = on_all(comm.size(), placement::partial(reduce_op::avg), {4});
    wrong = must_fail(executor::make(plan({{average, all, dtype::int32, dtype::int32}}).value(), comm, {"n"}),
                      errc::unsupported, {"n: avg of int32 is not defined"});
    if (!wrong.empty()) return wrong;
    return must_fail(executor::make(plan({{all, all, dtype::int8, dtype::int8}}).value(), comm, {"a", "b"}),
                     errc::invalid_argument, {"one key per transfer", "expected 1, found 2"});
  });
}

namespace {

// Rank 1 binds something wrong; every rank gets the same error, and no memory changes.
std::string bind_wrongly(any_communicator& comm, const std::function<void(tensors&)>& spoil, errc code,
                         const std::vector<std::string>& texts) {
  const std::int32_t n = comm.size();
  auto made = executor::make(plan({turn(n, {8, 8}), turn(n, {6, 6})}).value(), comm, {"a", "b"});
  if (!made) return must_fail(made, code, texts);  // see must_fail
  tensors mine(made->plan(), comm.rank());
  for (host_tensor& t : mine.memory)
    for (std::byte& b : t.bytes()) b = std::byte{0x5a};
  if (comm.rank() == 1) spoil(mine);
  if (std::string wrong = must_fail(made->run(mine.from, mine.to), code, texts); !wrong.empty()) return wrong;
  for (const host_tensor& t : mine.memory)
    for (const std::byte b : t.bytes())
      if (b != std::byte{0x5a}) return "memory changed";
  return {};
}

}  // namespace

TEST_CASE("a slot that is not bound is an error on every rank") {
  on_ranks({2, 4}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.to[1].slots.clear(); }, errc::invalid_argument,
                        {"b: slot 0 of the destination is not bound", "(rank 1)", "expected 1 slot or more, found 0"});
  });
}

TEST_CASE("a slot without memory is an error on every rank") {
  on_ranks({2}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.from[0].slots[0].data = nullptr; }, errc::invalid_argument,
                        {"a: slot 0 of the source has no memory", "(rank 1)"});
  });
}

TEST_CASE("a view that does not hold its fragments is an error on every rank, naming the box") {
  on_ranks({2, 3}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.from[0].slots[0].sizes[1] = 7; }, errc::shape_mismatch,
                        {"a: slot 0 of the source does not hold its fragments in [0:", "(rank 1)", "8]"});
  });
  on_ranks({2}, [](any_communicator& comm) {
    return bind_wrongly(comm,
                        [](tensors& t) {
                          t.to[1].slots[0].sizes = {18};
                          t.to[1].slots[0].strides = {1};
                        },
                        errc::shape_mismatch,
                        {"b: slot 0 of the destination does not hold", "expected [6, 3], found [18]"});
  });
}

TEST_CASE("a view of another dtype is an error on every rank, naming both") {
  on_ranks({2}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.to[0].slots[0].type = dtype::int32; }, errc::dtype_mismatch,
                        {"a: slot 0 of the destination has another dtype", "expected float32, found int32"});
  });
}

TEST_CASE("memory that is not the host's is an error on every rank, naming the device", "[host_memory]") {
  on_ranks({2}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.from[1].slots[0].where = {device_type::cuda, 1}; }, errc::unsupported,
                        {"b: slot 0 of the source lies in memory that no backend reaches", "found cuda:1"});
  });
}

TEST_CASE("too few bindings are an error on every rank") {
  on_ranks({2}, [](any_communicator& comm) {
    return bind_wrongly(comm, [](tensors& t) { t.from.pop_back(); }, errc::invalid_argument,
                        {"the source needs one binding per transfer", "expected 2, found 1"});
  });
}

TEST_CASE("a destination in the memory of a source that is still needed is an error naming both keys") {
  on_ranks({2, 4}, [](any_communicator& comm) {
    return bind_wrongly(comm,
                        [](tensors& t) {
                          t.to[1].slots[0].data = t.memory[0].bytes().data() + 4;  // with its own strides and sizes
                        },
                        errc::invalid_argument,
                        {"b: slot 0 of the destination shares memory with slot 0 of the source of 'a'", "(rank 1)"});
  });
}

TEST_CASE("columns of one matrix may be source and destination: no byte is shared") {
  on_ranks({1, 2}, [](any_communicator& comm) -> std::string {
    // On each rank, its rows of a [4, 2] tensor are columns 0 and 1 of memory; columns 2 and 3 are the destination.
    const std::int32_t n = comm.size();
    const distribution rows = on_all(n, placement::shard(0), {4, 2});
    auto made = executor::make(plan({{rows, rows, dtype::int32, dtype::int32}}).value(), comm);
    if (!made) return to_string(made.error());
    std::vector<std::int32_t> memory(16, comm.rank() + 1);
    tensor_view left{reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, {4 / n, 2}, {4, 1}};
    tensor_view right = left;
    right.data += 8;
    for (int r = 0; r < 4; ++r)
      memory[static_cast<std::size_t>(4 * r + 2)] = memory[static_cast<std::size_t>(4 * r + 3)] = 0;
    const const_tensor_binding from{{left}};
    const tensor_binding to{{right}};
    if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
    for (int r = 0; r < 4 / n; ++r)
      if (memory[static_cast<std::size_t>(4 * r + 3)] != comm.rank() + 1) return "not copied";
    return {};
  });
}

TEST_CASE("a tensor that stays where it is may be its own destination, while others get copies of it") {
  on_ranks({2, 3}, [](any_communicator& comm) -> std::string {
    // Rank 0 holds the tensor; afterwards all ranks do. Rank 0 binds the same memory on both sides.
    const fragment at_zero{box::whole({3}), 0, 0, {0}, 0};
    const distribution one = distribution::from_fragments({3}, std::span(&at_zero, 1), owner_space::ranks).value();
    const distribution all = on_all(comm.size(), placement::replicate(), {3});
    auto made = executor::make(plan({{one, all, dtype::int32, dtype::int32}}).value(), comm);
    if (!made) return to_string(made.error());
    std::vector<std::int32_t> memory(3, comm.rank() == 0 ? 7 : 0);
    const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, {3}, {1}};
    const_tensor_binding from;
    const tensor_binding to{{view}};
    if (comm.rank() == 0) from.slots.push_back(view);
    if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
    return memory == std::vector<std::int32_t>(3, 7) ? "" : "wrong values";
  });
}

TEST_CASE("with a check before every run a wrong binding leaves the communicator sound") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    auto made = executor::make(plan({turn(n, {8, 8})}).value(), comm, {"a"}, {.check = check_policy::every_run});
    if (!made) return to_string(made.error());
    tensors mine(made->plan(), comm.rank());
    tensors spoilt(made->plan(), comm.rank());
    if (comm.rank() == 1) spoilt.from[0].slots.clear();
    std::string wrong = must_fail(made->run(spoilt.from, spoilt.to), errc::invalid_argument,
                                  {"a: slot 0 of the source is not bound", "(rank 1)"});
    if (!wrong.empty()) return wrong;
    const auto done = made->run(mine.from, mine.to);
    return done ? std::string() : to_string(done.error());
  });
}

TEST_CASE("two runs of one executor at a time are refused") {
  on_ranks({2}, [](any_communicator& comm) -> std::string {
    auto made = executor::make(plan({turn(2, {8, 8})}).value(), comm);
    if (!made) return to_string(made.error());
    tensors mine(made->plan(), comm.rank());
    auto first = made->start(mine.from, mine.to);
    if (!first) return to_string(first.error());
    std::string wrong = must_fail(made->start(mine.from, mine.to), errc::invalid_argument,
                                  {"an earlier run of this executor is still pending"});
    if (!wrong.empty()) return wrong;
    if (auto done = first->wait(); !done) return to_string(done.error());
    const auto again = made->run(mine.from, mine.to);
    return again ? std::string() : to_string(again.error());
  });
}

TEST_CASE("runs of several executors may be waited for in any order", "[any_order]") {
  on_ranks({2, 3, 4}, [](any_communicator& comm) -> std::string {
    // Terms give each run two rounds of messages.
    const std::int32_t n = comm.size();
    const distribution terms = on_all(n, placement::partial(reduce_op::sum), {n * 2, 3});
    const distribution all = on_all(n, placement::replicate(), {n * 2, 3});
    std::vector<executor> made;
    std::vector<tensors> mine;
    for (int e = 0; e < 3; ++e) {
      auto one = executor::make(plan({{terms, all, dtype::int32, dtype::int32}}, {.reduce_grain_bytes = 1}).value(),
                                comm, {}, {.in_place = e != 1});
      if (!one) return to_string(one.error());
      made.push_back(*std::move(one));
      mine.emplace_back(made.back().plan(), comm.rank());
      for (std::size_t i = 0; i < 6 * static_cast<std::size_t>(n); ++i)
        mine.back().memory[0].values<std::int32_t>()[i] = e + 1;
    }
    std::vector<pending> flying;
    for (std::size_t e = 0; e < made.size(); ++e) {
      auto started = made[e].start(mine[e].from, mine[e].to);
      if (!started) return to_string(started.error());
      flying.push_back(*std::move(started));
    }
    // While a rank waits for one run, its peers must not depend on its other runs, so it only polls them.
    for (std::size_t k = 0; k < made.size(); ++k) {
      const std::size_t e = (k + static_cast<std::size_t>(comm.rank())) % made.size();
      while (!flying[e].done()) {
        for (pending& other : flying) static_cast<void>(other.done());
        std::this_thread::yield();
      }
      if (auto done = flying[e].wait(); !done) return to_string(done.error());
      for (std::size_t i = 0; i < 6 * static_cast<std::size_t>(n); ++i)
        if (reinterpret_cast<std::int32_t*>(mine[e].to[0].slots[0].data)[i] != n * static_cast<std::int32_t>(e + 1))
          return "wrong values";
    }
    return {};
  });
}

// --- ranks that fail ---

namespace {

std::string fails_soon(clock_type::time_point deadline, const result<void>& got) {
  if (got.has_value()) return "there was no error";
  if (clock_type::now() > deadline + 5s) return "it came too late: " + to_string(got.error());
  return {};
}

call_options until(clock_type::time_point deadline) {
  call_options options;
  options.within = deadline;
  return options;
}

}  // namespace

TEST_CASE("when a rank does not run, the others end with an error that names it") {
  on_ranks({2, 4, 8}, [](any_communicator& comm) -> std::string {
    auto made = executor::make(plan({turn(comm.size(), {16, 16})}).value(), comm);
    if (!made) return to_string(made.error());
    if (comm.rank() == 1) return {};
    tensors mine(made->plan(), comm.rank());
    const auto deadline = clock_type::now() + 300ms;
    const auto done = made->run(mine.from, mine.to, until(deadline));
    if (std::string wrong = fails_soon(deadline, done); !wrong.empty()) return wrong;
    return to_string(done.error()).find("1") != std::string::npos ? "" : to_string(done.error());
  });
}

TEST_CASE("when a rank makes no executor, the others end with an error") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    if (comm.rank() == 1) return {};
    const auto deadline = clock_type::now() + 300ms;
    const auto made = executor::make(plan({turn(comm.size(), {16, 16})}).value(), comm, {}, {}, until(deadline));
    if (made) return "there was no error";
    return fails_soon(deadline, made.error());
  });
}

TEST_CASE("what a progress callback throws leaves the rank and ends the others") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const std::int32_t me = comm.rank();
    run_options options;
    options.progress = [me](std::int64_t) {
      if (me == 1) throw std::runtime_error("enough of this");
    };
    // Many tensors in small batches: some batches finish before the failure, most do not.
    std::vector<tensor_transfer> transfers(64, turn(n, {16, 16}));
    auto made = executor::make(plan(transfers, {.memory_bytes = 4096}).value(), comm, {}, options);
    const std::vector<std::string> texts{"an exception ended the run: enough of this", "(rank 1)"};
    if (!made) return must_fail(made, errc::communication, texts);
    tensors mine(made->plan(), me);
    const auto deadline = clock_type::now() + 5s;
    try {
      const auto done = made->run(mine.from, mine.to, until(deadline));
      if (me == 1) return "it did not leave";
      return must_fail(done, errc::communication, texts);
    } catch (const std::runtime_error& e) {
      return me == 1 && std::string(e.what()) == "enough of this" ? "" : "another exception";
    }
  });
}

TEST_CASE("a rank that throws before the run ends the wait of the others") {
  const watchdog dog(60s);
  for (const fabric::kind& kind : fabric::all()) {
    if (std::find(kind.sizes.begin(), kind.sizes.end(), 4) == kind.sizes.end()) continue;
    const auto start = clock_type::now();
    const std::string wrong = kind.run(4, [&](void* p) -> std::string {
      any_communicator& comm = *static_cast<any_communicator*>(p);
      auto made = executor::make(plan({turn(4, {16, 16})}).value(), comm);
      if (!made) return to_string(made.error());
      if (comm.rank() == 2) throw std::runtime_error("out of luck");
      tensors mine(made->plan(), comm.rank());
      return made->run(mine.from, mine.to) ? "there was no error" : "";
    });
    CHECK(wrong.find("out of luck") != std::string::npos);
    CHECK(clock_type::now() - start < 20s);
  }
}

TEST_CASE("a deadline that has passed ends a run at once, on every rank") {
  on_ranks({1, 2, 4}, [](any_communicator& comm) -> std::string {
    auto made = executor::make(plan({turn(comm.size(), {16, 16})}).value(), comm);
    if (!made) return must_fail(made, errc::deadline_exceeded, {"rank"});
    tensors mine(made->plan(), comm.rank());
    const auto now = clock_type::now();
    const auto done = made->run(mine.from, mine.to, until(now));
    if (std::string wrong = fails_soon(now, done); !wrong.empty()) return wrong;
    return must_fail(done, errc::deadline_exceeded, {"rank"});
  });
}

TEST_CASE("a deadline of one rank ends all of them") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    auto made = executor::make(plan({turn(comm.size(), {16, 16})}).value(), comm);
    if (!made) return must_fail(made, errc::deadline_exceeded, {"rank 1"});
    tensors mine(made->plan(), comm.rank());
    const auto now = clock_type::now();
    const auto done = made->run(mine.from, mine.to, comm.rank() == 1 ? until(now) : call_options{});
    return must_fail(done, errc::deadline_exceeded, {"rank 1"});
  });
}

TEST_CASE("cancelling in the middle of a run ends all ranks") {
  on_ranks({2, 4}, [](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    std::stop_source stop;
    std::int64_t moved = 0;
    run_options options;
    options.progress = [&](std::int64_t bytes) {
      moved += bytes;
      if (comm.rank() == 0 && moved > 40'000) stop.request_stop();
    };
    std::vector<tensor_transfer> transfers(400, turn(n, {16, 16}));
    auto made = executor::make(plan(transfers, {.memory_bytes = 4096}).value(), comm, {}, options);
    if (!made) return to_string(made.error());
    tensors mine(made->plan(), comm.rank());
    call_options call;
    if (comm.rank() == 0) call.cancel = stop.get_token();
    return must_fail(made->run(mine.from, mine.to, call), errc::cancelled, {"rank 0 was cancelled"});
  });
}
