// SPDX-License-Identifier: Apache-2.0
// Small checks between ranks' answers: properties that must be equal, sizes as callers write them, the destination of a
// gather. Not here: checks of boxes (validation).
export module shardmesh.sharding:checks;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;

namespace shardmesh::detail {

// PyTorch's spelling of a property's value: "torch.float32", "True", "torch.strided", "[2, 3]".
std::string torch_text(dtype value);
std::string torch_text(tensor_storage value);
std::string torch_text(memory_format value);
std::string torch_text(const extents& value);
inline std::string torch_text(std::same_as<bool> auto value) {
  return value ? "True" : "False";
}

error local_mismatch(std::string expected, std::string found, std::string_view property, std::int32_t rank);
error global_mismatch(std::string expected, std::string found, std::string_view property, std::int32_t expected_rank,
                      std::int32_t found_rank);

// Appends sizes and says what does not fit.
class size_list {
 public:
  void add(std::signed_integral auto value) { add_signed(value); }
  void add(std::unsigned_integral auto value) { add_unsigned(value); }
  result<extents> finish() &&;

 private:
  void add_signed(std::int64_t value);
  void add_unsigned(std::uint64_t value);
  extents sizes_;
  std::optional<error> first_;
  std::size_t count_ = 0;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A property of tensors that all shards of one tensor share: dtype, storage, memory format, bool, or sizes.
template <class V>
concept tensor_property = std::equality_comparable<V> && requires(const V& value) {
  { detail::torch_text(value) } -> std::same_as<std::string>;
};

/// Error when two shards of one rank differ in a property. `rank` is the global rank.
/// \errors errc::dtype_mismatch for a dtype, errc::shape_mismatch for sizes, else errc::invalid_argument, with
///         PyTorch's text, the rank and both values
/// Source: torch.distributed._shard.sharded_tensor.utils._raise_if_mismatch(is_local=True). Sizes are equal when their
/// numbers are, whatever they were written as.
template <tensor_property V>
result<void> check_match(const V& expected, const V& actual, std::string_view property, std::int32_t rank) {
  if (expected == actual) return {};
  return detail::local_mismatch(detail::torch_text(expected), detail::torch_text(actual), property, rank);
}

/// Error when two ranks differ in a property: names both ranks and both values. \errors as above
/// Source: torch.distributed._shard.sharded_tensor.utils._raise_if_mismatch(is_local=False).
template <tensor_property V>
result<void> check_match(const V& expected, const V& actual, std::string_view property, std::int32_t expected_rank,
                         std::int32_t actual_rank) {
  if (expected == actual) return {};
  return detail::global_mismatch(detail::torch_text(expected), detail::torch_text(actual), property, expected_rank,
                                 actual_rank);
}

/// A number that can be a size: an integer of at most 64 bits, but neither bool nor a character (those are mistakes).
template <class I>
concept size_number =
    std::integral<I> && sizeof(I) <= sizeof(std::int64_t) && !std::same_as<I, bool> && !std::same_as<I, char> &&
    !std::same_as<I, wchar_t> && !std::same_as<I, char8_t> && !std::same_as<I, char16_t> && !std::same_as<I, char32_t>;

/// A range of sizes.
template <class R>
concept size_range = std::ranges::input_range<R> && size_number<std::ranges::range_value_t<R>>;

/// Sizes as a caller writes them, one argument each; no argument is a scalar. Only puts them together: negative numbers
/// pass, `check_shape` checks.
/// \errors errc::overflow for a number that does not fit in 64 bits, errc::rank_too_large
/// Source: torch.distributed._shard.sharded_tensor.utils._flatten_tensor_size, which meets other types at run time.
template <size_number... I>
result<extents> flatten_tensor_size(I... sizes) {
  detail::size_list list;
  (list.add(sizes), ...);
  return std::move(list).finish();
}

/// The same from one range.
template <size_range R>
result<extents> flatten_tensor_size(R&& sizes) {
  detail::size_list list;
  for (const auto size : sizes) list.add(size);
  return std::move(list).finish();
}

/// An argument whose form is known at run time only (from a script or a file): one size, or a list of them.
using size_argument = std::variant<std::int64_t, std::vector<std::int64_t>>;

/// The same from arguments of which the form is known at run time: numbers, or one list.
/// \errors as above; errc::invalid_argument when lists and numbers are mixed, or there are several lists
result<extents> flatten_tensor_size(std::span<const size_argument> arguments);

/// Whether the destination of a gather is given where it must be, and only there, with the tensor's sizes.
/// \param destination  what this rank passes; presence counts, never the values inside
/// \errors errc::invalid_argument naming this rank and the destination rank, errc::shape_mismatch with both sizes
/// Source: torch.distributed._shard.sharded_tensor.utils._validate_output_tensor_for_gather
result<void> validate_output_tensor_for_gather(std::int32_t rank, std::int32_t destination_rank, const extents& size,
                                               const std::optional<tensor_view>& destination);

}  // namespace shardmesh
