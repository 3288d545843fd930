// SPDX-License-Identifier: Apache-2.0
// Properties of state dicts and their leaves, and the types that they refuse. Compiling is the test.
#include <array_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.state;
import shardmesh.tree;

using namespace shardmesh;
using test::array_tensor;
using test::unique_tensor;

// A user's types, with functions that argument-dependent look-up finds.
namespace user {

struct alone {};
inline result<local_state> local_view(alone&) {
  return local_state();
}
struct by_rank {};
inline result<const_local_state> local_view(const by_rank&, std::int32_t) {
  return const_local_state();
}
struct without_result {};
inline local_state local_view(without_result&) {
  return {};
}
struct of_something_else {};
inline result<int> local_view(of_something_else&) {
  return 1;
}

struct adapted {};

}  // namespace user

// As for a type of another library.
template <>
struct shardmesh::state_adapter<user::adapted> {
  static result<const_local_state> local_view(const user::adapted&) { return const_local_state(); }
};

namespace {

struct no_tensor {};

// The type of a state dict exists only for local tensors.
template <class T>
concept has_state_dict = requires { typename state_dict<T>; };
static_assert(has_state_dict<array_tensor> && has_state_dict<unique_tensor> && has_state_dict<host_tensor>);
static_assert(!has_state_dict<no_tensor> && !has_state_dict<int>);

// They copy if their tensors do.
static_assert(std::regular<state_value<array_tensor>> && std::regular<state_dict<array_tensor>>);
static_assert(std::movable<state_value<unique_tensor>> && !std::copy_constructible<state_value<unique_tensor>>);
static_assert(std::movable<state_dict<unique_tensor>> && !std::copy_constructible<state_dict<unique_tensor>>);
static_assert(std::movable<named_part<unique_tensor>>);

// Types that a leaf can be made from, and types that would lose something.
using value = state_value<array_tensor>;
static_assert(std::constructible_from<value, bool> && std::constructible_from<value, std::int64_t>);
static_assert(std::constructible_from<value, std::uint32_t> && std::constructible_from<value, float>);
static_assert(std::constructible_from<value, const char*> && std::constructible_from<value, std::string>);
static_assert(std::constructible_from<value, array_tensor> && std::constructible_from<value, opaque_object>);
static_assert(!std::constructible_from<value, std::uint64_t> && !std::constructible_from<value, char>);
static_assert(!std::constructible_from<value, long double> && !std::constructible_from<value, no_tensor>);
static_assert(!std::constructible_from<value, int*>);
static_assert(state_integer<short> && !state_integer<bool> && !state_integer<char> && !state_integer<std::uint64_t>);
static_assert(state_float<double> && !state_float<long double>);

// State dicts are trees for module tree.
static_assert(state_node<dict_node<array_tensor>> && state_node<dict_node<const array_tensor>>);
static_assert(state_node<dict_node<unique_tensor>> && !buildable_state_node<dict_node<array_tensor>>);
static_assert(!state_node<state_dict<array_tensor>>);

// Functions that users supply.
constexpr auto keeps = [](const path&, value&) { return leaf_change<array_tensor>::keep(); };
constexpr auto says_nothing = [](const path&, value&) {};
constexpr auto keeps_another = [](const path&, value&) { return leaf_change<unique_tensor>::keep(); };
static_assert(leaf_transformer<decltype(keeps), array_tensor>);
static_assert(!leaf_transformer<decltype(says_nothing), array_tensor>);
static_assert(!leaf_transformer<decltype(keeps_another), array_tensor>);
constexpr auto reads = [](int&) { return value(); };
constexpr auto reads_or_fails = [](int&) -> result<value> { return value(); };
constexpr auto reads_text = [](int&) { return std::string(); };
static_assert(leaf_reader<decltype(reads), int> && leaf_reader<decltype(reads_or_fails), int>);
static_assert(!leaf_reader<decltype(reads_text), int> && !leaf_reader<decltype(reads), std::string>);
constexpr auto writes = [](value&) { return 1; };
static_assert(leaf_writer<decltype(writes), int, array_tensor> && !leaf_writer<decltype(writes), long, array_tensor>);
static_assert(!leaf_writer<decltype(writes), int, unique_tensor>);

// States that `save` takes as they are, and that `load` writes through. A type's own `local_view` counts.
using dict = state_dict<array_tensor>;
static_assert(has_writable_local_view<dict> && has_writable_local_view<state_dict<unique_tensor>>);
static_assert(has_local_view<const dict> && !has_writable_local_view<const dict>);
static_assert(has_writable_local_view<fsdp_model> && has_writable_local_view<const fsdp_model>);
static_assert(has_writable_local_view<user::alone> && !has_local_view<const user::alone>);
static_assert(has_local_view<user::by_rank> && !has_writable_local_view<user::by_rank>);
static_assert(!has_local_view<user::without_result> && !has_local_view<user::of_something_else>);
static_assert(!has_local_view<no_tensor> && !has_local_view<int> && !has_local_view<array_tensor>);
static_assert(!has_local_view<local_state> && !has_local_view<std::vector<array_tensor>>);
static_assert(has_local_view<user::adapted> && has_local_view<const user::adapted>);
static_assert(!has_writable_local_view<user::adapted>);
using map = std::map<std::string, array_tensor>;
static_assert(map_of_tensors<map> && map_of_tensors<std::unordered_map<std::string, unique_tensor>>);
static_assert(!map_of_tensors<std::map<int, array_tensor>> && !map_of_tensors<std::map<std::string, no_tensor>>);
static_assert(!map_of_tensors<std::vector<array_tensor>> && !map_of_tensors<dict> && !map_of_tensors<int>);
static_assert(has_writable_local_view<map> && has_local_view<const map> && !has_writable_local_view<const map>);
static_assert(!has_local_view<std::map<int, array_tensor>>);

// A temporary can be saved. It cannot be loaded, because the values would be lost.
template <class S>
concept saved = requires(S&& state, any_communicator& comm) {
  save("out", std::forward<S>(state), comm);
  save("out", std::forward<S>(state));
  start_save("out", std::forward<S>(state), comm);
};
template <class S>
concept loaded = requires(S&& state, any_communicator& comm) {
  load("out", std::forward<S>(state), comm);
  load("out", std::forward<S>(state));
};
static_assert(saved<dict&> && saved<const dict&> && saved<dict> && saved<user::alone> && saved<const user::by_rank&>);
static_assert(!saved<no_tensor&> && !saved<user::of_something_else&>);
static_assert(loaded<dict&> && loaded<const fsdp_model&> && loaded<user::alone&>);
static_assert(!loaded<dict> && !loaded<const dict&> && !loaded<user::by_rank&> && !loaded<no_tensor&>);

// A state dict can be split and flattened without copies; a copy of a part needs copyable tensors.
template <class D>
concept movable_functions = requires(D d) {
  flatten(std::move(d), key_policy::typed);
  flatten_nested_shards(std::move(d));
  digest(d);
};
template <class D>
concept has_subtree = requires(const D& d) { d.subtree(path()); };
static_assert(movable_functions<state_dict<unique_tensor>> && movable_functions<state_dict<array_tensor>>);
static_assert(has_subtree<state_dict<array_tensor>> && !has_subtree<state_dict<unique_tensor>>);

}  // namespace

TEST_CASE("state dicts have the shape that the static checks ask for") {
  SUCCEED();
}
