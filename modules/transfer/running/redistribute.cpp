// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {
namespace {

result<void> check_shape(const extents& shape, std::int32_t rank) {
  if (rank < 0) return fail(errc::invalid_argument, "the rank is negative").with_rank(rank);
  for (const std::int64_t size : shape)
    if (size < 0)
      return fail(errc::invalid_argument, fmt::format("a size of the shape {} is negative", to_string(shape)));
  if (!checked_volume(shape))
    return fail(errc::overflow, fmt::format("the elements of shape {} do not fit in 64 bits", to_string(shape)));
  return {};
}

result<transfer_plan> planned(std::span<const tensor_move> tensors, const redistribute_options& options) {
  std::vector<tensor_transfer> transfers;
  transfers.reserve(tensors.size());
  for (const tensor_move& t : tensors) transfers.push_back({t.from.where, t.to.where, t.from.type, t.to.type});
  const plan_options how{.memory_bytes = options.memory_bytes,
                         .allow_narrowing = options.allow_narrowing,
                         .deterministic = options.deterministic};
  return options.cache != nullptr ? options.cache->plan(std::move(transfers), how) : plan(std::move(transfers), how);
}

}  // namespace

result<redistribute_report> redistribute(std::span<const tensor_move> tensors, communicator_ref comm,
                                         const redistribute_options& options) {
  std::vector<std::string> keys;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;
  const bool named = std::any_of(tensors.begin(), tensors.end(), [](const tensor_move& t) { return !t.key.empty(); });
  for (const tensor_move& t : tensors) {
    if (named) keys.push_back(t.key);
    from.push_back(t.from.memory);
    to.push_back(t.to.memory);
  }
  const call_options call = options.call.named("redistribute");
  const run_options how{.check = options.check, .progress = options.progress};
  SHARDMESH_TRY(executor runner, executor::make(planned(tensors, options), comm, std::move(keys), how, call));
  SHARDMESH_TRY(runner.run(from, to, call));
  return redistribute_report{.sent_bytes = runner.sent_bytes(),
                             .received_bytes = runner.received_bytes(),
                             .rounds = runner.rounds(),
                             .scratch_bytes = runner.scratch_bytes()};
}

result<redistribute_report> redistribute(const const_tensor_side& from, const tensor_side& to, communicator_ref comm,
                                         const redistribute_options& options) {
  const tensor_move one{{}, from, to};
  return redistribute(std::span(&one, 1), comm, options);
}

result<distribution> on_one_rank(const extents& shape, std::int32_t rank) {
  SHARDMESH_TRY(check_shape(shape, rank));
  distribution_builder builder(shape, owner_space::ranks);
  builder.add(rank, 0, extents::filled(shape.rank(), 0), shape);
  return builder.finish();
}

result<distribution> on_every_rank(const extents& shape, std::int32_t ranks) {
  SHARDMESH_TRY(check_shape(shape, ranks - 1));
  const std::int64_t sizes[] = {ranks};
  SHARDMESH_TRY(const device_mesh mesh, device_mesh::make(sizes));
  SHARDMESH_TRY(const layout whole, layout::make(mesh, {placement::replicate()}, shape));
  return distribute(whole);
}

}  // namespace shardmesh
