// SPDX-License-Identifier: Apache-2.0
// Random trees of Python objects, and the number of runs of property tests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tagged_tree.hpp>
#include <utility>

namespace random_tree {

/// `runs`, or five times as many with SHARDMESH_PROPERTY_RUNS=long.
inline int runs(int count) {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string_view(text) == "long" ? 5 * count : count;
}

class maker {
 public:
  explicit maker(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }

  tagged::node leaf() {
    if (one_in(2)) return {"tensor", static_cast<std::int64_t>(below(1000))};
    if (one_in(3)) return {"str", "s"};
    return {"int", static_cast<std::int64_t>(below(1000))};
  }
  /// A key that collides with others when only its text is compared.
  tagged::key key() {
    static const char* const names[] = {"", "a", "b", "a.b", "0", "1", "a\"]", "weight", "x[0]", "a.", "-1", "layers"};
    if (one_in(3)) return static_cast<std::int64_t>(below(4)) - 1;
    return std::string(names[below(std::size(names))]) + (one_in(4) ? std::to_string(below(100)) : "");
  }
  /// A tree with at most `depth` nested containers; now and then one has up to 300 children.
  tagged::node tree(std::size_t depth) {
    if (depth == 0 || one_in(4)) return leaf();
    static const char* const types[] = {"dict", "dict", "OrderedDict", "list", "list", "tuple"};
    tagged::node made{types[below(std::size(types))], nullptr};
    const bool wide = one_in(20);
    const std::size_t count = wide ? below(300) : below(6);
    std::set<tagged::key> used;
    for (std::size_t i = 0; i < count; ++i) {
      tagged::key k = static_cast<std::int64_t>(i);
      if (made.is_mapping()) k = wide && !one_in(3) ? tagged::key("k" + std::to_string(below(1000))) : key();
      if (made.is_mapping() && !used.insert(k).second) continue;
      made.children.emplace_back(std::move(k), wide ? tree(one_in(8) ? 1 : 0) : tree(depth - 1));
    }
    return made;
  }
  /// A similar tree: children are dropped, added, reordered, and replaced.
  tagged::node like(const tagged::node& n) {
    if (one_in(15)) return tree(2);
    tagged::node made = n;
    for (std::size_t i = made.children.size(); i-- > 0;) {
      made.children[i].second = like(made.children[i].second);
      if (one_in(12)) made.children.erase(made.children.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (made.is_mapping() && one_in(3) && made.children.size() > 1)
      for (std::size_t i = 0; i + 1 < made.children.size(); ++i)
        std::swap(made.children[i], made.children[i + below(made.children.size() - i)]);
    for (std::size_t i = 0; i < made.children.size() && !made.is_mapping(); ++i)
      made.children[i].first = static_cast<std::int64_t>(i);
    if (made.is_mapping() && one_in(4)) {
      tagged::key extra = std::string("new") + std::to_string(below(5));
      bool is_new = true;
      for (const auto& [k, child] : made.children) is_new &= k != extra;
      if (is_new) made.children.emplace_back(std::move(extra), tree(1));
    }
    return made;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace random_tree
