// SPDX-License-Identifier: Apache-2.0
// key_pattern: a regular expression over keys, compiled: what rules of selection and of placement are made of.
export module shardmesh.checkpoint:key_pattern;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// An RE2 expression (linear time) that matches whole keys. Keys are byte strings: those that are not UTF-8 are matched
/// byte by byte, and "." is any character, a newline too. A value, cheap to copy; one that was made from nothing
/// matches the empty key only.
class key_pattern {
 public:
  key_pattern() = default;
  /// \errors errc::invalid_argument with the text and RE2's message
  static result<key_pattern> compile(std::string_view expression);
  /// Matches this key and no other.
  static key_pattern exactly(std::string_view key);

  bool matches(std::string_view key) const;
  /// What a matching key becomes: `replacement`, in which \0 is the key and \1 to \9 are the groups. Nothing when the
  /// key does not match. Precondition: `check_replacement` accepts it.
  std::optional<std::string> rewritten(std::string_view key, const std::string& replacement) const;
  /// \errors errc::invalid_argument with RE2's message, when it names a group that the expression has not
  result<void> check_replacement(std::string_view replacement) const;
  /// The expression.
  const std::string& text() const;

  friend bool operator==(const key_pattern& a, const key_pattern& b) { return a.text() == b.text(); }

 private:
  struct compiled;
  std::shared_ptr<const compiled> compiled_;
};

}  // namespace shardmesh

namespace shardmesh {

// "did you mean KEY? " for a pattern that matches none of the keys, when it is a name rather than an expression and a
// key is near; else empty.
std::string suggestion(const key_pattern& unused, std::span<const std::string_view> keys);

}  // namespace shardmesh
