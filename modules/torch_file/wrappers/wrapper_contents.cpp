// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

// A component of int32 or int64 numbers, in memory.
class integers {
 public:
  integers(const component_form& form, std::span<const std::byte> bytes) : form_(form), bytes_(bytes) {}

  std::int64_t count() const { return *checked_volume(form_.shape); }
  std::int64_t at(std::int64_t element) const {
    const auto width = static_cast<std::size_t>(item_bytes(form_.type));
    const std::byte* const from = bytes_.data() + static_cast<std::size_t>(element) * width;
    std::int32_t narrow = 0;
    std::int64_t wide = 0;
    if (form_.type == dtype::int64) return std::memcpy(&wide, from, sizeof wide), wide;
    return std::memcpy(&narrow, from, sizeof narrow), narrow;
  }
  // The element at a row-major index, for any strides.
  std::int64_t in_order(std::int64_t index) const {
    std::int64_t element = 0;
    for (std::size_t d = form_.shape.rank(); d-- > 0; index /= form_.shape[d])
      element += index % form_.shape[d] * form_.strides[d];
    return at(element);
  }
  const extents& shape() const { return form_.shape; }
  std::string_view name() const { return form_.name; }

 private:
  const component_form& form_;
  std::span<const std::byte> bytes_;
};

class contents_check {
 public:
  contents_check(const wrapper_form& form, std::span<const std::vector<std::byte>> bytes)
      : form_(form), bytes_(bytes) {}

  result<void> run() const {
    switch (form_.family) {
      case wrapper_family::coo:
        return check_coo();
      case wrapper_family::compressed:
        return check_compressed();
      case wrapper_family::nested:
        return check_nested();
      case wrapper_family::jagged:
        return check_jagged();
      default:
        return {};
    }
  }

 private:
  integers numbers(std::size_t component) const { return {form_.components[component], bytes_[component]}; }

  static error outside(const integers& of, std::int64_t index, std::string expected, std::int64_t found) {
    return fail(errc::out_of_bounds,
                fmt::format("the component {} leads out of the tensor at position {}", of.name(), index))
        .with_values(std::move(expected), fmt::format("{}", found));
  }

  result<void> check_coo() const {
    const integers indices = numbers(0);
    const std::int64_t entries = indices.shape()[1];
    for (std::int64_t i = 0; i < indices.count(); ++i) {
      const std::int64_t size = form_.size[static_cast<std::size_t>(i / entries)], index = indices.in_order(i);
      if (index < 0 || index >= size) return outside(indices, i, fmt::format("0 to {}", size - 1), index);
    }
    return {};
  }

  result<void> check_compressed() const {
    const integers pointers = numbers(0), plain = numbers(1);
    const std::size_t batch = pointers.shape().rank() - 1;
    const std::size_t across = batch + 1 - form_.layout->along;
    const std::int64_t block = form_.layout->in_blocks ? form_.components[2].shape[batch + 1 + (across - batch)] : 1;
    const std::int64_t most = form_.size[across] / block, entries = plain.shape()[batch];
    const std::int64_t width = pointers.shape()[batch];
    for (std::int64_t i = 0; i < pointers.count(); ++i) {
      const std::int64_t pointer = pointers.in_order(i);
      const std::int64_t least = i % width == 0 ? 0 : pointers.in_order(i - 1);
      const std::int64_t last = i % width == 0 ? 0 : entries;
      const bool is_end = i % width == width - 1;
      if (pointer < least || pointer > last || (is_end && pointer != entries))
        return outside(pointers, i, fmt::format("{} to {}", is_end ? entries : least, last), pointer);
    }
    for (std::int64_t i = 0; i < plain.count(); ++i) {
      const std::int64_t index = plain.in_order(i);
      if (index < 0 || index >= most) return outside(plain, i, fmt::format("0 to {}", most - 1), index);
    }
    return {};
  }

  // Every tensor must lie within the buffer.
  result<void> check_nested() const {
    const integers sizes = numbers(1), strides = numbers(2), offsets = numbers(3);
    const std::int64_t held = form_.size[0], tensors = offsets.count();
    const std::int64_t dimensions = tensors == 0 ? 0 : sizes.count() / tensors;
    for (std::int64_t t = 0; t < tensors; ++t) {
      const std::int64_t begin = offsets.in_order(t);
      std::optional<std::int64_t> reach = begin;
      bool is_empty = false;
      for (std::int64_t i = t * dimensions; i < (t + 1) * dimensions; ++i) {
        const std::int64_t size = sizes.in_order(i), stride = strides.in_order(i);
        if (size < 0) return outside(sizes, i, "0 or more", size);
        if (stride < 0) return outside(strides, i, "0 or more", stride);
        is_empty |= size == 0;
        const auto step = checked_multiply(std::max<std::int64_t>(size - 1, 0), stride);
        reach = step && reach ? checked_add(*reach, *step) : std::nullopt;
      }
      if (begin < 0 || begin > held) return outside(offsets, t, fmt::format("0 to {}", held), begin);
      if (!is_empty && (!reach || *reach >= held))
        return outside(offsets, t, fmt::format("at most {} elements", held), reach.value_or(INT64_MAX));
    }
    return {};
  }

  result<void> check_jagged() const {
    const integers offsets = numbers(1);
    const std::int64_t held = form_.size[static_cast<std::size_t>(form_.ragged_dimension - 1)];
    const component_form* const lengths = form_.find("lengths");
    for (std::int64_t i = 0; i < offsets.count(); ++i) {
      const std::int64_t least = i == 0 ? 0 : offsets.at(i - 1), offset = offsets.at(i);
      if (offset < least || offset > held) return outside(offsets, i, fmt::format("{} to {}", least, held), offset);
    }
    for (std::int64_t i = 0; lengths != nullptr && i < offsets.count() - 1; ++i) {
      const std::int64_t length = numbers(2).at(i), most = held - offsets.at(i);
      if (length < 0 || length > most) return outside(numbers(2), i, fmt::format("0 to {}", most), length);
    }
    return {};
  }

  const wrapper_form& form_;
  std::span<const std::vector<std::byte>> bytes_;
};

}  // namespace

result<void> check_wrapper_contents(const wrapper_form& form, std::span<const std::vector<std::byte>> bytes) {
  return contents_check(form, bytes).run();
}

}  // namespace shardmesh::torch_file
