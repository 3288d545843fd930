// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :gather;
import :mapped_source;

namespace shardmesh {
namespace {

// A computed box whose elements lie apart in the destination has at most this many bytes.
constexpr std::int64_t tile_bytes = std::int64_t{4} << 20;
// A box of a transposed tensor is wide enough for runs of this many bytes in the source, if it has the elements.
constexpr std::int64_t source_run_bytes = std::int64_t{8} << 10;

class mapped_source final : public computed_source {
 public:
  mapped_source(const mapping_input& input, const bound_tensor& tensor, std::string file)
      : computed_source(tensor.type, tensor.shape, std::move(file)),
        input_(input),
        tensor_(tensor),
        instance_(input.bound->instances[tensor.instance]),
        relation_(input.bound->relations[instance_.relation]),
        transposed_(is_scalar() ? std::vector<std::size_t>{}
                                : transposed_dimensions(relation_.relation, tensor.tensor, tensor.stacked.rank())) {}

  // The repetitions are compared in a copy of the box, so its size must be bounded.
  bool prefers_large_reads() const override { return !transposed_.empty() && !has_repetitions(); }

 private:
  // A tile of a transposed tensor has long runs in the source, and then whole rows of the target.
  extents piece_sizes(const extents& sizes) const override {
    if (transposed_.empty()) return computed_source::piece_sizes(sizes);
    const std::int64_t item = item_bytes(type());
    extents made = extents::filled(sizes.rank(), 1);
    std::int64_t volume = 1;
    for (const std::size_t d : transposed_) {
      made[d] = std::min(sizes[d], (source_run_bytes / item + volume - 1) / volume);
      volume *= made[d];
    }
    for (std::size_t d = sizes.rank(); d-- > 0;) {
      volume /= made[d];
      made[d] = std::clamp(tile_bytes / item / volume, made[d], sizes[d]);
      volume *= made[d];
    }
    return made;
  }

  bool is_scalar() const { return instance_.form == bound_form::scalar; }

  // The operations on values that apply: none to most optimizer state.
  std::span<const value_step> steps() const {
    if (instance_.form != bound_form::rule) return {};
    return input_.bound->rule_of(instance_).values;
  }

  bool has_repetitions() const {
    const auto& pieces = relation_.relation.pieces;
    return std::any_of(pieces.begin(), pieces.end(), [&](const index_piece& piece) {
      return piece.right_tensor == tensor_.tensor &&
             std::any_of(piece.loops.begin(), piece.loops.end(),
                         [](const index_loop& loop) { return loop.right.dimension < 0; });
    });
  }

  result<void> make(const box& part, const tensor_view& to) const override {
    if (is_scalar()) return make_scalar(part, to);
    if (input_.bound->rule_of(instance_).index.is_rename()) {
      SHARDMESH_TRY(stored(instance_.sources[0]).read(part, to));
      return apply(part, to);
    }
    const related_tensor& related = relation_.relation.right[tensor_.tensor];
    // The tensor has a single index in the leading dimensions, which stand for captures.
    box whole;
    tensor_view view{to.data, to.type, to.where, {}, {}};
    for (const std::int64_t index : tensor_.stacked) {
      whole.offsets.push_back(index);
      whole.sizes.push_back(1);
      view.strides.push_back(0);
    }
    for (std::size_t d = 0; d < part.rank(); ++d) {
      whole.offsets.push_back(part.offsets[d]);
      whole.sizes.push_back(part.sizes[d]);
      view.strides.push_back(to.strides[d]);
    }
    view.sizes = whole.sizes;
    for (const index_piece& piece : relation_.relation.pieces)
      if (piece.right_tensor == tensor_.tensor) SHARDMESH_TRY(make_piece(piece, whole, view));
    if (!steps().empty()) {
      // The operations do not apply to filler. It is NaN while they run: a NaN in their input is not an error.
      constexpr double unused = std::numeric_limits<double>::quiet_NaN();
      const const_tensor_view element{reinterpret_cast<const std::byte*>(&unused), dtype::float64, {}, {}, {}};
      for (const index_filler& filler : related.fillers) SHARDMESH_TRY(fill(filler, whole, view, element));
      SHARDMESH_TRY(apply(part, to));
    }
    alignas(16) constexpr std::array<std::byte, 16> zero{};  // an element of any dtype
    for (const index_filler& filler : related.fillers)
      SHARDMESH_TRY(fill(filler, whole, view, {zero.data(), to.type, {}, {}, {}}));
    return {};
  }

  result<void> apply(const box& part, const tensor_view& to) const {
    auto done = apply_steps(steps(), to);
    if (done) return done;
    error why = std::move(done).error();
    for (box& one : why.boxes) one = shifted(one, part.offsets);
    return std::move(why).with_key(tensor_.key);
  }

