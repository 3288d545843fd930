// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :agreement;

namespace shardmesh::deepspeed {
namespace {

using texts = std::map<std::string, std::string>;

// Returns a comparable form of a value: the bytes of a scalar tensor in hex, or the text of an object.
result<std::string> text_of(const saved_file& file, const group_value& value) {
  if (value.is_tensor && file.reader->contents().tensors[value.index].shape.rank() == 0) {
    SHARDMESH_TRY(const auto bytes, read_scalar(file, value.index));
    std::string digits;
    for (const std::byte one : bytes) digits += fmt::format("{:02x}", static_cast<unsigned>(one));
    return digits;
  }
  if (value.is_tensor) return std::string();
  SHARDMESH_TRY(const auto object, file.reader->read_object(value.index));
  return object.json;
}

result<texts> facts_of(const optimizer_states& rank) {
  texts facts = rank.settings;
  facts["zero_stage"] = fmt::format("{}", rank.stage);
  facts["partition_count"] = fmt::format("{}", rank.partitions);
  for (const group_value& value : rank.group_values) {
    SHARDMESH_TRY(facts[fmt::format("state.{}.{}", value.group, value.name)], text_of(rank.file, value));
  }
  return facts;
}

result<void> compare(const texts& first, const texts& other, const saved_file& file) {
  for (const auto& [name, text] : first) {
    const auto found = other.find(name);
    if (found != other.end() && found->second == text) continue;
    return fail(errc::disagreement, "ranks of different saves are mixed: it differs from rank 0")
        .with_key(name)
        .with_file(file.file())
        .with_values(text, found == other.end() ? "nothing" : found->second);
  }
  return {};
}

}  // namespace

result<void> check_same_counters(const model_states& first, const model_states& other) {
  return compare(first.counters, other.counters, other.file);
}

result<void> check_all_ranks(const model_states& model, std::size_t ranks) {
  const auto said = model.counters.find("mp_world_size");
  if (said == model.counters.end()) return {};
  std::size_t world = 0;
  const char* const end = said->second.data() + said->second.size();
  if (std::from_chars(said->second.data(), end, world).ptr != end || world <= ranks) return {};
  return fail(errc::incomplete_save, "files of other ranks of tensor parallelism are missing")
      .with_file(model.file.file())
      .with_values(fmt::format("{}, as 'mp_world_size' says", detail::counted(world, "rank")),
                   fmt::format("{}", ranks));
}

result<void> check_one_save(std::span<const model_states> models, std::span<const optimizer_states> optimizers) {
  for (const model_states& model : models.subspan(1)) SHARDMESH_TRY(check_same_counters(models.front(), model));
  SHARDMESH_TRY(const texts first, facts_of(optimizers.front()));
  for (const optimizer_states& rank : optimizers.subspan(1)) {
    SHARDMESH_TRY(const texts facts, facts_of(rank));
    SHARDMESH_TRY(compare(first, facts, rank.file));
  }
  return {};
}

}  // namespace shardmesh::deepspeed
