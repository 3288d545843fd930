// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :agreement;
import :flat_run;
import :folder_reader;
import :model_states;
import :parameter_files;
import :rank_files;
import :state_dict;
import :universal;

namespace shardmesh::deepspeed {
namespace fs = places;
namespace {

constexpr std::string_view weights = "fp32";
// Fields of rank 0's buffers and of their partition, which whole parameters do not need.
constexpr std::array<std::string_view, 9> of_the_partition{
    "base_optimizer_state",     "single_partition_of_fp32_groups",
    "fp32_flat_groups",         "zero_stage",
    "partition_count",          "group_paddings",
    "param_alignment_paddings", "param_slice_mappings",
    "ds_zero_partition_groups"};

class universal_reader final : public folder_reader {
 public:
  universal_reader(const fs::path& folder, fs::path step, const open_options& options)
      : folder_reader(folder, std::move(step), options) {}

  result<void> open() {
    SHARDMESH_TRY(open_models());
    auto files = std::make_unique<parameter_files>(step_, options_);
    SHARDMESH_TRY(files->list());
    files_ = files.get();
    part_ = add_part(std::move(files), folder_);
    SHARDMESH_TRY(check_complete());
    planned_state buffers = plan_buffers(models_.front());
    SHARDMESH_TRY(const planned_state state, plan(std::move(buffers)));
    for (const auto& [name, tensor] : state.entries) SHARDMESH_TRY(add(shardmesh::path{name}, tensor));
    SHARDMESH_TRY(add_states());
    SHARDMESH_TRY(add_beside_model(models_.front().file));
    return add_common_state();
  }

 private:
  // Opens the model files of one data-parallel rank, or (ZeRO 3) of all. Each has the shapes of its pipeline stage.
  result<void> open_models() {
    SHARDMESH_TRY(const auto ranks, list_rank_files(step_));
    ranks_ = ranks.size();
    std::int64_t next = 0;
    for (const auto& [number, rank] : ranks) {
      if (number != next++) break;
      if (!rank.optimizers.empty())
        return fail(errc::disagreement, "a universal checkpoint cannot have optimizer files of ranks")
            .with_file((step_ / rank.optimizers.begin()->second).string());
      SHARDMESH_TRY(open_models_of(rank));
    }
    if (ranks.empty() || ranks.rbegin()->first + 1 != static_cast<std::int64_t>(ranks.size()))
      return missing(fmt::format("mp_rank_{:02}_model_states.pt", ranks.empty() ? 0 : next - 1), "the model file");
    SHARDMESH_TRY(check_all_ranks(models_.front(), ranks_));
    for (const model_states& model : models_) SHARDMESH_TRY(check_same_counters(models_.front(), model));
    return {};
  }

  result<void> open_models_of(const model_parallel_rank& rank) {
    std::vector<std::string> names;
    if (!rank.model.empty()) names.push_back(rank.model);
    is_stage_3_ = rank.model.empty();  // ZeRO 3 has one model file per data-parallel rank
    for (const auto& [data_rank, name] : rank.models) {
      const auto expected = static_cast<std::int64_t>(names.size());
      if (data_rank != expected || !rank.model.empty())
        return missing(name_for_rank(name, expected), "a rank's model file");
      names.push_back(name);
    }
    for (const std::string& name : names) {
      SHARDMESH_TRY(const saved_file file, open_file(name));
      SHARDMESH_TRY(model_states model, read_model_states(file, {.has_shapes = true, .may_be_elsewhere = true}));
      models_.push_back(std::move(model));
    }
    return {};
  }

  // Checks that every parameter in a model file has its weights.
  result<void> check_complete() {
    for (const model_states& model : models_)
      for (const auto& group : model.groups)
        for (const named_shape& parameter : group) {
          shapes_.emplace(parameter.name, parameter);
          if (find(parameter.name, weights) == nullptr)
            return missing(fmt::format("zero/{}/{}.pt", parameter.name, weights),
                           "the weights of a parameter of 'param_shapes'")
                .with_key(parameter.name);
        }
    for (const auto& [name, states] : files_->parameters())
      if (find(name, weights) == nullptr)
        return missing(fmt::format("zero/{}/{}.pt", name, weights), "the weights of a parameter").with_key(name);
    return {};
  }

  const parameter_file* find(const std::string& parameter, std::string_view state) const {
    const auto found = files_->parameters().find(parameter);
    if (found == files_->parameters().end()) return nullptr;
    for (const parameter_file& file : found->second)
      if (file.state == state) return &file;
    return nullptr;
  }

  const tensor_entry& entry_of(const parameter_file& file) const { return files_->contents().tensors[file.index]; }
  std::string path_of(const std::string& parameter, const parameter_file& file) const {
    return (step_ / "zero" / parameter / (file.state + ".pt")).string();
  }

