// SPDX-License-Identifier: Apache-2.0
// Small tensors on ranks, and the error that all ranks get, for tests of moves with a mapping. It imports, so it is
// among the last headers that a test includes.
#pragma once
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.comm;
import shardmesh.layout;
import shardmesh.mapping;
import shardmesh.transfer;

namespace rank_tensors {

using namespace shardmesh;
using small_tensors::tensor;

// The sizes of a rank's tensor.
inline extents local_sizes(const distribution& where, owner_id rank) {
  extents sizes = extents::filled(where.global_shape().rank(), 0);
  where.fragments_of(rank, [&](const fragment& f) {
    for (std::size_t d = 0; d < sizes.rank(); ++d) sizes[d] = std::max(sizes[d], f.local_offsets[d] + f.where.sizes[d]);
    return true;
  });
  return sizes;
}

// A rank's tensor with the elements of `whole`.
inline tensor local_of(const distribution& where, owner_id rank, tensor whole) {
  const extents sizes = local_sizes(where, rank);
  tensor made{sizes, std::vector<float>(static_cast<std::size_t>(box::whole(sizes).volume()), -1.0F)};
  where.fragments_of(rank, [&](const fragment& f) {
    if (f.where.is_empty()) return true;
    copy(subview(small_tensors::view_of(made), {f.local_offsets, f.where.sizes}),
         subview(small_tensors::view_of(whole), f.where))
        .value();
    return true;
  });
  return made;
}

inline error wrong(std::string what) {
  return fail(errc::invalid_argument, std::move(what));
}

// The error that every rank gets from `call(comm)`.
template <class Call>
std::string error_of_all(std::int32_t world, const Call& call) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  run_ranks(world, [&](any_communicator& comm) -> result<void> {
    const result<redistribute_report> done = call(comm);
    errors[static_cast<std::size_t>(comm.rank())] = done ? "no error" : to_string(done.error());
    return {};
  }).value();
  for (const std::string& one : errors) CHECK(one == errors[0]);
  return errors[0];
}

inline std::vector<mapping_rules> rules_of(const std::string& rules) {
  return {parse_mapping("left = 'a'\nright = 'b'\n" + rules).value()};
}

inline distribution rows(const extents& shape, std::int64_t ranks) {
  return distribute(layout::make(device_mesh::make({ranks}).value(), {placement::shard(0)}, shape).value()).value();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace rank_tensors
