// SPDX-License-Identifier: Apache-2.0
// The index file, and the rule that distributes tensors over files.
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

constexpr std::int64_t max_index_bytes = 1'000'000'000;

// A name that does not lead out of the folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Collects the used parts of the index while it is parsed, and skips the rest. Detects duplicate keys.
class index_handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  hf_index index;
  std::optional<error> problem;
  bool has_weight_map = false;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool number_integer(std::int64_t) override { return value(); }
  bool number_unsigned(std::uint64_t number) override {
    if (depth_ == 2 && section_ == section::metadata && key_ == "total_size" &&
        number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      index.total_size = static_cast<std::int64_t>(number);
    return value();
  }
  bool string(std::string& text) override {
    if (depth_ != 2 || section_ != section::weight_map) return value();
    if (!is_plain_file_name(text))
      return stop(errc::unsafe_path, fmt::format("its file '{}' is not a plain name within the folder", text));
    index.weight_map.emplace_back(std::move(key_), std::move(text));
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) {
      section_ = name == "weight_map" ? section::weight_map : name == "metadata" ? section::metadata : section::other;
      key_ = name;
      if (section_ == section::weight_map && std::exchange(has_weight_map, true))
        return stop(errc::duplicate_key, "occurs twice");
      if (section_ == section::other) index.unread.push_back(name);
    } else if (depth_ == 2 && section_ != section::other) {
      key_ = name;
      if (section_ == section::metadata && name != "total_size" && name != "total_parameters")
        index.unread.push_back("metadata." + name);
      if (section_ == section::weight_map && !names_.insert(std::move(name)).second)
        return stop(errc::duplicate_key, "is twice in the weight_map");
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 && section_ == section::weight_map) return value();
    return ++depth_, true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || section_ == section::weight_map) return value();
    return ++depth_, true;
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) override {
    if (!problem) problem = fail(errc::bad_format, fmt::format("is not JSON at byte {}: {}", position, e.what()));
    return false;
  }

 private:
  enum class section { other, metadata, weight_map };
  bool value() {
    if (depth_ == 0) return stop(errc::bad_format, "is not a JSON object");
    if (section_ == section::weight_map)
      return stop(errc::bad_format, depth_ == 1 ? "is not an object" : "its file name is not a string");
    return true;
  }
  bool stop(errc code, std::string message) {
    problem = fail(code, std::move(message)).with_key(key_);
    return false;
  }
  std::size_t depth_ = 0;
  section section_ = section::other;
  std::string key_;
  std::unordered_set<std::string> names_;
};

}  // namespace

result<hf_index> parse_hf_index(const byte_source& source) {
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_all(source, max_index_bytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // nlohmann-json takes a NUL for the end of its input and would ignore the rest.
  if (text.find('\0') != std::string_view::npos)
    return fail(errc::bad_format, "holds a NUL byte").with_file(source.name());
  index_handler handler;
  const bool parsed = nlohmann::json::sax_parse(text, &handler);
  if (handler.problem) return (*std::move(handler.problem)).with_file(source.name());
  if (!parsed) return fail(errc::bad_format, "is not JSON").with_file(source.name());
  if (!handler.has_weight_map) return fail(errc::bad_format, "has no weight_map").with_file(source.name());
  return std::move(handler.index);
}

std::string write_hf_index(std::int64_t total_size, std::span<const std::pair<std::string, std::string>> weight_map) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [key, file] : weight_map) files[key] = file;
  const nlohmann::json index = {{"metadata", {{"total_size", total_size}}}, {"weight_map", std::move(files)}};
  return index.dump(2) + "\n";
}

std::string hf_index_name_of(std::string_view stem) {
  return fmt::format("{}.safetensors.index.json", stem);
}

std::string hf_stem_of(std::string_view file) {
  constexpr std::size_t longest = 200;  // with its suffix, a file name has at most 255 bytes
  std::string_view stem = file.substr(0, file.find(".safetensors"));
  const auto is_number = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  // "-00001-of-00002"
  if (stem.size() >= 15) {
    const std::string_view part = stem.substr(stem.size() - 15);
    if (part[0] == '-' && is_number(part.substr(1, 5)) && part.substr(6, 4) == "-of-" && is_number(part.substr(10)))
      stem.remove_suffix(15);
  }
  // "shard-00001-": PyTorch's writer puts it before the name of the file that it would consolidate to
  if (stem.starts_with("shard-") && stem.size() > 12 && is_number(stem.substr(6, 5)) && stem[11] == '-')
    stem.remove_prefix(12);
  return std::string(stem.empty() || stem.size() > longest ? "model" : stem);
}

result<hf_shard_plan> plan_hf_shards(std::span<const std::int64_t> tensor_bytes, std::int64_t max_shard_bytes,
                                     std::string_view stem) {
  const std::int64_t limit = max_shard_bytes > 0 ? max_shard_bytes : std::numeric_limits<std::int64_t>::max();
  hf_shard_plan plan;
  std::vector<std::size_t> run_of(tensor_bytes.size());  // runs are numbered in the order in which they begin
  std::vector<std::size_t> file_of_run;                  // files are numbered in the order in which they end
  std::size_t files = 0;
  constexpr auto open = std::numeric_limits<std::size_t>::max();
  std::size_t current = open;
  std::int64_t filled = 0;
  const auto begin_run = [&] { return file_of_run.push_back(open), file_of_run.size() - 1; };
  for (std::size_t i = 0; i < tensor_bytes.size(); ++i) {
    const std::int64_t bytes = tensor_bytes[i];
    const auto total = checked_add(plan.total_size, bytes);
    if (!total) return fail(errc::overflow, "the tensors' sizes do not fit in 64 bits");
    plan.total_size = *total;
    if (bytes > limit) {
      run_of[i] = begin_run();
      file_of_run[run_of[i]] = files++;
      continue;
    }
    if (current != open && bytes > limit - filled) {
      file_of_run[current] = files++;
      current = open;
      filled = 0;
    }
    if (current == open) current = begin_run();
    run_of[i] = current;
    filled += bytes;
  }
  if (current != open) file_of_run[current] = files++;
  plan.file_of.reserve(run_of.size());
  for (const std::size_t run : run_of) plan.file_of.push_back(file_of_run[run]);
  if (files <= 1)
    plan.file_names.push_back(fmt::format("{}.safetensors", stem));
  else
    for (std::size_t f = 0; f < files; ++f)
      plan.file_names.push_back(fmt::format("{}-{:05}-of-{:05}.safetensors", stem, f + 1, files));
  return plan;
}

}  // namespace shardmesh::safetensors
