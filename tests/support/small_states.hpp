// SPDX-License-Identifier: Apache-2.0
// States that tests save and load in one process and on two ranks: a small state dict, and a user's own type. It
// imports, so it is the last header that a test includes.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

namespace user {

/// Two rows of "w" on each rank, and the counter "step".
struct trainer {
  std::int32_t rank = 0, ranks = 1;
  std::vector<float> rows = std::vector<float>(2 * 3);
  std::int64_t step = 0;

  static trainer filled(std::int32_t rank, std::int32_t ranks) {
    trainer made{rank, ranks};
    std::iota(made.rows.begin(), made.rows.end(), static_cast<float>(6 * rank));
    made.step = 7;
    return made;
  }
};

inline shardmesh::result<shardmesh::local_state> local_view(trainer& mine) {
  const shardmesh::tensor_view memory{
      reinterpret_cast<std::byte*>(mine.rows.data()), shardmesh::dtype::float32, {}, {2, 3}, {3, 1}};
  shardmesh::local_state part;
  part.tensors.push_back(
      {{"w"}, {2 * mine.ranks, 3}, shardmesh::dtype::float32, {{{{2 * mine.rank, 0}, {2, 3}}, memory}}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

inline shardmesh::result<void> set_objects(trainer& mine, std::span<const shardmesh::local_state_object> objects) {
  for (const shardmesh::local_state_object& object : objects) {
    const auto* const step = std::get_if<std::int64_t>(&object.leaves.front());
    if (step == nullptr) return shardmesh::fail(shardmesh::errc::dtype_mismatch, "is no integer").with_key("step");
    mine.step = *step;
  }
  return {};
}

}  // namespace user

namespace small_states {

using namespace shardmesh;

using dict = state_dict<host_tensor>;
using floats = std::vector<float>;

inline const rank_save_options quick{.durable = false};

/// "model.w" [2, 3] of 0 to 5, "step" 7, and the list "betas"; or the same of zeros.
inline dict make_dict(bool is_filled) {
  dict state;
  host_tensor w = host_tensor::zeros(dtype::float32, {2, 3}).value();
  if (is_filled) std::iota(w.values<float>().begin(), w.values<float>().end(), 0.0F);
  state.set({"model", "w"}, std::move(w)).value();
  state.set({"step"}, is_filled ? 7 : 0).value();
  state.set({"betas", 0}, is_filled ? 0.9 : 0.0).value();
  state.set({"betas", 1}, is_filled ? 0.99 : 0.0).value();
  return state;
}

inline void check_is_filled(const dict& state) {
  const auto w = std::as_const(*state.find({"model", "w"})->tensor()).values<float>();
  CHECK(floats(w.begin(), w.end()) == floats{0, 1, 2, 3, 4, 5});
  CHECK(*state.find({"step"})->integer() == 7);
  CHECK(*state.find({"betas", 1})->floating() == 0.99);
}

std::string text_of(const auto& done) {
  return done ? "" : to_string(done.error());
}

/// The error of `call(comm)` on each rank of two; empty for success.
[[nodiscard]] inline std::vector<std::string> on_two_ranks(function_ref<std::string(any_communicator&)> call) {
  std::vector<std::string> said(2);
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    said[static_cast<std::size_t>(comm.rank())] = call(comm);
    return {};
  });
  INFO(text_of(ran));
  REQUIRE(ran);
  return said;
}

inline const std::vector<std::string> success(2);

}  // namespace small_states
