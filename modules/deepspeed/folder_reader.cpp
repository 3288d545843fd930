// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :float_buffers;
import :folder_reader;

namespace shardmesh::deepspeed {
namespace fs = places;

shardmesh::path below(shardmesh::path made, const shardmesh::path& where, std::size_t first) {
  for (std::size_t i = first; i < where.size(); ++i) made.push_back(where[i]);
  return made;
}

folder_reader::folder_reader(const fs::path& folder, fs::path step, const open_options& options)
    : composed_reader(checkpoint_format::deepspeed, folder),
      step_(std::move(step)),
      options_(options),
      budget_(options.limits) {
  if (step_ != folder) folder_ = step_.filename().string() + "/";
}

result<saved_file> folder_reader::open_file(const std::string& name) {
  SHARDMESH_TRY(check_inside(step_, name));
  SHARDMESH_TRY(auto reader, torch_file::open_rank_file(step_ / name, options_));
  const fs::path parent = fs::path(name).parent_path();
  const std::size_t number = add_part(std::move(reader), folder_ + (parent.empty() ? "" : parent.string() + "/"));
  return saved_file{number, &part(number)};
}

error folder_reader::missing(std::string_view name, std::string_view what) const {
  return fail(errc::incomplete_save, fmt::format("the file is missing: {}", what)).with_file((step_ / name).string());
}

planned_state folder_reader::plan_buffers(const model_states& model) {
  const auto& tensors = model.file.reader->contents().tensors;
  const std::set<std::string> names(model.buffers.begin(), model.buffers.end());
  planned_state made;
  std::vector<std::size_t> converted;
  const std::size_t converter = part_count();  // the number of the part that is added below
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

result<void> folder_reader::add(const shardmesh::path& where, const planned_tensor& tensor) {
  const shardmesh::path placed = below(root_, where, 0);
  keys_.insert(dotted(placed));
  return add_planned(*this, dotted(placed), placed, tensor);
}

result<void> folder_reader::add(const shardmesh::path& where, std::span<const planned_tensor* const> ranks,
                                const merge_rule& rule) {
  const shardmesh::path placed = below(root_, where, 0);
  keys_.insert(dotted(placed));
  return add_merged(*this, dotted(placed), placed, ranks, rule);
}

result<void> folder_reader::add_beside(const saved_file& file, const shardmesh::path& where, const group_value& value) {
  const shardmesh::path placed = below(root_, where, 0);
  const std::string key = dotted(placed);
  if (!keys_.insert(key).second) {
    notes_.push_back(fmt::format("'{}' of {} is left out: a parameter has this name", key, file.file()));
    return {};
  }
  return value.is_tensor ? add_whole_tensor(key, placed, file.part, value.index)
                         : add_object(key, placed, file.part, value.index);
}

result<void> folder_reader::add_beside_model(const saved_file& file) {
  const catalog& beside = file.reader->contents();
  for (std::size_t i = 0; i < beside.tensors.size(); ++i)
    SHARDMESH_TRY(add_beside_model(file, beside.tensors[i].where, {0, "", true, i}));
  for (std::size_t i = 0; i < beside.objects.size(); ++i)
    SHARDMESH_TRY(add_beside_model(file, beside.objects[i].where, {0, "", false, i}));
  return {};
}

result<void> folder_reader::add_beside_model(const saved_file& file, const shardmesh::path& where,
                                             const group_value& value) {
  const auto name = name_beside_model(where);
  if (!name) return {};
  return add_beside(file, name->starts_with("client_state.") ? below({"client_state"}, where, 0) : where, value);
}

}  // namespace shardmesh::deepspeed