  // Plans the parameters in the model's order. A buffer comes from the model file; a tied name takes its source's
  // tensor.
  result<planned_state> plan(planned_state made) {
    const model_states& first = models_.front();
    std::set<std::string> elsewhere(first.buffers.begin(), first.buffers.end());
    for (const auto& [name, source] : first.shared) elsewhere.insert(name);
    if (ranks_ == 1) SHARDMESH_TRY(add_frozen(models_, is_stage_3_, made));
    for (const named_shape& frozen : first.frozen)
      if (ranks_ == 1) elsewhere.insert(frozen.name);
    std::vector<std::string> unmerged;
    const auto add_one = [&](const std::string& name) -> result<void> {
      if (made.find(name) != nullptr || elsewhere.contains(name)) return {};
      const parameter_file& file = *find(name, weights);
      SHARDMESH_TRY(planned_tensor planned, planned_parameter(name, file));
      if (ranks_ > 1 && !file.is_merged && !shapes_.contains(name)) unmerged.push_back(name);
      made.set(name, std::move(planned));
      trained_.push_back(name);
      return {};
    };
    for (const model_states& model : models_)
      for (const auto& group : model.groups)
        for (const named_shape& parameter : group) SHARDMESH_TRY(add_one(parameter.name));
    for (const auto& [name, states] : files_->parameters()) SHARDMESH_TRY(add_one(name));
    if (!unmerged.empty())
      notes_.push_back(fmt::format("of {} only the part of rank 0 of {} was saved: {}",
                                   detail::counted(unmerged.size(), "parameter"), ranks_, name_list(unmerged)));
    SHARDMESH_TRY(add_shared(first, made, budget_));
    return made;
  }

  // ZeRO 3 writes parameters as lists of elements. A padded or merged parameter may differ in shape from the model
  // file.
  result<planned_tensor> planned_parameter(const std::string& name, const parameter_file& file) {
    const tensor_entry& held = entry_of(file);
    const auto said = shapes_.find(name);
    if (said == shapes_.end() || said->second.shape == held.shape)
      return planned_tensor{held.type, held.shape, {}, std::pair(part_, file.index)};
    if (!file.is_described && held.shape.rank() == 1 && held.shape[0] == said->second.numel)
      return planned_tensor{held.type, said->second.shape, {{part_, file.index, 0, said->second.numel}}, {}};
    if (file.is_described && (ranks_ > 1 || file.is_vocabulary))
      return planned_tensor{held.type, held.shape, {}, std::pair(part_, file.index)};
    return fail(errc::shape_mismatch, "it does not have the shape in 'param_shapes' of the model file")
        .with_key(name)
        .with_file(path_of(name, file))
        .with_values(to_string(said->second.shape), to_string(held.shape));
  }

  result<void> add_states() {
    for (const std::string& name : trained_) {
      const extents& shape = entry_of(*find(name, weights)).shape;
      for (const parameter_file& file : files_->parameters().at(name)) {
        if (file.state == weights) continue;
        const shardmesh::path where{"optimizer", "state", file.state, name};
        if (!file.is_tensor || entry_of(file).shape.rank() == 0) {
          SHARDMESH_TRY(add_beside({part_, files_}, where, {0, "", file.is_tensor, file.index}));
          continue;
        }
        if (entry_of(file).shape != shape)
          return fail(errc::shape_mismatch, "a state of a parameter does not have the shape of its weights")
              .with_key(name)
              .with_file(path_of(name, file))
              .with_values(to_string(shape), to_string(entry_of(file).shape));
        SHARDMESH_TRY(const planned_tensor planned, planned_parameter(name, file));
        SHARDMESH_TRY(add(where, planned));
      }
    }
    return {};
  }

  // Adds the values of rank 0's optimizer beside its part of the states.
  result<void> add_common_state() {
    std::error_code code;
    if (!fs::exists(step_ / common_state_file, code))
      return missing(common_state_file, "the state that the optimizer's ranks share");
    SHARDMESH_TRY(const saved_file file, open_file(std::string(common_state_file)));
    const catalog& contents = file.reader->contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      SHARDMESH_TRY(add_common(file, contents.tensors[i].where, {0, "", true, i}));
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      SHARDMESH_TRY(add_common(file, contents.objects[i].where, {0, "", false, i}));
    return {};
  }

  result<void> add_common(const saved_file& file, const shardmesh::path& where, const group_value& value) {
    const std::string first = key_text(where[0]);
    if (std::find(of_the_partition.begin(), of_the_partition.end(), first) != of_the_partition.end()) return {};
    if (first == "ds_version") return {};  // also in the model file
    if (first != "optimizer_state_dict") return add_beside(file, below({"optimizer"}, where, 0), value);
    // The file also has `param_groups` beside this dict. The whole states are in the parameter files; this dict has
    // only rank 0's parts.
    if (where.size() < 4 || key_text(where[1]) != "state") return {};
    if (value.is_tensor && file.reader->contents().tensors[value.index].shape.rank() != 0) return {};
    return add_beside(file, {"optimizer", "group_state", key_text(where[2]), dotted(where, 3)}, value);
  }

  std::size_t ranks_ = 0;  // number of tensor- and pipeline-parallel ranks
  bool is_stage_3_ = false;
  std::vector<model_states> models_;
  std::map<std::string, named_shape> shapes_;
  parameter_files* files_ = nullptr;  // part number part_
  std::size_t part_ = 0;
  std::vector<std::string> trained_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_universal(const fs::path& folder, fs::path step,
                                                          const open_options& options) {
  auto made = std::make_unique<universal_reader>(folder, std::move(step), options);
  SHARDMESH_TRY(made->open());
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::deepspeed
