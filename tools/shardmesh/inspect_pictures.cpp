// SPDX-License-Identifier: Apache-2.0
#include "inspect_pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "counted.hpp"
#include "inspect_summary.hpp"
#include "report.hpp"
#include "stacked_svg.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace tool {
using namespace shardmesh;

result<distribution> held_by_ranks(const catalog& contents, const tensor_entry& tensor) {
  auto held = contents.distribution_of(tensor);
  std::vector<owner_id> ranks;
  for (const std::string& file : contents.files) {
    const auto rank = rank_of_file(file);
    if (!rank) return held;
    ranks.push_back(*rank);
  }
  // the owner of chunks without a place
  ranks.push_back(ranks.empty() ? 0 : *std::max_element(ranks.begin(), ranks.end()) + 1);
  return held ? rename_owners(*held, ranks) : held;
}

result<labelled_tree> tree_of(const catalog& contents, const shown_entries& shown) {
  std::vector<std::pair<path, std::string>> entries;
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    const std::int64_t size = bytes_of(contents, tensor);
    if (!has_known_shape(tensor))
      entries.emplace_back(tensor.where, escaped(tensor.opaque_kind));
    else
      entries.emplace_back(tensor.where,
                           fmt::format("{} {}  {}", type_text(tensor), to_string(tensor.shape), human_bytes(size)));
  }
  for (const std::size_t i : shown.objects) entries.emplace_back(contents.objects[i].where, "(object)");
  return tree_of(entries);
}

int write_maps(const catalog& contents, const shown_entries& shown, output_file& file, list_limit limit) {
  const std::size_t count = limit.most(100);
  std::vector<captioned_picture> maps;
  int status = done;
  for (const std::size_t i : shown.tensors) {
    if (maps.size() == count) break;
    const tensor_entry& tensor = contents.tensors[i];
    const auto held = held_by_ranks(contents, tensor);
    if (!held)
      status = std::max(status, report(held.error()));
    else
      maps.push_back({fmt::format("{}  {}", tensor.key, name(tensor.type)), svg_layout(*held)});
  }
  const std::size_t left = shown.tensors.size() - std::min(shown.tensors.size(), count);
  const std::string picture = stacked_svg(maps, left > 0 ? "and " + counted(left, "more tensor") : "");
  return std::max(status, file.write(picture));
}

int write_tree(const catalog& contents, const shown_entries& shown, output_file& file, list_limit limit) {
  const auto made = tree_of(contents, shown);
  if (!made) return report(made.error());
  const std::size_t lines = limit.most(1999) + 1;  // the root does not count
  const std::string picture = svg_tree(made->tree, made->labels, {.max_columns = widest_tree, .max_lines = lines});
  return file.write(picture);
}

}  // namespace tool
