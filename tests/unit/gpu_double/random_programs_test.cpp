// SPDX-License-Identifier: Apache-2.0
// Runs random programs over several streams, with exactly the events that they need. They give the result of a
// sequential run, whatever the seed. Without one of the events, the double reports two unordered accesses.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_double.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <vector>

using namespace gpu_double;

namespace {

constexpr int buffers = 5;
constexpr int length = 48;
constexpr int streams = 3;

// A step that copies a range from one buffer to another, fills a range, or adds 1 to each byte of it.
struct step {
  enum { copy, fill, increment } kind;
  int stream;
  int to, to_at;
  int from, from_at;
  int count;
};

struct increment_arguments {
  unsigned char* at;
  int count;
};

std::vector<step> random_program(std::mt19937& random, int steps) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<step> made;
  for (int i = 0; i < steps; ++i) {
    step one{};
    one.kind = static_cast<decltype(one.kind)>(below(3));
    one.stream = below(streams);
    one.count = 1 + below(length);
    one.to = below(buffers);
    one.to_at = below(length - one.count + 1);
    one.from = (one.to + 1 + below(buffers - 1)) % buffers;
    one.from_at = below(length - one.count + 1);
    made.push_back(one);
  }
  return made;
}

using contents = std::vector<std::vector<unsigned char>>;

contents sequential(const std::vector<step>& program) {
  contents memory(buffers, std::vector<unsigned char>(length, 0));
  for (const step& one : program) {
    unsigned char* to = memory[static_cast<std::size_t>(one.to)].data() + one.to_at;
    const unsigned char* from = memory[static_cast<std::size_t>(one.from)].data() + one.from_at;
    const auto count = static_cast<std::size_t>(one.count);
    if (one.kind == step::copy) std::memcpy(to, from, count);
    if (one.kind == step::fill) std::memset(to, one.from_at + 1, count);
    if (one.kind == step::increment)
      for (std::size_t i = 0; i < count; ++i) ++to[i];
  }
  return memory;
}

// Whether `late` must follow `early`: they touch the same bytes, and one of them writes.
bool meets(int a, int a_at, int a_count, int b, int b_at, int b_count) {
  return a == b && a_at < b_at + b_count && b_at < a_at + a_count;
}
bool depends(const step& late, const step& early) {
  if (meets(late.to, late.to_at, late.count, early.to, early.to_at, early.count)) return true;
  if (early.kind == step::copy && meets(late.to, late.to_at, late.count, early.from, early.from_at, early.count))
    return true;
  return late.kind == step::copy && meets(late.from, late.from_at, late.count, early.to, early.to_at, early.count);
}

// Runs the program on the double. `left_out` is the number of the wait to omit, or -1; `waits` returns the number of
// waits.
contents on_the_double(const std::vector<step>& program, int left_out, int& waits) {
  void* stream[streams];
  for (void*& each : stream) REQUIRE(cudaStreamCreateWithFlags(&each, stream_non_blocking) == 0);
  unsigned char* memory[buffers];
  for (unsigned char*& each : memory) {
    void* made = nullptr;
    REQUIRE(cudaMalloc(&made, length) == 0);
    REQUIRE(cudaMemset(made, 0, length) == 0);
    each = static_cast<unsigned char*>(made);
  }
  REQUIRE(cudaDeviceSynchronize() == 0);
  std::vector<void*> events(program.size());
  std::vector<increment_arguments> arguments(program.size());
  waits = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const step& one = program[i];
    void* on = stream[one.stream];
    for (std::size_t before = 0; before < i; ++before) {
      if (program[before].stream == one.stream || !depends(one, program[before])) continue;
      if (waits++ != left_out) REQUIRE(cudaStreamWaitEvent(on, events[before], 0) == 0);
    }
    unsigned char* to = memory[one.to] + one.to_at;
    const unsigned char* from = memory[one.from] + one.from_at;
    const auto count = static_cast<std::size_t>(one.count);
    if (one.kind == step::copy) REQUIRE(cudaMemcpyAsync(to, from, count, by_address, on) == 0);
    if (one.kind == step::fill) REQUIRE(cudaMemsetAsync(to, one.from_at + 1, count, on) == 0);
    if (one.kind == step::increment) {
      arguments[i] = {to, one.count};
      REQUIRE(cudaLaunchHostFunc(
                  on,
                  [](void* argument) {
                    const auto& what = *static_cast<increment_arguments*>(argument);
                    double_touch(what.at, static_cast<std::size_t>(what.count), 1);
                    for (int k = 0; k < what.count; ++k) ++what.at[k];
                  },
                  &arguments[i]) == 0);
    }
    REQUIRE(cudaEventCreateWithFlags(&events[i], event_disable_timing) == 0);
    REQUIRE(cudaEventRecord(events[i], on) == 0);
  }
  REQUIRE(cudaDeviceSynchronize() == 0);
  contents seen(buffers, std::vector<unsigned char>(length));
  for (std::size_t i = 0; i < buffers; ++i) {
    REQUIRE(cudaMemcpy(seen[i].data(), memory[i], length, device_to_host) == 0);
    REQUIRE(cudaFree(memory[i]) == 0);
  }
  for (void* each : events) REQUIRE(cudaEventDestroy(each) == 0);
  for (void* each : stream) REQUIRE(cudaStreamDestroy(each) == 0);
  return seen;
}

}  // namespace

