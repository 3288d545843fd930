// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :agreement;
import :flat_run;
import :folder_reader;
import :model_states;
import :optimizer_states;
import :parameter_files;
import :partition;
import :rank_files;
import :rank_states;
import :state_dict;
import :universal;

namespace shardmesh::deepspeed {
namespace fs = std::filesystem;
namespace {

class deepspeed_reader final : public folder_reader {
 public:
  deepspeed_reader(const fs::path& folder, fs::path step, const open_options& options)
      : folder_reader(folder, std::move(step), options) {}

  result<void> open() {
    SHARDMESH_TRY(const auto ranks, list_rank_files(step_));
    ranks_ = ranks.size();
    for (const auto& [number, rank] : ranks) {
      root_ = ranks.size() > 1 ? shardmesh::path{fmt::format("mp_rank_{:02}", number)} : shardmesh::path{};
      SHARDMESH_CHECK(add_rank(rank));
    }
    if (ranks.size() > 1)
      notes_.push_back(fmt::format(
          "its tensors are split over {} ranks of tensor parallelism, and no file says how: each rank's stand under "
          "its name, 'mp_rank_00.KEY'",
          ranks.size()));
    return {};
  }

 private:
  result<void> add_rank(const model_parallel_rank& rank) {
    SHARDMESH_TRY(const rank_states states, rank_loader(*this, step_, folder_, options_).load(rank));
    SHARDMESH_CHECK(check_all_ranks(states.models.front(), ranks_));
    return states.optimizers.empty() ? add_replicated(states.models.front())
                                     : add_partitioned(states.models, states.optimizers);
  }

  // ZeRO 0: the model and its optimizer as one rank has them.
  result<void> add_replicated(const model_states& model) {
    const catalog& contents = model.file.reader->contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      SHARDMESH_CHECK(add_beside(model.file, replicated_path(contents.tensors[i].where), {0, "", true, i}));
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const shardmesh::path& where = contents.objects[i].where;
      if (begins_with(where, {"module"}) && where.size() == 1) continue;  // a model without tensors
      const bool describes = begins_with(where, {"buffer_names"}) || begins_with(where, {"param_shapes"}) ||
                             begins_with(where, {"shared_params"}) || begins_with(where, {"frozen_param_shapes"}) ||
                             begins_with(where, {"frozen_param_fragments"});
      if (!describes) SHARDMESH_CHECK(add_beside(model.file, replicated_path(where), {0, "", false, i}));
    }
    return {};
  }
  static shardmesh::path replicated_path(const shardmesh::path& where) {
    if (begins_with(where, {"module"}) && where.size() > 1) return shardmesh::path{joined(where, 1)};
    const auto name = name_beside_model(where);
    return name && name->starts_with("client_state.") ? below({"client_state"}, where, 0) : where;
  }

  result<void> add_partitioned(std::span<const model_states> models, std::span<const optimizer_states> optimizers) {
    SHARDMESH_CHECK(check_one_save(models, optimizers));
    SHARDMESH_TRY(const partition trained, partition::make(models.front(), optimizers));
    planned_state buffers = plan_buffers(models.front());
    SHARDMESH_TRY(const planned_state state, plan_state(models, trained, std::move(buffers), budget_));
    for (const auto& [name, tensor] : state.entries) SHARDMESH_CHECK(add(shardmesh::path{name}, tensor));
    SHARDMESH_CHECK(add_states(trained, optimizers.front()));
    if (optimizers.front().stage < 3) note_left_out(models.front(), state);
    return add_others(models.front(), optimizers.front());
  }

  result<void> add_states(const partition& trained, const optimizer_states& first) {
    for (const auto& [name, groups] : first.states) {
      const auto tensors = trained.state(name);
      if (!tensors) {
        notes_.push_back(
            fmt::format("the optimizer's '{}' is not divided as the parameters are: it is left out", name));
        continue;
      }
      for (const auto& [parameter, tensor] : *tensors)
        SHARDMESH_CHECK(add({"optimizer", "state", name, trained.parameters()[parameter].name}, tensor));
    }
    for (const group_value& value : first.group_values)
      SHARDMESH_CHECK(
          add_beside(first.file, {"optimizer", "group_state", std::to_string(value.group), value.name}, value));
    return {};
  }

  void note_left_out(const model_states& model, const planned_state& state) {
    std::vector<std::string> names;
    for (const std::string& name : model.module_order)
      if (state.find(name) == nullptr) names.push_back(name);
    if (!names.empty())
      notes_.push_back(
          fmt::format("no float32 copy of these was saved, and zero_to_fp32.py leaves them out: {}", name_list(names)));
  }

  result<void> add_others(const model_states& model, const optimizer_states& optimizer) {
    SHARDMESH_CHECK(add_beside_model(model.file));
    const catalog& contents = optimizer.file.reader->contents();
    for (const auto& [first, value] : optimizer.others) {
      const shardmesh::path& where =
          value.is_tensor ? contents.tensors[value.index].where : contents.objects[value.index].where;
      SHARDMESH_CHECK(add_beside(optimizer.file, below({"optimizer"}, where, first), value));
    }
    return {};
  }

  std::size_t ranks_ = 0;  // of tensor parallelism
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(fs::path step, step_folder(folder));
  if (is_universal(step)) return open_universal(folder, std::move(step), options);
  auto made = std::make_unique<deepspeed_reader>(folder, std::move(step), options);
  SHARDMESH_CHECK(made->open());
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::deepspeed
