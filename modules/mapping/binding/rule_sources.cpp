// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint_core;
import :binding_problems;
import :capture_values;
import :rule_captures;
import :rule_sources;

namespace shardmesh {
namespace {

class source_finder {
 public:
  source_finder(const mapping_rule& rule, const catalog& source, binding_problems& problems)
      : rule_(rule), source_(source), problems_(problems) {}

  // Adds one tensor of the rule's left side, in all of its members. `shape` has the stacked dimensions.
  void add_tensor(const std::vector<std::string>& keys, extents shape) {
    found_.instance.first_source.push_back(found_.instance.sources.size());
    const tensor_entry* first = nullptr;
    for (const std::string& key : keys) {
      const tensor_entry* const entry = source_.find(key);
      if (entry == nullptr) {
        missing_.push_back(key);
        continue;
      }
      found_.instance.sources.push_back(static_cast<std::size_t>(entry - source_.tensors.data()));
      if (first == nullptr) {
        first = entry;
        if (!add_sizes(*entry, shape)) continue;
      } else if (entry->shape != first->shape) {
        refuse(fail(errc::shape_mismatch, fmt::format("{} stacks tensors of several shapes", described(rule_)))
                   .with_key(key)
                   .with_values(to_string(first->shape), to_string(entry->shape)));
      }
      if (found_.type == dtype::undefined) found_.type = entry->type;
      if (entry->type != found_.type)
        refuse(fail(errc::dtype_mismatch, fmt::format("{} joins tensors of several dtypes", described(rule_)))
                   .with_key(key)
                   .with_values(std::string(name(found_.type)), std::string(name(entry->type)))
                   .with_hint("cast them first"));
    }
    found_.shapes.push_back(shape);
  }

  instance_sources finish() && {
    found_.missing = missing_.size();
    if (missing_.empty() || (rule_.is_optional && found_.instance.sources.empty())) return std::move(found_);
    if (rule_.is_optional)
      add_partly_missing();
    else
      for (const std::string& key : missing_)
        problems_.add(
            fail(errc::missing_key, fmt::format("{} needs this tensor, and the checkpoint lacks it", described(rule_)))
                .with_key(key)
                .with_hint(problems_.may_suggest() ? did_you_mean(nearest_key(source_, key)) : ""));
    return std::move(found_);
  }

 private:
  // Adds a problem that contradicts the other sources.
  void refuse(error why) {
    found_.is_consistent = false;
    problems_.add(std::move(why));
  }

  bool add_sizes(const tensor_entry& entry, extents& shape) {
    if (shape.rank() + entry.shape.rank() > max_rank) {
      refuse(
          fail(errc::rank_too_large, fmt::format("{} stacks tensors of too many dimensions", described(rule_)))
              .with_key(entry.key)
              .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", shape.rank() + entry.shape.rank())));
      return false;
    }
    for (const std::int64_t size : entry.shape) shape.push_back(size);
    return true;
  }

  void add_partly_missing() {
    std::vector<std::string> present;
    for (const std::size_t source : found_.instance.sources) present.push_back(source_.tensors[source].key);
    problems_.add(fail(errc::missing_key,
                       fmt::format("{} is optional, and the checkpoint has only some of its tensors", described(rule_)))
                      .with_key(missing_[0])
                      .with_values(fmt::format("all {} tensors, or none", missing_.size() + present.size()),
                                   fmt::format("{}, without {}", name_list(present), name_list(missing_)))
                      .with_hint("add the missing tensors, or remove the others"));
  }

  const mapping_rule& rule_;
  const catalog& source_;
  binding_problems& problems_;
  instance_sources found_;
  std::vector<std::string> missing_;
};

}  // namespace

result<instance_sources> find_sources(const mapping_rule& rule, const rule_captures& captures, const catalog& source,
                                      capture_values& values, binding_problems& problems) {
  source_finder finder(rule, source, problems);
  for (std::size_t t = 0; t < rule.left.size(); ++t) {
    SHARDMESH_TRY(const auto keys, values.spell_all(rule.left[t].name, captures.left_stacked[t]));
    extents stacked;
    for (const std::string& name : captures.left_stacked[t]) stacked.push_back(values.range_of(name));
    finder.add_tensor(keys, stacked);
  }
  return std::move(finder).finish();
}

}  // namespace shardmesh
