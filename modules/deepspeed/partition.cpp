// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :partition;

namespace shardmesh::deepspeed {
namespace {

error do_not_fit(const model_states& model, std::string message, std::int64_t expected, std::int64_t found) {
  return fail(errc::shape_mismatch, std::move(message))
      .with_file(model.file.file())
      .with_values(fmt::format("{}, as 'param_shapes' says", detail::counted(expected, "element")),
                   fmt::format("{} in the flat buffers", found))
      .with_hint("check that the model's and the optimizers' files are of one save");
}

// File sizes bound each size, but not the sums.
result<std::int64_t> sum(const model_states& model, std::int64_t a, std::int64_t b) {
  if (const auto total = checked_add(a, b)) return *total;
  return fail(errc::overflow, "the number of elements of its parameters does not fit in 64 bits")
      .with_file(model.file.file());
}

std::int64_t aligned(std::int64_t numel, std::int64_t to) {
  return numel / to * to + (numel % to != 0 ? to : 0);
}

}  // namespace

result<partition> partition::make(const model_states& model, std::span<const optimizer_states> ranks) {
  partition made(ranks);
  SHARDMESH_TRY(made.check_sizes());
  SHARDMESH_TRY(made.is_stage_3() ? made.place_over_groups(model) : made.place_over_ranks(model));
  std::set<std::string_view> names;
  for (const placed_parameter& parameter : made.parameters_)
    if (!names.insert(parameter.name).second)
      return fail(errc::bad_format, "two parameters have the same name")
          .with_key(parameter.name)
          .with_file(model.file.file());
  made.weights_ = made.buffers_of([ranks](std::size_t rank, std::size_t group) -> std::optional<std::size_t> {
    return ranks[rank].weights[group];
  });
  return made;
}

const tensor_entry& partition::entry_of(std::size_t rank, std::size_t tensor) const {
  return ranks_[rank].file.reader->contents().tensors[tensor];
}

std::int64_t partition::numel_of(std::size_t rank, std::size_t group) const {
  return entry_of(rank, ranks_[rank].weights[group]).shape[0];
}

// Checks that all ranks have equal parts. Without padding (ZeRO 1 and 2), the last ones may be shorter.
result<void> partition::check_sizes() const {
  const std::size_t groups = ranks_.front().weights.size();
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    const auto refuse = [&](std::string what, std::size_t expected, std::size_t found) {
      return fail(errc::shape_mismatch, std::move(what))
          .with_file(ranks_[rank].file.file())
          .with_values(fmt::format("{}, as rank 0 has", expected), fmt::format("{}", found))
          .with_hint("check that all files are of one save");
    };
    if (ranks_[rank].weights.size() != groups)
      return refuse("the number of parameter groups differs from that of rank 0", groups, ranks_[rank].weights.size());
    for (std::size_t group = 0; group < groups; ++group) {
      const std::int64_t first = numel_of(0, group), before = numel_of(rank - 1, group), here = numel_of(rank, group);
      const bool is_last = here <= before && (before == first || here == 0) && !is_stage_3();
      if (here != first && !is_last)
        return refuse(fmt::format("the part of group {} does not have the size of rank 0's", group),
                      static_cast<std::size_t>(first), static_cast<std::size_t>(here));
    }
  }
  return {};
}

result<void> partition::place_over_ranks(const model_states& model) {
  const optimizer_states& first = ranks_.front();
  if (model.groups.size() > first.weights.size())  // if there are fewer, the last buffers have no parameters
    return do_not_fit(model, "the numbers of parameter groups differ", static_cast<std::int64_t>(model.groups.size()),
                      static_cast<std::int64_t>(first.weights.size()));
  const std::int64_t alignment = 2 * static_cast<std::int64_t>(ranks_.size());
  for (std::size_t group = 0; group < first.weights.size(); ++group) {
    const std::vector<named_shape> none;
    const std::vector<named_shape>& parameters = group < model.groups.size() ? model.groups[group] : none;
    const bool is_padded = group < first.paddings.size();
    if (!first.paddings.empty() && (!is_padded || first.paddings[group].size() != parameters.size()))
      return fail(errc::shape_mismatch, fmt::format("group {} does not have as many paddings as parameters", group))
          .with_file(first.file.file());
    std::int64_t available = 0, offset = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      SHARDMESH_TRY(available, sum(model, available, numel_of(rank, group)));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const named_shape& parameter = parameters[i];
      SHARDMESH_TRY(const std::int64_t end, sum(model, offset, parameter.numel));
      if (end > available)
        return do_not_fit(model, fmt::format("group {} is shorter than its parameters", group), end, available)
            .with_key(parameter.name);
      parameters_.push_back({parameter.name, parameter.shape, parameter.numel, offset, group});
      const std::int64_t padding = is_padded ? first.paddings[group][i] : 0;
      if (padding < 0) return do_not_fit(model, "a padding is negative", 0, padding).with_key(parameter.name);
      SHARDMESH_TRY(offset, sum(model, end, padding));
    }
    // The buffers may or may not include the padding after the last parameter, so only the aligned lengths must agree.
    if (offset > available + alignment || aligned(offset, alignment) != aligned(available, alignment))
      return do_not_fit(model, fmt::format("group {} does not have the length of its parameters", group), offset,
                        available);
  }
  return {};
}

