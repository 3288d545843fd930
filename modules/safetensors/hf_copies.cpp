// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :hf_copies;

namespace shardmesh::safetensors {
namespace {

// Returns "model" for "model.fp16.safetensors" and "model.fp16-00001-of-00002.safetensors"; a stem without a dot is
// unchanged.
std::string without_variant(const std::string& stem) {
  return stem.substr(0, stem.find('.'));
}

}  // namespace

bool is_part(const std::string& name) {
  return hf_stem_of(name) + ".safetensors" != name;
}

std::vector<std::string> set_copies_aside(std::vector<hf_file>& files) {
  std::unordered_set<std::string> whole, stems;  // stems of whole files, and of all files
  for (const hf_file& file : files) {
    const std::string stem = hf_stem_of(file.name);
    stems.insert(stem);
    if (!is_part(file.name)) whole.insert(stem);
  }
  // Returns the stem of which a file may be a copy; empty for none.
  const auto original_of = [&](const hf_file& file) -> std::string {
    const std::string stem = hf_stem_of(file.name), plain = without_variant(stem);
    if (plain != stem && stems.contains(plain)) return plain;
    return is_part(file.name) && whole.contains(stem) ? stem : std::string();
  };
  std::map<std::string, std::unordered_set<std::string_view>> names;  // of the originals
  for (const hf_file& file : files)
    if (original_of(file).empty())
      for (const safetensors::entry& entry : file.header.entries) names[hf_stem_of(file.name)].insert(entry.name);
  std::vector<std::string> aside;
  std::vector<bool> is_aside;
  for (const hf_file& file : files) {
    const std::string original = original_of(file);
    const bool is_copy =
        !original.empty() && std::any_of(file.header.entries.begin(), file.header.entries.end(),
                                         [&](const auto& entry) { return names[original].contains(entry.name); });
    is_aside.push_back(is_copy || (file.name.starts_with("consolidated") && stems.contains("model")));
    if (is_aside.back()) aside.push_back(file.name);
  }
  std::size_t at = 0;
  std::erase_if(files, [&](const hf_file&) { return is_aside[at++]; });
  return aside;
}

}  // namespace shardmesh::safetensors
