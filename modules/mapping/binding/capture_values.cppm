// SPDX-License-Identifier: Apache-2.0
// Not exported: the captures of a mapping, with one assignment of values after another, and the names that they make.
module shardmesh.mapping:capture_values;

import shardmesh.std;
import shardmesh.core;
import :binding_problems;
import :name_template;
import :rule_captures;
import :rules;
import :size_expression;

namespace shardmesh {

// The sizes of a model that could not be computed.
using missing_sizes = std::map<std::string, error, std::less<>>;

class capture_values {
 public:
  // `problems` must outlive this. It names the mapping's file in errors, and ends a mapping with too many problems.
  explicit capture_values(binding_problems& problems) : problems_(problems) {}

  // Takes the sizes of a model, and from them the ranges of the captures.
  result<void> set(const mapping_rules& mapping, named_sizes sizes, const missing_sizes& missing);

  // During a visit, these have the values of the captures.
  const named_sizes& sizes() const { return sizes_; }
  const capture_ranges& ranges() const { return ranges_; }
  bool is_capture(const std::string& name) const;
  std::int64_t range_of(const std::string& capture) const;

  // Calls `visit` for each assignment of the captures, in row-major order.
  // \errors errc::overflow for too many names; those of `visit`
  result<void> for_each(const std::vector<std::string>& captures, function_ref<result<void>()> visit);
  // Evaluates a condition. `captures` have values; the others have only ranges, which a condition cannot mean.
  result<bool> applies(const std::optional<size_expression>& condition, const std::vector<std::string>& captures) const;
  // Spells a name for all values of the stacked captures.
  result<std::vector<std::string>> spell_all(const name_template& name, const std::vector<std::string>& stacked);

 private:
  binding_problems& problems_;
  named_sizes sizes_;
  capture_ranges ranges_;
  std::int64_t names_ = 0, name_bytes_ = 0;
};

}  // namespace shardmesh
