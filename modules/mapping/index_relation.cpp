// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// A loop of one side of a part, by the name of its factor.
struct side_loop {
  index_factor factor;
  std::int64_t extent = 1;
  index_loop::step step;
};

// The elements of a tensor that belong to one part.
struct tensor_part {
  std::size_t tensor = 0;
  extents origin;
  std::vector<side_loop> loops;
};

using parts_by_name = std::map<std::string, tensor_part, std::less<>>;

error too_large(const index_tensor& tensor) {
  return fail(errc::overflow, fmt::format("the size of '{}' does not fit in 64 bits", tensor.alias));
}

result<std::int64_t> size_of(const index_factor& factor, const named_sizes& sizes) {
  if (factor.name == "1") return 1;
  const auto found = sizes.find(factor.name);
  if (found == sizes.end())
    return fail(errc::missing_key, fmt::format("the size of the factor '{}' is unknown", factor.name))
        .with_hint(fmt::format("pass {}=VALUE as a size, or add it to [sizes]", factor.name));
  if (found->second < 0)
    return fail(errc::invalid_argument, fmt::format("the size of the factor '{}' is negative", factor.name))
        .with_values("0 or more", fmt::format("{}", found->second));
  return found->second;
}

result<std::int64_t> size_of(const index_tensor& tensor, const std::vector<index_factor>& factors,
                             const named_sizes& sizes) {
  std::int64_t product = 1;
  for (const index_factor& one : factors) {
    SHARDMESH_TRY(const std::int64_t size, size_of(one, sizes));
    const auto next = checked_multiply(product, size);
    if (!next) return too_large(tensor);
    product = *next;
  }
  return product;
}

result<std::int64_t> size_of(const index_tensor& tensor, const index_term& term, const named_sizes& sizes) {
  if (term.segments.empty()) return size_of(tensor, std::vector<index_factor>{term.factor}, sizes);
  std::int64_t sum = 0;
  for (const index_segment& one : term.segments) {
    SHARDMESH_TRY(const std::int64_t size, size_of(tensor, one.factors, sizes));
    const auto next = checked_add(sum, size);
    if (!next) return too_large(tensor);
    sum = *next;
  }
  return sum;
}

// Lists the parts of one tensor: one for each choice of a segment in each of its sums.
class part_lister {
 public:
  part_lister(const index_tensor& tensor, std::size_t number, bool is_left, const named_sizes& sizes)
      : tensor_(tensor), number_(number), is_left_(is_left), sizes_(sizes) {}

  // Adds the parts, and returns the tensor's shape and its number of related elements.
  result<related_tensor> list(parts_by_name& parts) {
    related_tensor made{tensor_.alias, {}, 0, {}};
    std::vector<std::vector<std::int64_t>> strides;  // per dimension, per term
    for (const std::vector<index_term>& dimension : tensor_.dimensions) {
      std::int64_t size = 1;
      std::vector<std::int64_t>& of = strides.emplace_back(dimension.size(), 1);
      for (std::size_t t = dimension.size(); t-- > 0;) {
        of[t] = size;
        SHARDMESH_TRY(const std::int64_t one, size_of(tensor_, dimension[t], sizes_));
        const auto next = checked_multiply(size, one);
        if (!next) return too_large(tensor_);
        size = *next;
      }
      made.shape.push_back(size);
    }
    if (!checked_volume(made.shape)) return too_large(tensor_);
    tensor_part whole{number_, extents::filled(made.shape.rank(), 0), {}};
    shape_ = made.shape;
    SHARDMESH_TRY(made.related_elements, choose(parts, std::move(whole), strides, 0, 0, std::nullopt));
    made.fillers = std::move(fillers_);
    return made;
  }

 private:
  // Continues with term `t` of dimension `d`. `name` is the part that the segments chosen so far name. Returns the
  // number of elements that belong to parts. A segment of filler is one region, whatever sums follow: the combinations
  // of their segments would be exponentially many.
  result<std::int64_t> choose(parts_by_name& parts, tensor_part here,
                              const std::vector<std::vector<std::int64_t>>& strides, std::size_t d, std::size_t t,
                              std::optional<std::string> name) {
    while (d < tensor_.dimensions.size() && t == tensor_.dimensions[d].size()) ++d, t = 0;
    if (d == tensor_.dimensions.size()) return add(parts, std::move(here), name.value_or(tensor_.alias));
    const index_term& term = tensor_.dimensions[d][t];
    const std::int64_t stride = strides[d][t];
    if (term.segments.empty()) {
      SHARDMESH_TRY(add_loops(here, {term.factor}, d, stride));
      return choose(parts, std::move(here), strides, d, t + 1, std::move(name));
    }
    std::int64_t begin = 0, related = 0;
    for (const index_segment& segment : term.segments) {
      SHARDMESH_TRY(const std::int64_t size, size_of(tensor_, segment.factors, sizes_));
      const std::int64_t offset = begin * stride;
      begin += size;
      if (segment.part.empty()) {
        SHARDMESH_TRY(add_filler(here, d, offset, size * stride));
        continue;
      }
      if (name && *name != segment.part)
        return fail(errc::invalid_argument, fmt::format("a region of '{}' belongs to the parts '{}' and '{}'",
                                                        tensor_.alias, *name, segment.part))
            .with_hint("name '_' in one of the sums, or split the rule");
      tensor_part next = here;
      next.origin[d] += offset;
      SHARDMESH_TRY(add_loops(next, segment.factors, d, stride));
      SHARDMESH_TRY(const std::int64_t below,
                    choose(parts, std::move(next), strides, d, t + 1, std::optional(segment.part)));
      related += below;
    }
    return related;
  }

