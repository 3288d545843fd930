// SPDX-License-Identifier: Apache-2.0
// The TOML form of a mapping. Every node of the document knows its line and column, which errors name.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// In release builds, toml++ 3.3 lets the compiler assume that a table's header begins with a key. A file with "[[\x17"
// would then be undefined behaviour. Without the assumption, the parser reports the error.
#undef NDEBUG
#define TOML_ASSERT(expression) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>
module shardmesh.mapping;

import :dangerous_toml;

namespace shardmesh {
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{4} << 20;

class mapping_parser {
 public:
  explicit mapping_parser(std::string_view file) { made_.file = file; }

  result<mapping_rules> run(const toml::table& document) {
    SHARDMESH_TRY(check_keys(
        document, {"left", "right", "sizes", "captures", "rename", "rule", "ignore", "tie", "refuse", "optimizer"}));
    SHARDMESH_TRY(made_.left, text_of(document, "left"));
    SHARDMESH_TRY(made_.right, text_of(document, "right"));
    SHARDMESH_TRY(made_.sizes, expressions(document, "sizes"));
    SHARDMESH_TRY(made_.captures, expressions(document, "captures"));
    SHARDMESH_TRY(renames(document));
    SHARDMESH_TRY(each(document, "rule", [&](const toml::table& one) { return rule(one); }));
    SHARDMESH_TRY(each(document, "ignore", [&](const toml::table& one) { return ignore(one); }));
    SHARDMESH_TRY(each(document, "tie", [&](const toml::table& one) { return tie(one); }));
    SHARDMESH_TRY(each(document, "refuse", [&](const toml::table& one) { return refused_model(one); }));
    SHARDMESH_TRY(optimizer(document));
    return std::move(made_);
  }

 private:
  static int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

  // Adds the file and the place to an error.
  error located(error e, const toml::node& node) const {
    const auto& begin = node.source().begin;
    e.message = fmt::format("line {}, column {}: {}", begin.line, begin.column, e.message);
    return e.file.empty() ? std::move(e).with_file(made_.file) : e;
  }
  error refuse(const toml::node& node, std::string message, std::string expected = "", std::string found = "") const {
    return located(fail(errc::invalid_argument, std::move(message)).with_values(std::move(expected), std::move(found)),
                   node);
  }
  template <class T>
  result<T> at(const toml::node& node, result<T> parsed) const {
    if (!parsed) return located(std::move(parsed).error(), node);
    return parsed;
  }

