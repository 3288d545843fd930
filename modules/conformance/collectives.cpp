// SPDX-License-Identifier: Apache-2.0
// Checks of optional features: data collectives, and memory that ranks share.
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.conformance;

import :trial;

namespace shardmesh {
namespace {

// Elements of a block; odd, so that blocks do not lie at round addresses.
constexpr std::int64_t block = 37;

using numbers = std::vector<std::int64_t>;

// The value of rank r at place i: small, and different everywhere.
std::int64_t value_of(std::int32_t rank, std::int64_t i) {
  return (rank + 1) * std::int64_t{1000} + i;
}

numbers values_of(std::int32_t rank, std::int64_t count) {
  numbers made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(value_of(rank, i));
  return made;
}

std::span<const std::byte> in(const numbers& values) {
  return std::as_bytes(std::span(values));
}
std::span<std::byte> out(numbers& values) {
  return std::as_writable_bytes(std::span(values));
}

bool finish(trial& t, result<pending> started, std::string_view what) {
  return t.succeeds(started ? started->wait() : result<void>(started.error()), what);
}

void compare(trial& t, const numbers& expected, const numbers& found, std::string_view what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!t.expect(expected[i] == found[i], fmt::format("{} has {} in place {}", what, expected[i], i),
                  fmt::format("{}", found[i])))
      return;
}

struct one_piece final : lender {
  const_tensor_view view;
  const_tensor_view piece(std::size_t) const override { return view; }
};

}  // namespace

void check_all_gather_into(trial& t) {
  if (!t.comm.has_collectives()) return;
  const numbers mine = values_of(t.rank, block);
  numbers all(static_cast<std::size_t>(block * t.size)), expected;
  for (std::int32_t r = 0; r < t.size; ++r)
    for (std::int64_t i = 0; i < block; ++i) expected.push_back(value_of(r, i));
  if (finish(t, t.comm.all_gather_into(in(mine), out(all), t.patient()), "all_gather_into"))
    compare(t, expected, all, "all_gather_into");
}

void check_all_to_all(trial& t) {
  if (!t.comm.has_collectives()) return;
  const numbers mine = values_of(t.rank, block * t.size);
  numbers got(mine.size()), expected;
  for (std::int32_t r = 0; r < t.size; ++r)
    for (std::int64_t i = 0; i < block; ++i) expected.push_back(value_of(r, t.rank * block + i));
  if (finish(t, t.comm.all_to_all(in(mine), out(got), t.patient()), "all_to_all"))
    compare(t, expected, got, "all_to_all");
}

void check_broadcast(trial& t) {
  if (!t.comm.has_collectives()) return;
  for (std::int32_t root = 0; root < t.size; ++root) {
    const numbers mine = values_of(root, block);
    numbers got(mine.size());
    const auto sent = t.rank == root ? in(mine) : std::span<const std::byte>();
    if (finish(t, t.comm.broadcast(sent, out(got), root, t.patient()), "broadcast")) compare(t, mine, got, "broadcast");
  }
}

void check_reductions(trial& t) {
  if (!t.comm.has_collectives()) return;
  const numbers mine = values_of(t.rank, block * t.size);
  // Whole numbers, so that every order of the terms gives the same result.
  numbers sums, largest;
  for (std::int64_t i = 0; i < block * t.size; ++i) {
    std::int64_t sum = 0;
    for (std::int32_t r = 0; r < t.size; ++r) sum += value_of(r, i);
    sums.push_back(sum);
    largest.push_back(value_of(t.size - 1, i));
  }
  numbers part(static_cast<std::size_t>(block));
  if (finish(t, t.comm.reduce_scatter(in(mine), out(part), dtype::int64, reduce_op::sum, t.patient()),
             "reduce_scatter"))
    compare(t, {sums.begin() + t.rank * block, sums.begin() + (t.rank + 1) * block}, part, "reduce_scatter of sums");
  numbers all(mine.size());
  if (finish(t, t.comm.all_reduce(in(mine), out(all), dtype::int64, reduce_op::max, t.patient()), "all_reduce"))
    compare(t, largest, all, "all_reduce of maxima");
  all = mine;  // in place
  if (finish(t, t.comm.all_reduce(in(all), out(all), dtype::int64, reduce_op::sum, t.patient()), "all_reduce in place"))
    compare(t, sums, all, "all_reduce of sums in place");
}

void check_lending(trial& t) {
  if (!t.comm.shares_memory() || t.size == 1) return;
  numbers mine = values_of(t.rank, block);
  one_piece piece;
  piece.view = {reinterpret_cast<std::byte*>(mine.data()), dtype::int64, {}, {block}, {1}};
  const std::int32_t next = (t.rank + 1) % t.size, previous = (t.rank + t.size - 1) % t.size;
  const std::vector<lent> lends{{next, &piece, block * 8}};
  const std::vector<borrowed> borrows{{previous, block * 8}};
  auto started = t.comm.start_lending(lends, borrows, t.patient(2));
  if (!t.succeeds(started ? result<void>{} : result<void>(started.error()), "start_lending") ||
      !t.succeeds(started->wait_ready(), "wait_ready"))
    return;
  const const_tensor_view view = started->from(0).piece(0);
  numbers got(static_cast<std::size_t>(block));
  std::memcpy(got.data(), view.data, got.size() * sizeof got[0]);
  started->give_back();
  if (!t.succeeds(started->wait(), "wait of a lending")) return;
  mine.assign(mine.size(), -1);  // nothing reads it any more
  compare(t, values_of(previous, block), got, "lent memory");
}

}  // namespace shardmesh