  // Adds the loops of factors whose last one moves by `stride`.
  result<void> add_loops(tensor_part& to, const std::vector<index_factor>& factors, std::size_t d,
                         std::int64_t stride) {
    for (std::size_t f = factors.size(); f-- > 0;) {
      SHARDMESH_TRY(const std::int64_t size, size_of(factors[f], sizes_));
      for (const side_loop& other : to.loops)
        if (other.factor.name == factors[f].name && factors[f].name != "1")
          return fail(errc::invalid_argument,
                      fmt::format("the factor '{}' occurs twice in '{}'", factors[f].name, tensor_.alias));
      to.loops.push_back({factors[f], size, {static_cast<std::int32_t>(d), stride}});
      stride *= std::max(size, std::int64_t{1});
    }
    return {};
  }

  // Adds the region of filler that begins at `offset` of dimension `d`, with all later dimensions.
  result<void> add_filler(const tensor_part& part, std::size_t d, std::int64_t offset, std::int64_t length) {
    index_filler made{part.origin, {}};
    made.origin[d] += offset;
    const auto add_loop = [&](std::int64_t extent, index_loop::step step) {
      if (extent == 1) return;
      made.loops.push_back({extent, {}, {}});
      (is_left_ ? made.loops.back().left : made.loops.back().right) = step;
    };
    for (const side_loop& loop : part.loops) add_loop(loop.extent, loop.step);
    add_loop(length, {static_cast<std::int32_t>(d), 1});
    for (std::size_t later = d + 1; later < shape_.rank(); ++later)
      add_loop(shape_[later], {static_cast<std::int32_t>(later), 1});
    if (made.loops.size() > max_rank)
      return fail(errc::rank_too_large, fmt::format("filler of '{}' has too many factors", tensor_.alias))
          .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", made.loops.size()));
    fillers_.push_back(std::move(made));
    return {};
  }

  result<std::int64_t> add(parts_by_name& parts, tensor_part part, const std::string& name) {
    // A part with elements is at most as large as its tensor. The extents of an empty part could overflow.
    const bool is_empty =
        std::any_of(part.loops.begin(), part.loops.end(), [](const side_loop& loop) { return loop.extent == 0; });
    std::int64_t count = is_empty ? 0 : 1;
    if (!is_empty)
      for (const side_loop& loop : part.loops) count *= loop.extent;
    if (!parts.emplace(name, std::move(part)).second)
      return fail(errc::invalid_argument, fmt::format("the part '{}' is on one side of the rule twice", name));
    return count;
  }

  const index_tensor& tensor_;
  std::size_t number_;
  bool is_left_;
  const named_sizes& sizes_;
  extents shape_;
  std::vector<index_filler> fillers_;
};

const side_loop* find_loop(const tensor_part& part, const index_factor& factor) {
  for (const side_loop& loop : part.loops)
    if (loop.factor.name == factor.name) return &loop;
  return nullptr;
}

// Joins the loops of a part's two sides by name.
result<index_piece> join(const std::string& name, const tensor_part& left, const tensor_part& right) {
  index_piece made{left.tensor, right.tensor, left.origin, right.origin, {}};
  const auto add = [&](const index_factor& factor, std::int64_t extent, index_loop::step on_left,
                       index_loop::step on_right, std::string_view lacking) -> result<void> {
    const bool is_alone = on_left.dimension < 0 || on_right.dimension < 0;
    if (is_alone && !factor.repeats && extent != 1)
      return fail(errc::invalid_argument,
                  fmt::format("the {} side of the part '{}' lacks the factor '{}'", lacking, name, factor.name))
          .with_hint(fmt::format("write {0}* if its elements are repeated {0} times", factor.name));
    // Without a repetition, the elements of the other side would have no counterpart.
    if (is_alone && extent == 0)
      return fail(errc::invalid_argument,
                  fmt::format("the factor '{}' of the part '{}' repeats elements 0 times", factor.name, name))
          .with_values("1 or more", "0");
    if (extent != 1) made.loops.push_back({extent, on_left, on_right});
    return {};
  };
  for (const side_loop& loop : left.loops) {
    const side_loop* const partner = loop.factor.name == "1" ? nullptr : find_loop(right, loop.factor);
    if (partner != nullptr && (partner->factor.repeats || loop.factor.repeats))
      return fail(errc::invalid_argument,
                  fmt::format("the factor '{}*' of the part '{}' is on both sides", loop.factor.name, name))
          .with_hint("leave out the '*'");
    SHARDMESH_TRY(add(loop.factor, loop.extent, loop.step, partner ? partner->step : index_loop::step{}, "right"));
  }
  for (const side_loop& loop : right.loops)
    if (loop.factor.name == "1" || find_loop(left, loop.factor) == nullptr)
      SHARDMESH_TRY(add(loop.factor, loop.extent, {}, loop.step, "left"));
  if (made.loops.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("the part '{}' has too many factors", name))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", made.loops.size()));
  return made;
}

}  // namespace