  // Reads the scalars of all sources, which must be equal.
  result<void> make_scalar(const box& part, const tensor_view& to) const {
    SHARDMESH_TRY(stored(instance_.sources[0]).read(part, to));
    const auto bytes = static_cast<std::size_t>(part.volume() * item_bytes(to.type));
    std::vector<std::byte> again(bytes);
    tensor_view other = to;
    other.data = again.data();
    for (std::size_t s = 1; s < instance_.sources.size(); ++s) {
      SHARDMESH_TRY(stored(instance_.sources[s]).read(part, other));
      if (std::memcmp(again.data(), to.data, bytes) == 0) continue;
      const auto& tensors = input_.reader->contents().tensors;
      const auto shown = [&](const tensor_view& value, std::size_t of) {
        double number = 0;
        const tensor_view wide{reinterpret_cast<std::byte*>(&number), dtype::float64, {}, value.sizes, value.strides};
        const std::string text = copy(wide, value) ? fmt::format("{}", number) : std::string("other bytes");
        return fmt::format("{} of {}", text, escaped(tensors[instance_.sources[of]].key));
      };
      return fail(errc::disagreement, "the parameters of an optimizer that the mapping joins have different values")
          .with_key(tensor_.key)
          .with_values(shown(to, 0), shown(other, s))
          .with_hint("make the values equal, or leave the optimizer out before the checkpoint is mapped");
    }
    return {};
  }

  result<void> make_piece(const index_piece& piece, const box& whole, const tensor_view& view) const {
    const auto read = [&](const box& part, const tensor_view& to) { return read_left(piece.left_tensor, part, to); };
    SHARDMESH_TRY(gather(piece, whole, view, read));
    std::vector<std::int64_t> extents_of_repetitions;
    for (const index_loop& loop : piece.loops)
      if (loop.right.dimension < 0) extents_of_repetitions.push_back(loop.extent);
    return extents_of_repetitions.empty() ? result<void>{}
                                          : compare_repetitions(piece, whole, view, extents_of_repetitions);
  }

  // Reads every repetition of the elements in `view`, and compares it with them.
  result<void> compare_repetitions(const index_piece& piece, const box& whole, const tensor_view& view,
                                   const std::vector<std::int64_t>& repetitions) const {
    const auto read = [&](const box& part, const tensor_view& to) { return read_left(piece.left_tensor, part, to); };
    const auto bytes = static_cast<std::size_t>(whole.volume() * item_bytes(view.type));
    std::vector<std::byte> again(view.data, view.data + bytes);
    tensor_view other = view;
    other.data = again.data();
    std::vector<std::int64_t> index(repetitions.size(), 0);
    while (true) {
      std::size_t r = index.size();
      while (r > 0 && ++index[r - 1] == repetitions[r - 1]) index[--r] = 0;
      if (r == 0) return {};
      SHARDMESH_TRY(gather(piece, whole, other, read, index));
      if (std::memcmp(again.data(), view.data, bytes) != 0)
        return fail(errc::disagreement, "the repetitions of an element differ, so it has no single value")
            .with_key(tensor_.key)
            .with_box(whole);
    }
  }

  stored_boxes stored(std::size_t source) const {
    return {input_.reader, input_.source, &input_.reader->contents().tensors[source]};
  }

  // Reads a box of a left tensor of the relation. Its leading dimensions choose the stored tensors.
  result<void> read_left(std::size_t tensor, const box& part, const tensor_view& to) const {
    const std::size_t stacked = relation_.left_stacked[tensor];
    const extents& shape = relation_.relation.left[tensor].shape;
    box inner;
    tensor_view view{to.data, to.type, to.where, {}, {}};
    for (std::size_t d = stacked; d < part.rank(); ++d) {
      inner.offsets.push_back(part.offsets[d]);
      inner.sizes.push_back(part.sizes[d]);
      view.strides.push_back(to.strides[d]);
    }
    view.sizes = inner.sizes;
    extents index = extents::filled(stacked, 0);
    while (true) {
      std::int64_t number = 0, at = 0;
      for (std::size_t d = 0; d < stacked; ++d) {
        number = number * shape[d] + part.offsets[d] + index[d];
        at += index[d] * to.strides[d];
      }
      view.data = to.data + at * item_bytes(to.type);
      const std::size_t source = instance_.first_source[tensor] + static_cast<std::size_t>(number);
      SHARDMESH_TRY(stored(instance_.sources[source]).read(inner, view));
      std::size_t d = stacked;
      while (d > 0 && ++index[d - 1] == part.sizes[d - 1]) index[--d] = 0;
      if (d == 0) return {};
    }
  }

  mapping_input input_;
  const bound_tensor& tensor_;
  const bound_instance& instance_;
  const bound_relation& relation_;
  std::vector<std::size_t> transposed_;  // dimensions in the order of the source, fastest first; empty: no transpose
};

}  // namespace

std::shared_ptr<const byte_source> make_mapped_source(const mapping_input& input, const bound_tensor& tensor,
                                                      std::string file) {
  return std::make_shared<const mapped_source>(input, tensor, std::move(file));
}

}  // namespace shardmesh
