// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

// The Rust writer's order of dtypes, last first; header.cpp has the names.
int writer_rank(dtype type) {
  constexpr std::string_view order[] = {
      "BOOL", "F4",  "F6_E2M3", "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
      "I16",  "U16", "F16",     "BF16",    "I32", "U32", "F32",     "C64",     "F64",     "I64",         "U64"};
  return static_cast<int>(std::find(std::begin(order), std::end(order), dtype_name(type)) - std::begin(order));
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump();
}

// Returns true when the product of sizes overflows, even before a size of 0: readers refuse such a shape.
bool overflows(const extents& shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) return true;
  return false;
}

struct file_shape {
  extents shape;  // as in the file
  std::int64_t bytes = 0;
};

// Returns the shape and size in the file, or the reason why there is none.
result<file_shape> shape_in_file(const safetensors::tensor& tensor) {
  const auto bad = [&](errc code, std::string message) { return fail(code, std::move(message)).with_key(tensor.name); };
  if (!can_hold(tensor.type))
    return bad(errc::unsupported, fmt::format("safetensors cannot hold {}", name(tensor.type)));
  file_shape made{tensor.shape, 0};
  if (tensor.type == dtype::float4_e2m1fn_x2) {
    if (made.shape.empty()) return bad(errc::unsupported, "safetensors cannot hold a scalar of float4_e2m1fn_x2");
    const auto doubled = checked_multiply(made.shape[made.shape.rank() - 1], 2);
    if (!doubled) return bad(errc::overflow, fmt::format("{} is too large", to_string(tensor.shape)));
    made.shape[made.shape.rank() - 1] = *doubled;
  }
  const auto count = checked_volume(made.shape);
  const dtype stored = tensor.type == dtype::float4_e2m1fn_x2 ? dtype::float4_e2m1fn : tensor.type;
  const auto bit_count = count ? checked_multiply(*count, bits(stored)) : std::nullopt;
  if (!bit_count || overflows(made.shape))
    return bad(errc::overflow,
               fmt::format("{} of {} does not fit in 64 bits", name(tensor.type), to_string(tensor.shape)));
  if (*bit_count % 8 != 0)
    return bad(errc::unsupported,
               fmt::format("{} of {} is not a whole number of bytes", name(tensor.type), to_string(tensor.shape)));
  made.bytes = *bit_count / 8;
  return made;
}

std::optional<error> problem_of(const safetensors::tensor& tensor) {
  const auto bad = [&](errc code, std::string message) { return fail(code, std::move(message)).with_key(tensor.name); };
  if (tensor.name == "__metadata__")
    return bad(errc::unsupported, "is a reserved name of safetensors").with_hint("rename it");
  if (!is_utf8(tensor.name)) return bad(errc::unsupported, "the name is not UTF-8, which safetensors needs");
  if (auto shape = shape_in_file(tensor); !shape) return std::move(shape).error();
  return std::nullopt;
}

result<void> check_metadata(std::span<const std::pair<std::string, std::string>> metadata) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value))
      return fail(errc::unsupported, fmt::format("the metadata of {} is not UTF-8", key));
    if (!seen.insert(key).second) return fail(errc::duplicate_key, fmt::format("the metadata names {} twice", key));
  }
  return {};
}

}  // namespace

std::vector<error> problems_of(std::span<const tensor> tensors) {
  std::vector<error> problems;
  std::unordered_map<std::string_view, int> seen;
  for (const safetensors::tensor& tensor : tensors) {
    if (auto problem = problem_of(tensor)) problems.push_back(*std::move(problem));
    if (++seen[tensor.name] == 2) problems.push_back(fail(errc::duplicate_key, "is given twice").with_key(tensor.name));
  }
  return problems;
}

result<file_layout> layout_file(std::span<const tensor> tensors,
                                std::span<const std::pair<std::string, std::string>> metadata) {
  if (auto problems = problems_of(tensors); !problems.empty()) {
    error first = std::move(problems.front());
    constexpr std::size_t most = 100;
    for (std::size_t i = 1; i < std::min(problems.size(), most); ++i)
      first.message += fmt::format("{} {}", i == 1 ? "; also" : ",", problems[i].key);
    if (problems.size() > most) first.message += fmt::format(" and {} more", problems.size() - most);
    return first;
  }
  SHARDMESH_TRY(check_metadata(metadata));

  file_layout layout;
  layout.begins.resize(tensors.size());
  layout.order.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) layout.order[i] = i;
  std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    const int a_rank = writer_rank(tensors[a].type), b_rank = writer_rank(tensors[b].type);
    return a_rank != b_rank ? a_rank > b_rank : tensors[a].name < tensors[b].name;
  });

  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += fmt::format("{}:{},", json_text(key), json_text(value));
    json.back() = '}';
    json += ',';
  }
  std::int64_t end = 0;
  for (const std::size_t i : layout.order) {
    SHARDMESH_TRY(const file_shape shape, shape_in_file(tensors[i]));
    layout.begins[i] = end;
    const auto next = checked_add(end, shape.bytes);
    if (!next) return fail(errc::overflow, "the tensors do not fit in one file").with_key(tensors[i].name);
    std::string sizes;
    for (const std::int64_t size : shape.shape) sizes += fmt::format("{}{}", sizes.empty() ? "" : ",", size);
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", json_text(tensors[i].name),
                        dtype_name(tensors[i].type), sizes, end, *next);
    end = *next;
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (static_cast<std::int64_t>(json.size()) > max_header_bytes)
    return fail(errc::unsupported, "the header would be too long for readers of safetensors")
        .with_values(fmt::format("at most {} bytes", max_header_bytes), fmt::format("{}", json.size()))
        .with_hint("split the tensors over several files");

  for (std::size_t at = 0; at < 8; ++at) layout.header += static_cast<char>(json.size() >> (8 * at) & 0xFF);
  layout.header += json;
  const auto header_bytes = static_cast<std::int64_t>(layout.header.size());
  const auto total = checked_add(end, header_bytes);
  if (!total) return fail(errc::overflow, "the tensors do not fit in one file");
  for (std::int64_t& begin : layout.begins) begin += header_bytes;
  layout.size_bytes = *total;
  return layout;
}

}  // namespace shardmesh::safetensors
