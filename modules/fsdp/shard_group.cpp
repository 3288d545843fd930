// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.fsdp;

namespace shardmesh {

struct shard_group::description {
  std::vector<std::int32_t> positions;  // for each rank; -1: not a member
  std::vector<std::int32_t> holders;    // ranks by position, ascending
  std::vector<std::size_t> first;       // where each position begins in `holders`, and the end
};

shard_group::shard_group() : shard_group(world(1)) {}
shard_group::shard_group(std::shared_ptr<const description> made) : description_(std::move(made)) {}

shard_group shard_group::world(std::int32_t ranks) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(ranks));
  std::iota(positions.begin(), positions.end(), 0);
  return *make(std::move(positions));
}

result<shard_group> shard_group::make(std::vector<std::int32_t> positions) {
  std::int32_t size = 0;
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    if (positions[rank] < -1 || positions[rank] >= static_cast<std::int32_t>(positions.size()))
      return fail(errc::invalid_argument, "a rank's position in a shard group is invalid")
          .with_rank(static_cast<std::int32_t>(rank))
          .with_values(fmt::format("-1 to {}", positions.size() - 1), std::to_string(positions[rank]));
    size = std::max(size, positions[rank] + 1);
  }
  if (size == 0) return fail(errc::invalid_argument, "a shard group must have at least one rank");
  auto made = std::make_shared<description>();
  std::vector<std::size_t> count(static_cast<std::size_t>(size) + 1);
  for (const std::int32_t position : positions)
    if (position >= 0) ++count[static_cast<std::size_t>(position) + 1];
  for (std::size_t p = 0; p < static_cast<std::size_t>(size); ++p)
    if (count[p + 1] == 0)
      return fail(errc::invalid_argument, fmt::format("position {} of a shard group has no rank", p))
          .with_values(fmt::format("positions 0 to {}", size - 1), fmt::format("none at {}", p));
  std::partial_sum(count.begin(), count.end(), count.begin());
  made->first = count;
  made->holders.resize(count.back());
  for (std::size_t rank = 0; rank < positions.size(); ++rank)
    if (positions[rank] >= 0)
      made->holders[count[static_cast<std::size_t>(positions[rank])]++] = static_cast<std::int32_t>(rank);
  made->positions = std::move(positions);
  return shard_group(std::shared_ptr<const description>(std::move(made)));
}

result<shard_group> shard_group::along(const device_mesh& mesh, std::size_t dim, std::int32_t ranks) {
  if (dim >= mesh.rank())
    return fail(errc::out_of_bounds, "the mesh has no such dimension")
        .with_values(fmt::format("a dimension below {}", mesh.rank()), std::to_string(dim));
  if (mesh.rank_limit() > ranks)
    return fail(errc::out_of_bounds, "the mesh has ranks beyond the communicator")
        .with_rank(mesh.rank_limit() - 1)
        .with_values(fmt::format("ranks below {}", ranks), std::to_string(mesh.rank_limit() - 1));
  std::int64_t stride = 1;  // stride of the dimension among row-major positions
  for (std::size_t d = dim + 1; d < mesh.rank(); ++d) stride *= mesh.sizes()[d];
  std::vector<std::int32_t> positions(static_cast<std::size_t>(ranks), -1);
  for (std::int64_t p = 0; p < mesh.size(); ++p)
    positions[static_cast<std::size_t>(mesh.rank_of_position(p))] =
        static_cast<std::int32_t>(p / stride % mesh.sizes()[dim]);
  return make(std::move(positions));
}

std::int32_t shard_group::ranks() const {
  return static_cast<std::int32_t>(description_->positions.size());
}
std::int32_t shard_group::size() const {
  return static_cast<std::int32_t>(description_->first.size() - 1);
}
std::optional<std::int32_t> shard_group::position(std::int32_t rank) const {
  const std::int32_t position = description_->positions[static_cast<std::size_t>(rank)];
  return position < 0 ? std::nullopt : std::optional(position);
}
std::span<const std::int32_t> shard_group::holders(std::int32_t position) const {
  const auto p = static_cast<std::size_t>(position);
  const std::span all(description_->holders);
  return all.subspan(description_->first[p], description_->first[p + 1] - description_->first[p]);
}

std::vector<std::int32_t> shard_group::replica_of(std::int32_t rank) const {
  const auto own = position(rank);
  if (!own) return {};
  const auto mine = holders(*own);
  const auto number = static_cast<std::size_t>(std::lower_bound(mine.begin(), mine.end(), rank) - mine.begin());
  std::vector<std::int32_t> together;
  for (std::int32_t p = 0; p < size(); ++p) {
    if (holders(p).size() <= number) return {};
    together.push_back(holders(p)[number]);
  }
  return together;
}

bool operator==(const shard_group& a, const shard_group& b) {
  return a.description_ == b.description_ || a.description_->positions == b.description_->positions;
}

}  // namespace shardmesh
