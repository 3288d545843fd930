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
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import shardmesh.safetensors;
import :folder_reader;
import :stray_files;

namespace shardmesh::torch_checkpointing {
namespace fs = places;
namespace {

constexpr std::size_t most_problems = 1000;

}  // namespace

std::string joined(const tree_path& where, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < where.size(); ++i) {
    const std::string step = key_text(where[i]);
    text += fmt::format("{}:{}", step.size(), step);
  }
  return text;
}

result<void> folder_reader::open() {
  SHARDMESH_TRY(const metadata described, read_metadata());
  contents_.version = described.version;
  for (const item_metadata& item : described.items) {
    auto done = add_item(item, described.world_size);
    if (!done) return located(std::move(done).error());
  }
  if (unread_descriptions_ > 0)
    problems_.push_back(
        fail(errc::bad_format,
             fmt::format("{} not checked, after {} problems",
                         detail::counted(unread_descriptions_, "more tensor is", "more tensors are"), most_problems))
            .with_file((path_ / metadata_file_name).string()));
  SHARDMESH_TRY(const stray_files strays, find_strays(path_, described));
  for (const auto& [key, files] : strays.items) {
    auto done = add_stray(key, files, described.world_size);
    if (!done) return located(std::move(done).error());
  }
  for (const std::string& name : strays.unread)
    notes_.push_back(fmt::format("{} is not read: it is not a file of torch.save, and no metadata describes it", name));
  std::unordered_set<std::string> seen;
  std::erase_if(notes_, [&](const std::string& note) { return !seen.insert(note).second; });
  return {};
}

result<std::shared_ptr<const opened_chunk>> folder_reader::open_chunk(const tensor_entry& tensor, std::int32_t chunk) {
  const auto inner = inner_boxes_.find(chunk);
  if (inner == inner_boxes_.end()) return composed_reader::open_chunk(tensor, chunk);
  const auto& [number, index, where] = inner->second;
  checkpoint_reader& from = part(number);
  const tensor_entry& stored = from.contents().tensors[index];
  SHARDMESH_TRY(const auto opened, from.open_chunk(stored, stored.first_chunk));
  auto made = std::make_shared<opened_chunk>(*opened);
  for (std::size_t d = 0; d < where.rank(); ++d)
    made->tensor.storage_offset += where.offsets[d] * made->tensor.strides[d];
  made->tensor.sizes = where.sizes;
  return std::shared_ptr<const opened_chunk>(std::move(made));
}

result<metadata> folder_reader::read_metadata() {
  file_pool pool(1);
  const fs::path file = path_ / metadata_file_name;
  SHARDMESH_TRY(const auto source, pool.open(file));
  if (source->size_bytes() > budget_.limits().description_bytes)
    return beyond_limit("the metadata is too long", budget_.limits().description_bytes).with_file(file.string());
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_all(*source, budget_.limits().description_bytes));
  auto parsed = parse_metadata(std::move(bytes), budget_);
  if (!parsed) return std::move(parsed).error().with_file(file.string());
  return parsed;
}

