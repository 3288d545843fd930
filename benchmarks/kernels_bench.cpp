// SPDX-License-Identifier: Apache-2.0
// Batches on the backends kokkos and host, beside a STREAM-like copy of as many bytes and Kokkos::deep_copy: one
// process, the same buffers, alternating. Large cases start with none of their data in the caches, small ones with all
// of it, as in kernels_torch.py. Prints one line of JSON per case, with all times.
//   shardmesh_kernels_bench [--threads N] [--runs N] [--only PREFIX] [--small] (a sixteenth of the bytes) [--cpu]
#include "kernels_peers.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.kokkos;

namespace {
std::int64_t allocations = 0;
}
void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {
using namespace shardmesh;

struct options {
  int threads = 0, runs = 9;
  std::string only;
  std::int64_t shrink = 1;
};

// The memory of both sides, written once so that its pages exist.
struct arena {
  device_buffer to, from;  // aligned as frameworks align it
  void grow(std::int64_t to_bytes, std::int64_t from_bytes) {
    if (to.size_bytes() < to_bytes) to = host_backend()->allocate(to_bytes, {}, {}).value();
    if (from.size_bytes() < from_bytes) from = host_backend()->allocate(from_bytes, {}, {}).value();
    std::memset(to.data(), 1, static_cast<std::size_t>(to.size_bytes()));
    for (std::int64_t i = 0; i < from.size_bytes(); ++i) from.data()[i] = static_cast<std::byte>(i * 7 % 61);
  }
};

// Cases that move more than this begin with other memory in the caches: a model's tensors are not in them. Otherwise
// the preceding case would decide how much of them the caches hold.
constexpr std::int64_t cold_bytes = 64 << 20, other_bytes = 256 << 20;

struct bench_case {
  std::string name;
  std::int64_t moved_bytes = 0;  // read and written, half of each counted for a copy
  std::vector<batch_item> items;
  std::function<bool()> deep_copy;
};

// With --cpu: the CPU time of all threads of this process, of which there should then be only one. Other work on the
// machine then counts less.
bool counts_cpu = false;
double now() {
  timespec time{};
  clock_gettime(counts_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
double seconds_of(const std::function<void()>& act, int times) {
  const double begin = now();
  for (int i = 0; i < times; ++i) act();
  return (now() - begin) / times;
}

class bench {
 public:
  explicit bench(const options& given) : given_(given), scope_(kokkos_scope::open({.threads = given.threads}).value()) {
    std::printf("{\"space\": \"%s\", \"threads\": %d}\n", std::string(scope_.execution_space()).c_str(),
                scope_.threads());
  }
  std::int64_t bytes(std::int64_t full) const { return full / given_.shrink; }
  arena& memory() { return memory_; }
  bool wants(const std::string& name) const { return name.starts_with(given_.only); }

  void measure(const bench_case& c) {
    // A copy of n bytes reads n and writes n: it moves as many bytes as the case.
    const std::int64_t copied = c.moved_bytes / 2;
    memory_.grow(copied, copied);
    std::byte* const to[] = {memory_.to.data()};
    const std::byte* const from[] = {memory_.from.data()};
    const auto kokkos = scope_.backend(), host = host_backend();
    const auto on_kokkos = kokkos->prepare(c.items, {}).value(), on_host = host->prepare(c.items, {}).value();
    std::vector<std::pair<std::string, std::function<void()>>> sides;
    sides.emplace_back("stream", [&] { peers::stream_copy(to[0], from[0], copied); });
    sides.emplace_back("kokkos", [&] { kokkos->run(*on_kokkos, {to, from}, {}).value(); });
    sides.emplace_back("host", [&] { host->run(*on_host, {to, from}, {}).value(); });
    if (c.deep_copy) sides.emplace_back("deep_copy", [&] { c.deep_copy(); });
    std::map<std::string, std::vector<double>> times;
    std::map<std::string, int> repeats;
    for (const auto& [side, act] : sides) {
      act();
      repeats[side] = static_cast<int>(std::clamp(2e-3 / seconds_of(act, 1), 1.0, 20000.0));
    }
    const bool is_cold = c.moved_bytes > cold_bytes;
    if (is_cold && other_.to.size_bytes() == 0) other_.grow(other_bytes, other_bytes);
    for (int run = 0; run < given_.runs; ++run)
      for (const auto& [side, act] : sides) {
        if (is_cold) peers::stream_copy(other_.to.data(), other_.from.data(), other_bytes);
        times[side].push_back(seconds_of(act, is_cold ? 1 : repeats[side]));
      }
    std::printf("{\"case\": \"%s\", \"moved\": %lld", c.name.c_str(), static_cast<long long>(c.moved_bytes));
    for (const auto& [side, act] : sides) {
      std::printf(", \"%s\": [", side.c_str());
      for (std::size_t i = 0; i < times[side].size(); ++i) std::printf("%s%.9f", i > 0 ? ", " : "", times[side][i]);
      std::printf("]");
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

  // A prepared batch: its time beside that of an empty launch, and its allocations.
  void measure_call(std::int64_t items, std::int64_t item_bytes) {
    memory_.grow(2 * items * item_bytes, 2 * items * item_bytes);
    batch_builder work;
    for (std::int64_t i = 0; i < items; ++i) {
      const placed_view piece{0, 2 * i * item_bytes, dtype::uint8, {item_bytes}, {1}};
      work.copy(piece, piece).value();
    }
    std::byte* const to[] = {memory_.to.data()};
    const std::byte* const from[] = {memory_.from.data()};
    const auto batch = scope_.backend()->prepare(work.items(), {}).value();
    const auto ours = [&] { scope_.backend()->run(*batch, {to, from}, {}).value(); };
    const auto plain = [&] {
      for (std::int64_t i = 0; i < items; ++i)
        std::memcpy(to[0] + 2 * i * item_bytes, from[0] + 2 * i * item_bytes, static_cast<std::size_t>(item_bytes));
    };
    std::vector<double> run, copy, launch;
    ours();
    const std::int64_t before = allocations;
    ours();
    const std::int64_t allocated = allocations - before;
    for (int i = 0; i < given_.runs; ++i) {
      run.push_back(seconds_of(ours, 2000));
      copy.push_back(seconds_of(plain, 2000));
      launch.push_back(seconds_of(peers::empty_launch, 2000));
    }
    const auto middle = [](std::vector<double> v) {
      std::sort(v.begin(), v.end());
      return v[v.size() / 2] * 1e6;
    };
    std::printf(
        "{\"call\": \"%lld items of %lld B\", \"run_us\": %.3f, \"memcpy_us\": %.3f, \"launch_us\": %.3f, "
        "\"allocations\": %lld}\n",
        static_cast<long long>(items), static_cast<long long>(item_bytes), middle(run), middle(copy), middle(launch),
        static_cast<long long>(allocated));
  }

 private:
  options given_;
  kokkos_scope scope_;
  arena memory_, other_;
};

std::int64_t spanned(const extents& sizes, const extents& strides, dtype type) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.rank(); ++d) last += (sizes[d] - 1) * strides[d];
  return (last + 1) * item_bytes(type);
}

// One pair of views that begin at the arenas' first bytes.
bench_case pair_of(bench& b, const std::string& name, const extents& sizes, dtype to, const extents& to_strides,
                   dtype from, const extents& from_strides, bool accumulates = false) {
  b.memory().grow(spanned(sizes, to_strides, to), spanned(sizes, from_strides, from));
  bench_case made;
  made.name = name;
  made.moved_bytes = numel(sizes) * (item_bytes(from) + item_bytes(to) * (accumulates ? 2 : 1));
  batch_builder work;
  const placed_view target{0, 0, to, sizes, to_strides}, source{0, 0, from, sizes, from_strides};
  if (accumulates)
    work.accumulate(target, source, reduce_op::sum).value();
  else
    work.copy(target, source).value();
  made.items.assign(work.items().begin(), work.items().end());
  if (to == dtype::float32 && from == dtype::float32 && !accumulates && sizes.rank() >= 2)
    made.deep_copy = [&b, sizes, to_strides, from_strides] {
      return peers::deep_copy({b.memory().to.data(), dtype::float32, {}, sizes, to_strides},
                              {b.memory().from.data(), dtype::float32, {}, sizes, from_strides});
    };
  return made;
}

// The tensors of an FSDP unit: one after another in a flat buffer, and apart in separate memory.
bench_case mix(bench& b, const std::string& name, bool splits) {
  std::int64_t flat = 0, apart = 0;
  batch_builder work;
  for (int i = 0; i < 150; ++i) {
    const double exponent = 8 + 18 * static_cast<double>(i * 61 % 150) / 149;  // 256 B to 64 MiB, unordered
    const auto numbers = b.bytes(static_cast<std::int64_t>(std::exp2(exponent))) / 4 | 1;
    const placed_view in_flat{0, 4 * flat, dtype::float32, {numbers}, {1}},
        own{0, 4 * apart, dtype::float32, {numbers}, {1}};
    splits ? work.copy(own, in_flat).value() : work.copy(in_flat, own).value();
    flat += numbers;
    apart += (numbers + 63) / 16 * 16;  // a framework's tensors are aligned
  }
  b.memory().grow(4 * std::max(flat, apart), 4 * std::max(flat, apart));
  return {name, 8 * flat, {work.items().begin(), work.items().end()}, {}};
}

void run_all(bench& b) {
  const auto run = [&](const std::string& name, auto make) {
    if (b.wants(name)) b.measure(make());
  };
  constexpr dtype f32 = dtype::float32, bf16 = dtype::bfloat16;
  for (const std::int64_t kib : {64, 256, 1024, 16 << 10, 256 << 10}) {
    const std::int64_t numbers = (kib > 1024 ? b.bytes(kib << 10) : kib << 10) / 4;
    const std::string name = "contiguous " + std::to_string(kib) + " KiB";
    run(name, [&] { return pair_of(b, name, {numbers}, f32, {1}, f32, {1}); });
  }
  run("mix split", [&] { return mix(b, "mix split", true); });
  run("mix cat", [&] { return mix(b, "mix cat", false); });
  const std::int64_t all = b.bytes(64 << 20) / 4;
  for (const std::int64_t inner : {64, 256, 1024, 4096}) {
    const std::int64_t n = inner / 4, rows = all / n;
    const std::string text = " of " + std::to_string(inner) + " B runs";
    run("strided rank 2" + text,
        [&] { return pair_of(b, "strided rank 2" + text, {rows, n}, f32, {n, 1}, f32, {2 * n, 1}); });
    run("strided rank 3" + text, [&] {
      return pair_of(b, "strided rank 3" + text, {rows / 64, 64, n}, f32, {64 * 2 * n, 2 * n, 1}, f32,
                     {n, rows / 64 * n, 1});
    });
    run("strided rank 4" + text, [&] {
      return pair_of(b, "strided rank 4" + text, {rows / 512, 8, 64, n}, f32, {512 * n, 64 * n, n, 1}, f32,
                     {8 * 96 * n, 96 * n, n, 1});
    });
  }
  const auto edge = static_cast<std::int64_t>(std::sqrt(static_cast<double>(all)));
  run("transpose float32",
      [&] { return pair_of(b, "transpose float32", {edge, edge}, f32, {edge, 1}, f32, {1, edge}); });
  run("transpose bfloat16",
      [&] { return pair_of(b, "transpose bfloat16", {edge, 2 * edge}, bf16, {2 * edge, 1}, bf16, {1, edge}); });
  run("transpose of heads", [&] {  // [tokens, heads, 128] -> [heads, tokens, 128] of bfloat16
    const std::int64_t tokens = all / 16 / 64;
    return pair_of(b, "transpose of heads", {32, tokens, 128}, bf16, {tokens * 128, 128, 1}, bf16, {128, 32 * 128, 1});
  });
  run("cast float32 to bfloat16", [&] { return pair_of(b, "cast float32 to bfloat16", {all}, bf16, {1}, f32, {1}); });
  run("cast bfloat16 to float32", [&] { return pair_of(b, "cast bfloat16 to float32", {all}, f32, {1}, bf16, {1}); });
  run("cast float32 to float16",
      [&] { return pair_of(b, "cast float32 to float16", {all}, dtype::float16, {1}, f32, {1}); });
  run("cast float32 to float8_e4m3fn",
      [&] { return pair_of(b, "cast float32 to float8_e4m3fn", {all}, dtype::float8_e4m3fn, {1}, f32, {1}); });
  run("accumulate float32", [&] { return pair_of(b, "accumulate float32", {all}, f32, {1}, f32, {1}, true); });
  run("accumulate bfloat16", [&] { return pair_of(b, "accumulate bfloat16", {2 * all}, bf16, {1}, bf16, {1}, true); });
  if (b.wants("call")) {
    b.measure_call(1, 256);
    b.measure_call(150, 256);
  }
}

}  // namespace

int main(int argc, char** argv) {
  options given;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--small") given.shrink = 16;
    if (word == "--cpu") counts_cpu = true;
    if (i + 1 >= argc) break;
    if (word == "--threads") given.threads = std::atoi(argv[i + 1]);
    if (word == "--runs") given.runs = std::atoi(argv[i + 1]);
    if (word == "--only") given.only = argv[i + 1];
  }
  bench b(given);
  run_all(b);
}
