// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :save_conditions;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

std::string text_of(const fs::path& path) {
  std::error_code code;
  const fs::path whole = fs::absolute(path, code);
  return (code ? path : whole).lexically_normal().string();
}

// The whole selection as text, for ranks to compare.
std::string text_of(const selection_options& selection) {
  std::string text = fmt::format("no optimizer {}, prefix {}, unused {}, optimizer follows {}, narrowing {}",
                                 selection.no_optimizer, escaped(selection.strip_prefix), selection.allow_unused,
                                 selection.optimizer_follows, selection.allow_narrowing);
  for (const key_pattern& pattern : selection.only) text += fmt::format(", only {}", pattern.text());
  for (const key_pattern& pattern : selection.skip) text += fmt::format(", skip {}", pattern.text());
  for (const rename_rule& rule : selection.rename) text += fmt::format(", rename {}", rule.text());
  for (const cast_rule& rule : selection.cast)
    text += fmt::format(", cast {}={}:{}", rule.what ? rule.what->text() : "(all)", rule.from ? name(*rule.from) : "",
                        name(rule.type));
  return text;
}

}  // namespace

std::vector<agreement_record> save_conditions(const fs::path& destination, const rank_save_options& options,
                                              const save_options& saving) {
  return {
      {"(destination)", text_of(destination)},
      {"(options)", fmt::format("overwrite {}, durable {}, lowest rank's objects {}, plans kept {}", saving.overwrite,
                                saving.durable, options.lowest_rank_objects, !options.plans.is_none())},
      {"(previous)", saving.previous.empty() ? std::string() : text_of(saving.previous)},
      {"(format)", fmt::format("{}, files of {} bytes, objects {}", static_cast<int>(options.format),
                               options.max_shard_bytes, !options.skip_objects)},
      {"(selection)", text_of(options.selection)}};
}

}  // namespace shardmesh
