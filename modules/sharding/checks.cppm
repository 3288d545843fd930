// SPDX-License-Identifier: Apache-2.0
// Small checks of values that ranks supply: properties that must be equal, sizes as callers write them, and the
// destination of a gather. Checks of boxes are in validation.
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

// Collects sizes, and keeps an error for the first one that does not fit.
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

/// A property that all shards of one tensor share: a dtype, a storage, a memory format, a bool, or sizes.
template <class V>
concept tensor_property = std::equality_comparable<V> && requires(const V& value) {
  { detail::torch_text(value) } -> std::same_as<std::string>;
};

/// Checks that two shards of one rank agree on a property. `rank` is the global rank. Sizes are equal when their
/// numbers are, however the caller wrote them.
/// \errors errc::dtype_mismatch for the property "dtype", errc::shape_mismatch for one with "size" in its name, else
///         errc::invalid_argument; each has PyTorch's text, the rank, and both values
/// Source: torch.distributed._shard.sharded_tensor.utils._raise_if_mismatch(is_local=True)
template <tensor_property V>
result<void> check_match(const V& expected, const V& actual, std::string_view property, std::int32_t rank) {
  if (expected == actual) return {};
  return detail::local_mismatch(detail::torch_text(expected), detail::torch_text(actual), property, rank);
}

/// Checks that two ranks agree on a property. The error names both ranks and both values.
/// \errors as above
/// Source: torch.distributed._shard.sharded_tensor.utils._raise_if_mismatch(is_local=False)
template <tensor_property V>
result<void> check_match(const V& expected, const V& actual, std::string_view property, std::int32_t expected_rank,
                         std::int32_t actual_rank) {
  if (expected == actual) return {};
  return detail::global_mismatch(detail::torch_text(expected), detail::torch_text(actual), property, expected_rank,
                                 actual_rank);
}

/// A number that can be a size: an integer of at most 64 bits. Neither bool nor a character type, because those are
/// mistakes.
template <class I>
concept size_number =
    std::integral<I> && sizeof(I) <= sizeof(std::int64_t) && !std::same_as<I, bool> && !std::same_as<I, char> &&
    !std::same_as<I, wchar_t> && !std::same_as<I, char8_t> && !std::same_as<I, char16_t> && !std::same_as<I, char32_t>;

/// A range of sizes.
template <class R>
concept size_range = std::ranges::input_range<R> && size_number<std::ranges::range_value_t<R>>;

/// Collects sizes that the caller passes as one argument each; no argument means a scalar. Negative numbers pass here;
/// `check_shape` refuses them.
/// \errors errc::overflow for a number that does not fit in 64 bits, errc::rank_too_large
/// Source: torch.distributed._shard.sharded_tensor.utils._flatten_tensor_size, which refuses other types at run time
template <size_number... I>
result<extents> flatten_tensor_size(I... sizes) {
  detail::size_list list;
  (list.add(sizes), ...);
  return std::move(list).finish();
}

/// Collects sizes from one range.
template <size_range R>
result<extents> flatten_tensor_size(R&& sizes) {
  detail::size_list list;
  for (const auto size : sizes) list.add(size);
  return std::move(list).finish();
}

/// A size argument whose form is known only at run time (from a script or a file): one size, or a list of them.
using size_argument = std::variant<std::int64_t, std::vector<std::int64_t>>;

/// Collects sizes from arguments whose form is known only at run time: either numbers or one list.
/// \errors as above; errc::invalid_argument when lists and numbers are mixed, or for several lists
result<extents> flatten_tensor_size(std::span<const size_argument> arguments);

/// Checks that the destination rank of a gather, and no other rank, passes a destination, and that it has the tensor's
/// sizes.
/// \param destination  this rank's argument; its presence and its sizes count, never its values
/// \errors errc::invalid_argument naming this rank and the destination rank, errc::shape_mismatch with both sizes
/// Source: torch.distributed._shard.sharded_tensor.utils._validate_output_tensor_for_gather
result<void> validate_output_tensor_for_gather(std::int32_t rank, std::int32_t destination_rank, const extents& size,
                                               const std::optional<tensor_view>& destination);

}  // namespace shardmesh
