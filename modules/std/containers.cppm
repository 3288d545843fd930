// SPDX-License-Identifier: Apache-2.0
// Names from headers whose class templates declare operators as friends. Clang 19 rejects such a friend beside an
// exported using-declaration of the operator ("cannot befriend target of using declaration"). These headers therefore
// have their own partition, which exports no operators: an interface unit cannot compare two maps.
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
using std::multimap;
using std::set;
using std::unordered_map;
using std::variant;
using std::variant_alternative;
using std::variant_alternative_t;
using std::visit;
}  // namespace std
