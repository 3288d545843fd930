// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :parameter_files;
import :rank_files;

namespace shardmesh::deepspeed {
namespace fs = places;
namespace {

constexpr std::int64_t longest_object = std::int64_t{1} << 28;  // bytes of a file without a tensor
constexpr std::string_view ending = ".pt", folder_of_parameters = "zero";

// Returns true when a file's dict has one of these fields, which describe how its tensor was merged.
bool has_any(const pickle::value& entries, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return bool(entries.find(name)); });
}

}  // namespace

bool is_universal(const fs::path& step) {
  std::error_code code;
  if (!fs::is_directory(step / folder_of_parameters, code)) return false;
  if (fs::exists(step / common_state_file, code)) return true;
  bool has_model = false;
  for (fs::directory_iterator at(step, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with("optim_states.pt") && is_rank_file(name)) return false;  // only the original step has these
    has_model |= is_rank_file(name);
  }
  return has_model;
}

struct parameter_files::opened_file {
  std::shared_ptr<const byte_source> source;
  torch_file::item item;
  pickle::value entries;  // entries of a dict; absent when the root is the value
  std::optional<std::size_t> tensor;
};

parameter_files::parameter_files(fs::path step, const open_options& options)
    : options_(options), budget_(options.limits) {
  path_ = std::move(step);
  contents_.format = checkpoint_format::deepspeed;
}

error parameter_files::located(error e, const std::string& key, std::size_t number) const {
  if (e.file.empty()) e.file = (path_ / contents_.files[number]).string();
  return e.key.empty() ? std::move(e).with_key(key) : e;
}

result<void> parameter_files::list_names() {
  const fs::path top = path_ / folder_of_parameters;
  std::error_code code, ignored;
  for (fs::directory_iterator at(top, code), end; !code && at != end; at.increment(code)) {
    if (!at->is_directory(ignored)) continue;
    const std::string parameter = at->path().filename().string();
    parameters_[parameter];  // a folder without files is a parameter without weights
    for (fs::directory_iterator in(at->path(), code), last; !code && in != last; in.increment(code)) {
      const std::string name = in->path().filename().string();
      if (!name.ends_with(ending)) continue;
      SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(tensor_entry) + 4 * (parameter + name).size())));
      names_.emplace_back(parameter, name.substr(0, name.size() - ending.size()));
    }
    if (code) return fs::failure(code, "cannot list", at->path());
  }
  if (code) return fs::failure(code, "cannot list", top);
  std::sort(names_.begin(), names_.end());  // errors then do not depend on the file system
  for (const auto& [parameter, state] : names_)
    contents_.files.push_back(fmt::format("{}/{}/{}{}", folder_of_parameters, parameter, state, ending));
  files_ = std::make_unique<folder_files>(path_, contents_.files, options_.pool());
  return {};
}

result<void> parameter_files::list() {
  SHARDMESH_TRY(list_names());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (auto done = add(i); !done) return located(std::move(done).error(), names_[i].first, i);
  }
  return {};
}

result<parameter_files::opened_file> parameter_files::open_file(std::size_t number) {
  SHARDMESH_TRY(auto source, files_->open(static_cast<std::int32_t>(number)));
  SHARDMESH_TRY(auto item, torch_file::item::open(*source, {.pickle_limit_bytes = budget_.limits().description_bytes,
                                                            .budget = &budget_}));
  opened_file opened{std::move(source), std::move(item), {}, {}};
  const pickle::value root = opened.item.root();
  if (pickle::is_mapping(root)) opened.entries = pickle::mapping_entries(root);
  opened.tensor = opened.item.tensor_of(opened.entries ? opened.entries.find("param") : root);
  return opened;
}

result<void> parameter_files::add(std::size_t number) {
  SHARDMESH_TRY(const opened_file opened, open_file(number));
  const auto& [parameter, state] = names_[number];
  const pickle::value held = opened.entries ? opened.entries.find("param") : opened.item.root();
  if (opened.tensor) return add_tensor(opened, number, *opened.tensor);
  if (held && opened.item.is_opaque_tensor(held))
    return fail(errc::unsupported, fmt::format("it holds a {}, which is not supported", torch_file::tensor_kind(held)));
  if (state == "fp32" || opened.entries)
    return fail(errc::bad_format, "it is not a parameter of a universal checkpoint")
        .with_values("a tensor, or a dict with the tensor 'param'", torch_file::classify(opened.item, held).type);
  parameters_[parameter].push_back({state, false, contents_.objects.size()});
  contents_.objects.push_back({fmt::format("{}.{}", state, parameter),
                               {state, parameter},
                               {static_cast<std::int32_t>(number), 0, 0, opened.source->size_bytes()}});
  file_of_object_.push_back(number);
  return {};
}

