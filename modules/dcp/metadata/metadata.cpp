// SPDX-License-Identifier: Apache-2.0
// Reads a `.metadata`. Its entries are in `metadata_parser`, several files in `merge`, and writing in
// `metadata_writer`.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :metadata_parser;

namespace shardmesh::dcp {

extras new_extras() {
  extras made;
  made.version = "1.0.0";
  return made;
}

result<metadata> parse_metadata(std::vector<std::byte> bytes, std::string_view file, read_budget* budget) {
  read_budget own;
  read_budget& spent = budget != nullptr ? *budget : own;
  spent.add_description(static_cast<std::int64_t>(bytes.size()));
  auto named = pickle::named_graph::parse(std::move(bytes));
  if (!named) return std::move(named).error().with_file(file);
  auto graph = std::make_shared<const pickle::graph>(std::move(named->graph));
  SHARDMESH_TRY(metadata made, metadata_parser(std::move(graph), file, spent).parse());
  made.names.emplace(std::filesystem::path(file).filename().string(), std::move(named->names));
  return made;
}

}  // namespace shardmesh::dcp
