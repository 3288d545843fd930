// SPDX-License-Identifier: Apache-2.0
// path: the place of a leaf in nested containers. Keys are typed, so the string "0" and the index 0 never collide; the
// dotted text is only a view. Trees are in `spec`, and the choice of containers to descend into is in `key_policy`.
export module shardmesh.tree:path;

import shardmesh.std;
import shardmesh.core;
export import :key;

export namespace shardmesh {

/// The keys and indices from the root to a node. A regular value, ordered like its list of keys.
class path {
 public:
  path() = default;
  path(std::initializer_list<path_key> keys) : keys_(keys) {}
  explicit path(std::vector<path_key> keys) : keys_(std::move(keys)) {}

  inline std::size_t size() const { return keys_.size(); }
  inline bool empty() const { return keys_.empty(); }
  inline const path_key& operator[](std::size_t i) const { return keys_[i]; }
  /// Precondition: !empty().
  inline const path_key& back() const { return keys_.back(); }
  // Raw pointers, so that an importer can loop over a path without including <vector>.
  inline const path_key* begin() const { return keys_.data(); }
  inline const path_key* end() const { return keys_.data() + keys_.size(); }
  inline void reserve(std::size_t keys) { keys_.reserve(keys); }
  inline void push_back(path_key key) { keys_.push_back(std::move(key)); }
  inline void append(const path& rest) { keys_.insert(keys_.end(), rest.keys_.begin(), rest.keys_.end()); }
  inline void pop_back() { keys_.pop_back(); }

  friend bool operator==(const path&, const path&) = default;
  friend std::strong_ordering operator<=>(const path& a, const path& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::vector<path_key> keys_;
};

/// Formats a path exactly: different paths of a tree have different texts, such as `model.layers[0]["a.b"]`. Names of
/// letters, digits, and '_' that do not begin with a digit are written as they are; other names are quoted.
std::string to_string(const path& p);
/// Formats a path as PyTorch does: the keys from `first` on, joined with ".", such as "layers.0.weight". Different
/// paths can have the same text.
std::string dotted(const path& p, std::size_t first = 0);
/// Combines the hashes of the keys.
std::size_t hash_value(const path& p);

}  // namespace shardmesh

export template <>
struct std::hash<shardmesh::path> {
  std::size_t operator()(const shardmesh::path& p) const { return shardmesh::hash_value(p); }
};