TEST_CASE("random programs over several streams give what a sequential run gives") {
  for (const std::uint64_t seed : random_seed::seeds(200)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    const std::vector<step> program = random_program(random, 30);
    const on_double here(seed);
    double_set_background(seed % 2 == 0 ? 1 : 0);
    int waits = 0;
    CHECK(on_the_double(program, -1, waits) == sequential(program));
  }
}

TEST_CASE("a random program with one wait left out is seen to be unordered, unless another wait implies it") {
  std::mt19937 random(11);
  int wrong_bytes = 0;
  int seen = 0;
  int tried = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    // Only copies and fills: their ranges are known when they are enqueued.
    std::vector<step> program = random_program(random, 12);
    for (step& one : program)
      if (one.kind == step::increment) one.kind = step::fill;
    int waits = 0;
    double_reset(seed);
    on_the_double(program, -1, waits);
    if (waits == 0) continue;
    ++tried;
    double_reset(seed);
    double_set_background(0);
    int again = 0;
    const contents result = on_the_double(program, static_cast<int>(random() % static_cast<unsigned>(waits)), again);
    const bool wrong = result != sequential(program);
    const bool unordered = std::string(double_problem_text()).find("nothing orders") != std::string::npos;
    CHECK((unordered || !wrong));  // wrong bytes never go unreported
    wrong_bytes += wrong ? 1 : 0;
    seen += unordered ? 1 : 0;
  }
  INFO("of " << tried << " programs " << wrong_bytes << " had wrong bytes, " << seen << " were seen to be unordered");
  CHECK(wrong_bytes >= tried / 20);
  CHECK(seen >= tried / 4);
}

TEST_CASE("without the background the same seed gives the same order of work, another seed another") {
  const auto order = [](std::uint64_t seed) {
    double_reset(seed);
    double_set_background(0);
    std::vector<unsigned char> trace(1 + 64);
    void* stream[8];
    for (void*& each : stream) REQUIRE(cudaStreamCreateWithFlags(&each, stream_non_blocking) == 0);
    on_device<unsigned char> memory(1);
    std::vector<std::vector<unsigned char>> sources;
    for (unsigned char i = 0; i < 64; ++i) sources.push_back({i});
    // Each stream writes the same byte, and the next stream reads it at once. The trace shows the order of work.
    for (std::size_t i = 0; i < 64; ++i) {
      REQUIRE(cudaMemcpyAsync(memory.data(), sources[i].data(), 1, host_to_device, stream[i % 8]) == 0);
      REQUIRE(cudaMemcpyAsync(&trace[i], memory.data(), 1, device_to_host, stream[(i + 1) % 8]) == 0);
    }
    REQUIRE(cudaDeviceSynchronize() == 0);
    for (void* each : stream) REQUIRE(cudaStreamDestroy(each) == 0);
    return trace;
  };
  CHECK(order(5) == order(5));
  CHECK(order(5) != order(6));
}