  result<void> check_keys(const toml::table& table, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, node] : table)
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        std::string names;
        for (const std::string_view one : known) names += fmt::format("{}{}", names.empty() ? "" : ", ", one);
        return refuse(node, fmt::format("the key '{}' is unknown", key.str()), "one of " + names);
      }
    return {};
  }

  result<std::string> text(const toml::node& node, std::string_view what) const {
    const auto found = node.value_exact<std::string>();
    if (!found) return refuse(node, fmt::format("'{}' must be a string", what));
    return *found;
  }
  result<std::string> text_of(const toml::table& table, std::string_view key) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return refuse(table, fmt::format("the key '{}' is missing", key));
    return text(*node, key);
  }

  result<size_expression> expression(const toml::node& node, std::string_view what) const {
    if (const auto number = node.value_exact<std::int64_t>())
      return at(node, size_expression::parse(fmt::format("{}", *number)));
    SHARDMESH_TRY(const std::string written, text(node, what));
    return at(node, size_expression::parse(written));
  }
  result<std::optional<size_expression>> condition_of(const toml::table& table) const {
    const toml::node* const node = table.get("if");
    if (node == nullptr) return std::optional<size_expression>{};
    SHARDMESH_TRY(size_expression parsed, expression(*node, "if"));
    return std::optional(std::move(parsed));
  }
  result<name_template> name_of(const toml::table& table, std::string_view key) const {
    SHARDMESH_TRY(const std::string written, text_of(table, key));
    return at(*table.get(key), name_template::parse(written));
  }
  // Returns whether the table's entry is about the left side.
  result<bool> is_left(const toml::table& table) const {
    SHARDMESH_TRY(const std::string side, text_of(table, "side"));
    if (side != "left" && side != "right")
      return refuse(*table.get("side"), "the side is unknown", "left or right", side);
    return side == "left";
  }

  // Sorted by line: an expression may use the names above it.
  result<std::vector<named_expression>> expressions(const toml::table& document, std::string_view key) const {
    std::vector<named_expression> made;
    const toml::node* const node = document.get(key);
    if (node == nullptr) return made;
    const toml::table* const table = node->as_table();
    if (table == nullptr) return refuse(*node, fmt::format("'{}' must be a table", key));
    std::vector<std::pair<int, std::size_t>> lines;
    std::vector<named_expression> unsorted;
    for (const auto& [name, value] : *table) {
      SHARDMESH_TRY(size_expression parsed, expression(value, name.str()));
      lines.emplace_back(line_of(value), unsorted.size());
      unsorted.push_back({std::string(name.str()), std::move(parsed)});
    }
    std::sort(lines.begin(), lines.end());
    for (const auto& [line, index] : lines) made.push_back(std::move(unsorted[index]));
    return made;
  }

  template <class Visit>
  result<void> each(const toml::table& document, std::string_view key, const Visit& visit) const {
    const toml::node* const node = document.get(key);
    if (node == nullptr) return {};
    const toml::array* const list = node->as_array();
    if (list == nullptr) return refuse(*node, fmt::format("'{0}' must be a list of tables: write [[{0}]]", key));
    for (const toml::node& one : *list) {
      const toml::table* const table = one.as_table();
      if (table == nullptr) return refuse(one, fmt::format("'{0}' must be a list of tables: write [[{0}]]", key));
      SHARDMESH_TRY(visit(*table));
    }
    return {};
  }

  result<void> renames(const toml::table& document) {
    const toml::node* const node = document.get("rename");
    if (node == nullptr) return {};
    const toml::table* const table = node->as_table();
    if (table == nullptr) return refuse(*node, "'rename' must be a table of names");
    for (const auto& [left, right] : *table) {
      SHARDMESH_TRY(const std::string written, text(right, left.str()));
      SHARDMESH_TRY(name_template from, at(right, name_template::parse(left.str())));
      SHARDMESH_TRY(name_template to, at(right, name_template::parse(written)));
      mapping_rule made;
      made.name = std::string(left.str());
      made.left.push_back({"x", std::move(from)});
      made.right.push_back({"x", std::move(to)});
      made.line = line_of(right);
      made_.rules.push_back(std::move(made));
    }
    return {};
  }

  // Reads the names of one side: a table of aliases, or one string for the only tensor.
  result<std::vector<named_tensor>> side(const toml::table& table, std::string_view key,
                                         const std::vector<index_tensor>& tensors) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return refuse(table, fmt::format("the key '{}' is missing", key));
    std::vector<named_tensor> made;
    if (node->is_string()) {
      if (tensors.size() > 1)
        return refuse(*node, fmt::format("'{}' must be a table: the index expression has several tensors", key));
      SHARDMESH_TRY(name_template name, name_of(table, key));
      made.push_back({tensors.empty() ? "x" : tensors[0].alias, std::move(name)});
      return made;
    }
    const toml::table* const names = node->as_table();
    if (names == nullptr) return refuse(*node, fmt::format("'{}' must be a string, or a table of strings", key));
    if (tensors.empty()) return refuse(*node, "a rule of several tensors needs the key 'index'");
    for (const index_tensor& tensor : tensors) {
      if (!names->contains(tensor.alias))
        return refuse(*names, fmt::format("the name of '{}' of the index expression is missing", tensor.alias));
      SHARDMESH_TRY(name_template name, name_of(*names, tensor.alias));
      made.push_back({tensor.alias, std::move(name)});
    }
    for (const auto& [alias, name] : *names) {
      const bool is_known = std::any_of(tensors.begin(), tensors.end(),
                                        [&](const index_tensor& tensor) { return tensor.alias == alias.str(); });
      if (!is_known) return refuse(name, fmt::format("'{}' is not a tensor of the index expression", alias.str()));
    }
    return made;
  }

  result<void> rule(const toml::table& table) {
    SHARDMESH_TRY(check_keys(table, {"name", "left", "right", "index", "values", "if", "optional"}));
    mapping_rule made;
    made.line = line_of(table);
    if (const toml::node* const index = table.get("index")) {
      SHARDMESH_TRY(const std::string written, text(*index, "index"));
      SHARDMESH_TRY(made.index, at(*index, parse_index_rule(written)));
    }
    SHARDMESH_TRY(made.left, side(table, "left", made.index.left));
    SHARDMESH_TRY(made.right, side(table, "right", made.index.right));
    made.name = made.left[0].name.text();
    if (table.contains("name")) {
      SHARDMESH_TRY(made.name, text_of(table, "name"));
    }
    SHARDMESH_TRY(made.condition, condition_of(table));
    if (const toml::node* const optional = table.get("optional")) {
      const auto value = optional->value_exact<bool>();
      if (!value) return refuse(*optional, "'optional' must be true or false");
      made.is_optional = *value;
    }
    if (const toml::node* const values = table.get("values")) {
      const toml::array* const list = values->as_array();
      if (list == nullptr) return refuse(*values, "'values' must be a list of operations");
      for (const toml::node& one : *list) {
        SHARDMESH_TRY(const std::string written, text(one, "values"));
        SHARDMESH_TRY(value_step step, at(one, parse_value_step(written)));
        made.values.push_back(step);
      }
    }
    made_.rules.push_back(std::move(made));
    return {};
  }

  result<void> ignore(const toml::table& table) {
    SHARDMESH_TRY(check_keys(table, {"side", "name", "reason", "if"}));
    SHARDMESH_TRY(const bool left, is_left(table));
    SHARDMESH_TRY(name_template name, name_of(table, "name"));
    SHARDMESH_TRY(std::string reason, text_of(table, "reason"));
    SHARDMESH_TRY(auto condition, condition_of(table));
    made_.ignored.push_back({std::move(name), std::move(reason), std::move(condition), left, line_of(table)});
    return {};
  }

  result<void> tie(const toml::table& table) {
    SHARDMESH_TRY(check_keys(table, {"side", "name", "same_as", "if"}));
    SHARDMESH_TRY(const bool left, is_left(table));
    SHARDMESH_TRY(name_template name, name_of(table, "name"));
    SHARDMESH_TRY(name_template same_as, name_of(table, "same_as"));
    SHARDMESH_TRY(auto condition, condition_of(table));
    made_.tied.push_back({std::move(name), std::move(same_as), std::move(condition), left, line_of(table)});
    return {};
  }

  result<void> refused_model(const toml::table& table) {
    SHARDMESH_TRY(check_keys(table, {"if", "reason"}));
    SHARDMESH_TRY(std::string reason, text_of(table, "reason"));
    SHARDMESH_TRY(auto condition, condition_of(table));
    if (!condition) return refuse(table, "the key 'if' is missing");
    made_.refused.push_back({std::move(reason), *std::move(condition), line_of(table)});
    return {};
  }

  result<void> optimizer(const toml::table& document) {
    const toml::node* const node = document.get("optimizer");
    if (node == nullptr) return {};
    const toml::table* const table = node->as_table();
    if (table == nullptr) return refuse(*node, "'optimizer' must be a table: write [optimizer]");
    SHARDMESH_TRY(check_keys(*table, {"values"}));
    SHARDMESH_TRY(const std::string values, text_of(*table, "values"));
    if (values != "refuse" && values != "keep")
      return refuse(*table->get("values"), "the treatment of optimizer state is unknown", "refuse or keep", values);
    made_.optimizer_values = values == "keep" ? state_values::keep : state_values::refuse;
    return {};
  }

  mapping_rules made_;
};

}  // namespace

result<mapping_rules> parse_mapping(std::string_view text, std::string_view file) {
  if (auto danger = find_dangerous_toml(text)) return (*std::move(danger)).with_file(file);
  const toml::parse_result parsed = toml::parse(text, file);
  if (!parsed) {
    const auto& begin = parsed.error().source().begin;
    return fail(errc::bad_format, fmt::format("line {}, column {}: {}", begin.line, begin.column,
                                              std::string_view(parsed.error().description())))
        .with_file(file);
  }
  return mapping_parser(file).run(parsed.table());
}

result<mapping_rules> read_mapping(const std::filesystem::path& file) {
  SHARDMESH_TRY(const auto bytes, read_file(file, most_file_bytes));
  return parse_mapping({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
}

}  // namespace shardmesh