result<void> parameter_files::add_tensor(const opened_file& opened, std::size_t number, std::size_t tensor) {
  const auto& [parameter, state] = names_[number];
  const torch_file::tensor& held = opened.item.tensors()[tensor];
  const torch_file::storage& storage = opened.item.storages()[held.storage];
  const std::int64_t bytes = size_bytes(held.type, checked_volume(held.sizes).value_or(0)).value_or(0);
  SHARDMESH_TRY(budget_.expand(std::max<std::int64_t>(0, bytes - storage.size_bytes), storage.size_bytes));
  parameter_file made{state, true, contents_.tensors.size()};
  made.is_described = bool(opened.entries);
  made.is_merged = has_any(opened.entries, {"cat_dim", "sub_param_shape", "ep_num_experts"});
  made.is_vocabulary = opened.entries.find("vocab_tensor").as_bool().value_or(false);
  tensor_entry entry;
  entry.key = fmt::format("{}.{}", state, parameter);
  entry.where = {state, parameter};
  entry.type = held.type;
  entry.shape = held.sizes;
  entry.first_chunk = static_cast<std::int32_t>(contents_.chunk_places.size());
  contents_.tensors.push_back(std::move(entry));
  contents_.add_chunk(box::whole(held.sizes),
                      {static_cast<std::int32_t>(number), 0, storage.offset, storage.stored_bytes});
  file_of_tensor_.push_back(number);
  parameters_[parameter].push_back(std::move(made));
  return {};
}

result<std::shared_ptr<const opened_chunk>> parameter_files::open_chunk(const tensor_entry& tensor,
                                                                        std::int32_t chunk) {
  if (auto known = cache_.find(chunk)) return known;
  if (const auto refusal = budget_.refusal()) return *refusal;
  const std::size_t number = file_of_tensor_[static_cast<std::size_t>(chunk)];  // each tensor has one chunk
  auto made = [&]() -> result<opened_chunk> {
    SHARDMESH_TRY(const opened_file opened, open_file(number));
    if (!opened.tensor || opened.item.tensors()[*opened.tensor].type != tensor.type ||
        opened.item.tensors()[*opened.tensor].sizes != tensor.shape)
      return fail(errc::bad_format, "the file has changed since the checkpoint was opened");
    return torch_file::open_tensor(opened.item, *opened.tensor, opened.source, budget_, contents_.files[number]);
  }();
  if (!made) return budget_.keep(located(std::move(made).error(), tensor.key, number));
  auto shared = std::make_shared<const opened_chunk>(std::move(*made));
  cache_.insert(chunk, shared);
  return shared;
}

result<object_value> parameter_files::read_object(std::size_t index) {
  const std::size_t number = file_of_object_[index];
  auto value = [&]() -> result<object_value> {
    SHARDMESH_TRY(const opened_file opened, open_file(number));
    return torch_file::describe_object(opened.item, opened.item.root(), *opened.source, budget_);
  }();
  if (!value) return budget_.keep(located(std::move(value).error(), contents_.objects[index].key, number));
  return value;
}

// The file itself is such an archive.
result<std::vector<std::byte>> parameter_files::object_archive(std::size_t index) {
  const std::size_t number = file_of_object_[index];
  auto bytes = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const auto source, files_->open(static_cast<std::int32_t>(number)));
    SHARDMESH_TRY(std::vector<std::byte> archive, read_all(*source, longest_object));
    SHARDMESH_TRY(torch_file::check_archive(memory_source(archive, source->name()), &budget_, contents_.files[number]));
    return archive;
  }();
  if (!bytes) return located(std::move(bytes).error(), contents_.objects[index].key, number);
  return bytes;
}

check_outcome parameter_files::check_whole(std::span<const whole_entry> entries, const check_options& options) {
  using sums = std::pair<std::int64_t, std::int64_t>;
  return check_each(entries, options, [&](const whole_entry& entry) -> result<sums> {
    if (entry.is_tensor || options.quick) return sums{};  // all tensors are read element by element
    const std::size_t number = file_of_object_[entry.index];
    auto checked = [&]() -> result<sums> {
      SHARDMESH_TRY(const auto source, files_->open(static_cast<std::int32_t>(number)));
      SHARDMESH_TRY(const torch_file::record_sums found,
                    torch_file::check_archive(*source, &budget_, contents_.files[number]));
      return sums{found.checked_bytes, found.unchecked_bytes};
    }();
    if (!checked) return located(std::move(checked).error(), contents_.objects[entry.index].key, number);
    return checked;
  });
}

result<std::optional<digest128>> parameter_files::content_of(const whole_entry& entry) {
  if (entry.is_tensor) return std::optional<digest128>();
  SHARDMESH_TRY(const opened_file opened, open_file(file_of_object_[entry.index]));
  SHARDMESH_TRY(torch_file::item_storages storages,
                torch_file::item_storages::open(*opened.source, opened.item, &budget_));
  SHARDMESH_TRY(const digest128 digest, storages.content_of(opened.item.root()));
  return std::optional(digest);
}

}  // namespace shardmesh::deepspeed
