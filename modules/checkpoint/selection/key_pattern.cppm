// SPDX-License-Identifier: Apache-2.0
// key_pattern: a compiled regular expression over keys, used by the rules of selection and placement.
export module shardmesh.checkpoint:key_pattern;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// An RE2 expression (linear time) that matches whole keys. Keys are byte strings: a key that is not UTF-8 is matched
/// byte by byte. A "." matches any character, including a newline. A pattern is cheap to copy. A default-constructed
/// pattern matches only the empty key.
class key_pattern {
 public:
  key_pattern() = default;
  /// Compiles an expression.
  /// \errors errc::invalid_argument with the text and RE2's message
  static result<key_pattern> compile(std::string_view expression);
  /// Makes a pattern that matches this key and no other.
  static key_pattern exactly(std::string_view key);

  bool matches(std::string_view key) const;
  /// Rewrites a matching key as `replacement`, in which \0 is the key and \1 to \9 are the groups. Returns nothing when
  /// the key does not match. Precondition: `check_replacement` accepts `replacement`.
  std::optional<std::string> rewritten(std::string_view key, const std::string& replacement) const;
  /// Checks that a replacement names only groups of the expression.
  /// \errors errc::invalid_argument with RE2's message, if it names another group
  result<void> check_replacement(std::string_view replacement) const;
  /// Returns the text of the expression.
  const std::string& text() const;

  friend bool operator==(const key_pattern& a, const key_pattern& b) { return a.text() == b.text(); }

 private:
  struct compiled;
  std::shared_ptr<const compiled> compiled_;
};

}  // namespace shardmesh

namespace shardmesh {

// Returns the hint "did you mean KEY? " for a pattern that matches none of the keys; empty unless the pattern is a
// plain name and a key is close to it.
std::string suggestion(const key_pattern& unused, std::span<const std::string_view> keys);

}  // namespace shardmesh
