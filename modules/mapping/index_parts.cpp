// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :index_parts;

namespace shardmesh {
namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

result<related_tensor> add_parts(const index_tensor& tensor, std::size_t number, bool is_left, const named_sizes& sizes,
                                 parts_by_name& parts) {
  return part_lister(tensor, number, is_left, sizes).list(parts);
}

}  // namespace shardmesh
