// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
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
import :tensor_parallel;
import :universal;

namespace shardmesh::deepspeed {
namespace fs = places;
namespace {

class deepspeed_reader final : public folder_reader {
 public:
  deepspeed_reader(const fs::path& folder, fs::path step, const open_options& options)
      : folder_reader(folder, std::move(step), options) {}

  result<void> open() {
    SHARDMESH_TRY(const auto ranks, list_rank_files(step_));
    std::vector<rank_states> loaded;
    for (const auto& [number, rank] : ranks) {
      SHARDMESH_TRY(rank_states states, rank_loader(*this).load(rank));
      SHARDMESH_TRY(check_all_ranks(states.models.front(), ranks.size()));
      loaded.push_back(std::move(states));
    }
    std::string reason;
    if (loaded.size() > 1) {
      SHARDMESH_TRY(reason, add_merged_ranks(loaded));
      if (reason.empty()) return {};
      notes_.push_back(
          fmt::format("its tensors are split over {} ranks of tensor parallelism, and {}: each rank's part has a key "
                      "of its own, 'mp_rank_00.KEY'",
                      ranks.size(), reason));
    }
    for (std::size_t i = 0; const auto& [number, rank] : ranks) {
      if (ranks.size() > 1) root_ = shardmesh::path{fmt::format("mp_rank_{:02}", number)};
      SHARDMESH_TRY(add_rank(loaded[i++]));
    }
    return {};
  }

 private:
  result<void> add_rank(const rank_states& states) {
    return states.optimizers.empty() ? add_replicated(states.models.front())
                                     : add_partitioned(states.models, states.optimizers);
  }

  // Adds the whole parameters of all ranks of tensor parallelism. Returns the reason, without adding any, when they
  // cannot be merged.
  result<std::string> add_merged_ranks(std::span<const rank_states> ranks) {
    const model_states& first = ranks.front().models.front();
    SHARDMESH_TRY(const tensor_rules rules, tensor_rules::read(first));
    if (!rules.ok()) return rules.reason();
    if (ranks.front().optimizers.empty()) return std::string("no file has its float32 parameters");
    std::vector<planned_rank> planned;
    for (const rank_states& rank : ranks) {
      SHARDMESH_TRY(check_same_counters(first, rank.models.front()));
      SHARDMESH_TRY(check_one_save(rank.models, rank.optimizers));
      SHARDMESH_TRY(partition trained, partition::make(rank.models.front(), rank.optimizers));
      SHARDMESH_TRY(planned_state state, plan_state(rank.models, trained, {}, budget_));
      planned.push_back({std::move(trained), std::move(state)});
      if (names_of(planned.back().state) != names_of(planned.front().state))
        return std::string("they have different parameters");
    }
    const planned_state buffers = plan_buffers(first);
    for (const auto& [name, tensor] : buffers.entries) SHARDMESH_TRY(add(shardmesh::path{name}, tensor));
    const std::map<std::string, std::string> shared(first.shared.begin(), first.shared.end());
    for (const auto& [name, tensor] : planned.front().state.entries) {
      std::vector<const planned_tensor*> parts;
      for (const planned_rank& rank : planned) parts.push_back(rank.state.find(name));
      const auto source = shared.find(name);
      SHARDMESH_TRY(add(shardmesh::path{name}, parts, rules.rule_of(source == shared.end() ? name : source->second)));
    }
    SHARDMESH_TRY(add_merged_states(planned, ranks.front().optimizers.front(), rules));
    notes_.push_back(
        fmt::format("parameters of {} of tensor parallelism are combined as 'universal_checkpoint_info' says",
                    detail::counted(ranks.size(), "rank")));
    if (!buffers.entries.empty())
      notes_.push_back(fmt::format("{} without a rule in 'universal_checkpoint_info': rank 0's part is taken: {}",
                                   detail::counted(buffers.entries.size(), "entry", "entries"),
                                   name_list(names_of(buffers))));
    return add_others(first, ranks.front().optimizers.front()).transform([] { return std::string(); });
  }

  struct planned_rank {
    partition trained;
    planned_state state;
  };

  static std::vector<std::string> names_of(const planned_state& state) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state.entries) names.push_back(name);
    return names;
  }

