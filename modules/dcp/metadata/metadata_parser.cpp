// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :metadata_parser;
import :pickled_fields;

namespace shardmesh::dcp {
namespace {

// The costs of entries that are built, in bytes. Parts of the pickle that entries share are built once for each of
// these entries.
constexpr std::size_t entry_bytes = 512, place_bytes = 64;

// Moves the values beside the entries to a graph of their own. The graph of the whole description takes several times
// the file's size in memory, and would live as long as the reader. If a value cannot be written again, all values stay
// where they are.
void move_to_own_graph(dcp::extras& extras) {
  pickle::writer out;
  out.begin_list();
  for (const auto* const named : {&extras.attributes, &extras.planner_entries})
    for (const auto& [name, value] : *named)
      if (!out.value(value)) return;
  out.end_list();
  auto parsed = pickle::graph::parse(std::move(out).finish());
  if (!parsed) return;
  auto own = std::make_shared<const pickle::graph>(std::move(*parsed));
  std::size_t at = 0;
  for (auto* const named : {&extras.attributes, &extras.planner_entries})
    for (auto& [name, value] : *named) value = own->root().items()[at++];
  extras.graph = std::move(own);
}

}  // namespace

result<metadata> metadata_parser::parse() {
  const pickle::value root = graph_->root();
  const pickle::value entries = field(root, "state_dict_metadata");
  if (entries.kind() != pickle::kind::dict)
    return fail(errc::bad_format, "is not DCP metadata: it has no state_dict_metadata")
        .with_file(account_.file())
        .with_values("a Metadata object", class_text(root));
  // Subclasses of other frameworks are accepted; PyTorch's own class name in another module is damage.
  if (class_name(root) == "Metadata" && !is_metadata_class(root, "Metadata"))
    problem(errc::bad_format, "is not PyTorch's Metadata", {}).found = class_text(root);
  read_extras(root);
  const pickle::value planner = field(root, "planner_data");
  read_paths(root, planner);
  reserve(entries.pairs().size(), field(root, "storage_data").pairs().size());
  for (const auto [key, entry] : entries.pairs())
    if (spend(entry_bytes, key.text().value_or(""))) read_entry(key, entry);
  for (const auto [key, where] : planner.pairs())
    if (const auto name = key.text(); name && !names_.contains(*name) && spend(64 + name->size(), *name))
      made_.extras.planner_entries.emplace_back(*name, where);
  read_texts(field(root, texts_attribute));
  for (const auto [key, strides] : field(root, strides_attribute).pairs()) read_later_strides(key, strides);
  read_places(field(root, "storage_data"), !entries.pairs().empty());
  if (account_.refusal()) return *account_.refusal();
  made_.problems = std::move(account_).take_problems();
  graph_.reset();
  move_to_own_graph(made_.extras);
  return std::move(made_);
}

// Reads planner_data and the attribute that shardmesh adds. Values are counted here, and read with their entries.
void metadata_parser::read_paths(pickle::value root, pickle::value planner) {
  made_.extras.has_planner_data = planner.kind() == pickle::kind::dict;
  if (planner && !planner.is_none() && !made_.extras.has_planner_data)
    problem(errc::bad_format, "its planner_data is not a dict of paths", {}).found = class_text(planner);
  if (made_.extras.has_planner_data)
    for (const auto [key, where] : planner.pairs())
      if (const auto fqn = key.text()) spend(64 + fqn->size(), *fqn);
  paths_.plan(planner.pairs());
  for (const auto [key, where] : field(root, paths_attribute).pairs())
    if (const auto fqn = key.text(); fqn && spend(64 + fqn->size(), *fqn)) paths_.add(*fqn, where);
}

// Reserves memory, because a growing vector holds its elements twice while it moves them. A short pickle may list one
// entry a million times, so each number is capped by the entries that the pickle's bytes can hold.
void metadata_parser::reserve(std::size_t tensors, std::size_t chunks) {
  constexpr std::size_t least_bytes_of_tensor = 128, least_bytes_of_chunk = 64;
  made_.contents.reserve(std::min(tensors, graph_->consumed_bytes() / least_bytes_of_tensor),
                         std::min(chunks, graph_->consumed_bytes() / least_bytes_of_chunk));
  names_.reserve(std::min(tensors, graph_->consumed_bytes() / least_bytes_of_tensor));
}

void metadata_parser::read_extras(pickle::value root) {
  made_.extras.graph = graph_;
  made_.extras.has_version = false;
  pickle::value state = root.state();
  if (state.kind() == pickle::kind::tuple && state.size() == 2) state = state.items()[0];  // (dict, slots)
  for (const auto [key, value] : state.pairs()) {
    const auto field = key.text();
    if (!field || *field == "state_dict_metadata" || *field == "planner_data" || *field == "storage_data" ||
        *field == texts_attribute || *field == strides_attribute || *field == paths_attribute)
      continue;
    if (*field == "version" && value.text()) {
      made_.extras.version = *value.text();
      made_.extras.has_version = true;
    } else {
      made_.extras.attributes.emplace_back(*field, value);
    }
  }
  made_.contents.version = made_.extras.version;
}

// Limits the total, because a pickle may refer to one long text a million times.
void metadata_parser::read_texts(pickle::value texts) {
  std::int64_t total = 0;
  for (const auto [key, value] : texts.pairs()) {
    if (!key.text() || !value.text()) {
      problem(errc::bad_format, "holds a key or value that is not text", texts_attribute);
      return;
    }
    total += static_cast<std::int64_t>(key.text()->size() + value.text()->size());
    if (total > max_text_bytes) {
      problem(errc::bad_format, "holds more text than a safetensors file can", texts_attribute).expected =
          fmt::format("at most {} bytes", max_text_bytes);
      return;
    }
    made_.contents.texts.push_back({std::string(*key.text()), std::string(*value.text()), -1});
  }
}

void metadata_parser::read_later_strides(pickle::value key, pickle::value strides) {
  const auto name = key.text();
  const auto entry = name ? names_.find(*name) : names_.end();
  if (entry == names_.end() || entry->second < 0) return;
  tensor_entry& tensor = made_.contents.tensors[static_cast<std::size_t>(entry->second)];
  tensor.properties.strides = read_strides(strides, tensor.shape.rank());
}

void metadata_parser::read_places(pickle::value storage, bool has_entries) {
  storage_data_reader places(made_.contents, names_, account_);
  if (storage.kind() == pickle::kind::dict) {
    for (const auto [index, info] : storage.pairs())
      if (spend(place_bytes, {})) places.read(index, info);
  } else if (has_entries) {
    problem(errc::bad_format, "storage_data is missing, which says where the bytes are", {});
  }
  if (!account_.refusal()) places.check_complete();
}

}  // namespace shardmesh::dcp