result<void> partition::place_over_groups(const model_states& model) {
  const auto world = static_cast<std::int64_t>(ranks_.size());
  std::vector<std::int64_t> ends;
  std::int64_t available = 0, offset = 0;
  for (std::size_t group = 0; group < ranks_.front().weights.size(); ++group) {
    SHARDMESH_TRY(available, sum(model, available, numel_of(0, group)));
    ends.push_back(available);
  }
  for (const auto& group : model.groups) {
    for (const named_shape& parameter : group) {
      if (ends.empty())
        return do_not_fit(model, "there are no flat buffers", parameter.numel, 0).with_key(parameter.name);
      const std::int64_t part = parameter.numel / world + (parameter.numel % world != 0 ? 1 : 0);
      SHARDMESH_TRY(const std::int64_t end, sum(model, offset, part));
      if (end > available)
        return do_not_fit(model, "the flat buffers of a rank are shorter than its parts of the parameters", end,
                          available)
            .with_key(parameter.name);
      const auto holder = std::upper_bound(ends.begin(), ends.end(), offset) - ends.begin();
      parameters_.push_back({parameter.name, parameter.shape, parameter.numel, offset,
                             std::min(static_cast<std::size_t>(holder), ends.size() - 1)});
      offset = end;
    }
  }
  if (offset != available)
    return do_not_fit(model, "the flat buffers of a rank are longer than its parts of the parameters", offset,
                      available);
  return {};
}

partition::buffers partition::buffers_of(tensor_of chosen) const {
  buffers made{{}, std::move(chosen)};
  const std::size_t groups = ranks_.front().weights.size();
  const auto segment = [&](std::size_t rank, std::size_t group) {
    return flat_segment{ranks_[rank].file.part, made.chosen(rank, group), numel_of(rank, group)};
  };
  for (std::size_t i = 0; i < (is_stage_3() ? ranks_.size() : groups); ++i) {
    std::vector<flat_segment> segments;
    for (std::size_t k = 0; k < (is_stage_3() ? groups : ranks_.size()); ++k)
      segments.push_back(is_stage_3() ? segment(i, k) : segment(k, i));
    made.runs.emplace_back(std::move(segments));
  }
  return made;
}

std::optional<planned_tensor> partition::planned(const placed_parameter& parameter, const buffers& from) const {
  const auto any = from.chosen(0, parameter.group);
  if (!any) return std::nullopt;
  planned_tensor made{entry_of(0, *any).type, parameter.shape, {}, {}};
  if (!is_stage_3())
    return from.runs[parameter.group].cut(parameter.offset, parameter.numel, made.pieces) ? std::optional(made)
                                                                                          : std::nullopt;
  const auto world = static_cast<std::int64_t>(ranks_.size());
  const std::int64_t part = parameter.numel / world + (parameter.numel % world != 0 ? 1 : 0);
  for (std::int64_t rank = 0, at = 0; rank < world && at < parameter.numel; ++rank, at += part)
    if (!from.runs[static_cast<std::size_t>(rank)].cut(parameter.offset, std::min(part, parameter.numel - at),
                                                       made.pieces))
      return std::nullopt;
  return made;
}

std::optional<std::vector<std::pair<std::size_t, planned_tensor>>> partition::state(const std::string& name) const {
  const auto chosen = [this, &name](std::size_t rank, std::size_t group) -> std::optional<std::size_t> {
    const auto found = ranks_[rank].states.find(name);
    if (found == ranks_[rank].states.end()) return std::nullopt;
    const auto tensor = found->second.find(group);
    return tensor == found->second.end() ? std::nullopt : std::optional(tensor->second);
  };
  for (std::size_t group = 0; group < ranks_.front().weights.size(); ++group) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto tensor = chosen(rank, group);
      if (tensor.has_value() != chosen(0, group).has_value()) return std::nullopt;
      if (!tensor) continue;
      const std::int64_t numel = entry_of(rank, *tensor).shape[0], weights = numel_of(rank, group);
      // Weights are saved without the padding at their end; states may include it.
      const bool is_last = rank + 1 == ranks_.size() || numel_of(rank + 1, group) == 0;
      if (numel < weights || (numel > weights && (is_stage_3() || !is_last))) return std::nullopt;
    }
  }
  const buffers from = buffers_of(chosen);
  std::vector<std::pair<std::size_t, planned_tensor>> made;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (auto tensor = planned(parameters_[i], from)) made.emplace_back(i, std::move(*tensor));
  return made;
}

}  // namespace shardmesh::deepspeed