  result<void> add_merged_states(std::span<const planned_rank> ranks, const optimizer_states& first,
                                 const tensor_rules& rules) {
    for (const auto& [state, groups] : first.states) {
      std::vector<std::map<std::string, planned_tensor>> parts;
      for (const planned_rank& rank : ranks) {
        const auto tensors = rank.trained.state(state);
        if (!tensors) continue;
        parts.emplace_back();
        for (const auto& [number, tensor] : *tensors)
          parts.back().emplace(rank.trained.parameters()[number].name, tensor);
      }
      if (parts.size() < ranks.size()) {
        note_odd_state(state);
        continue;
      }
      for (const placed_parameter& parameter : ranks.front().trained.parameters()) {
        std::vector<const planned_tensor*> held;
        for (const auto& part : parts)
          if (const auto found = part.find(parameter.name); found != part.end()) held.push_back(&found->second);
        if (held.size() == ranks.size())
          SHARDMESH_TRY(add({"optimizer", "state", state, parameter.name}, held, rules.rule_of(parameter.name)));
      }
    }
    return add_group_values(first);
  }

  void note_odd_state(const std::string& name) {
    notes_.push_back(fmt::format("the optimizer's '{}' is not divided as the parameters are: it is left out", name));
  }

  // ZeRO 0: adds the model and its optimizer as one rank has them.
  result<void> add_replicated(const model_states& model) {
    const catalog& contents = model.file.reader->contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      SHARDMESH_TRY(add_beside(model.file, replicated_path(contents.tensors[i].where), {0, "", true, i}));
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const shardmesh::path& where = contents.objects[i].where;
      if (begins_with(where, {"module"}) && where.size() == 1) continue;  // a model without tensors
      const bool describes = begins_with(where, {"buffer_names"}) || begins_with(where, {"param_shapes"}) ||
                             begins_with(where, {"shared_params"}) || begins_with(where, {"frozen_param_shapes"}) ||
                             begins_with(where, {"frozen_param_fragments"});
      if (!describes) SHARDMESH_TRY(add_beside(model.file, replicated_path(where), {0, "", false, i}));
    }
    return {};
  }
  static shardmesh::path replicated_path(const shardmesh::path& where) {
    if (begins_with(where, {"module"}) && where.size() > 1) return shardmesh::path{dotted(where, 1)};
    const auto name = name_beside_model(where);
    return name && name->starts_with("client_state.") ? below({"client_state"}, where, 0) : where;
  }

  result<void> add_partitioned(std::span<const model_states> models, std::span<const optimizer_states> optimizers) {
    SHARDMESH_TRY(check_one_save(models, optimizers));
    SHARDMESH_TRY(const partition trained, partition::make(models.front(), optimizers));
    planned_state buffers = plan_buffers(models.front());
    SHARDMESH_TRY(const planned_state state, plan_state(models, trained, std::move(buffers), budget_));
    for (const auto& [name, tensor] : state.entries) SHARDMESH_TRY(add(shardmesh::path{name}, tensor));
    SHARDMESH_TRY(add_states(trained, optimizers.front()));
    if (optimizers.front().stage < 3) note_left_out(models.front(), state);
    return add_others(models.front(), optimizers.front());
  }

  result<void> add_states(const partition& trained, const optimizer_states& first) {
    for (const auto& [name, groups] : first.states) {
      const auto tensors = trained.state(name);
      if (!tensors) {
        note_odd_state(name);
        continue;
      }
      for (const auto& [parameter, tensor] : *tensors)
        SHARDMESH_TRY(add({"optimizer", "state", name, trained.parameters()[parameter].name}, tensor));
    }
    return add_group_values(first);
  }

  result<void> add_group_values(const optimizer_states& first) {
    for (const group_value& value : first.group_values)
      SHARDMESH_TRY(
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
    SHARDMESH_TRY(add_beside_model(model.file));
    const catalog& contents = optimizer.file.reader->contents();
    for (const auto& [first, value] : optimizer.others) {
      const shardmesh::path& where =
          value.is_tensor ? contents.tensors[value.index].where : contents.objects[value.index].where;
      SHARDMESH_TRY(add_beside(optimizer.file, below({"optimizer"}, where, first), value));
    }
    return {};
  }
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(fs::path step, step_folder(folder));
  if (is_universal(step)) return open_universal(folder, std::move(step), options);
  auto made = std::make_unique<deepspeed_reader>(folder, std::move(step), options);
  SHARDMESH_TRY(made->open());
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::deepspeed
