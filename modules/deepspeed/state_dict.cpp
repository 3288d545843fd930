// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :state_dict;

namespace shardmesh::deepspeed {
namespace {

std::int64_t bytes_of(const planned_tensor& tensor) {
  return size_bytes(tensor.type, checked_volume(tensor.shape).value_or(0)).value_or(0);
}

result<std::size_t> fragment_of(const model_states& model, const std::string& name) {
  const auto found = model.frozen_fragments.find(name);
  if (found != model.frozen_fragments.end()) return found->second;
  return fail(errc::missing_key, "a frozen parameter has no elements in 'frozen_param_fragments'")
      .with_key(name)
      .with_file(model.file.file());
}

// ZeRO 1 and 2: every rank has the whole parameter.
result<planned_tensor> whole_frozen(const model_states& model, const named_shape& frozen) {
  SHARDMESH_TRY(const std::size_t fragment, fragment_of(model, frozen.name));
  const tensor_entry& stored = model.file.reader->contents().tensors[fragment];
  if (stored.shape != frozen.shape)
    return fail(errc::shape_mismatch, "a frozen parameter has another shape in 'frozen_param_fragments'")
        .with_key(frozen.name)
        .with_file(model.file.file())
        .with_values(to_string(frozen.shape), to_string(stored.shape));
  return planned_tensor{stored.type, stored.shape, {}, std::pair(model.file.part, fragment)};
}

// ZeRO 3: the elements are consecutive over ranks, with padding after the last.
result<planned_tensor> gathered_frozen(std::span<const model_states> models, const named_shape& frozen) {
  planned_tensor made{dtype::undefined, frozen.shape, {}, {}};
  std::int64_t left = frozen.numel;
  for (const model_states& model : models) {
    SHARDMESH_TRY(const std::size_t fragment, fragment_of(model, frozen.name));
    const tensor_entry& stored = model.file.reader->contents().tensors[fragment];
    if (stored.shape.rank() != 1 || stored.chunk_count != 1)
      return fail(errc::shape_mismatch, "a rank's part of a frozen parameter is not one-dimensional")
          .with_key(frozen.name)
          .with_file(model.file.file())
          .with_values("one dimension", to_string(stored.shape));
    if (made.type == dtype::undefined) made.type = stored.type;
    const std::int64_t here = std::min(left, stored.shape[0]);
    if (here > 0) made.pieces.push_back({model.file.part, fragment, 0, here});
    left -= here;
  }
  if (left == 0) return made;
  return fail(errc::shape_mismatch, "the ranks' parts of a frozen parameter have fewer elements than the parameter")
      .with_key(frozen.name)
      .with_file(models.front().file.file())
      .with_values(fmt::format("{}", frozen.numel), fmt::format("{}", frozen.numel - left));
}

}  // namespace

const planned_tensor* planned_state::find(const std::string& name) const {
  const auto found = places.find(name);
  return found == places.end() ? nullptr : &entries[found->second].second;
}

void planned_state::set(const std::string& name, planned_tensor tensor) {
  const auto [place, is_new] = places.emplace(name, entries.size());
  if (is_new)
    entries.emplace_back(name, std::move(tensor));
  else
    entries[place->second].second = std::move(tensor);
}

result<void> add_frozen(std::span<const model_states> models, bool is_stage_3, planned_state& into) {
  for (const named_shape& frozen : models.front().frozen) {
    SHARDMESH_TRY(planned_tensor tensor,
                  is_stage_3 ? gathered_frozen(models, frozen) : whole_frozen(models.front(), frozen));
    into.set(frozen.name, std::move(tensor));
  }
  return {};
}

result<void> add_shared(const model_states& model, planned_state& into, read_budget& budget) {
  std::int64_t stored = 0;
  for (const auto& [name, tensor] : into.entries) stored = checked_add(stored, bytes_of(tensor)).value_or(stored);
  SHARDMESH_TRY(budget.expand(0, stored));
  for (const auto& [name, source] : model.shared) {
    const planned_tensor* held = into.find(source);
    if (held == nullptr) continue;  // as in zero_to_fp32.py: neither of the two was saved
    const planned_tensor copy = *held;
    if (auto done = budget.expand(bytes_of(copy), 0); !done)
      return std::move(done).error().with_key(name).with_file(model.file.file());
    into.set(name, copy);
  }
  return {};
}

result<planned_state> plan_state(std::span<const model_states> models, const partition& trained, planned_state made,
                                 read_budget& budget) {
  SHARDMESH_TRY(add_frozen(models, trained.is_stage_3(), made));
  for (const placed_parameter& parameter : trained.parameters())
    made.set(parameter.name, trained.weights_of(parameter));
  SHARDMESH_TRY(add_shared(models.front(), made, budget));
  return made;
}

}  // namespace shardmesh::deepspeed
