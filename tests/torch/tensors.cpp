// SPDX-License-Identifier: Apache-2.0
// LibTorch tensors moved over a process group: the remaining functions that ranks.py calls (see group.cpp).
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <shardmesh/torch_tensor.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kept.hpp"

import shardmesh;
import shardmesh.torch;

using namespace shardmesh;

namespace {

at::Tensor part_of(at::Tensor part, const layout& l, std::int32_t rank) {
  const extents first = l.first_index(rank), sizes = l.local_shape(rank);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), std::min(first[d], l.shape()[d]), sizes[d]);
  return part;
}

// A random layout of up to two mesh dimensions over all ranks, with at most one box per rank.
layout random_layout(std::mt19937& dice, std::int32_t ranks, const extents& shape) {
  std::vector<std::int64_t> sizes{ranks};
  if (ranks % 2 == 0 && dice() % 2 == 0) sizes = {2, ranks / 2};
  std::vector<placement> placements;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto dim = static_cast<std::int32_t>(dice() % (shape.size() + 1));
    placements.push_back(dim == static_cast<std::int32_t>(shape.size()) ? placement::replicate()
                                                                        : placement::shard(dim));
  }
  return layout::make(device_mesh::make(sizes).value(), placements, shape).value();
}

}  // namespace

extern "C" {

/// Redistributes `rounds` random layouts and dtypes, from LibTorch's slices to LibTorch's slices.
const char* check_redistribute(const char* group, int rounds, unsigned seed) {
  auto comm = c10d_communicator::named(group);
  if (!comm) return kept(to_string(comm.error()));
  std::mt19937 dice(seed);  // the same on every rank
  const at::ScalarType types[] = {at::kByte, at::kBFloat16, at::kFloat, at::kComplexDouble, at::kFloat8_e5m2};
  for (int round = 0; round < rounds; ++round) {
    const extents shape{static_cast<std::int64_t>(dice() % 12), static_cast<std::int64_t>(dice() % 400),
                        static_cast<std::int64_t>(dice() % 5)};
    const layout from = random_layout(dice, comm->size(), shape), to = random_layout(dice, comm->size(), shape);
    const at::ScalarType type = types[dice() % std::size(types)];
    const at::Tensor whole = at::arange(shape[0] * shape[1] * shape[2], at::kLong)
                                 .remainder(57)
                                 .to(type)
                                 .view({shape[0], shape[1], shape[2]});
    const std::string what = to_string(from) + " to " + to_string(to) + ", " + c10::toString(type) + ": ";
    auto tensor = dtensor<at::Tensor>::make(from, comm->rank(), part_of(whole, from, comm->rank()));
    if (!tensor) return kept(what + to_string(tensor.error()));
    auto moved = redistribute(*tensor, to, *comm);
    if (!moved) return kept(what + to_string(moved.error()));
    const at::Tensor expected = part_of(whole, to, comm->rank());
    if (moved->local().sizes() != expected.sizes() ||
        !at::equal(moved->local().view(at::kByte), expected.contiguous().view(at::kByte)))
      return kept(what + "other elements");
  }
  return kept("");
}

/// Nanoseconds to wrap one tensor, the best of ten runs. 0: checked and viewed; 1: made into a dtensor.
double time_wrapping(int how) {
  const layout rows = layout::make(device_mesh::make({4}).value(), {placement::shard(0)}, {32, 8}).value();
  const at::Tensor mine = at::ones({8, 8});
  constexpr int count = 100'000;
  double best = 1e30;
  std::int64_t seen = 0;  // prevents the compiler from removing the work
  for (int run = 0; run < 10; ++run) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
      seen += how == 0 ? (check_tensor(mine) ? view_of(mine).sizes[0] : 0)
                       : dtensor<at::Tensor>::make(rows, 1, mine).value().local().size(0);
    best = std::min(best,
                    std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count() / count);
  }
  return seen == std::int64_t{80} * count ? best : -1;
}

/// Microseconds of one redistribution from rows to columns of side x side float32, the median of `rounds`; negative on
/// error.
double time_redistribute(const char* group, std::int64_t side, int rounds) {
  auto comm = c10d_communicator::named(group);
  if (!comm) return -1;
  const std::vector<std::int64_t> sizes{comm->size()};
  const device_mesh mesh = device_mesh::make(sizes).value();
  const layout rows = layout::make(mesh, {placement::shard(0)}, {side, side}).value();
  const layout columns = layout::make(mesh, {placement::shard(1)}, {side, side}).value();
  const extents local = rows.local_shape(comm->rank());
  auto tensor = dtensor<at::Tensor>::make(rows, comm->rank(), at::ones({local[0], local[1]})).value();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    if (!comm->all_gather({}, {})) return -1;
    const auto began = std::chrono::steady_clock::now();
    if (!redistribute(tensor, columns, *comm)) return -1;
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}
}
