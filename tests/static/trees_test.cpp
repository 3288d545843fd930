// SPDX-License-Identifier: Apache-2.0
// Nodes of trees, buildable nodes, and visitors.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.core;
import shardmesh.tree;

using namespace shardmesh;

namespace {

struct plain {};        // a node that can be built
struct read_only {};    // can be walked only when const
struct fallible {};     // building it can fail
struct handle {};       // refers to a node elsewhere
struct no_kind {};      // an adapter without kind
struct wrong_kind {};   // kind is a number
struct no_children {};  // an adapter without children
struct wrong_make {};   // make returns another type
struct stranger {};     // no adapter

}  // namespace

template <>
struct shardmesh::node_adapter<plain> {
  static node_kind kind(const plain&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
  static plain make(node_kind, std::vector<std::pair<path_key, plain>>) { return {}; }
};
template <>
struct shardmesh::node_adapter<read_only> {
  static node_kind kind(const read_only&) { return node_kind::leaf; }
  template <std::predicate<path_key, const read_only&> Visit>
  static void children(const read_only&, Visit&&) {}
};
template <>
struct shardmesh::node_adapter<fallible> {
  static node_kind kind(const fallible&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
  static result<fallible> make(node_kind, std::vector<std::pair<path_key, fallible>>) { return fallible{}; }
};
template <>
struct shardmesh::node_adapter<handle> {
  static constexpr bool is_handle = true;
  static node_kind kind(const handle&) { return node_kind::leaf; }
  template <std::predicate<path_key, handle> Visit>
  static void children(const handle&, Visit&&) {}
};
template <>
struct shardmesh::node_adapter<no_kind> {
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};
template <>
struct shardmesh::node_adapter<wrong_kind> {
  static int kind(const wrong_kind&) { return 0; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};
template <>
struct shardmesh::node_adapter<no_children> {
  static node_kind kind(const no_children&) { return node_kind::leaf; }
};
template <>
struct shardmesh::node_adapter<wrong_make> {
  static node_kind kind(const wrong_make&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
  static int make(node_kind, std::vector<std::pair<path_key, wrong_make>>) { return 0; }
};

namespace {

static_assert(state_node<plain> && state_node<const plain>);
static_assert(state_node<const read_only> && !state_node<read_only>);
static_assert(state_node<handle> && state_node<const handle>);
static_assert(!state_node<no_kind> && !state_node<wrong_kind> && !state_node<no_children>);
static_assert(!state_node<stranger> && !state_node<int> && !state_node<plain&> && !state_node<void>);

static_assert(buildable_state_node<plain> && buildable_state_node<fallible>);
static_assert(!buildable_state_node<const plain> && !buildable_state_node<read_only>);
static_assert(!buildable_state_node<wrong_make> && !buildable_state_node<stranger>);

static_assert(tree_root<plain&> && tree_root<const plain&> && tree_root<handle> && tree_root<handle&>);
static_assert(!tree_root<plain> && !tree_root<stranger&>);
static_assert(std::same_as<root_node<const plain&>, const plain>);

static_assert(std::same_as<node_ref<plain>, plain*> && std::same_as<node_ref<handle>, handle>);
static_assert(std::same_as<node_pointer<const plain>, const plain*>);
static_assert(std::same_as<node_pointer<const handle>, std::optional<handle>>);

using visitor = visit_step(const path&, plain&);
using const_visitor = visit_step(const path&, const plain&);
using silent = void(const path&, plain&);
using stopping = bool(const path&, plain&);
using counting = int(const path&, plain&);
using of_others = visit_step(const path&, stranger&);
static_assert(node_visitor<visitor&, plain> && node_visitor<const_visitor&, plain>);
static_assert(!node_visitor<visitor&, const plain> && !node_visitor<silent&, plain> &&
              !node_visitor<of_others&, plain>);
static_assert(node_observer<silent&, plain> && node_observer<stopping&, plain>);
static_assert(!node_observer<counting&, plain> && !node_observer<of_others&, plain> && !node_observer<int, plain>);

using pairs = visit_step(const path&, plain*, const handle*);
using pairs_of_references = visit_step(const path&, plain&, const handle&);
static_assert(pair_visitor<pairs&, plain, handle>);
static_assert(!pair_visitor<pairs&, handle, plain> && !pair_visitor<pairs_of_references&, plain, handle>);

using change = transformed<plain>(const path&, const read_only&);
static_assert(node_transformer<change&, read_only>);
static_assert(!node_transformer<visitor&, plain> && !node_transformer<change&, plain>);

static_assert(sizeof(path_key) == 16);
static_assert(std::regular<path> && std::totally_ordered<path_key> && std::regular<tree_spec>);
static_assert(!std::default_initializable<path_key>);  // there is no empty key

}  // namespace

TEST_CASE("a node that can fail to be built is a tree of its own") {
  const fallible root;
  const auto flat = flatten_tree(root).value();
  CHECK(build(flat.spec, std::vector<fallible>(1)).has_value());
}
