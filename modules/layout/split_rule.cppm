// SPDX-License-Identifier: Apache-2.0
// split_rule: the way in which a length is cut into parts. Libraries differ here (10 over 4 is 3,3,3,1 or 3,3,2,2), so
// the rule is a named policy and never an assumption.
export module shardmesh.layout:split_rule;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The indices [begin, begin + size).
struct index_range {
  std::int64_t begin = 0, size = 0;
  friend constexpr bool operator==(const index_range&, const index_range&) = default;
};

/// The kinds of a `split_rule`, named after the functions that make them.
enum class split_policy : std::uint8_t {
  torch_chunk,     // 10 over 4 is 3, 3, 3, 1
  balanced,        // 10 over 4 is 3, 3, 2, 2
  explicit_sizes,  // given sizes
  weighted         // in proportion to given weights
};

/// A rule for cutting a length into consecutive parts.
class split_rule {
 public:
  /// torch.chunk: every part has ceil(length / parts) indices, except that the last parts have fewer or none. 10 over 4
  /// is 3, 3, 3, 1.
  constexpr split_rule() = default;
  static constexpr split_rule torch_chunk() { return {}; }
  /// The parts differ by at most one, with the larger ones first: 10 over 4 is 3, 3, 2, 2.
  static constexpr split_rule balanced() { return split_rule(split_policy::balanced); }
  /// The given sizes, one per part; their sum must be the length.
  /// \errors errc::invalid_argument, errc::overflow
  static result<split_rule> explicit_sizes(std::vector<std::int64_t> sizes);
  /// In proportion to the given weights: part i ends at floor(length * (w0 + .. + wi) / sum).
  /// \errors errc::invalid_argument when a weight is negative or all are 0, errc::overflow
  static result<split_rule> weighted(std::vector<std::int64_t> weights);

  constexpr split_policy policy() const { return policy_; }
  /// Running sums of the sizes or weights; empty for the other policies.
  const std::vector<std::int64_t>& ends() const { return ends_; }

  /// Returns part `index` of `parts`. Precondition: this rule `fits(length, parts)`, and 0 <= index < parts. Cost:
  /// O(1).
  constexpr index_range part(std::int64_t length, std::int64_t parts, std::int64_t index) const {
    const std::int64_t begin = boundary(length, parts, index);
    return {begin, boundary(length, parts, index + 1) - begin};
  }

  /// Returns the part that holds `position`. Precondition: 0 <= position < length. Cost: O(1), or O(log parts) for
  /// explicit sizes and weights.
  constexpr std::int64_t part_of(std::int64_t length, std::int64_t parts, std::int64_t position) const {
    if (policy_ == split_policy::torch_chunk) return position / chunk(length, parts);
    if (policy_ == split_policy::balanced) {
      const std::int64_t low = length / parts, larger = length % parts;
      if (position < larger * (low + 1)) return position / (low + 1);
      return larger + (position - larger * (low + 1)) / low;
    }
    std::int64_t first = 0, last = parts - 1;  // the last part whose begin is <= position
    while (first < last) {
      const std::int64_t middle = first + (last - first + 1) / 2;
      if (boundary(length, parts, middle) <= position)
        first = middle;
      else
        last = middle - 1;
    }
    return first;
  }

  /// Returns whether this rule can cut the length into that many parts.
  constexpr bool fits(std::int64_t length, std::int64_t parts) const {
    if (policy_ == split_policy::torch_chunk || policy_ == split_policy::balanced) return true;
    if (static_cast<std::int64_t>(ends_.size()) != parts) return false;
    return policy_ == split_policy::weighted || ends_.back() == length;
  }

  friend constexpr bool operator==(const split_rule&, const split_rule&) = default;

 private:
  constexpr explicit split_rule(split_policy policy) : policy_(policy) {}

  static constexpr std::int64_t chunk(std::int64_t length, std::int64_t parts) {
    return length / parts + (length % parts != 0 ? 1 : 0);
  }

  // The beginning of part `index`; `boundary(parts)` is the length.
  constexpr std::int64_t boundary(std::int64_t length, std::int64_t parts, std::int64_t index) const {
    if (index == parts) return length;
    if (index == 0) return 0;
    switch (policy_) {
      case split_policy::torch_chunk: {
        const std::int64_t size = chunk(length, parts);
        return size == 0 || index > length / size ? length : size * index;
      }
      case split_policy::balanced:
        return length / parts * index + std::min(index, length % parts);
      case split_policy::explicit_sizes:
        return ends_[static_cast<std::size_t>(index - 1)];
      case split_policy::weighted: {
        __extension__ using wide = unsigned __int128;
        const wide share = static_cast<wide>(length) * static_cast<wide>(ends_[static_cast<std::size_t>(index - 1)]);
        return static_cast<std::int64_t>(share / static_cast<wide>(ends_.back()));
      }
    }
    return length;
  }

  split_policy policy_ = split_policy::torch_chunk;
  std::vector<std::int64_t> ends_;
};

/// Formats a rule as "torch_chunk", "balanced", "sizes:3,3,4", or "weights:1,2".
std::string to_string(const split_rule& rule);
/// Parses the text of a rule. \errors errc::invalid_argument with the text, errc::overflow
result<split_rule> parse_split_rule(std::string_view text);

}  // namespace shardmesh
