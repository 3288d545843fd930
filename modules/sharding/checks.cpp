// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.sharding;

namespace shardmesh {
namespace detail {
namespace {

errc code_of(std::string_view property) {
  if (property == "dtype") return errc::dtype_mismatch;
  return property.find("size") != std::string_view::npos ? errc::shape_mismatch : errc::invalid_argument;
}

}  // namespace

std::string torch_text(dtype value) {
  return fmt::format("torch.{}", name(value));
}
std::string torch_text(tensor_storage value) {
  return fmt::format("torch.{}", to_string(value));
}
std::string torch_text(memory_format value) {
  return fmt::format("torch.{}", to_string(value));
}
std::string torch_text(const extents& value) {
  return to_string(value);
}

error local_mismatch(std::string expected, std::string found, std::string_view property, std::int32_t rank) {
  return fail(code_of(property), fmt::format("Local shards' tensor {0} property need to be the same on rank:{1}! Found "
                                             "one local shard tensor {0}={2}, the other local shard tensor {0}={3}.",
                                             property, rank, expected, found))
      .with_rank(rank)
      .with_values(std::move(expected), std::move(found));
}

error global_mismatch(std::string expected, std::string found, std::string_view property, std::int32_t expected_rank,
                      std::int32_t found_rank) {
  return fail(code_of(property), fmt::format("ShardedTensor {0} property does not match from different ranks! Found "
                                             "{0}={1} on rank:{2}, and {0}={3} on rank:{4}.",
                                             property, expected, expected_rank, found, found_rank))
      .with_rank(expected_rank)
      .with_rank(found_rank)
      .with_values(std::move(expected), std::move(found));
}

void size_list::add_signed(std::int64_t value) {
  if (++count_ <= max_rank) sizes_.push_back(value);
}

void size_list::add_unsigned(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return add_signed(static_cast<std::int64_t>(value));
  if (!first_)
    first_ =
        fail(errc::overflow, fmt::format("size {} does not fit in 64 bits", count_))
            .with_values(fmt::format("at most {}", std::numeric_limits<std::int64_t>::max()), std::to_string(value));
  ++count_;
}

result<extents> size_list::finish() && {
  if (first_) return *std::move(first_);
  if (count_ > max_rank)
    return fail(errc::rank_too_large, "a tensor has too many dimensions")
        .with_values(fmt::format("at most {}", max_rank), std::to_string(count_));
  return sizes_;
}

}  // namespace detail

result<extents> flatten_tensor_size(std::span<const size_argument> arguments) {
  if (arguments.size() == 1)
    if (const auto* list = std::get_if<1>(&arguments[0])) return flatten_tensor_size(*list);
  detail::size_list sizes;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (const auto* list = std::get_if<1>(&arguments[i]))
      return fail(errc::invalid_argument, "size has to be a sequence of integers")
          .with_values("numbers only, or one list of them",
                       fmt::format("argument {} of {} is a list of {}", i, arguments.size(), list->size()));
    sizes.add(std::get<0>(arguments[i]));
  }
  return std::move(sizes).finish();
}

result<void> validate_output_tensor_for_gather(std::int32_t rank, std::int32_t destination_rank, const extents& size,
                                               const std::optional<tensor_view>& destination) {
  if (rank == destination_rank && !destination)
    return fail(errc::invalid_argument, fmt::format("the destination tensor of a gather must be specified on "
                                                    "destination rank {}",
                                                    destination_rank))
        .with_rank(rank)
        .with_values("a tensor of " + to_string(size), "none");
  if (rank != destination_rank && destination)
    return fail(errc::invalid_argument,
                fmt::format("the destination tensor of a gather must not be specified on a rank "
                            "other than destination rank {}",
                            destination_rank))
        .with_rank(rank)
        .with_values("none", "a tensor of " + to_string(destination->sizes));
  if (destination && destination->sizes != size)
    return fail(errc::shape_mismatch, "the destination tensor of a gather does not have the tensor's sizes")
        .with_rank(rank)
        .with_values(to_string(size), to_string(destination->sizes));
  return {};
}

}  // namespace shardmesh
