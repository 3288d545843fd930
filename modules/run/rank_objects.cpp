// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.run;

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.comm;
import shardmesh.torch_file;
import shardmesh.tree;
import :rank_object_reading;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view prefix = "rank_objects";
constexpr std::string_view world_size_key = "rank_objects_world_size";
// More than any job has. The number in a step decides how many maps a conversion gets.
constexpr std::int64_t most_ranks = 1'000'000;

// An object of one rank, as its archive.
struct named_object {
  std::int32_t rank = 0;
  std::string name;
  std::vector<std::byte> archive;
};

std::string key_of(std::string_view name, std::int32_t rank) {
  return fmt::format("{}.{}.{}", prefix, name, rank);
}

// Parses "rank_objects.NAME.RANK". The name may contain dots.
std::optional<named_object> parse_key(std::string_view key) {
  if (!key.starts_with(prefix) || key.size() <= prefix.size() || key[prefix.size()] != '.') return std::nullopt;
  key.remove_prefix(prefix.size() + 1);
  const std::size_t dot = key.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  named_object made;
  made.name = key.substr(0, dot);
  const std::string_view digits = key.substr(dot + 1);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), made.rank);
  if (code != std::errc() || end != digits.data() + digits.size() || made.rank < 0) return std::nullopt;
  return made;
}

result<plain_value> value_of(std::span<const std::byte> archive) {
  SHARDMESH_TRY(local_state_object object, torch_file::object_of_archive(archive));
  if (object.form == tree_spec() && object.leaves.size() == 1) return std::move(object.leaves.front());
  return plain_value(opaque_object{"", {archive.begin(), archive.end()}});
}

// The number of ranks that saved the step's objects; 0: it has none.
result<std::int32_t> world_size_of(checkpoint_reader& reader) {
  const catalog& contents = reader.contents();
  const object_entry* const found = contents.find_object(world_size_key);
  if (found == nullptr) return 0;
  const auto index = static_cast<std::size_t>(found - contents.objects.data());
  SHARDMESH_TRY(const std::vector<std::byte> archive, reader.object_archive(index));
  SHARDMESH_TRY(const plain_value value, value_of(archive));
  const auto* const ranks = std::get_if<std::int64_t>(&value);
  if (ranks == nullptr || *ranks < 1 || *ranks > most_ranks)
    return fail(errc::bad_format, "is not a valid number of ranks")
        .with_key(std::string(world_size_key))
        .with_file(reader.path().string())
        .with_values(fmt::format("1 to {}", most_ranks), ranks == nullptr ? "" : fmt::format("{}", *ranks));
  return static_cast<std::int32_t>(*ranks);
}

result<std::vector<named_object>> objects_in(checkpoint_reader& reader, std::int32_t ranks) {
  const catalog& contents = reader.contents();
  std::vector<named_object> objects;
  for (std::size_t i = 0; i < contents.objects.size() && ranks > 0; ++i) {
    const std::string& key = contents.objects[i].key;
    auto object = parse_key(key);
    if (!object) continue;
    const auto wrong = [&](error why) { return std::move(why).with_key(key).with_file(reader.path().string()); };
    if (object->rank >= ranks)
      return wrong(fail(errc::bad_format, "belongs to a rank that did not save the step")
                       .with_values(fmt::format("a rank below {}", ranks), fmt::format("{}", object->rank)));
    auto archive = reader.object_archive(i);
    if (!archive) return wrong(std::move(archive).error());
    // The other ranks decode the same bytes, so this shows every rank's error.
    if (auto value = value_of(*archive); !value) return wrong(std::move(value).error());
    object->archive = *std::move(archive);
    objects.push_back(*std::move(object));
  }
  return objects;
}

}  // namespace

result<void> detail::add_rank_objects(const_local_state& part, const objects_of_rank& own, std::int32_t rank,
                                      std::int32_t ranks) {
  if (own.empty()) return {};
  for (const auto& [name, value] : own) {
    if (name.empty())
      return fail(errc::invalid_argument, "an object of a rank has no name").with_hint("name it, such as \"rng\"");
    part.objects.push_back({path{prefix, name, std::to_string(rank)}, {}, {value}});
  }
  part.objects.push_back({path{world_size_key}, {}, {std::int64_t{ranks}}});
  return {};
}

result<std::vector<std::byte>> read_rank_objects(const fs::path& step, std::int32_t ranks,
                                                 const checkpoint_run_options& options) {
  SHARDMESH_TRY(const auto reader, open_checkpoint(step));
  SHARDMESH_TRY(const std::int32_t saved, world_size_of(*reader));
  SHARDMESH_TRY(const std::vector<named_object> objects, objects_in(*reader, saved));
  if (saved != ranks && !objects.empty() && !options.convert_objects && options.when_resized == resized_objects::refuse)
    return fail(errc::invalid_argument, "the step has objects of single ranks, and another number of ranks resumes")
        .with_key(key_of(objects.front().name, objects.front().rank))
        .with_file(step.string())
        .with_values(fmt::format("{} ranks", saved), fmt::format("{} ranks", ranks))
        .with_hint("resume with as many ranks, set when_resized to drop, or pass convert_objects");
  detail::wire_writer out;
  out.number(saved);
  out.number(static_cast<std::int64_t>(objects.size()));
  for (const named_object& object : objects) {
    out.number(object.rank);
    out.text(object.name);
    out.bytes(object.archive);
  }
  return std::move(out).take();
}

result<resumed_objects_of_rank> choose_rank_objects(std::span<const std::byte> answer, std::int32_t rank,
                                                    std::int32_t ranks, const checkpoint_run_options& options) {
  detail::wire_reader in(answer);
  const std::int64_t saved = in.in_range(0, most_ranks);
  const std::size_t count = in.count();
  const bool is_resized = saved != ranks, converts = is_resized && count > 0 && options.convert_objects;
  resumed_objects_of_rank made;
  std::vector<objects_of_rank> all(converts ? static_cast<std::size_t>(saved) : 0);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    const std::int64_t of = in.in_range(0, std::max<std::int64_t>(saved - 1, 0));
    const std::string name = in.text();
    const std::vector<std::byte> archive = in.bytes();
    if (!in.ok()) break;
    if (is_resized && !converts) made.dropped.push_back(key_of(name, static_cast<std::int32_t>(of)));
    if (is_resized ? !converts : of != rank) continue;
    SHARDMESH_TRY(plain_value value, value_of(archive));
    (is_resized ? all[static_cast<std::size_t>(of)] : made.own).insert_or_assign(name, std::move(value));
  }
  if (!in.finished()) return fail(errc::communication, "rank 0 sent malformed objects of ranks").with_rank(0);
  std::sort(made.dropped.begin(), made.dropped.end());
  if (!converts) return made;
  result<objects_of_rank> converted = objects_of_rank();
  try {
    converted = options.convert_objects(all, rank, ranks);
  } catch (...) {
    converted = detail::caught_error();
  }
  if (!converted) return fail(errc::invalid_argument, "convert_objects failed: " + to_string(converted.error()));
  made.own = *std::move(converted);
  return made;
}

}  // namespace shardmesh
