// SPDX-License-Identifier: Apache-2.0
// A tensor sharded by rows over four ranks becomes one sharded by columns, and is gathered on rank 0. The ranks are
// threads; over MPI (import shardmesh.mpi) only the communicator differs.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

import shardmesh;

using namespace shardmesh;

namespace {

constexpr std::int32_t ranks = 4;
const extents shape{10, 6};

chunk_sharding_spec chunks_along(std::int32_t dim) {
  chunk_sharding_spec spec{.dim = dim, .placements = {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    spec.placements.push_back({.rank = rank, .worker = {}, .where = {}});
  return spec;
}

// Returns a rank's initial rows; each value is its row-major index in the whole tensor.
std::vector<shard<host_tensor>> rows_of(std::int32_t rank) {
  const auto planned = build_metadata(chunks_along(0), shape).value();
  std::vector<shard<host_tensor>> mine;
  for (const shard_metadata& one : planned.shards) {
    if (one.rank() != rank) continue;
    host_tensor rows = host_tensor::make(dtype::float32, one.sizes).value();
    for (std::int64_t i = 0; i < one.where().volume(); ++i) {
      const auto value = static_cast<float>(one.offsets[0] * shape[1] + i);
      std::memcpy(rows.bytes().data() + i * 4, &value, 4);
    }
    mine.push_back(shard<host_tensor>::make(std::move(rows), one).value());
  }
  return mine;
}

}  // namespace

int main() {
  std::optional<host_tensor> whole;
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    const rank_group group = rank_group::world(ranks);
    auto rows = init_from_local_shards(rows_of(comm.rank()), shape, comm, group).value();
    auto columns = reshard(rows, chunks_along(1), comm).value();  // moves only bytes that change owners
    auto gathered = gather(columns, 0, comm).value();
    if (gathered) whole = std::move(gathered);  // on rank 0
    return {};
  });
  if (!ran || !whole) {
    std::fprintf(stderr, "%s\n", ran ? "nothing was gathered" : to_string(ran.error()).c_str());
    return 1;
  }
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    float value = 0;
    std::memcpy(&value, whole->bytes().data() + i * 4, 4);
    if (value != static_cast<float>(i)) return 1;
  }
  std::printf("%s went from rows to columns and back to one rank, every value in its place\n",
              to_string(shape).c_str());
}
