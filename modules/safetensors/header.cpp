// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <plural.hpp>
#include <position_table.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :usual_header;

namespace shardmesh::safetensors {
namespace {

struct spelling {
  std::string_view name;
  dtype type;
};
// The names of dtypes, in the order of safetensors' Dtype enum, which its writer uses: smallest alignment first.
constexpr auto spellings = std::to_array<spelling>({
    {"BOOL", dtype::boolean},
    {"F4", dtype::float4_e2m1fn},
    {"F6_E2M3", dtype::float6_e2m3},
    {"F6_E3M2", dtype::float6_e3m2},
    {"U8", dtype::uint8},
    {"I8", dtype::int8},
    {"F8_E5M2", dtype::float8_e5m2},
    {"F8_E4M3", dtype::float8_e4m3fn},
    {"F8_E8M0", dtype::float8_e8m0fnu},
    {"F8_E4M3FNUZ", dtype::float8_e4m3fnuz},
    {"F8_E5M2FNUZ", dtype::float8_e5m2fnuz},
    {"I16", dtype::int16},
    {"U16", dtype::uint16},
    {"F16", dtype::float16},
    {"BF16", dtype::bfloat16},
    {"I32", dtype::int32},
    {"U32", dtype::uint32},
    {"F32", dtype::float32},
    {"C64", dtype::complex64},
    {"F64", dtype::float64},
    {"I64", dtype::int64},
    {"U64", dtype::uint64},
});

// Returns the dtype of that name; F4 is float4_e2m1fn here.
std::optional<dtype> parse_dtype_name(std::string_view text) {
  for (const spelling& s : spellings)
    if (s.name == text) return s.type;
  return std::nullopt;
}

// Returns true when the product of sizes overflows, even before a size of 0, as in the Rust package.
bool overflows(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) return true;
  return false;
}

result<entry> check_entry(raw_entry& raw, std::int64_t data_begin) {
  const auto bad = [&](errc code, std::string message) { return fail(code, std::move(message)).with_key(raw.name); };
  const auto type = parse_dtype_name(raw.type);
  if (!type) return bad(errc::unsupported, fmt::format("has the unknown dtype {}", raw.type));
  const auto [begin, end] = raw.offsets;
  safetensors::entry entry{{}, *type, extents(std::span(raw.shape.data(), raw.rank)), 0, 0};
  const auto count = checked_volume(entry.shape);
  const auto bit_count = count ? checked_multiply(*count, bits(*type)) : std::nullopt;
  if (!bit_count || overflows(entry.shape))
    return bad(errc::overflow, fmt::format("{} of {} does not fit in 64 bits", raw.type, to_string(entry.shape)));
  if (*bit_count % 8 != 0)
    return bad(errc::bad_format,
               fmt::format("{} of {} is not a whole number of bytes", raw.type, to_string(entry.shape)));
  if (end < begin) return bad(errc::bad_format, fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (end - begin != *bit_count / 8)
    return bad(errc::bad_format,
               fmt::format("{} of {} does not fit its data_offsets", raw.type, to_string(entry.shape)))
        .with_values(detail::counted(*bit_count / 8, "byte"), fmt::format("{}", end - begin));
  const auto absolute_end = checked_add(end, data_begin);
  if (!absolute_end)
    return bad(errc::overflow, fmt::format("data_offsets end at {}, which does not fit in 64 bits", end));
  entry.begin = begin + data_begin;
  entry.end = *absolute_end;
  // PyTorch's F4 tensors hold two values per byte.
  if (*type == dtype::float4_e2m1fn && raw.rank > 0 && entry.shape[raw.rank - 1] % 2 == 0) {
    entry.type = dtype::float4_e2m1fn_x2;
    entry.shape[raw.rank - 1] /= 2;
  }
  entry.name = std::move(raw.name);
  return entry;
}

// Collects the header while nlohmann-json parses it, without building a document, and detects duplicate keys. A counter
// bounds the depth. Values of unknown fields are skipped, as in the Rust package's reader.
class header_handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit header_handler(std::int64_t data_begin) : data_begin_(data_begin) {}

  std::vector<entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<error> problem;

  bool null() override {
    if (place_ == place::metadata_start) return place_ = place::top, true;  // the same as no __metadata__
    return other_value();
  }
  bool boolean(bool) override { return other_value(); }
  bool number_float(double, const std::string&) override { return other_value(); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool number_integer(std::int64_t value) override {
    if (skipping_ > 0 || place_ == place::unknown) return scalar_done();
    if (place_ == place::shape || place_ == place::offsets)
      return stop(errc::bad_format, fmt::format("{} holds a negative number, {}", field(), value));
    return other_value();
  }
  bool number_unsigned(std::uint64_t value) override {
    if (skipping_ > 0 || place_ == place::unknown) return scalar_done();
    if ((place_ != place::shape && place_ != place::offsets) || !in_array_) return other_value();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return stop(errc::overflow, fmt::format("{} holds {}, which does not fit in 63 bits", field(), value));
    raw_entry& entry = current_;
    const auto number = static_cast<std::int64_t>(value);
    if (place_ == place::shape) {
      if (entry.rank == max_rank)
        return stop(errc::rank_too_large, fmt::format("has more than {} dimensions", max_rank));
      entry.shape[entry.rank++] = number;
    } else {
      if (entry.offset_count == 2) return stop(errc::bad_format, "data_offsets has more than two numbers");
      entry.offsets[entry.offset_count++] = number;
    }
    return true;
  }
  bool string(std::string& value) override {
    if (skipping_ > 0 || place_ == place::unknown) return scalar_done();
    if (place_ == place::metadata_value) {
      metadata.emplace_back(std::move(key_), std::move(value));
      place_ = place::metadata;
      return true;
    }
    if (place_ != place::type) return other_value();
    current_.type = std::move(value);
    place_ = place::entry;
    return true;
  }
  bool key(std::string& name) override {
    if (skipping_ > 0) return true;
    if (place_ == place::top) {
      if (name == "__metadata__" && std::exchange(has_metadata_, true))
        return stop_at(name, errc::duplicate_key, "occurs twice");
      key_ = std::move(name);
      place_ = key_ == "__metadata__" ? place::metadata_start : place::entry_start;
      return true;
    }
    if (place_ == place::metadata) {
      if (!metadata_names_.insert(name).second)
        return stop_at("__metadata__", errc::duplicate_key, fmt::format("has the key {} twice", name));
      key_ = std::move(name);
      place_ = place::metadata_value;
      return true;
    }
    raw_entry& entry = current_;
    bool* seen = nullptr;
    if (name == "dtype")
      seen = &entry.has_type, place_ = place::type;
    else if (name == "shape")
      seen = &entry.has_shape, place_ = place::shape;
    else if (name == "data_offsets")
      seen = &entry.has_offsets, place_ = place::offsets;
    else
      return place_ = place::unknown, true;
    if (*seen) return stop(errc::duplicate_key, fmt::format("has {} twice", name));
    return *seen = true;
  }
  bool start_object(std::size_t) override {
    if (skipping_ > 0 || place_ == place::unknown) return skip_deeper();
    if (place_ == place::before) return place_ = place::top, true;
    if (place_ == place::metadata_start) return place_ = place::metadata, true;
    if (place_ != place::entry_start) return other_value();
    current_ = {};
    current_.name = std::move(key_);
    return place_ = place::entry, true;
  }
  bool end_object() override {
    if (skipping_ > 0) return unskip();
    if (place_ == place::top) return place_ = place::after, true;
    if (place_ == place::metadata) return place_ = place::top, true;
    if (!current_.has_type) return stop(errc::bad_format, "has no dtype");
    if (!current_.has_shape) return stop(errc::bad_format, "has no shape");
    if (!current_.has_offsets) return stop(errc::bad_format, "has no data_offsets");
    auto entry = check_entry(current_, data_begin_);
    if (!entry) return problem = std::move(entry).error(), false;
    entries.push_back(*std::move(entry));
    current_.name.clear();
    return place_ = place::top, true;
  }
  bool start_array(std::size_t) override {
    if (skipping_ > 0 || place_ == place::unknown) return skip_deeper();
    if ((place_ != place::shape && place_ != place::offsets) || in_array_) return other_value();
    return in_array_ = true;
  }
  bool end_array() override {
    if (skipping_ > 0) return unskip();
    if (place_ == place::offsets && current_.offset_count != 2)
      return stop(errc::bad_format, "data_offsets has fewer than two numbers");
    in_array_ = false;
    return place_ = place::entry, true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) override {
    if (!problem)
      problem = fail(errc::bad_format, fmt::format("the header is not JSON at byte {}: {}", position + 8, e.what()));
    return false;
  }

 private:
  enum class place {
    before,
    top,
    metadata_start,
    metadata,
    metadata_value,
    entry_start,
    entry,
    type,
    shape,
    offsets,
    unknown,
    after
  };

  std::string_view field() const {
    switch (place_) {
      case place::type:
        return "dtype";
      case place::shape:
        return "shape";
      case place::offsets:
        return "data_offsets";
      default:
        return "the entry";
    }
  }
  // Handles a value of a type that does not belong here.
  bool other_value() {
    if (skipping_ > 0 || place_ == place::unknown) return scalar_done();
    switch (place_) {
      case place::before:
        return stop(errc::bad_format, "the header is not a JSON object");
      case place::metadata_start:
        return stop_at("__metadata__", errc::bad_format, "is not an object");
      case place::metadata_value:
        return stop_at("__metadata__", errc::bad_format, fmt::format("{} is not a string", key_));
      case place::entry_start:
        return stop_at(key_, errc::bad_format, "is not an object");
      default:
        return stop(errc::bad_format, fmt::format("{} has a value of the wrong type", field()));
    }
  }
  bool scalar_done() {
    if (skipping_ == 0) place_ = place::entry;
    return true;
  }
  // The Rust package's reader stops at this depth, so no other program can read a deeper file.
  bool skip_deeper() {
    constexpr std::size_t most_levels = 127, around = 2;  // the header and the entry
    if (++skipping_ + around <= most_levels) return true;
    return stop(errc::bad_format, fmt::format("has an unknown field nested deeper than {} levels", most_levels));
  }
  bool unskip() {
    if (--skipping_ == 0) place_ = place::entry;
    return true;
  }
  bool stop(errc code, std::string message) { return stop_at(current_.name, code, std::move(message)); }
  bool stop_at(std::string_view name, errc code, std::string message) {
    problem = fail(code, std::move(message)).with_key(name);
    return false;
  }

  place place_ = place::before;
  std::size_t skipping_ = 0;  // depth inside an unknown field's value
  bool in_array_ = false;
  std::string key_;
  std::unordered_set<std::string> metadata_names_;
  std::int64_t data_begin_;
  raw_entry current_;
  bool has_metadata_ = false;
};

result<void> check_names(const std::vector<entry>& entries) {
  const auto hash_of = [&](std::size_t i) { return std::hash<std::string_view>()(entries[i].name); };
  detail::position_table met(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t hash = hash_of(i);
    if (met.find(hash, [&](std::size_t other) { return entries[other].name == entries[i].name; }) != met.none)
      return fail(errc::duplicate_key, "occurs twice").with_key(entries[i].name);
    met.insert(hash, i, hash_of);
  }
  return {};
}

result<void> check_tiling(const safetensors::header& header, std::int64_t file_bytes) {
  std::int64_t expected = header.data_begin;
  std::string_view before = "the header";
  for (const safetensors::entry& entry : header.entries) {
    if (entry.begin != expected)
      return fail(errc::bad_format,
                  fmt::format("its data {} {}", entry.begin < expected ? "overlaps" : "leaves a gap after", before))
          .with_key(entry.name)
          .with_values(fmt::format("offset {}", expected - header.data_begin),
                       fmt::format("{}", entry.begin - header.data_begin));
    expected = entry.end;
    before = entry.name;
  }
  if (expected == file_bytes) return {};
  return fail(errc::bad_format,
              expected > file_bytes ? "the file is shorter than its tensors" : "the file is longer than its tensors")
      .with_key(expected > file_bytes && !header.entries.empty() ? header.entries.back().name : std::string())
      .with_values(detail::counted(expected, "byte"), fmt::format("{}", file_bytes));
}

result<std::int64_t> header_length(const byte_source& source) {
  if (source.size_bytes() < 8)
    return fail(errc::bad_format, "is too short for a safetensors file")
        .with_values("8 bytes", fmt::format("{}", source.size_bytes()));
  std::array<std::byte, 8> bytes{};
  SHARDMESH_TRY(source.read(0, bytes));
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > static_cast<std::uint64_t>(max_header_bytes))
    return fail(errc::bad_format, "the header is too long")
        .with_values(fmt::format("at most {} bytes", max_header_bytes), fmt::format("{}", length));
  if (length > static_cast<std::uint64_t>(source.size_bytes() - 8))
    return fail(errc::bad_format, "the header is longer than the file")
        .with_values(fmt::format("at most {} bytes", source.size_bytes() - 8), fmt::format("{}", length));
  return static_cast<std::int64_t>(length);
}

// Reads a header of the usual form; nothing for another form or any defect.
std::optional<header> read_usual(std::string_view text) {
  safetensors::header made;
  made.data_begin = static_cast<std::int64_t>(text.size()) + 8;
  made.entries.reserve(text.size() / 128);  // few entries with layer names are shorter
  const auto add = [&](raw_entry& raw) {
    auto entry = check_entry(raw, made.data_begin);
    if (entry) made.entries.push_back(*std::move(entry));
    return entry.has_value();
  };
  if (!scan_usual_header(text, made.metadata, add)) return std::nullopt;
  return made;
}

// Reads any header and reports its defects.
result<header> read_any(std::string_view text) {
  const std::int64_t data_begin = static_cast<std::int64_t>(text.size()) + 8;
  header_handler handler(data_begin);
  const bool parsed = nlohmann::json::sax_parse(text, &handler);
  if (handler.problem) return *std::move(handler.problem);
  if (!parsed) return fail(errc::bad_format, "the header is not JSON");
  return safetensors::header{std::move(handler.entries), std::move(handler.metadata), data_begin};
}

result<header> read_header(const byte_source& source) {
  SHARDMESH_TRY(const std::int64_t length, header_length(source));
  SHARDMESH_TRY(check_readable(source, 8, length, max_header_bytes));
  std::string text(static_cast<std::size_t>(length), '\0');
  SHARDMESH_TRY(source.read(8, std::as_writable_bytes(std::span(text))));
  // nlohmann-json would skip a byte order mark, but the Rust package refuses it.
  if (const std::size_t first = text.find_first_not_of(" \t\n\r"); first == std::string::npos || text[first] != '{')
    return fail(errc::bad_format, "the header does not begin with {");
  // nlohmann-json takes a NUL for the end of its input and would ignore the rest.
  if (text.find('\0') != std::string::npos) return fail(errc::bad_format, "the header holds a NUL byte");

  auto usual = read_usual(text);
  if (!usual) {
    SHARDMESH_TRY(usual, read_any(text));
  }
  safetensors::header header = *std::move(usual);
  SHARDMESH_TRY(check_names(header.entries));
  const auto by_place = [](const entry& a, const entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  };
  if (!std::is_sorted(header.entries.begin(), header.entries.end(), by_place))
    std::sort(header.entries.begin(), header.entries.end(), by_place);
  SHARDMESH_TRY(check_tiling(header, source.size_bytes()));
  return header;
}

}  // namespace

result<header> parse_header(const byte_source& source) {
  auto header = read_header(source);
  if (header) return header;
  error e = std::move(header).error();
  return e.file.empty() ? std::move(e).with_file(source.name()) : e;
}

std::optional<std::string_view> find_metadata(const safetensors::header& header, std::string_view key) {
  for (const auto& [name, value] : header.metadata)
    if (name == key) return value;
  return std::nullopt;
}

std::string_view dtype_name(dtype type) {
  if (type == dtype::float4_e2m1fn_x2) return "F4";
  for (const spelling& s : spellings)
    if (s.type == type) return s.name;
  return {};
}

bool can_hold(dtype type) {
  return !dtype_name(type).empty();
}

}  // namespace shardmesh::safetensors
