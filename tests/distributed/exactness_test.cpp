// SPDX-License-Identifier: Apache-2.0
// Cases that random transfers do not cover: sums of numbers that round, types smaller than a byte, and runs without
// allocations.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <counted_new.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fabric.hpp>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

distribution on_all(std::int32_t ranks, const placement& p, const extents& shape) {
  const std::int64_t sizes[] = {ranks};
  return distribute(layout::make(device_mesh::make(sizes).value(), {p}, shape).value()).value();
}

template <class T>
tensor_view view_of(std::vector<T>& values, dtype type, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, sizes, contiguous_strides(sizes)};
}

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

// A term whose sum rounds: large and small numbers of both signs, different on every rank.
float term(std::int32_t rank, std::int64_t i) {
  std::mt19937 random(static_cast<std::uint32_t>(rank * 1009 + i));
  const auto mantissa = static_cast<float>(random() % 100'003) / 7.0F;
  return std::ldexp(random() % 2 == 0 ? mantissa : -mantissa, static_cast<int>(random() % 12));
}

}  // namespace

TEST_CASE("sums of float32 are made in ascending term order, bit for bit, on every number of ranks and path") {
  constexpr std::int64_t length = 1000;
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const distribution terms = on_all(n, placement::partial(reduce_op::sum), {length});
    for (const bool in_place : {true, false})
      for (const placement& p : {placement::replicate(), placement::shard(0)}) {
        const distribution to = on_all(n, p, {length});
        auto made =
            executor::make(plan({{terms, to, dtype::float32, dtype::float32}}, {.reduce_grain_bytes = 64}).value(),
                           comm, {}, {.in_place = in_place});
        if (!made) return to_string(made.error());
        std::vector<float> mine;
        for (std::int64_t i = 0; i < length; ++i) mine.push_back(term(comm.rank(), i));
        extents local = {0}, first = {0};
        to.fragments_of(comm.rank(), [&](const fragment& f) {
          local = f.where.sizes;
          first = f.where.offsets;
          return true;
        });
        std::vector<float> got(static_cast<std::size_t>(local[0]));
        const const_tensor_binding from{{view_of(mine, dtype::float32, {length})}};
        const tensor_binding into{{view_of(got, dtype::float32, local)}};
        if (auto done = made->run(std::span(&from, 1), std::span(&into, 1)); !done) return to_string(done.error());
        for (std::int64_t i = 0; i < local[0]; ++i) {
          volatile float wanted = term(0, first[0] + i);  // no wider registers, no reassociation
          for (std::int32_t r = 1; r < n; ++r) wanted = wanted + term(r, first[0] + i);
          const float expected = wanted;
          if (std::memcmp(&expected, &got[static_cast<std::size_t>(i)], 4) != 0)
            return "element " + std::to_string(i) + " differs";
        }
      }
    return {};
  });
}

TEST_CASE("sums of bfloat16 are rounded once") {
  // 256 + 1 + 1 + ...: rounding after each step would return to 256.
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const distribution terms = on_all(n, placement::partial(reduce_op::sum), {3});
    auto made = executor::make(
        plan({{terms, on_all(n, placement::replicate(), {3}), dtype::bfloat16, dtype::bfloat16}}).value(), comm);
    if (!made) return to_string(made.error());
    const std::uint16_t number = comm.rank() == 0 ? 0x4380 : 0x3f80;  // 256, 1
    std::vector<std::uint16_t> mine(3, number), got(3);
    const const_tensor_binding from{{view_of(mine, dtype::bfloat16, {3})}};
    const tensor_binding to{{view_of(got, dtype::bfloat16, {3})}};
    if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
    // Odd sums are ties: bfloat16 has steps of 2 from 256 on, and ties go to even.
    const std::uint16_t wanted[] = {0x4380, 0x4380, 0x4381, 0x4382, 0x4382, 0x4382, 0x4383, 0x4384};
    return got[0] == wanted[n - 1] ? "" : "got " + std::to_string(got[0]);
  });
}

TEST_CASE("types smaller than a byte move in whole bytes") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    for (const bool in_place : {true, false}) {
      // [n, 2n] of 4 bits, from rows to columns: each piece is one byte with two elements.
      const extents shape{n, 2 * n};
      auto made = executor::make(plan({{on_all(n, placement::shard(0), shape), on_all(n, placement::shard(1), shape),
                                        dtype::float4_e2m1fn, dtype::float4_e2m1fn}})
                                     .value(),
                                 comm, {}, {.in_place = in_place});
      if (!made) return to_string(made.error());
      std::vector<std::uint8_t> mine, got(static_cast<std::size_t>(n), 0);
      for (std::int32_t i = 0; i < n; ++i) mine.push_back(static_cast<std::uint8_t>(16 * comm.rank() + i));
      const const_tensor_binding from{{view_of(mine, dtype::float4_e2m1fn, {1, 2 * n})}};
      const tensor_binding to{{view_of(got, dtype::float4_e2m1fn, {n, 2})}};
      if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
      for (std::int32_t r = 0; r < n; ++r)
        if (got[static_cast<std::size_t>(r)] != 16 * r + comm.rank()) return "wrong byte";
    }
    return {};
  });
}

