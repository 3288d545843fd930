// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :flattened;
import :folder_reader;
import :megatron;

namespace shardmesh::dcp {

folder_reader::folder_reader(std::filesystem::path folder, metadata description, const open_options& options,
                             std::shared_ptr<read_budget> budget)
    : extras_(std::move(description.extras)),
      files_(folder, description.contents.files, options.pool(), file_scope::sibling_folders),
      budget_(std::move(budget)) {
  contents_ = std::move(description.contents);
  problems_ = std::move(description.problems);
  warnings_ = std::move(description.warnings);
  conflicts_ = std::move(description.conflicts);
  notes_ = std::move(description.notes);
  names_ = std::move(description.names);
  shared_chunks_ = std::move(description.shared_chunks);
  path_ = std::move(folder);
}

void folder_reader::check_repeats() {
  std::vector<std::pair<place_key, std::size_t>> places;
  places.reserve(contents_.chunk_places.size());
  for (std::size_t i = 0; i < contents_.chunk_places.size(); ++i)
    if (contents_.chunk_places[i].file >= 0) places.emplace_back(key_of(contents_.chunk_places[i]), i);
  std::sort(places.begin(), places.end());
  std::int64_t stored = 0, repeated = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool is_repeat = i > 0 && places[i].first == places[i - 1].first;
    std::int64_t& sum = is_repeat ? repeated : stored;
    sum = checked_add(sum, places[i].first[2]).value_or(sum);
    if (is_repeat) last = places[i].second;
  }
  auto done = budget_->expand(repeated, stored);
  if (done) return;
  error problem = std::move(done).error();
  for (const tensor_entry& tensor : contents_.tensors)
    if (last >= static_cast<std::size_t>(tensor.first_chunk) &&
        last < static_cast<std::size_t>(tensor.first_chunk) + static_cast<std::size_t>(tensor.chunk_count))
      problem.key = tensor.key;
  problem.file = (path_ / ".metadata").string();
  problems_.push_back(budget_->keep(std::move(problem)));
}

void folder_reader::provide(const file_sources& files) {
  std::vector<std::shared_ptr<const byte_source>> sources;
  for (const std::string& name : contents_.files) {
    const auto found = files.find(name);
    sources.push_back(found == files.end() ? nullptr : found->second);
  }
  files_.provide(std::move(sources));
  const std::set<std::string_view> referenced(contents_.files.begin(), contents_.files.end());
  for (const auto& [name, source] : files)
    if (name.ends_with(".distcp") && source->size_bytes() > 0 && !referenced.contains(name))
      warnings_.push_back(fail(errc::incomplete_save, "nothing refers to this file: a leftover of another save")
                              .with_file((path_ / name).string()));
}

const pickle::used_names* folder_reader::names_of(const std::filesystem::path& file) const {
  const auto found = names_.find(file.filename().string());
  return found != names_.end() && path_ / file.filename() == file ? &found->second : nullptr;
}

result<std::unique_ptr<checkpoint_reader>> folder_reader::with_megatron(std::unique_ptr<folder_reader> plain,
                                                                        const open_options& options,
                                                                        std::shared_ptr<const byte_source> common) {
  folder_reader& reader = *plain;
  if (auto note = bucket_note(reader.contents_)) reader.notes_.push_back(*std::move(note));
  std::vector<error> problems;
  const std::vector<flattened_tensor> flattened = find_flattened(reader.contents_, reader.extras_, problems);
  for (error& problem : problems)
    reader.problems_.push_back(std::move(problem).with_file((reader.path_ / ".metadata").string()));
  std::error_code code;
  if (flattened.empty() && !common && !places::exists(places::symlink_status(reader.path_ / common_file, code)))
    return std::unique_ptr<checkpoint_reader>(std::move(plain));
  SHARDMESH_TRY(megatron_view_result seen, megatron_view(std::move(plain), flattened, options, common));
  if (!common) reader.extras_.common_keys = std::move(seen.common_keys);
  // The attribute describes the flat tensors, not the whole ones.
  if (!flattened.empty())
    std::erase_if(reader.extras_.attributes, [](const auto& named) { return named.first == megatron_attribute; });
  return std::move(seen.reader);
}

}  // namespace shardmesh::dcp