result<void> folder_reader::add_item(const item_metadata& item, std::int32_t world_size) {
  std::vector<opened_part> parts;
  std::vector<std::int32_t> at(static_cast<std::size_t>(world_size), -1);  // rank -> position in `parts`
  std::set<std::int32_t> needed;
  for (const tensor_metadata& tensor : item.tensors)
    for (const sharding& group : tensor.groups) needed.insert(group.ranks.begin(), group.ranks.end());
  for (std::int32_t rank = 0; rank < world_size; ++rank) {
    const rank_file& file = item.files[static_cast<std::size_t>(rank)];
    std::error_code code;
    if (!fs::exists(path_ / file.name, code)) continue;
    if (file.how != payload::torch && file.how != payload::safetensors) {
      if (needed.contains(rank))
        return fail(errc::bad_format, "its metadata places tensors in a file that cannot hold any")
            .with_key(item.key)
            .with_file((path_ / file.name).string());
      continue;
    }
    SHARDMESH_TRY(opened_part one, open_file(file, item.key, rank));
    at[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(parts.size());
    parts.push_back(std::move(one));
  }
  const std::size_t problems_before = problems_.size(), tensors_before = contents_.tensors.size();
  for (const tensor_metadata& tensor : item.tensors) {
    if (problems_.size() >= most_problems) {
      ++unread_descriptions_;
      continue;
    }
    SHARDMESH_TRY(add_described(item, tensor, parts, at));
  }
  if (problems_.size() == problems_before) warn_of_missing(item, needed, at);
  return add_rest(item.key, parts, std::span(contents_.tensors).subspan(tensors_before));
}

void folder_reader::warn_of_missing(const item_metadata& item, const std::set<std::int32_t>& needed,
                                    const std::vector<std::int32_t>& at) {
  for (const std::int32_t rank : needed)
    if (at[static_cast<std::size_t>(rank)] < 0)
      warnings_.push_back(fail(errc::bad_format, "the file is missing; its tensors were found in other ranks' files")
                              .with_key(item.key)
                              .with_file((path_ / item.files[static_cast<std::size_t>(rank)].name).string()));
}

result<folder_reader::opened_part> folder_reader::open_file(const rank_file& file, const std::string& key,
                                                            std::int32_t rank) {
  SHARDMESH_TRY(check_inside(path_, file.name));
  const fs::path whole = path_ / file.name;
  opened_part made;
  made.rank = rank;
  made.is_flat = file.how == payload::safetensors;
  auto opened = made.is_flat ? safetensors::open(whole, options_) : torch_file::open_part(whole, key, options_);
  if (!opened) {
    error problem = std::move(opened).error();
    return problem.key.empty() ? std::move(problem).with_key(key) : problem;
  }
  std::unique_ptr<checkpoint_reader> reader = *std::move(opened);
  const auto& tensors = reader->contents().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    made.tensors.emplace(made.is_flat ? tensors[i].key : joined(tensors[i].where, 1), i);
  const auto& objects = reader->contents().objects;
  for (std::size_t i = 0; i < objects.size() && !made.is_flat; ++i)
    made.objects.emplace(joined(objects[i].where, 1), i);
  const std::string parent = fs::path(file.name).parent_path().string();
  made.number = add_part(std::move(reader), parent.empty() ? "" : parent + "/");
  return made;
}

result<void> folder_reader::add_stray(const std::string& key, const std::map<std::int32_t, std::string>& files,
                                      std::int32_t world_size) {
  std::vector<opened_part> parts;
  for (const auto& [rank, name] : files) {
    if (rank >= world_size) {
      warnings_.push_back(fail(errc::bad_format, fmt::format("is a file of rank {} beside metadata of {} ranks: a "
                                                             "leftover of another save, which is not read",
                                                             rank, world_size))
                              .with_file((path_ / name).string()));
      continue;
    }
    SHARDMESH_TRY(opened_part one, open_file({name, payload::torch}, key, rank));
    parts.push_back(std::move(one));
  }
  return add_rest(key, parts);
}

void folder_reader::report_object(const tensor_entry& expected, const occurrence& found) {
  if (problems_.size() >= most_problems) {
    ++unread_descriptions_;
    return;
  }
  checkpoint_reader& from = part(found.part);
  const auto value = from.read_object(found.index);
  problems_.push_back(fail(errc::bad_format, "the file has an object in place of a tensor that the metadata describes")
                          .with_key(dotted(from.contents().objects[found.index].where))
                          .with_rank(found.rank)
                          .with_file(from.path().string())
                          .with_values(fmt::format("{} {}", shardmesh::name(expected.type), to_string(expected.shape)),
                                       value ? value->kind : "an object"));
}

error folder_reader::located(error problem) const {
  return problem.file.empty() ? std::move(problem).with_file((path_ / metadata_file_name).string()) : problem;
}

}  // namespace shardmesh::torch_checkpointing
