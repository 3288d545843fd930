// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :optimizer_states;

namespace shardmesh::deepspeed {
namespace {

// Fields that describe how ranks share the buffers. The entries already express them.
constexpr std::array<std::string_view, 6> of_the_partition{"zero_stage",           "partition_count",
                                                           "group_paddings",       "param_alignment_paddings",
                                                           "param_slice_mappings", "ds_version"};
constexpr std::string_view weights_of_12 = "single_partition_of_fp32_groups", weights_of_3 = "fp32_flat_groups";

class optimizer_file {
 public:
  explicit optimizer_file(const saved_file& file) { made_.file = file; }

  result<optimizer_states> read() {
    const catalog& contents = made_.file.reader->contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) SHARDMESH_TRY(add(contents.tensors[i].where, i, true));
    for (std::size_t i = 0; i < contents.objects.size(); ++i) SHARDMESH_TRY(add(contents.objects[i].where, i, false));
    const auto refuse = [&](errc code, std::string text) {
      return fail(code, std::move(text)).with_file(made_.file.file());
    };
    if (made_.partitions < 1)
      return refuse(errc::bad_format, "it is not an optimizer file of ZeRO: it has no 'partition_count'");
    if (!stage_) stage_ = has_12_ ? std::optional<std::int64_t>(1) : std::nullopt;  // BF16_Optimizer does not record it
    if (!stage_) return refuse(errc::bad_format, "it is not an optimizer file of ZeRO: it has no 'zero_stage'");
    made_.stage = *stage_;
    if (made_.stage < 1 || made_.stage > 3)
      return refuse(errc::unsupported, fmt::format("unknown ZeRO stage {}", made_.stage));
    if (made_.stage == 3 ? !has_3_ : !has_12_)
      return refuse(errc::bad_format, fmt::format("ZeRO stage {} without '{}'", made_.stage,
                                                  made_.stage == 3 ? weights_of_3 : weights_of_12));
    return std::move(made_);
  }

 private:
  result<void> add(const shardmesh::path& where, std::size_t index, bool is_tensor) {
    if (where.size() < 2 || !begins_with(where, {"optimizer_state_dict"})) {
      if (!is_tensor && begins_with(where, {"ds_version"})) return add_setting(where, index);
      return {};
    }
    const std::string field = key_text(where[1]);
    if (field == weights_of_12 || field == weights_of_3) return add_weights(where, index, is_tensor);
    if (std::find(of_the_partition.begin(), of_the_partition.end(), field) != of_the_partition.end())
      return is_tensor || where.size() > 2 ? result<void>() : add_fact(field, index);
    const bool is_base = field == "base_optimizer_state" || field == "optimizer_state_dict";
    if (is_base && where.size() >= 5 && key_text(where[2]) == "state") return add_state(where, 3, index, is_tensor);
    if (is_base && where.size() >= 4 && where[2].is_index()) return add_state(where, 2, index, is_tensor);
    if (is_base && where.size() >= 3 && !is_tensor) SHARDMESH_TRY(add_setting(where, index));
    made_.others.emplace_back(is_base && where.size() > 2 ? 2 : 1, group_value{0, "", is_tensor, index});
    return {};
  }

  result<void> add_setting(const shardmesh::path& where, std::size_t index) {
    SHARDMESH_TRY(const auto value, made_.file.reader->read_object(index));
    made_.settings.emplace(dotted(where, where.size() > 2 ? 2 : 0), value.json);
    return {};
  }

  result<void> add_weights(const shardmesh::path& where, std::size_t index, bool is_tensor) {
    (key_text(where[1]) == weights_of_12 ? has_12_ : has_3_) = true;
    if (!is_tensor && where.size() == 2) return {};  // an empty list
    const tensor_entry* tensor = is_tensor ? &made_.file.reader->contents().tensors[index] : nullptr;
    if (where.size() != 3 || tensor == nullptr || number_of(where[2]) != made_.weights.size() ||
        tensor->shape.rank() != 1 || tensor->chunk_count != 1)
      return fail(errc::bad_format, "a flat buffer is not one-dimensional")
          .with_key(dotted(where))
          .with_file(made_.file.file());
    made_.weights.push_back(index);
    return {};
  }

  result<void> add_fact(std::string_view field, std::size_t index) {
    if (field == "zero_stage") {
      SHARDMESH_TRY(stage_, read_stage(made_.file, index));
    } else if (field == "partition_count") {
      SHARDMESH_TRY(made_.partitions, read_largest(made_.file, index));
    } else if (field == "param_alignment_paddings") {
      SHARDMESH_TRY(const bool is_absent, is_none(made_.file, index));
      if (is_absent) return {};
      SHARDMESH_TRY(made_.paddings, read_lists(made_.file, index));
    }
    return {};
  }

  // Adds STATE.GROUP.NAME; `at` is the step of the group. A tensor of rank 1 has one element per element of the buffer.
  result<void> add_state(const shardmesh::path& where, std::size_t at, std::size_t index, bool is_tensor) {
    const auto group = number_of(where[at]);
    const std::string name = dotted(where, at + 1);
    const tensor_entry* tensor = is_tensor ? &made_.file.reader->contents().tensors[index] : nullptr;
    if (group && tensor != nullptr && tensor->shape.rank() == 1 && tensor->chunk_count == 1)
      made_.states[name].emplace(*group, index);
    else if (group)
      made_.group_values.push_back({*group, name, is_tensor, index});
    else
      made_.others.emplace_back(at - 1, group_value{0, "", is_tensor, index});
    return {};
  }

  optimizer_states made_;
  std::optional<std::int64_t> stage_;
  bool has_12_ = false, has_3_ = false;
};

}  // namespace

result<optimizer_states> read_optimizer_states(const saved_file& file) {
  return optimizer_file(file).read();
}

}  // namespace shardmesh::deepspeed
