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
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :consolidated_cut;
import :consolidated_files;
import :consolidated_name;
import :consolidated_reader;
import :consolidated_sizes;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::string_view embedding = "tok_embeddings.weight";

}  // namespace

result<void> consolidated_reader::open(const open_options& options) {
  SHARDMESH_TRY(const auto files, list_consolidated_files(path_));
  SHARDMESH_TRY(check_complete(files));
  for (const auto& [number, name] : files) {
    SHARDMESH_TRY(auto opened, torch_file::open(path_ / name, options));
    add_part(std::move(opened));
  }
  if (part_count() == 1) {
    SHARDMESH_TRY(check_only_file());
    return add_all();
  }
  if (are_disjoint()) {
    SHARDMESH_TRY(check_only_file());
    notes_.push_back(fmt::format("no two of the {} files have an entry in common: nothing is merged", part_count()));
    return add_all();
  }
  SHARDMESH_TRY(check_same_keys());
  SHARDMESH_TRY(consolidated_sizes sizes, read_consolidated_sizes(params_file(), count()));
  learn_vocabulary(sizes);
  const std::size_t tensors = contents_of(0).tensors.size(), objects = contents_of(0).objects.size();
  for (std::size_t i = 0; i < tensors; ++i) SHARDMESH_TRY(merge_tensor(i, sizes));
  for (std::size_t i = 0; i < objects; ++i) SHARDMESH_TRY(merge_object(i));
  warn_of_copies();
  return {};
}

error consolidated_reader::at(error problem, const std::string& key, std::size_t part) {
  return std::move(problem).with_key(key).with_file(file_of(part));
}

result<void> consolidated_reader::check_complete(const std::map<std::int64_t, std::string>& files) const {
  if (files.empty()) return fail(errc::bad_format, "has no consolidated.00.pth").with_file(path_.string());
  const std::int64_t last = files.rbegin()->first;
  if (static_cast<std::int64_t>(files.size()) == last + 1) return {};
  std::int64_t missing = 0;
  while (files.contains(missing)) ++missing;
  return fail(errc::incomplete_save, fmt::format("the file with the number {:02} is missing", missing))
      .with_file((path_ / files.rbegin()->second).string())
      .with_values(detail::counted(last + 1, "file"), fmt::format("{}", files.size()));
}

result<void> consolidated_reader::check_only_file() {
  std::error_code ignored;
  if (!fs::exists(params_file(), ignored)) return {};
  auto sizes = read_consolidated_sizes(params_file(), 1);  // the tensors are whole, also those of disjoint files
  if (!sizes) {
    warnings_.push_back(std::move(sizes).error());
    return {};
  }
  learn_vocabulary(*sizes);
  for (std::size_t part = 0; part < part_count(); ++part)
    for (const tensor_entry& tensor : contents_of(part).tensors) {
      if (!tensor.opaque_type.empty()) continue;  // its shape is not known
      if (auto cut = cut_of(tensor.key, tensor.shape, *sizes); !cut)
        return at(std::move(cut).error(), tensor.key, part);
    }
  return {};
}

bool consolidated_reader::are_disjoint() {
  std::unordered_set<std::string_view> keys;
  for (std::size_t part = 0; part < part_count(); ++part) {
    for (const tensor_entry& tensor : contents_of(part).tensors)
      if (!keys.insert(tensor.key).second) return false;
    for (const object_entry& object : contents_of(part).objects)
      if (!keys.insert(object.key).second) return false;
  }
  return true;
}

result<void> consolidated_reader::add_all() {
  for (std::size_t part = 0; part < part_count(); ++part) {
    const catalog& contents = contents_of(part);
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      SHARDMESH_TRY(add_whole_tensor(contents.tensors[i].key, contents.tensors[i].where, part, i));
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      SHARDMESH_TRY(add_object(contents.objects[i].key, contents.objects[i].where, part, i));
  }
  return {};
}

result<void> consolidated_reader::check_same_keys() {
  for (std::size_t other = 1; other < part_count(); ++other) {
    SHARDMESH_TRY(check_has_keys(0, other));
    SHARDMESH_TRY(check_has_keys(other, 0));
  }
  return {};
}

result<void> consolidated_reader::check_has_keys(std::size_t part, std::size_t other) {
  const catalog &has = contents_of(part), &needs = contents_of(other);
  const auto refuse = [&](const std::string& key, std::string_view kind) {
    return at(fail(errc::missing_key, fmt::format("is {} in {}, but not in this file", kind, name_of(part)))
                  .with_values(fmt::format("all entries of {}", name_of(part)), "none of this name")
                  .with_hint("check that the files belong to one model, or open them one by one"),
              key, other);
  };
  for (const tensor_entry& tensor : has.tensors)
    if (needs.find(tensor.key) == nullptr) return refuse(tensor.key, "a tensor");
  for (const object_entry& object : has.objects)
    if (needs.find_object(object.key) == nullptr) return refuse(object.key, "an object");
  return {};
}

void consolidated_reader::learn_vocabulary(consolidated_sizes& sizes) {
  for (std::size_t part = 0; part < part_count() && !sizes.vocabulary; ++part) {
    const tensor_entry* const found = contents_of(part).find(embedding);
    if (found == nullptr || found->shape.rank() != 2) continue;
    if (checked_multiply(found->shape[1], sizes.files) == sizes.model) sizes.vocabulary = found->shape[0];
  }
}

result<std::unique_ptr<checkpoint_reader>> open_consolidated_files(const fs::path& folder,
                                                                   const open_options& options) {
  auto reader = std::make_unique<consolidated_reader>(folder);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
