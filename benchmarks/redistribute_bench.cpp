// SPDX-License-Identifier: Apache-2.0
// Redistribution over threads beside a plain all-to-all of the same bytes (each thread copies its blocks from the
// others' buffers, between two barriers), in one run, alternating; and planning for one of 1024 ranks, in a separate
// process to measure its memory. Prints one line of JSON per case.
//   shardmesh_redistribute_bench [--ranks N] [--repeat N] [--only plan|run] [--rows N] [--pin 1]
// --rows: one size alone, for profiles; --pin: a core for each rank, because wake-ups tend to put two on one.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

import shardmesh.transfer;

namespace {
using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

struct bench_case {
  std::string name;
  std::int64_t rows, columns;
  placement from, to;
  bool in_place = true;
  bool pin = false;
};

void stay_on_core(std::int32_t rank) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(rank) % std::thread::hardware_concurrency(), &one);
  sched_setaffinity(0, sizeof one, &one);
}

distribution on_all(std::int32_t ranks, const placement& p, const extents& shape) {
  const std::int64_t sizes[] = {ranks};
  return distribute(layout::make(device_mesh::make(sizes).value(), {p}, shape).value()).value();
}

// The CPU time of all threads of this process: other processes on the machine affect it little.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void measure(const bench_case& c, std::int32_t ranks, int repeat) {
  const extents shape{c.rows, c.columns};
  const transfer_plan planned =
      plan({{on_all(ranks, c.from, shape), on_all(ranks, c.to, shape), dtype::float32, dtype::float32}}).value();
  std::barrier meet(ranks);
  std::vector<std::vector<std::byte>> plain_from(static_cast<std::size_t>(ranks)), plain_to(plain_from);
  std::vector<double> ours, plain, ours_cpu, plain_cpu;
  run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    const std::int32_t me = comm.rank();
    if (c.pin) stay_on_core(me);
    auto made = executor::make(planned, comm, {}, {.in_place = c.in_place});
    if (!made) return made.error();
    const auto make_slot = [&](const distribution& d) {
      extents sizes{0, 0};
      d.fragments_of(me, [&](const fragment& f) { return sizes = f.where.sizes, true; });
      host_tensor tensor = host_tensor::make(dtype::float32, sizes).value();
      std::memset(tensor.bytes().data(), 1, tensor.bytes().size());
      return tensor;
    };
    host_tensor source = make_slot(planned.transfers()[0].from), target = make_slot(planned.transfers()[0].to);
    const const_tensor_binding from{{view_of(source)}};
    const tensor_binding to{{view_of(target)}};
    // The plain side moves as many bytes between as many pairs, and as many within each rank.
    const std::size_t block = target.bytes().size() / static_cast<std::size_t>(ranks);
    plain_from[static_cast<std::size_t>(me)].assign(block * static_cast<std::size_t>(ranks), std::byte{1});
    plain_to[static_cast<std::size_t>(me)].assign(block * static_cast<std::size_t>(ranks), std::byte{2});
    // Many moves per measurement: its beginning and end differ between threads by much more than a small move takes.
    const auto moves = std::clamp<std::int64_t>((std::int64_t{256} << 20) / (c.rows * c.columns * 4), 4, 200);
    const auto timed = [&](std::vector<double>& wall, std::vector<double>& cpu, auto move) {
      meet.arrive_and_wait();
      const auto start = clock_type::now();
      const double cpu_start = cpu_seconds();
      for (std::int64_t k = 0; k < moves; ++k) move();
      meet.arrive_and_wait();
      if (me != 0) return;
      wall.push_back(std::chrono::duration<double>(clock_type::now() - start).count() / static_cast<double>(moves));
      cpu.push_back((cpu_seconds() - cpu_start) / static_cast<double>(moves));
    };
    result<void> done;
    for (int i = 0; i < repeat; ++i) {
      timed(ours, ours_cpu, [&] {
        if (done) done = made->run(std::span(&from, 1), std::span(&to, 1));
      });
      timed(plain, plain_cpu, [&] {
        meet.arrive_and_wait();
        for (std::int32_t k = 0; k < ranks; ++k) {
          const auto peer = static_cast<std::size_t>((me + k) % ranks);
          std::memcpy(plain_to[static_cast<std::size_t>(me)].data() + peer * block,
                      plain_from[peer].data() + static_cast<std::size_t>(me) * block, block);
        }
        meet.arrive_and_wait();
      });
      if (!done) return done;
    }
    return {};
  }).value();
  const auto least = [](const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); };
  std::printf(
      "{\"case\":\"%s%s\",\"bytes\":%lld,\"ours_ms\":%.4f,\"plain_ms\":%.4f,\"ratio\":%.2f,\"ratio_of_least\":%.2f,"
      "\"cpu_ratio\":%.2f}\n",
      c.name.c_str(), c.in_place ? "" : " with messages", static_cast<long long>(c.rows * c.columns * 4),
      1e3 * median(ours), 1e3 * median(plain), median(ours) / median(plain), least(ours) / least(plain),
      median(ours_cpu) / median(plain_cpu));
}

double peak_mb() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) / 1024;
}

