// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/rewriting.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../bindings/saving.hpp"
#include "checkpoint.hpp"
#include "saving.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace c_api {
using namespace shardmesh;

static_assert(SHARDMESH_DEDUP_TIED == static_cast<int>(dedup_rule::tied));
static_assert(SHARDMESH_DEDUP_EQUAL == static_cast<int>(dedup_rule::equal));
static_assert(SHARDMESH_PAYLOAD_TORCH == static_cast<int>(payload_kind::torch));
static_assert(SHARDMESH_PAYLOAD_SAFETENSORS == static_cast<int>(payload_kind::safetensors));

namespace {

// Parses every text of a list; an error begins with the option's name.
template <class Rule>
std::vector<Rule> rules(const char* const* texts, std::size_t count, const std::string& option,
                        result<Rule> (*parse)(std::string_view)) {
  if (count > 0 && texts == nullptr) refuse_null(option);
  std::vector<Rule> made;
  for (const char* text : std::span(texts, count)) {
    auto rule = parse(to_text(text, option));
    if (!rule) {
      error cause = std::move(rule).error();
      cause.message = option + " " + cause.message;
      refuse(cause);
    }
    made.push_back(*std::move(rule));
  }
  return made;
}

selection_options to_selection(const shardmesh_selection* selection) {
  const shardmesh_selection wanted = given(selection, "selection", offsetof(shardmesh_selection, optimizer_follows));
  selection_options made;
  made.only = rules<key_pattern>(wanted.only, wanted.only_count, "only", &key_pattern::compile);
  made.skip = rules<key_pattern>(wanted.skip, wanted.skip_count, "skip", &key_pattern::compile);
  made.rename = rules<rename_rule>(wanted.rename, wanted.rename_count, "rename", &parse_rename_rule);
  made.cast = rules<cast_rule>(wanted.cast, wanted.cast_count, "cast", &parse_cast_rule);
  if (wanted.strip_prefix != nullptr) made.strip_prefix = wanted.strip_prefix;
  made.no_optimizer = wanted.no_optimizer != 0;
  made.allow_unused = wanted.allow_unused != 0;
  made.optimizer_follows = wanted.optimizer_follows != 0;
  made.allow_narrowing = wanted.allow_narrowing != 0;
  return made;
}

convert_options to_convert(const shardmesh_convert_options& wanted) {
  convert_options made;
  made.selection = to_selection(wanted.selection);
  if (wanted.max_shard_bytes < 0) refuse_argument("max_shard_bytes", "is negative");
  if (wanted.max_shard_bytes > 0) made.max_shard_bytes = wanted.max_shard_bytes;
  if (wanted.dedup < SHARDMESH_DEDUP_NONE || wanted.dedup > SHARDMESH_DEDUP_EQUAL)
    refuse_argument("dedup", "is not NONE, TIED, or EQUAL");
  made.dedup = static_cast<dedup_rule>(wanted.dedup);
  made.skip_objects = wanted.skip_objects != 0;
  made.skip_unsupported = wanted.skip_unsupported != 0;
  made.nest = wanted.nest != 0;
  made.components = wanted.components != 0;
  if (wanted.item != nullptr) made.item = wanted.item;
  if (wanted.payload != SHARDMESH_PAYLOAD_TORCH && wanted.payload != SHARDMESH_PAYLOAD_SAFETENSORS)
    refuse_argument("payload", "is neither TORCH nor SAFETENSORS");
  made.payload = static_cast<payload_kind>(wanted.payload);
  if (wanted.like != nullptr) made.like = opened(wanted.like, "like").reader.get();
  made.allow_shape_mismatch = wanted.allow_shape_mismatch != 0;
  return made;
}

reshard_options to_reshard(const shardmesh_reshard_options& wanted) {
  reshard_options made;
  if (wanted.mesh != nullptr) made.mesh = value_of(parse_mesh(wanted.mesh));
  if (wanted.like != nullptr) made.like = opened(wanted.like, "like").reader.get();
  made.place = rules<placement_rule>(wanted.place, wanted.place_count, "place", &parse_placement_rule);
  if (wanted.default_placements != nullptr)
    made.default_placements = value_of(parse_placements(wanted.default_placements));
  made.optimizer_follows = wanted.no_optimizer_follow == 0;
  made.selection = to_selection(wanted.selection);
  made.skip_unsupported = wanted.skip_unsupported != 0;
  return made;
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_convert(shardmesh_checkpoint* checkpoint, const char* path,
                                   const shardmesh_convert_options* options, shardmesh_save_report** report,
                                   shardmesh_error** error) {
  if (report != nullptr) *report = nullptr;
  return guarded(error, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    const std::filesystem::path to = to_text(path, "path");
    const shardmesh_convert_options wanted = given(options, "options", offsetof(shardmesh_convert_options, item));
    const checked_saving saving(wanted.saving);
    saving.refuse_options_of_save();
    shardmesh::convert_options how = to_convert(wanted);
    how.format = saving.format();
    give_report(report, watched_result(saving.call(), [&](bindings::watch& watching) {
                  const taken_alone alone(watching, from, wanted.like);
                  bindings::set_saving(how, saving.with(watching));
                  return value_of(shardmesh::convert(*from.reader, to, how));
                }));
  });
}

shardmesh_status shardmesh_reshard(shardmesh_checkpoint* checkpoint, const char* path,
                                   const shardmesh_reshard_options* options, shardmesh_save_report** report,
                                   shardmesh_error** error) {
  if (report != nullptr) *report = nullptr;
  return guarded(error, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    const std::filesystem::path to = to_text(path, "path");
    const shardmesh_reshard_options wanted = given(options, "options");
    const checked_saving saving(wanted.saving);
    saving.refuse_options_of_save();
    if (saving.format() != shardmesh::target_format::dcp) refuse_argument("format", "is not DCP");
    if (wanted.mesh != nullptr && wanted.like != nullptr)
      refuse_argument("mesh", "is set, and so is like: set one of them");
    shardmesh::reshard_options how = to_reshard(wanted);
    give_report(report, watched_result(saving.call(), [&](bindings::watch& watching) {
                  const taken_alone alone(watching, from, wanted.like);
                  bindings::set_saving(how, saving.with(watching));
                  return value_of(shardmesh::reshard(*from.reader, to, how));
                }));
  });
}

}  // extern "C"
