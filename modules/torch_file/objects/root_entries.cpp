// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :object_parts;
import :root_entries;
import :script_archive;

namespace shardmesh::torch_file {
namespace {

// Puts a step before all paths.
void begin_with(const std::string& name, std::vector<flat_entry>& entries) {
  for (flat_entry& entry : entries) {
    shardmesh::path below{name};
    below.append(entry.where);
    entry.fqn = entry.where.empty() ? name : name + "." + entry.fqn;  // a key may be empty
    entry.where = std::move(below);
  }
}

}  // namespace

result<taken_apart> entries_of_root(const torch_file::item& item, const byte_source& source, read_budget& budget,
                                    const root_options& options) {
  const pickle::value root = item.root();
  if (item.is_script()) return script_weights(source, item, budget);
  const auto alone = [&](std::string key) {
    return std::vector<flat_entry>{{{key}, key, root, item.tensor_of(root), 0}};
  };
  std::vector<flat_entry> entries{{{}, {}, root, {}, 0}};
  const bool is_empty = is_mapping(root) && mapping_entries(root).pairs().empty();
  if (options.part && ((!is_mapping(root) && root.kind() != pickle::kind::list) || is_empty)) {
    entries = alone(*options.part);
  } else if (item.tensor_of(root) || item.is_opaque_tensor(root)) {
    entries = alone("tensor");
  } else if (is_mapping(root) || options.part) {
    // An entry takes at least a byte or two of the pickle unless parts are shared, so these limits bound the sharing.
    const auto pickle_bytes = static_cast<std::int64_t>(item.graph().consumed_bytes());
    SHARDMESH_TRY(entries, flatten_state_dict(item, root,
                                              {.keep_empty = options.keeps_empty,
                                               .keep_descriptions = true,
                                               .may_be_list = options.part.has_value(),
                                               .max_entries = static_cast<std::size_t>(250'000 + pickle_bytes / 2),
                                               .max_depth = 64,  // it recurses
                                               .max_path_bytes = static_cast<std::size_t>(budget.left_to_build())}));
  } else if (!holds_tensors(item, root)) {
    entries = alone("object");
  }
  if (options.part && (is_mapping(root) || root.kind() == pickle::kind::list) && !is_empty)
    begin_with(*options.part, entries);
  return take_apart(item, std::move(entries));
}

}  // namespace shardmesh::torch_file
