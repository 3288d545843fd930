// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :model_states;

namespace shardmesh::deepspeed {
namespace {

// Fields that describe the model and its partition. The entries already express them.
constexpr std::array<std::string_view, 7> of_the_model{
    "module",        "buffer_names", "param_shapes", "frozen_param_shapes", "frozen_param_fragments",
    "shared_params", "optimizer"};
// Fields that the engine saves beside the model; every other name is the caller's (`client_state`).
constexpr std::array<std::string_view, 16> of_the_engine{"lr_scheduler",
                                                         "data_sampler",
                                                         "random_ltd",
                                                         "sparse_tensor_module_names",
                                                         "skipped_steps",
                                                         "global_steps",
                                                         "global_samples",
                                                         "dp_world_size",
                                                         "mp_world_size",
                                                         "num_experts",
                                                         "checkpoint_parallel_dimensions",
                                                         "ds_config",
                                                         "ds_version",
                                                         "universal_checkpoint_info",
                                                         "ds_autoep_layers",
                                                         "autoep_layers"};
// Fields that ranks of one save share.
constexpr std::array<std::string_view, 6> counters{"global_steps",  "global_samples", "skipped_steps",
                                                   "dp_world_size", "mp_world_size",  "ds_version"};

template <std::size_t Size>
bool is_one_of(const std::array<std::string_view, Size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class model_file {
 public:
  model_file(const saved_file& file, const model_reading& how) : how_(how) { made_.file = file; }

  result<model_states> read() {
    const catalog& contents = made_.file.reader->contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) add_tensor(contents.tensors[i], i);
    for (std::size_t i = 0; i < contents.objects.size(); ++i) SHARDMESH_TRY(add_object(contents.objects[i].where, i));
    if (!has_module_)
      return fail(errc::bad_format, "it is not a model file: it has no 'module'").with_file(made_.file.file());
    if (how_.has_shapes && made_.has_shapes && !has_buffer_names_)
      return fail(errc::bad_format, "it does not say which tensors are buffers: it has no 'buffer_names'")
          .with_file(made_.file.file())
          .with_hint("open it directly to read all tensors of 'module'");
    return std::move(made_);
  }

 private:
  void add_tensor(const tensor_entry& tensor, std::size_t index) {
    if (begins_with(tensor.where, {"module"})) {
      has_module_ = true;
      std::string name = dotted(tensor.where, 1);
      made_.module_order.push_back(name);
      made_.module.emplace(std::move(name), index);
    } else if (begins_with(tensor.where, {"frozen_param_fragments"})) {
      made_.frozen_fragments.emplace(dotted(tensor.where, 1), index);
    }
  }

  result<void> add_object(const shardmesh::path& where, std::size_t index) {
    const saved_file& file = made_.file;
    if (begins_with(where, {"module"})) {
      has_module_ = true;
      if (where.size() == 1) {
        SHARDMESH_TRY(const bool is_elsewhere, is_none(file, index));
        if (is_elsewhere && !how_.may_be_elsewhere)
          return fail(errc::unsupported, "its module is stored in other files, one for each layer")
              .with_file(file.file());
      }
    } else if (where.size() == 1 && !where[0].is_index() && is_one_of(counters, where[0].name())) {
      SHARDMESH_TRY(const auto value, file.reader->read_object(index));
      made_.counters.emplace(where[0].name(), value.json);
    } else if (!how_.has_shapes) {
      return {};
    } else if (begins_with(where, {"buffer_names"})) {
      if (where.size() > 1) return {};
      has_buffer_names_ = true;
      SHARDMESH_TRY(made_.buffers, read_texts(file, index));
    } else if (begins_with(where, {"param_shapes"})) {
      SHARDMESH_TRY(add_shape(where, index));
    } else if (begins_with(where, {"frozen_param_shapes"}) && where.size() > 1) {
      SHARDMESH_TRY(named_shape made, shape_at(where, 1, index));
      made_.frozen.push_back(std::move(made));
    } else if (begins_with(where, {"shared_params"}) && where.size() > 1) {
      SHARDMESH_TRY(std::string source, read_text(file, index));
      made_.shared.emplace_back(dotted(where, 1), std::move(source));
    } else if (where.size() == 3 && key_text(where[2]) == "checkpoint_format" &&
               key_text(where[0]).ends_with("autoep_layers")) {
      SHARDMESH_TRY(const std::string format, read_text(file, index));
      if (format == "zero3_partitioned")
        return fail(errc::unsupported, "its experts are partitioned over groups of their own")
            .with_file(file.file())
            .with_hint("combine them with DeepSpeed's ds_to_universal.py");
    }
    return {};
  }

  result<named_shape> shape_at(const shardmesh::path& where, std::size_t first, std::size_t index) {
    named_shape made{dotted(where, first), {}, 0};
    SHARDMESH_TRY(made.shape, read_shape(made_.file, index));
    made.numel = *checked_volume(made.shape);
    return made;
  }

  // Adds a shape. There is one dict per group of parameters; an empty group has no entry.
  result<void> add_shape(const shardmesh::path& where, std::size_t index) {
    if (where.size() == 1) {
      SHARDMESH_TRY(const bool is_absent, is_none(made_.file, index));
      made_.has_shapes |= !is_absent;
      return {};
    }
    made_.has_shapes = true;
    const std::size_t group = where[1].is_index() ? static_cast<std::size_t>(where[1].index()) : 0;
    if (made_.groups.size() <= group) made_.groups.resize(group + 1);
    const std::size_t first = where[1].is_index() ? 2 : 1;
    if (where.size() == first)
      return fail(errc::bad_format, "a group of parameters is not a mapping of names to sizes")
          .with_key(dotted(where))
          .with_file(made_.file.file());
    SHARDMESH_TRY(named_shape made, shape_at(where, first, index));
    made_.groups[group].push_back(std::move(made));
    return {};
  }

  model_states made_;
  model_reading how_;
  bool has_module_ = false, has_buffer_names_ = false;
};

}  // namespace

result<model_states> read_model_states(const saved_file& file, const model_reading& how) {
  return model_file(file, how).read();
}

std::optional<std::string> name_beside_model(const shardmesh::path& where) {
  const std::string first = key_text(where[0]);
  if (is_one_of(of_the_model, first)) return std::nullopt;
  return (is_one_of(of_the_engine, first) ? "" : "client_state.") + dotted(where);
}

}  // namespace shardmesh::deepspeed