// One rank's part of 1024 tensors from rows to columns. Over 1024 ranks there are 2^30 copies in all, and the rank
// lists 2^21 of them; over 16,384 ranks it lists 2^25.
void measure_plan(std::int32_t ranks, bool alike) {
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    waitpid(child, &status, 0);
    return;
  }
  const double before = peak_mb();
  const auto start = clock_type::now();
  std::vector<tensor_transfer> transfers;
  for (std::int64_t i = 0; i < 1024; ++i) {
    const extents shape{4 * ranks + (alike ? 0 : i), 8 * ranks};
    transfers.push_back({on_all(ranks, placement::shard(0), shape), on_all(ranks, placement::shard(1), shape),
                         dtype::float32, dtype::float32});
  }
  const auto milliseconds = [](clock_type::time_point since) {
    return 1e3 * std::chrono::duration<double>(clock_type::now() - since).count();
  };
  plan_cache cache;
  const transfer_plan planned = cache.plan(transfers).value();
  const rank_plan mine = planned.for_owner(ranks / 2 - 1);
  const double cold = milliseconds(start), memory = peak_mb() - before;
  const auto again = clock_type::now();
  const rank_plan warm = planned.for_owner(ranks / 2 - 1);
  const double warm_ms = milliseconds(again);
  const auto listed = clock_type::now();
  const bool sends_to_all = mine.sends().size() + 1 == static_cast<std::size_t>(ranks);
  const double sends_ms = milliseconds(listed);
  const auto found = clock_type::now();
  const bool hit = cache.plan(transfers).has_value() && cache.hits() == 1;
  std::printf(
      "{\"case\":\"plan one of %d ranks, 1024 tensors %s\",\"cold_ms\":%.2f,\"peak_mb\":%.1f,\"warm_ms\":%.3f,"
      "\"sends_ms\":%.2f,\"cached_plan_ms\":%.3f,\"sent_bytes\":%lld}\n",
      ranks, alike ? "alike" : "of different shapes", cold, memory, warm_ms, sends_to_all ? sends_ms : -1.0,
      hit ? milliseconds(found) : -1.0, static_cast<long long>(warm.sent_bytes()));
  std::fflush(stdout);
  _exit(mine.transfers() == 1024 ? 0 : 1);
}

// The bytes on each link, over all pairs of 64 ranks, beside every rank's list of its own part (`sends`).
void measure_pairs(int repeat) {
  constexpr std::int32_t ranks = 64;
  std::vector<tensor_transfer> transfers;
  for (std::int64_t i = 0; i < 16; ++i) {
    const extents shape{4096 + i, 8192};
    transfers.push_back({on_all(ranks, placement::shard(0), shape), on_all(ranks, placement::shard(1), shape),
                         dtype::float32, dtype::float32});
  }
  const auto seconds = [](clock_type::time_point since) {
    return std::chrono::duration<double>(clock_type::now() - since).count();
  };
  std::vector<double> pairs, listed;
  std::int64_t moved = 0, sent = 0;
  for (int i = 0; i < repeat; ++i) {
    const transfer_plan fresh = plan(transfers).value();
    const auto start = clock_type::now();
    moved = 0;
    for (owner_id from = 0; from < ranks; ++from)
      for (owner_id to = 0; to < ranks; ++to)
        if (from != to) moved += fresh.bytes(from, to);
    pairs.push_back(seconds(start));
    const auto again = clock_type::now();
    sent = 0;
    for (owner_id from = 0; from < ranks; ++from)
      for (const peer_traffic& one : fresh.for_owner(from).sends()) sent += one.size_bytes;
    listed.push_back(seconds(again));
  }
  std::printf(
      "{\"case\":\"bytes of %d pairs of 64 ranks, 16 tensors\",\"pairs_ms\":%.2f,\"sends_ms\":%.2f,\"equal\":%s}\n",
      ranks * (ranks - 1), 1e3 * median(pairs), 1e3 * median(listed), moved == sent ? "true" : "false");
}

}  // namespace

int main(int count, char** words) {
  std::int32_t ranks = 4;
  int repeat = 9;
  std::int64_t only_rows = 0;
  bool pin = false;
  std::string_view only;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string_view(words[i]) == "--ranks") ranks = std::atoi(words[i + 1]);
    if (std::string_view(words[i]) == "--repeat") repeat = std::atoi(words[i + 1]);
    if (std::string_view(words[i]) == "--rows") only_rows = std::atoi(words[i + 1]);
    if (std::string_view(words[i]) == "--pin") pin = words[i + 1] != std::string_view("0");
    if (std::string_view(words[i]) == "--only") only = words[i + 1];
  }
  if (only != "run") {
    for (const std::int32_t wide : {1024, 16384})
      for (const bool alike : {true, false}) measure_plan(wide, alike);
    measure_pairs(repeat);
  }
  if (only == "plan") return 0;
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{128, 128}, {512, 512}, {2048, 2048}, {4096, 4096}})
    for (const bool in_place : {true, false}) {
      if (only_rows != 0 && rows != only_rows) continue;
      measure({"S(0) -> S(1)", rows, columns, placement::shard(0), placement::shard(1), in_place, pin}, ranks, repeat);
      measure({"S(1) -> S(0)", rows, columns, placement::shard(1), placement::shard(0), in_place, pin}, ranks, repeat);
      measure({"S(0) -> R", rows, columns, placement::shard(0), placement::replicate(), in_place, pin}, ranks, repeat);
    }
}