TEST_CASE("rows that end within a byte are refused on every rank") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const extents shape{n, 2 * n};
    auto made = executor::make(plan({{on_all(n, placement::shard(0), shape), on_all(n, placement::shard(1), shape),
                                      dtype::float4_e2m1fn, dtype::float4_e2m1fn}})
                                   .value(),
                               comm);
    // A rank that is refused first poisons the group; the others get that error wherever they are.
    if (!made) return made.error().code == errc::unaligned ? "" : to_string(made.error());
    std::vector<std::uint8_t> mine(static_cast<std::size_t>(2 * n)), got(static_cast<std::size_t>(n));
    const_tensor_binding odd{{view_of(mine, dtype::float4_e2m1fn, {1, 2 * n})}, slot_room::larger};
    odd.slots[0].sizes = {2, 2 * n + 1};
    odd.slots[0].strides = {2 * n + 1, 1};
    const tensor_binding to{{view_of(got, dtype::float4_e2m1fn, {n, 2})}};
    const auto refused = made->start(std::span(&odd, 1), std::span(&to, 1));
    return !refused && refused.error().code == errc::unaligned ? "" : "odd rows were taken";
  });
}

// Copies a source with one place in memory for the elements of a row into a destination of these strides.
result<std::vector<float>> copy_of_rows(any_communicator& comm, const extents& strides) {
  const extents shape{2, 3};
  const distribution everywhere = on_all(comm.size(), placement::replicate(), shape);
  auto made = executor::make(plan({{everywhere, everywhere, dtype::float32, dtype::float32}}).value(), comm);
  if (!made) return std::move(made).error();
  std::vector<float> mine{1, 2}, got(6);
  const_tensor_binding from{{view_of(mine, dtype::float32, {2, 1})}};
  from.slots[0].sizes = shape;
  from.slots[0].strides = {1, 0};
  tensor_binding to{{view_of(got, dtype::float32, shape)}};
  to.slots[0].strides = strides;
  if (auto done = made->run(std::span(&from, 1), std::span(&to, 1)); !done) return std::move(done).error();
  return got;
}

TEST_CASE("a source may have one place in memory for several elements, and a destination is then refused") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const auto got = copy_of_rows(comm, {3, 1});
    if (!got) return to_string(got.error());
    return *got == std::vector<float>{1, 1, 1, 2, 2, 2} ? "" : "other values";
  });
  for (const extents& strides : {extents{1, 0}, extents{0, 1}, extents{0, 0}})
    on_all_sizes([&](any_communicator& comm) -> std::string {
      // A rank that is refused first poisons the group; the others get that error wherever they are.
      const auto got = copy_of_rows(comm, strides);
      if (got) return "the destination was taken";
      return got.error().code == errc::unsupported ? "" : to_string(got.error());
    });
}

TEST_CASE("a run with the same bindings as the last allocates nothing") {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  for (const fabric::kind& kind : fabric::all()) {
    if (kind.name != "threads") continue;  // other transports allocate as needed
    const watchdog dog(std::chrono::seconds(60));
    for (const bool in_place : {true, false}) {
      CHECK(kind.run(4, [&](void* p) -> std::string {
        any_communicator& comm = *static_cast<any_communicator*>(p);
        // Copies, terms with two rounds of messages, strided pieces, and a cast.
        const extents shape{64, 64};
        const distribution rows = on_all(4, placement::shard(0), shape),
                           columns = on_all(4, placement::shard(1), shape);
        const distribution terms = on_all(4, placement::partial(reduce_op::sum), shape);
        auto made = executor::make(
            plan({{rows, columns, dtype::float32, dtype::float32}, {terms, rows, dtype::bfloat16, dtype::float32}})
                .value(),
            comm, {}, {.in_place = in_place});
        if (!made) return to_string(made.error());
        std::vector<float> a(1024), b(1024), c(1024);
        std::vector<std::uint16_t> t(4096);
        const std::vector<const_tensor_binding> from{{{view_of(a, dtype::float32, {16, 64})}},
                                                     {{view_of(t, dtype::bfloat16, {64, 64})}}};
        const std::vector<tensor_binding> to{{{view_of(b, dtype::float32, {64, 16})}},
                                             {{view_of(c, dtype::float32, {16, 64})}}};
        for (int run = 0; run < 20; ++run) {
          const std::int64_t before = counted_new::calls;
          if (auto done = made->run(from, to); !done) return to_string(done.error());
          // The number of messages in flight varies between runs until all have been in flight at once.
          if (run >= 10 && counted_new::calls != before)
            return std::to_string(counted_new::calls - before) + " allocations";
        }
        return {};
      }) == "");
    }
  }
}
