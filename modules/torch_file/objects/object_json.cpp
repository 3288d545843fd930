// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :numpy_value;

namespace shardmesh::torch_file {
namespace {

constexpr std::int64_t plain_integer_limit = std::int64_t{1} << 53;  // JSON readers keep integers exact up to here

/// Cost of printing a huge integer. Its digits take time in the square of their number, each time it is printed.
std::size_t number_cost(const pickle::value& value) {
  return value.as_int() ? 0 : value.decimal().value_or("").size() * 16;
}

/// Prints one value without recursion. `max_depth` bounds the depth, `limit_bytes` the output.
class printer {
 public:
  printer(const byte_source& source, const torch_file::item& item, const object_json_options& options)
      : source_(source),
        item_(item),
        options_(options),
        tensor_budget_(std::min(source.size_bytes(), std::int64_t{1} << 50) * 64 + (std::int64_t{1} << 30)) {}

  result<void> print(const pickle::value& value);
  std::string out;

 private:
  // Charges the budget for the text printed since the last call, and for `copied` further bytes.
  result<void> pay(std::size_t copied = 0);
  struct element {
    std::optional<std::int64_t> number;
    std::string text;
  };
  // A composite value that is being printed.
  struct frame {
    pickle::value value;
    pickle::items items;  // of sequences and sets
    pickle::pairs pairs;
    bool is_mapping = false, is_set = false;
    std::size_t next = 0, count = 0;  // parts: items, or alternating keys and values
    std::size_t begin = 0;            // start of the first part in `out`
    std::size_t element_at = 0;       // start of the part opened last
    std::vector<element> elements;    // of a set
    std::string_view closing;
  };
  // Prints a value without parts, or opens one with parts.
  result<void> open(const pickle::value& value);
  void open_composite(const pickle::value& value, object_kind kind);
  result<void> step();
  void sort_elements(frame& set);
  result<void> print_tensor(std::size_t index);
  void print_integer(const pickle::value& value);
  void print_other(const pickle::value& value, const std::string& type);
  void tagged(std::string_view tag, std::string_view text) {
    out += "{\"" + std::string(tag) + "\":" + json_quoted(text) + "}";
  }

