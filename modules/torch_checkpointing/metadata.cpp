// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :sharding_fields;

namespace shardmesh::torch_checkpointing {
namespace {

constexpr std::int64_t entry_bytes = 512, rank_bytes = 16;  // memory charged for each

error damaged(std::string message) {
  return fail(errc::bad_format, std::move(message));
}

result<payload> payload_of(const pickle::value& format) {
  const std::string_view type = format.find("type").text().value_or("");
  if (type == "TorchSerialization") return payload::torch;
  if (type == "SafetensorsSerialization") return payload::safetensors;
  if (type == "JsonSerialization") return payload::json;
  if (type == "RawSerialization") return payload::raw;
  return fail(errc::unsupported, "a file is serialized in an unknown way")
      .with_values("TorchSerialization, SafetensorsSerialization, JsonSerialization, or RawSerialization",
                   escaped(type));
}

result<std::string> safe_name(std::string_view name) {
  const std::filesystem::path relative{std::string(name)};
  const bool leaves = relative.empty() || relative.is_absolute() || is_url(relative) ||
                      name.find('\0') != std::string_view::npos ||
                      std::any_of(relative.begin(), relative.end(), [](const auto& part) { return part == ".."; });
  if (leaves)
    return fail(errc::unsafe_path, "a file name leaves the checkpoint's folder").with_values("", escaped(name));
  return std::string(name);
}

// Reads the rank in a dict key: an integer, or its digits.
std::optional<std::int32_t> rank_of(const pickle::value& key) {
  if (const auto number = key.as_int(); number && *number >= 0 && *number <= std::numeric_limits<std::int32_t>::max())
    return static_cast<std::int32_t>(*number);
  const std::string_view digits = key.text().value_or("");
  std::int32_t parsed = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed);
  if (code != std::errc() || end != digits.data() + digits.size() || digits.empty() || parsed < 0) return std::nullopt;
  return parsed;
}

class metadata_parser {
 public:
  metadata_parser(const pickle::value& root, read_budget& budget) : root_(root), budget_(budget) {}

  result<metadata> parse() {
    if (root_.kind() != pickle::kind::dict || root_.find("metadata").kind() != pickle::kind::dict)
      return damaged("is not metadata of torch_checkpointing: it has no dict of items");
    const pickle::value version = root_.find("version");
    made_.version = version ? std::string(version.text().value_or("")) : "1.0";
    if (made_.version != "2.0" && made_.version != "1.0")
      return fail(errc::unsupported, "is metadata of torch_checkpointing of an unknown version")
          .with_values("1.0 or 2.0", escaped(made_.version))
          .with_hint("load it with the package that wrote it, and save it with a version that writes 2.0");
    const auto world = root_.find("world_size").as_int();
    if (!world || *world < 1 || *world > std::numeric_limits<std::int32_t>::max())
      return damaged("its world_size is not a number of ranks");
    made_.world_size = static_cast<std::int32_t>(*world);
    SHARDMESH_TRY(made_.version == "2.0" ? read_items() : read_flat());
    SHARDMESH_TRY(check_files());
    return std::move(made_);
  }

 private:
  result<void> read_items() {
    for (const auto [key, value] : root_.find("metadata").pairs()) {
      const auto name = key.text();
      if (!name) return damaged("an item's key is not text");
      item_metadata item;
      item.key = *name;
      auto done = read_item(value, item);
      if (!done) return named(std::move(done).error(), item.key);
      made_.items.push_back(std::move(item));
    }
    return {};
  }

  result<void> read_item(const pickle::value& value, item_metadata& item) {
    if (value.find("nested_path_to_metadata").kind() != pickle::kind::dict)
      return damaged("an item has no dict of paths");
    for (const auto [text, groups] : value.find("nested_path_to_metadata").pairs()) {
      SHARDMESH_TRY(path where, path_of_json(text.text().value_or("")));
      SHARDMESH_TRY(read_tensor(std::move(where), groups, item));
    }
    if (value.find("rank_to_layout_info").kind() != pickle::kind::dict)
      return damaged("an item does not say where its ranks' files are");
    std::vector<std::pair<std::int32_t, pickle::value>> files;
    for (const auto [rank, layout] : value.find("rank_to_layout_info").pairs()) {
      const auto number = rank_of(rank);
      if (!number) return damaged("a rank is not a number");
      files.emplace_back(*number, layout);
    }
    return read_files(files, item);
  }

  // Version 1.0 has one dict whose paths begin with their item, and one dict of items per rank.
  result<void> read_flat() {
    std::map<std::string, std::size_t, std::less<>> positions;
    for (const auto [text, groups] : root_.find("metadata").pairs()) {
      SHARDMESH_TRY(const path whole, path_of_json(text.text().value_or("")));
      if (whole.empty() || whole[0].is_index()) return damaged("a path does not begin with an item's key");
      const std::string key(whole[0].name());
      const auto [found, is_new] = positions.try_emplace(key, made_.items.size());
      if (is_new) made_.items.push_back({key, {}, {}});
      path where;
      for (std::size_t i = 1; i < whole.size(); ++i) where.push_back(whole[i]);
      auto done = read_tensor(std::move(where), groups, made_.items[found->second]);
      if (!done) return named(std::move(done).error(), key);
    }
    for (item_metadata& item : made_.items) {
      std::vector<std::pair<std::int32_t, pickle::value>> files;
      for (const auto [rank, layouts] : root_.find("rank_to_layout_info_mappings").pairs()) {
        const auto number = rank_of(rank);
        if (!number) return damaged("a rank is not a number");
        files.emplace_back(*number, layouts.find(item.key));
      }
      auto done = read_files(files, item);
      if (!done) return named(std::move(done).error(), item.key);
    }
    return {};
  }

