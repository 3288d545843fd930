// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.replicas;

import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import shardmesh.kernels;
import :described_part;
import :kept_catalog;
import :kept_match;

namespace shardmesh {
namespace {

class entry_match {
 public:
  entry_match(merged_parts& wanted, const kept_catalog& kept, const kept_keys& keys, const rank_load_options& options,
              load_report& report)
      : wanted_(wanted), kept_(kept), keys_(keys), options_(options), report_(report) {}

  // One entry of the ranks.
  void match(const merged_entry& wanted) {
    const entry_head& head = wanted.head;
    const auto complain = [&](error e) {
      wanted_.problems.add(std::move(e).with_key(head.key).with_rank(wanted.ranks.front().rank));
    };
    const auto found = keys_.find(head.key);
    if (found == keys_.end()) {
      report_.missing.push_back(head.key);
      if (options_.missing == key_check::strict)
        complain(fail(errc::missing_key, fmt::format("step {} in memory has no such entry", kept_.step))
                     .with_hint("remove it from the state, or set missing to key_check::ignore"));
      return;
    }
    const kept_tensor& kept = kept_.tensors[found->second];
    if (kept.is_object != head.is_object)
      return complain(
          fail(errc::dtype_mismatch, "is an object on one side and a tensor on the other")
              .with_values(kept.is_object ? "an object" : "a tensor", head.is_object ? "an object" : "a tensor"));
    if (!head.is_object) {
      if (kept.shape != head.shape)
        return complain(fail(errc::shape_mismatch, "the requested tensor has a different shape than the kept one")
                            .with_values(to_string(kept.shape), to_string(head.shape)));
      if (auto cast = check_cast(kept.type, head.type, options_.allow_narrowing); !cast)
        return complain(std::move(cast).error());
      if (kept.type != head.type) report_.casts.push_back({head.key, kept.type, head.type});
    }
    report_.loaded.push_back(head.key);
  }

  // The entries that no rank wants.
  void match_unexpected() {
    std::unordered_set<std::string_view> asked;
    for (const merged_entry& wanted : wanted_.entries) asked.insert(wanted.head.key);
    for (const kept_tensor& kept : kept_.tensors) {
      if (asked.contains(kept.key)) continue;
      report_.unexpected.push_back(kept.key);
      if (options_.unexpected == key_check::strict)
        wanted_.problems.add(fail(errc::missing_key, "the kept step has this entry, but no rank requests it")
                                 .with_key(kept.key)
                                 .with_hint("request it, or set unexpected to key_check::ignore"));
    }
  }

 private:
  merged_parts& wanted_;
  const kept_catalog& kept_;
  const kept_keys& keys_;
  const rank_load_options& options_;
  load_report& report_;
};

}  // namespace

void match_entries(merged_parts& wanted, const kept_catalog& kept, const kept_keys& keys,
                   const rank_load_options& options, load_report& report) {
  entry_match comparison(wanted, kept, keys, options, report);
  for (const merged_entry& entry : wanted.entries) comparison.match(entry);
  comparison.match_unexpected();
}

}  // namespace shardmesh
