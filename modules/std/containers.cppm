// SPDX-License-Identifier: Apache-2.0
// Names of those headers whose class templates befriend operators. Clang 19 takes an exported using-declaration of such
// an operator for the friend ("cannot befriend target of using declaration"), so these headers are kept apart from
// those whose operators are exported, and their own are not: two maps cannot be compared in an interface unit.
module;
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <variant>
export module shardmesh.std:containers;

export namespace std {
using std::bad_variant_access;
using std::equal_to;
using std::function;
using std::get;
using std::get_if;
using std::hash;
using std::holds_alternative;
using std::in_place_index;
using std::in_place_index_t;
using std::invoke;
using std::less;
using std::map;
using std::monostate;
using std::set;
using std::unordered_map;
using std::variant;
using std::variant_alternative;
using std::variant_alternative_t;
using std::visit;
}  // namespace std
