// SPDX-License-Identifier: Apache-2.0
// Reads a folder of several checkpoints as one.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :gathered_parts;
import :limited_open;
import :megatron_folder;
import :folder_parts;

namespace shardmesh {
namespace fs = places;
namespace {

class all_parts_reader final : public composed_reader {
 public:
  all_parts_reader(const fs::path& folder, gathered_parts found) : composed_reader(checkpoint_format::parts, folder) {
    for (gathered_part& one : found.parts) add(std::move(one));
    std::move(found.problems.begin(), found.problems.end(), std::back_inserter(problems_));
    std::move(found.warnings.begin(), found.warnings.end(), std::back_inserter(warnings_));
    std::move(found.notes.begin(), found.notes.end(), std::back_inserter(notes_));
    if (!found.beside.empty()) notes_.push_back(std::move(found.beside));
  }

 private:
  void add(gathered_part one) {
    const auto first_file = static_cast<std::int32_t>(contents_.files.size());
    const std::string name = one.part.name;
    const std::size_t said = notes_.size();
    const std::size_t number = add_part(std::move(one.reader), one.folder);
    notes_.resize(said);
    for (const std::string& note : part(number).notes()) notes_.push_back(fmt::format("{}: {}", name, note));
    const catalog& contents = part(number).contents();
    for (const file_text& text : contents.texts)
      contents_.texts.push_back({text.key, text.value, text.file < 0 ? -1 : first_file + text.file});
    const auto below = [&](const shardmesh::path& where) {
      shardmesh::path made{name};
      made.append(where);
      return made;
    };
    // Key "b.c" of part "a" and key "c" of part "a.b" would coincide.
    const auto keep = [&](result<void> added) {
      if (!added) problems_.push_back(std::move(added).error().with_file(part(number).path().string()));
    };
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      keep(add_whole_tensor(name + "." + contents.tensors[i].key, below(contents.tensors[i].where), number, i));
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      keep(add_object(name + "." + contents.objects[i].key, below(contents.objects[i].where), number, i));
  }
};

// Adds to the warnings and notes of any reader, which only derived classes can access.
struct remarks : checkpoint_reader {
  static void add(checkpoint_reader& to, gathered_parts& found) {
    auto& warnings = to.*&remarks::warnings_;
    auto& notes = to.*&remarks::notes_;
    std::move(found.warnings.begin(), found.warnings.end(), std::back_inserter(warnings));
    std::move(found.notes.begin(), found.notes.end(), std::back_inserter(notes));
  }
};

// True when the path itself opens as this part, and as nothing else.
bool is_the_whole(const gathered_part& one, const fs::path& folder) {
  if (one.part.is_of_folder()) return one.part.path == folder;
  const auto meant = megatron_checkpoint_in(folder);
  return meant && *meant && **meant == one.part.path;
}

result<std::unique_ptr<checkpoint_reader>> open_all(const fs::path& folder, const open_options& options) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) return open_checkpoint(folder, options);
  SHARDMESH_TRY(gathered_parts found, gather_parts(folder, options));
  if (found.parts.empty() && !found.problems.empty()) return std::move(found.problems.front());
  if (found.parts.empty()) return open_checkpoint(folder, options);  // reports why there are none
  if (found.parts.size() == 1 && found.problems.empty() && is_the_whole(found.parts.front(), folder)) {
    std::unique_ptr<checkpoint_reader> whole = std::move(found.parts.front().reader);
    remarks::add(*whole, found);
    return whole;
  }
  return std::unique_ptr<checkpoint_reader>(std::make_unique<all_parts_reader>(folder, std::move(found)));
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_parts(const fs::path& folder, const open_options& options) {
  return open_within_limits(folder, options, [&](const open_options& all) { return open_all(folder, all); });
}

}  // namespace shardmesh
