// SPDX-License-Identifier: Apache-2.0
// Tests the kernel headers alone: C++17, no module, no test framework. A host thread and a device team (as a loop) run
// random items in large and small tiles. All leave the same bytes. None touches a byte outside its memory, which ends
// with the item so that sanitizers notice. See unit/kernels/backend_test.cpp for whether the bytes are right.
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/device_tile.hpp>
#include <shardmesh/kernels/host_tile.hpp>
#include <shardmesh/kernels/slots.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

namespace {

using namespace shardmesh;
using namespace shardmesh::kernel_bodies;

constexpr dtype types[] = {
    dtype::boolean,       dtype::uint8,         dtype::int8,        dtype::int16,           dtype::int32,
    dtype::int64,         dtype::uint16,        dtype::uint32,      dtype::uint64,          dtype::float16,
    dtype::bfloat16,      dtype::float32,       dtype::float64,     dtype::complex32,       dtype::complex64,
    dtype::complex128,    dtype::float8_e4m3fn, dtype::float8_e5m2, dtype::float8_e4m3fnuz, dtype::float8_e5m2fnuz,
    dtype::float8_e8m0fnu};

struct sample {
  batch_item item;
  std::int64_t to_bytes = 0, from_bytes = 0;  // bytes of memory, up to the last one that the item reaches
};

class dice {
 public:
  explicit dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::uint64_t n) { return static_cast<std::int64_t>(random_() % n); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

sample draw(dice& random) {
  sample made;
  batch_item& item = made.item;
  item.op = random.one_in(2) ? batch_op::copy : static_cast<batch_op>(random.below(5));
  item.reduction = static_cast<reduce_op>(1 + random.below(5));
  item.to_type = types[random.below(21)];
  item.from_type = random.one_in(2) ? item.to_type : types[random.below(21)];
  item.factor = 1.5;
  item.rank = static_cast<std::uint8_t>(random.below(5));
  const std::int64_t to_item = element_bytes(item.to_type), from_item = element_bytes(item.from_type);
  std::int64_t to_step = to_item, from_step = from_item;
  const bool turned = random.one_in(3);  // the outermost loop of `to` is the innermost of `from`
  for (int d = item.rank - 1; d >= 0; --d) {
    batch_loop& l = item.loops[d];
    l.size = 2 + random.below(item.rank <= 2 ? 70 : 9);
    l.to = to_step;
    to_step = to_step * l.size + (random.one_in(3) ? random.below(3) * to_item : 0);
  }
  for (int k = item.rank - 1; k >= 0; --k) {
    batch_loop& l = item.loops[turned ? item.rank - 1 - k : k];
    l.from = random.one_in(8) ? 0 : from_step;
    if (l.from != 0) from_step = from_step * l.size + (random.one_in(3) ? random.below(3) * from_item : 0);
  }
  item.to_offset = random.one_in(2) ? 0 : random.below(17);
  item.from_offset = random.one_in(2) ? 0 : random.below(17);
  made.to_bytes = item.to_offset + to_item;
  made.from_bytes = item.from_offset + from_item;
  for (int d = 0; d < item.rank; ++d) {
    made.to_bytes += (item.loops[d].size - 1) * item.loops[d].to;
    made.from_bytes += (item.loops[d].size - 1) * item.loops[d].from;
  }
  return made;
}

using memory = std::unique_ptr<std::byte[]>;
// Bytes that are small numbers or finite floats in every dtype, so that the result is unique.
memory filled(dice& random, std::int64_t bytes) {
  memory made(new std::byte[static_cast<std::size_t>(bytes)]);
  for (std::int64_t i = 0; i < bytes; ++i)
    made[static_cast<std::size_t>(i)] = static_cast<std::byte>(random.below(0x40));
  return made;
}

template <class Run>
memory after(const sample& s, const memory& before, const tile_sizes& sizes, const Run& run) {
  memory to(new std::byte[static_cast<std::size_t>(s.to_bytes)]);
  std::memcpy(to.get(), before.get(), static_cast<std::size_t>(s.to_bytes));
  const tile_tables tables = cut_all(&s.item, 1, sizes);
  for (std::int64_t tile = tables.phase(0).tiles(); tile-- > 0;)
    run(tables.items[0], tile, to.get() + s.item.to_offset);
  return to;
}

}  // namespace

int main() {
  alignas(16) static std::byte scratch[scratch_bytes];
  constexpr tile_sizes small_host{512, 8, 8, 5, 64, 10}, small_device{512, 8, 8, 5, 16, std::int64_t{1} << 40};
  int items = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    dice random(seed);
    const sample s = draw(random);
    if (!has_kernel(s.item)) continue;
    ++items;
    const memory from = filled(random, s.from_bytes), before = filled(random, s.to_bytes);
    const std::byte* const source = from.get() + s.item.from_offset;
    const auto alone = [&](const tile_item& item, std::int64_t tile, std::byte* to) {
      run_tile(single_thread{}, item, tile, to, source);
    };
    const auto together = [&](const tile_item& item, std::int64_t tile, std::byte* to) {
      run_tile(emulated_team(64, scratch), item, tile, to, source);
    };
    const memory results[] = {after(s, before, host_tiles, alone), after(s, before, small_host, alone),
                              after(s, before, device_tiles, together), after(s, before, small_device, together)};
    for (const memory& result : results)
      if (std::memcmp(result.get(), results[0].get(), static_cast<std::size_t>(s.to_bytes)) != 0 && wrong++ < 10)
        std::printf("seed %llu: operation %d from dtype %d to %d, way %d differs\n",
                    static_cast<unsigned long long>(seed), static_cast<int>(s.item.op),
                    static_cast<int>(s.item.from_type), static_cast<int>(s.item.to_type),
                    static_cast<int>(&result - results));
  }
  std::printf("%d items, %d differ\n", items, wrong);
  return wrong == 0 && items > 5000 ? EXIT_SUCCESS : EXIT_FAILURE;
}