  const byte_source& source_;
  const item& item_;
  const object_json_options& options_;
  std::int64_t tensor_budget_;
  std::size_t paid_ = 0;     // position in `out` up to which text is charged
  std::vector<frame> open_;  // the composites around the current value
  std::unordered_map<std::size_t, std::string> tensors_;
};

void printer::print_integer(const pickle::value& value) {
  const auto number = value.as_int();
  if (number && *number > -plain_integer_limit && *number < plain_integer_limit) {
    out += std::to_string(*number);
  } else if (const auto digits = value.decimal()) {
    tagged("$int", *digits);
  } else {
    tagged("$other", "builtins.int");
  }
}

// Prints the type first: the golden test data has nothing but the type, so a comparison with it can stop there.
void printer::print_other(const pickle::value& value, const std::string& type) {
  out += "{\"$other\":" + json_quoted(type);
  if (const auto bounds = range_of(value))
    out += fmt::format(",\"range\":[{},{},{}]", (*bounds)[0], (*bounds)[1], (*bounds)[2]);
  else if (const auto numpy = numpy_value_of(value))
    out += "," + numpy_members(*numpy);
  else if (const auto name = global_text(value))
    out += ",\"name\":" + json_quoted(*name);
  out += '}';
}

result<void> printer::pay(std::size_t copied) {
  if (static_cast<std::int64_t>(out.size()) > options_.limit_bytes)
    return beyond_limit("an object is too long as JSON: shared parts are printed each time", options_.limit_bytes);
  const std::size_t printed = out.size() > paid_ ? out.size() - paid_ : 0;
  paid_ = out.size();
  if (options_.budget == nullptr || printed + copied == 0) return {};
  // The factor 4 accounts for time: making text costs more than storing it.
  return options_.budget->build(static_cast<std::int64_t>(printed + copied) * 4);
}

result<void> printer::open(const pickle::value& value) {
  SHARDMESH_TRY(pay());
  const object_class found = classify(item_, value);
  switch (found.kind) {
    case object_kind::none:
      out += "null";
      return {};
    case object_kind::boolean:
      out += *value.as_bool() ? "true" : "false";
      return {};
    case object_kind::integer:
      print_integer(value);
      return pay(number_cost(value));
    case object_kind::floating:
      return tagged("$float", float_hex(*value.as_float())), result<void>{};
    case object_kind::complex: {
      const pickle::items parts = value.args().items();
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
      const pickle::items parts = value.args().items();
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
  const auto inside = std::find_if(open_.rbegin(), open_.rend(),
                                   [&value](const frame& outer) { return outer.value.identity() == value.identity(); });
  if (inside != open_.rend()) {
    out += fmt::format("{{\"$ref\":{}}}", inside - open_.rbegin() + 1);
    return {};
  }
  if (open_.size() >= static_cast<std::size_t>(options_.max_depth))
    return fail(errc::unsupported, fmt::format("an object is nested deeper than {} levels", options_.max_depth));
  return open_composite(value, found.kind), result<void>{};
}

void printer::open_composite(const pickle::value& value, object_kind kind) {
  frame made;
  made.value = value;
  std::string_view tag;
  switch (kind) {
    case object_kind::list:
    case object_kind::tuple:
    case object_kind::size:
      tag = kind == object_kind::list ? "" : kind == object_kind::tuple ? "$tuple" : "$size";
      made.items = sequence_items(value);
      break;
    case object_kind::set:
    case object_kind::frozenset:
      tag = kind == object_kind::set ? "$set" : "$frozenset";
      made.items = sequence_items(value);
      made.is_set = true;
      break;
    default:
      tag = kind == object_kind::odict ? "$odict" : "$dict";
      made.pairs = kind == object_kind::odict ? mapping_entries(value).pairs() : value.pairs();
      made.is_mapping = true;
  }
  made.count = made.is_mapping ? 2 * made.pairs.size() : made.items.size();
  made.closing = tag.empty() ? "]" : "]}";
  if (!tag.empty()) out += "{\"" + std::string(tag) + "\":";
  out += '[';
  made.begin = out.size();
  open_.push_back(std::move(made));
}

// Orders a set's elements so that equal sets print equally: integers by value, then the others by their text.
void printer::sort_elements(frame& set) {
  std::sort(set.elements.begin(), set.elements.end(), [](const element& a, const element& b) {
    if (a.number.has_value() != b.number.has_value()) return a.number.has_value();
    return a.number != b.number ? a.number < b.number : a.text < b.text;
  });
  out.resize(set.begin);
  for (std::size_t i = 0; i < set.elements.size(); ++i) (out += i > 0 ? "," : "") += set.elements[i].text;
  paid_ = out.size();
}

// Prints the next part of the innermost composite, or its end.
result<void> printer::step() {
  frame& now = open_.back();
  if (now.is_set && now.next > 0) {
    SHARDMESH_TRY(pay(2 * (out.size() - now.element_at)));
    now.elements.push_back({now.items[now.next - 1].as_int(), out.substr(now.element_at)});
  }
  const std::size_t i = now.next;
  if (i == now.count) {
    if (now.is_set) sort_elements(now);
    if (now.is_mapping && i > 0) out += ']';
    out += now.closing;
    open_.pop_back();
    return {};
  }
  ++now.next;
  if (now.is_mapping) {
    out += i % 2 == 1 ? "," : i > 0 ? "],[" : "[";
    return open(i % 2 == 0 ? now.pairs[i / 2].key : now.pairs[i / 2].value);
  }
  if (i > 0 && !now.is_set) out += ',';
  now.element_at = out.size();
  return open(now.items[i]);
}

result<void> printer::print(const pickle::value& value) {
  SHARDMESH_TRY(open(value));
  while (!open_.empty()) SHARDMESH_TRY(step());
  return {};
}

result<void> printer::print_tensor(std::size_t index) {
  if (const auto known = tensors_.find(index); known != tensors_.end()) return out += known->second, result<void>{};
  const torch_file::tensor& tensor = item_.tensors()[index];
  // Views may repeat elements, so a small hostile item could demand any amount of work.
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

result<std::string> object_json(const byte_source& source, const torch_file::item& item, const pickle::value& value,
                                const object_json_options& options) {
  printer made(source, item, options);
  auto printed = made.print(value);
  if (!printed) {
    error problem = std::move(printed).error();
    return problem.file.empty() ? std::move(problem).with_file(source.name()) : problem;
  }
  return std::move(made.out);
}

}  // namespace shardmesh::torch_file
