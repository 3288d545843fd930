// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :any_header;
import :entry_check;
import :usual_header;

namespace shardmesh::safetensors {
namespace {

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

}  // namespace

result<header> read_any(std::string_view text) {
  const std::int64_t data_begin = static_cast<std::int64_t>(text.size()) + 8;
  header_handler handler(data_begin);
  const bool parsed = nlohmann::json::sax_parse(text, &handler);
  if (handler.problem) return *std::move(handler.problem);
  if (!parsed) return fail(errc::bad_format, "the header is not JSON");
  return safetensors::header{std::move(handler.entries), std::move(handler.metadata), data_begin};
}

}  // namespace shardmesh::safetensors
