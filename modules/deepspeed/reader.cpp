// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :agreement;
import :flat_run;
import :float_buffers;
import :model_states;
import :optimizer_states;
import :partition;
import :rank_files;
import :rank_states;
import :state_dict;

namespace shardmesh::deepspeed {
namespace fs = std::filesystem;
namespace {

class deepspeed_reader final : public composed_reader {
 public:
  deepspeed_reader(const fs::path& folder, fs::path step, const open_options& options)
      : composed_reader(checkpoint_format::deepspeed, folder),
        step_(std::move(step)),
        options_(options),
        budget_(options.limits) {
    if (step_ != folder) folder_ = step_.filename().string() + "/";
  }

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
    SHARDMESH_CHECK(check_tensor_parallelism(states.models.front()));
    return states.optimizers.empty() ? add_replicated(states.models.front())
                                     : add_partitioned(states.models, states.optimizers);
  }

  // A rank's part of tensors must not pass for the whole of them.
  result<void> check_tensor_parallelism(const model_states& model) const {
    const auto said = model.counters.find("mp_world_size");
    if (said == model.counters.end()) return {};
    std::size_t ranks = 0;
    const char* const end = said->second.data() + said->second.size();
    if (std::from_chars(said->second.data(), end, ranks).ptr != end || ranks <= ranks_) return {};
    return fail(errc::incomplete_save, "files of other ranks of tensor parallelism are missing")
        .with_file(model.file.file())
        .with_values(fmt::format("{} ranks, as 'mp_world_size' says", ranks), fmt::format("{}", ranks_));
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

  // zero_to_fp32.py makes floating-point buffers float32 and takes others as they are.
  planned_state plan_buffers(const model_states& model) {
    const auto& tensors = model.file.reader->contents().tensors;
    const std::set<std::string> names(model.buffers.begin(), model.buffers.end());
    planned_state made;
    std::vector<std::size_t> converted;
    const std::size_t converter = part_count();  // the part that will be added
    for (const std::string& name : model.module_order) {
      if (!names.contains(name)) continue;
      const std::size_t tensor = model.module.at(name);
      const tensor_entry& stored = tensors[tensor];
      const bool converts = is_floating(stored.type) && stored.type != dtype::float32 && stored.chunk_count == 1 &&
                            is_convertible(stored.type, dtype::float32);
      planned_tensor planned{
          converts ? dtype::float32 : stored.type, stored.shape, {}, std::pair(model.file.part, tensor)};
      if (converts) planned.whole = std::pair(converter, converted.size());
      if (converts) converted.push_back(tensor);
      made.set(name, std::move(planned));
    }
    if (!converted.empty()) add_part(as_float32(*model.file.reader, std::move(converted)));
    return made;
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
    const catalog& beside = model.file.reader->contents();
    for (std::size_t i = 0; i < beside.tensors.size(); ++i)
      SHARDMESH_CHECK(add_beside_model(model.file, beside.tensors[i].where, {0, "", true, i}));
    for (std::size_t i = 0; i < beside.objects.size(); ++i)
      SHARDMESH_CHECK(add_beside_model(model.file, beside.objects[i].where, {0, "", false, i}));
    const catalog& contents = optimizer.file.reader->contents();
    for (const auto& [first, value] : optimizer.others) {
      const shardmesh::path& where =
          value.is_tensor ? contents.tensors[value.index].where : contents.objects[value.index].where;
      SHARDMESH_CHECK(add_beside(optimizer.file, below({"optimizer"}, where, first), value));
    }
    return {};
  }

  result<void> add_beside_model(const saved_file& file, const shardmesh::path& where, const group_value& value) {
    const auto name = name_beside_model(where);
    if (!name) return {};
    return add_beside(file, name->starts_with("client_state.") ? below({"client_state"}, where, 0) : where, value);
  }

  // The steps of `where` from `first` on, below others.
  static shardmesh::path below(shardmesh::path made, const shardmesh::path& where, std::size_t first) {
    for (std::size_t i = first; i < where.size(); ++i) made.push_back(where[i]);
    return made;
  }

  result<void> add(const shardmesh::path& where, const planned_tensor& tensor) {
    const shardmesh::path placed = below(root_, where, 0);
    keys_.insert(joined(placed, 0));
    return add_planned(*this, joined(placed, 0), placed, tensor);
  }

  // A tensor or an object of a file as it is.
  result<void> add_beside(const saved_file& file, const shardmesh::path& where, const group_value& value) {
    const shardmesh::path placed = below(root_, where, 0);
    const std::string key = joined(placed, 0);
    if (!keys_.insert(key).second) {
      notes_.push_back(fmt::format("'{}' of {} is left out: a parameter has this name", key, file.file()));
      return {};
    }
    return value.is_tensor ? add_whole_tensor(key, placed, file.part, value.index)
                           : add_object(key, placed, file.part, value.index);
  }

  fs::path step_;
  open_options options_;
  read_budget budget_;
  std::size_t ranks_ = 0;  // of tensor parallelism
  std::string folder_;     // of the step in the run's
  shardmesh::path root_;   // of what is being added
  std::set<std::string> keys_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(fs::path step, step_folder(folder));
  auto made = std::make_unique<deepspeed_reader>(folder, std::move(step), options);
  SHARDMESH_CHECK(made->open());
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::deepspeed
