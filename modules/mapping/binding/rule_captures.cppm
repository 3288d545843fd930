// SPDX-License-Identifier: Apache-2.0
// Not exported: divides the captures of a rule into those that make instances of it and those that stand for
// dimensions.
module shardmesh.mapping:rule_captures;

import shardmesh.std;
import shardmesh.core;
import :index_rule;
import :rules;

namespace shardmesh {

// The number of values of each capture, by name.
using capture_ranges = std::map<std::string, std::int64_t, std::less<>>;

// A rule's captures: `shared` ones are in names of both sides and make instances; others are dimensions.
struct rule_captures {
  std::vector<std::string> shared;
  std::vector<std::vector<std::string>> left_stacked, right_stacked;  // per tensor
  index_rule index;                                                   // with the stacked captures as dimensions
};

// Divides the captures of a rule, and adds the stacked ones to its index expression.
// \errors errc::invalid_argument for a factor that is a shared capture, and for a rename with a capture on one side;
//         errc::rank_too_large
result<rule_captures> captures_of(const mapping_rule& rule, const capture_ranges& ranges);

// Returns "the rule 'qkv' (line 12)", for messages.
std::string described(const mapping_rule& rule);

}  // namespace shardmesh
