// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :numpy_value;

namespace shardmesh {
namespace {

constexpr std::int64_t plain_integer_limit = std::int64_t{1} << 53;  // JSON readers keep integers exact up to here

/// Prints one value; recursion is bounded by `max_depth`, output by `limit_bytes`.
class printer {
 public:
  printer(const byte_source& source, const torch_item& item, const object_json_options& options)
      : source_(source),
        item_(item),
        options_(options),
        tensor_budget_(std::min(source.size_bytes(), std::int64_t{1} << 50) * 64 + (std::int64_t{1} << 30)) {}

  result<void> print(const pickle_value& value);
  std::string out;

 private:
  result<void> print_items(std::string_view tag, const pickle_items& items);
  result<void> print_set(std::string_view tag, const pickle_items& items);
  result<void> print_pairs(std::string_view tag, const pickle_pairs& pairs);
  result<void> print_tensor(std::size_t index);
  result<void> print_composite(const pickle_value& value, object_kind kind);
  void print_integer(const pickle_value& value);
  void print_other(const pickle_value& value, const std::string& type);
  void tagged(std::string_view tag, std::string_view text) {
    out += "{\"" + std::string(tag) + "\":" + json_quoted(text) + "}";
  }

  const byte_source& source_;
  const torch_item& item_;
  const object_json_options& options_;
  std::int64_t tensor_budget_;
  std::vector<std::uint64_t> open_;  // the composites that the current value lies in
  std::unordered_map<std::size_t, std::string> tensors_;
};

void printer::print_integer(const pickle_value& value) {
  const auto number = value.as_int();
  if (number && *number > -plain_integer_limit && *number < plain_integer_limit) {
    out += std::to_string(*number);
  } else if (const auto digits = value.decimal()) {
    tagged("$int", *digits);
  } else {
    tagged("$other", "builtins.int");
  }
}

// The type comes first: PyTorch's golden data knows no more of these, and readers of it need not look further.
void printer::print_other(const pickle_value& value, const std::string& type) {
  out += "{\"$other\":" + json_quoted(type);
  if (const auto bounds = range_of(value))
    out += fmt::format(",\"range\":[{},{},{}]", (*bounds)[0], (*bounds)[1], (*bounds)[2]);
  else if (const auto numpy = numpy_value_of(value))
    out += "," + numpy_members(*numpy);
  else if (const auto name = global_text(value))
    out += ",\"name\":" + json_quoted(*name);
  out += '}';
}

result<void> printer::print(const pickle_value& value) {
  if (static_cast<std::int64_t>(out.size()) > options_.limit_bytes)
    return fail(errc::unsupported, fmt::format("an object is longer than {} bytes of JSON", options_.limit_bytes));
  const object_class found = classify(item_, value);
  switch (found.kind) {
    case object_kind::none:
      out += "null";
      return {};
    case object_kind::boolean:
      out += *value.as_bool() ? "true" : "false";
      return {};
    case object_kind::integer:
      return print_integer(value), result<void>{};
    case object_kind::floating:
      return tagged("$float", float_hex(*value.as_float())), result<void>{};
    case object_kind::complex: {
      const pickle_items parts = value.args().items();
      out += "{\"$complex\":[" + json_quoted(float_hex(*parts[0].as_float())) + "," +
             json_quoted(float_hex(*parts[1].as_float())) + "]}";
      return {};
    }
    case object_kind::str:
      if (is_utf8(*value.text()))
        out += json_quoted(*value.text());
      else
        tagged("$str", hex_digits(*value.text()));
      return {};
    case object_kind::bytes:
      return tagged("$bytes", hex_digits(*bytes_of(value))), result<void>{};
    case object_kind::bytearray:
      return tagged("$bytearray", hex_digits(*bytes_of(value))), result<void>{};
    case object_kind::dtype:
      return tagged("$dtype", value.global_name()), result<void>{};
    case object_kind::device: {
      const pickle_items parts = value.args().items();
      std::string text(*parts[0].text());
      if (const auto index = parts.size() > 1 ? parts[1].as_int() : std::nullopt) text += ":" + std::to_string(*index);
      return tagged("$device", text), result<void>{};
    }
    case object_kind::tensor:
      return print_tensor(*item_.tensor_of(value));
    case object_kind::global:
    case object_kind::opaque:
      return print_other(value, found.type), result<void>{};
    case object_kind::opaque_tensor:
      return tagged("$other", found.type), result<void>{};
    default:
      break;
  }
  const auto inside = std::find(open_.rbegin(), open_.rend(), value.identity());
  if (inside != open_.rend()) {
    out += fmt::format("{{\"$ref\":{}}}", inside - open_.rbegin() + 1);
    return {};
  }
  if (open_.size() >= static_cast<std::size_t>(options_.max_depth))
    return fail(errc::unsupported, fmt::format("an object is nested deeper than {} levels", options_.max_depth));
  open_.push_back(value.identity());
  SHARDMESH_CHECK(print_composite(value, found.kind));
  open_.pop_back();
  return {};
}

result<void> printer::print_composite(const pickle_value& value, object_kind kind) {
  switch (kind) {
    case object_kind::list:
      return print_items("", value.items());
    case object_kind::tuple:
      return print_items("$tuple", value.items());
    case object_kind::size:
      return print_items("$size", sequence_items(value));
    case object_kind::set:
      return print_set("$set", sequence_items(value));
    case object_kind::frozenset:
      return print_set("$frozenset", sequence_items(value));
    case object_kind::odict:
      return print_pairs("$odict", mapping_entries(value).pairs());
    default:
      return print_pairs("$dict", value.pairs());
  }
}

result<void> printer::print_items(std::string_view tag, const pickle_items& items) {
  if (!tag.empty()) out += "{\"" + std::string(tag) + "\":";
  out += '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    SHARDMESH_CHECK(print(items[i]));
  }
  out += tag.empty() ? "]" : "]}";
  return {};
}

// Sets have no order of their own: integers by value, then the rest by its text, so that equal sets print equally.
result<void> printer::print_set(std::string_view tag, const pickle_items& items) {
  struct element {
    std::optional<std::int64_t> number;
    std::string text;
  };
  std::vector<element> elements;
  const std::string before = std::move(out);
  std::int64_t total = static_cast<std::int64_t>(before.size());
  for (const pickle_value item : items) {
    out.clear();
    SHARDMESH_CHECK(print(item));
    total += static_cast<std::int64_t>(out.size());
    if (total > options_.limit_bytes) return fail(errc::unsupported, "an object is too long as JSON");
    elements.push_back({item.as_int(), out});
  }
  std::sort(elements.begin(), elements.end(), [](const element& a, const element& b) {
    if (a.number.has_value() != b.number.has_value()) return a.number.has_value();
    return a.number != b.number ? a.number < b.number : a.text < b.text;
  });
  out = before + "{\"" + std::string(tag) + "\":[";
  for (std::size_t i = 0; i < elements.size(); ++i) out += (i > 0 ? "," : "") + elements[i].text;
  out += "]}";
  return {};
}

result<void> printer::print_pairs(std::string_view tag, const pickle_pairs& pairs) {
  out += "{\"" + std::string(tag) + "\":[";
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    out += i > 0 ? ",[" : "[";
    SHARDMESH_CHECK(print(pairs[i].key));
    out += ',';
    SHARDMESH_CHECK(print(pairs[i].value));
    out += ']';
  }
  out += "]}";
  return {};
}

