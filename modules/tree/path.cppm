// SPDX-License-Identifier: Apache-2.0
// path: where a leaf is in nested containers. Keys are typed, so the string "0" and the index 0 never meet; the dotted
// spelling is a view. Not here: trees (spec), which containers are descended (key_policy).
module;
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
export module shardmesh.tree:path;

import shardmesh.core;

export namespace shardmesh {

/// A mapping's key or a sequence's index. Integers order before strings.
class path_key {
 public:
  path_key(std::int64_t index) : value_(index) {}            // NOLINT: implicit
  path_key(int index) : value_(std::int64_t{index}) {}       // NOLINT: implicit
  path_key(std::string name) : value_(std::move(name)) {}    // NOLINT: implicit
  path_key(const char* name) : value_(std::string(name)) {}  // NOLINT: implicit

  bool is_index() const { return value_.index() == 0; }
  /// Precondition: is_index().
  std::int64_t index() const { return *std::get_if<0>(&value_); }
  /// Precondition: !is_index().
  const std::string& name() const { return *std::get_if<1>(&value_); }

  friend bool operator==(const path_key&, const path_key&) = default;
  friend std::strong_ordering operator<=>(const path_key& a, const path_key& b) {
    if (a.is_index() != b.is_index()) return a.is_index() ? std::strong_ordering::less : std::strong_ordering::greater;
    if (a.is_index()) return a.index() <=> b.index();
    return a.name() <=> b.name();
  }

 private:
  std::variant<std::int64_t, std::string> value_;
};

/// From the root to a node: keys and indices. A regular value, ordered like its list of keys.
class path {
 public:
  path() = default;
  path(std::initializer_list<path_key> keys) : keys_(keys) {}
  explicit path(std::vector<path_key> keys) : keys_(std::move(keys)) {}

  std::size_t size() const { return keys_.size(); }
  bool empty() const { return keys_.empty(); }
  const path_key& operator[](std::size_t i) const { return keys_[i]; }
  auto begin() const { return keys_.begin(); }
  auto end() const { return keys_.end(); }
  void push_back(path_key key) { keys_.push_back(std::move(key)); }
  void pop_back() { keys_.pop_back(); }

  friend bool operator==(const path&, const path&) = default;
  friend std::strong_ordering operator<=>(const path& a, const path& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::vector<path_key> keys_;
};

/// An exact spelling: different paths have different ones. `model.layers[0]["a.b"]`: names of letters, digits and '_'
/// that do not begin with a digit stand as they are, others are quoted.
std::string to_string(const path& p);
/// PyTorch's spelling, the keys joined with "."; different paths can share it: "layers.0.weight".
std::string dotted(const path& p);
/// Combines the keys' types and values.
std::size_t hash_value(const path& p);

}  // namespace shardmesh

export template <>
struct std::hash<shardmesh::path> {
  std::size_t operator()(const shardmesh::path& p) const { return shardmesh::hash_value(p); }
};