  result<void> read_tensor(path where, const pickle::value& groups, item_metadata& item) {
    tensor_metadata tensor{std::move(where), {}};
    SHARDMESH_TRY(budget_.build(entry_bytes));
    if (groups.kind() != pickle::kind::list || groups.size() == 0) return at(damaged("has no sharding"), tensor, item);
    for (const pickle::value group : groups.items()) {
      auto one = sharding_of(group.find("sharding_metadata"), made_.world_size, meshes_);
      if (!one) return at(std::move(one).error(), tensor, item);
      auto ranks = ranks_of(group.find("ranks"), made_.world_size, "ranks");
      if (!ranks) return at(std::move(ranks).error(), tensor, item);
      one->ranks = *std::move(ranks);
      SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(one->ranks.size() + one->boxes.size()) * rank_bytes));
      if (!tensor.groups.empty() && (one->shape != tensor.groups[0].shape || one->type != tensor.groups[0].type))
        return at(damaged("its ranks disagree about its shape or dtype")
                      .with_values(to_string(tensor.groups[0].shape), to_string(one->shape)),
                  tensor, item);
      tensor.groups.push_back(*std::move(one));
    }
    item.tensors.push_back(std::move(tensor));
    return {};
  }

  result<void> read_files(const std::vector<std::pair<std::int32_t, pickle::value>>& files, item_metadata& item) {
    if (files.size() != static_cast<std::size_t>(made_.world_size))
      return damaged("an item does not name one file for each rank")
          .with_values(fmt::format("{}", made_.world_size), fmt::format("{}", files.size()));
    item.files.resize(files.size());
    for (const auto& [rank, layout] : files) {
      if (rank >= made_.world_size)
        return damaged(
            fmt::format("an item names a file of rank {}, but the world size is {}", rank, made_.world_size));
      rank_file& file = item.files[static_cast<std::size_t>(rank)];
      if (!file.name.empty()) return damaged(fmt::format("an item names two files of rank {}", rank));
      if (!layout || layout.is_none()) {
        SHARDMESH_TRY(file.name, safe_name(default_file_name(item.key, rank)));
        continue;
      }
      SHARDMESH_TRY(file.name, safe_name(layout.find("file_path").text().value_or("")));
      SHARDMESH_TRY(file.how, payload_of(layout.find("serialization_format")));
    }
    return {};
  }

  // Two ranks or two items with the same file have overwritten each other.
  result<void> check_files() const {
    std::set<std::string_view> names;
    for (const item_metadata& item : made_.items)
      for (const rank_file& file : item.files)
        if (!names.insert(file.name).second)
          return named(damaged(fmt::format("two ranks or items use the same file, {}", escaped(file.name))), item.key);
    return {};
  }

  static error named(error problem, const std::string& key) {
    return problem.key.empty() ? std::move(problem).with_key(key) : problem;
  }
  static error at(error problem, const tensor_metadata& tensor, const item_metadata& item) {
    return std::move(problem).with_key(item.key + (tensor.where.empty() ? "" : "." + dotted(tensor.where)));
  }

  pickle::value root_;
  read_budget& budget_;
  metadata made_;
  known_meshes meshes_;
};

}  // namespace

std::vector<placed_box> sharding::boxes_of(std::int32_t rank) const {
  return laid_out ? laid_out->boxes(rank) : boxes;
}

std::optional<extents> sharding::local_shape(std::int32_t rank) const {
  if (!laid_out || !laid_out->mesh().coordinate_of(rank)) return std::nullopt;
  return laid_out->local_shape(rank);
}

std::optional<std::int32_t> rank_of_file(std::string_view name) {
  std::string_view digits;
  if (const std::size_t slash = name.find('/'); slash != std::string_view::npos) {
    if (!name.starts_with("rank_")) return std::nullopt;
    digits = name.substr(5, slash - 5);
  } else {
    const std::size_t dot = name.rfind('.');
    const std::size_t line = name.substr(0, dot).rfind('_');
    if (line == std::string_view::npos || dot == std::string_view::npos) return std::nullopt;
    digits = name.substr(line + 1, dot - line - 1);
  }
  std::int32_t rank = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (code != std::errc() || end != digits.data() + digits.size() || rank < 0) return std::nullopt;
  if (rank == std::numeric_limits<std::int32_t>::max()) return std::nullopt;  // so many ranks have no number
  return rank;
}

std::string default_file_name(std::string_view item, std::int32_t rank) {
  return fmt::format("{}_{}.pt", item, rank);
}

result<metadata> parse_metadata(std::vector<std::byte> bytes, read_budget& budget) {
  budget.add_description(static_cast<std::int64_t>(bytes.size()));
  SHARDMESH_TRY(const pickle::graph graph, pickle::graph::parse(std::move(bytes)));
  return metadata_parser(graph.root(), budget).parse();
}

}  // namespace shardmesh::torch_checkpointing