result<void> printer::print_tensor(std::size_t index) {
  if (const auto known = tensors_.find(index); known != tensors_.end()) return out += known->second, result<void>{};
  const torch_tensor& tensor = item_.tensors()[index];
  // A view may repeat elements, so a small hostile item could ask for any amount of work.
  tensor_budget_ -= *size_bytes(tensor.type, *checked_volume(tensor.sizes));
  tensor_budget_ -= item_.storages()[tensor.storage].size_bytes;
  if (tensor_budget_ < 0) return fail(errc::unsupported, "an object's tensors are too large");
  SHARDMESH_TRY(const auto bytes, read_tensor(source_, item_, index, options_.tensor_limit_bytes));
  std::string shape;
  for (const std::int64_t size : tensor.sizes) shape += (shape.empty() ? "" : ",") + std::to_string(size);
  std::string text = fmt::format("{{\"$tensor\":{{\"dtype\":\"{}\",\"shape\":[{}],\"sha256\":\"{}\"}}}}",
                                 name(tensor.type), shape, sha256::hex_of(bytes));
  out += text;
  tensors_.emplace(index, std::move(text));
  return {};
}

}  // namespace

result<std::string> object_json(const byte_source& source, const torch_item& item, const pickle_value& value,
                                const object_json_options& options) {
  printer made(source, item, options);
  auto printed = made.print(value);
  if (!printed) {
    error problem = std::move(printed).take_error();
    return problem.file.empty() ? std::move(problem).with_file(source.name()) : problem;
  }
  return std::move(made.out);
}

bool is_whole_json(std::string_view json) {
  if (json.find("{\"$tensor\":") != std::string_view::npos) return false;
  constexpr std::string_view other = "{\"$other\":\"";
  for (std::size_t at = json.find(other); at != std::string_view::npos; at = json.find(other, at)) {
    // Quotes inside of a JSON string are escaped, so neither these tags nor the ends of names occur in one.
    at += other.size();
    while (at < json.size() && json[at] != '"') at += json[at] == '\\' ? 2 : 1;
    const std::string_view rest = json.substr(std::min(at, json.size()));
    if (!rest.starts_with("\",\"range\":") && !rest.starts_with("\",\"dtype\":")) return false;
  }
  return true;
}

std::string hex_digits(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string float_hex(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const auto biased = static_cast<int>(bits >> 52 & 0x7ff);
  const std::string_view sign = bits >> 63 != 0 ? "-" : "";
  if (biased == 0 && mantissa == 0) return fmt::format("{}0x0.0p+0", sign);
  return fmt::format("{}0x{}.{:013x}p{:+d}", sign, biased == 0 ? 0 : 1, mantissa, biased == 0 ? -1022 : biased - 1023);
}

}  // namespace shardmesh
