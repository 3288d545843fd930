// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.pickle;

namespace shardmesh::pickle {
namespace {

/// Encodes a str with one byte per character, when all characters are below 256.
std::optional<std::string> latin1(std::string_view utf8) {
  std::string out;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      out += utf8[i];
    } else if ((c == 0xc2 || c == 0xc3) && i + 1 < utf8.size()) {
      out += static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::string plain_bytes(const pickle::value& value) {
  const auto bytes = *value.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// Source: _compat_pickle
std::pair<std::string_view, std::string_view> python3_name(const value& global) {
  std::string_view module_name = global.global_module(), name = global.global_name();
  if (module_name == "copy_reg") module_name = "copyreg";
  if (module_name == "__builtin__") {
    module_name = "builtins";
    if (name == "long") name = "int";
    if (name == "unicode" || name == "basestring") name = "str";
    if (name == "xrange") name = "range";
  }
  return {module_name, name};
}

std::string type_name(value global) {
  // PyTorch's oldest files store a class with its source text: ("module", class, file, text).
  if (const items id = global.persistent_id().items(); id.size() == 4 && id[0].text() == "module") global = id[1];
  // Protocols 0 to 3 write a class in a class as getattr(class, name).
  constexpr int most_levels = 16;
  constexpr std::size_t most_name = 512;
  std::string below;
  for (int level = 0; level < most_levels && is_builtin(global, "getattr"); ++level) {
    const auto attribute = argument_of(global, 1).text();
    if (!attribute || attribute->size() > most_name) return "unknown";
    below.insert(0, "." + std::string(*attribute));
    global = argument_of(global, 0);
  }
  if (global.kind() != kind::global) return "unknown";
  const auto [module_name, attribute] = python3_name(global);
  return std::string(module_name) + "." + std::string(attribute) + below;
}

bool is_builtin(const value& record, std::string_view name) {
  const value callable = record.callable();
  return callable.kind() == kind::global && python3_name(callable) == std::pair(std::string_view("builtins"), name);
}

value argument_of(const value& record, std::size_t i) {
  const items given = record.args().items();
  return i < given.size() ? given[i] : value();
}

bool is_ordered_dict(const pickle::value& value) {
  return value.is_record_of("collections", "OrderedDict") && value.args().size() == 0;
}

bool is_mapping(const pickle::value& value) {
  if (value.kind() == kind::dict || is_ordered_dict(value)) return true;
  return value.is_record_of("collections", "defaultdict") || value.is_record_of("collections", "Counter");
}

value mapping_entries(const pickle::value& value) {
  if (value.kind() == kind::dict) return value;
  if (value.is_record_of("collections", "Counter") && argument_of(value, 0).kind() == kind::dict)
    return argument_of(value, 0);
  return is_mapping(value) ? value.assigned() : pickle::value();
}

items sequence_items(const pickle::value& value) {
  if (value.kind() != kind::record) return value.items();
  const bool known = is_builtin(value, "set") || is_builtin(value, "frozenset") || value.is_record_of("torch", "Size");
  return known ? argument_of(value, 0).items() : items();
}

std::optional<std::string> bytes_of(const pickle::value& value) {
  if (value.bytes()) return plain_bytes(value);
  if (value.kind() != kind::record) return std::nullopt;
  const pickle::value content = argument_of(value, 0);
  const bool encoded = value.is_record_of("_codecs", "encode");
  if (!encoded && !is_builtin(value, "bytes") && !is_builtin(value, "bytearray")) return std::nullopt;
  if (!content && !encoded) return std::string();
  if (content.bytes() && !encoded) return plain_bytes(content);
  const std::string_view encoding = argument_of(value, 1).text().value_or("");
  if (!content.text() || (encoding != "latin1" && encoding != "latin-1")) {
    // bytearray(_codecs.encode(...)): only one level, so that hostile nesting costs nothing.
    if (!encoded && content.is_record_of("_codecs", "encode")) return bytes_of(content);
    return std::nullopt;
  }
  return latin1(*content.text());
}

std::optional<std::array<std::int64_t, 3>> range_of(const pickle::value& value) {
  const items args = value.args().items();
  if (!is_builtin(value, "range") || args.size() != 3) return std::nullopt;
  const auto start = args[0].as_int(), stop = args[1].as_int(), step = args[2].as_int();
  if (!start || !stop || !step) return std::nullopt;
  return std::array{*start, *stop, *step};
}

std::optional<std::string> global_text(const pickle::value& value) {
  if (value.kind() == kind::global) return type_name(value);
  const auto attribute = argument_of(value, 1).text();
  if (!is_builtin(value, "getattr") || !attribute) return std::nullopt;
  const std::string owner = type_name(argument_of(value, 0));
  return owner == "unknown" ? std::nullopt : std::optional(owner + "." + std::string(*attribute));
}

}  // namespace shardmesh::pickle