result<void> infer_sizes(const index_rule& rule, std::span<const std::optional<extents>> left,
                         std::span<const std::optional<extents>> right, named_sizes& sizes) {
  bool has_learned = true;
  const auto learn = [&](const index_tensor& tensor, const std::optional<extents>& shape) -> result<void> {
    if (!shape) return {};
    if (shape->rank() != tensor.dimensions.size())
      return fail(errc::shape_mismatch,
                  fmt::format("'{}' has another number of dimensions than in the rule", tensor.alias))
          .with_values(fmt::format("{} dimensions", tensor.dimensions.size()), to_string(*shape));
    for (std::size_t d = 0; d < tensor.dimensions.size(); ++d) {
      std::int64_t known = 1;
      const index_factor* unknown = nullptr;
      bool is_decidable = true;
      for (const index_term& term : tensor.dimensions[d]) {
        const bool is_unknown = term.segments.empty() && term.factor.name != "1" && !sizes.contains(term.factor.name);
        if (is_unknown) {
          is_decidable = is_decidable && unknown == nullptr;
          unknown = &term.factor;
          continue;
        }
        const auto size = size_of(tensor, term, sizes);
        const auto next = size ? checked_multiply(known, *size) : std::nullopt;
        is_decidable = is_decidable && next.has_value();
        known = next.value_or(1);
      }
      if (unknown == nullptr || !is_decidable || known == 0) continue;
      if ((*shape)[d] % known != 0)
        return fail(errc::shape_mismatch,
                    fmt::format("dimension {} of '{}' is not divisible by its known factors", d, tensor.alias))
            .with_values(fmt::format("a multiple of {}", known), fmt::format("{}", (*shape)[d]));
      sizes.emplace(unknown->name, (*shape)[d] / known);
      has_learned = true;
    }
    return {};
  };
  while (std::exchange(has_learned, false)) {
    for (std::size_t i = 0; i < rule.left.size(); ++i) SHARDMESH_TRY(learn(rule.left[i], left[i]));
    for (std::size_t i = 0; i < rule.right.size(); ++i) SHARDMESH_TRY(learn(rule.right[i], right[i]));
  }
  return {};
}

result<index_relation> relate(const index_rule& rule, const named_sizes& sizes) {
  index_relation made;
  parts_by_name left, right;
  for (std::size_t i = 0; i < rule.left.size(); ++i) {
    SHARDMESH_TRY(related_tensor one, part_lister(rule.left[i], i, true, sizes).list(left));
    made.left.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < rule.right.size(); ++i) {
    SHARDMESH_TRY(related_tensor one, part_lister(rule.right[i], i, false, sizes).list(right));
    made.right.push_back(std::move(one));
  }
  // If each side has only one part, the two correspond, whatever their names.
  if (left.size() == 1 && right.size() == 1) {
    SHARDMESH_TRY(index_piece piece, join(left.begin()->first, left.begin()->second, right.begin()->second));
    made.pieces.push_back(std::move(piece));
    return made;
  }
  for (const auto& [name, part] : left) {
    const auto partner = right.find(name);
    if (partner == right.end())
      return fail(errc::invalid_argument, fmt::format("the right side of the rule lacks the part '{}'", name));
    SHARDMESH_TRY(index_piece piece, join(name, part, partner->second));
    made.pieces.push_back(std::move(piece));
  }
  for (const auto& [name, part] : right)
    if (!left.contains(name))
      return fail(errc::invalid_argument, fmt::format("the left side of the rule lacks the part '{}'", name));
  std::sort(made.pieces.begin(), made.pieces.end(), [](const index_piece& a, const index_piece& b) {
    return std::tie(a.left_tensor, a.right_tensor, a.right_origin) <
           std::tie(b.left_tensor, b.right_tensor, b.right_origin);
  });
  return made;
}

}  // namespace shardmesh
