// SPDX-License-Identifier: Apache-2.0
// Weights move from four trainers to two inference ranks while both run: FSDP over tensor parallelism in float32
// (strided shards) becomes tensor parallelism in bfloat16, in one plan. No rank ever holds a whole tensor, and each
// byte that an inference rank needs travels once. The ranks are threads; over MPI only the communicator differs.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.sharding;
import shardmesh.state;
import shardmesh.transfer;
import shardmesh.tree;

using namespace shardmesh;

namespace {

struct weight {
  std::string name;
  extents shape;
  std::vector<placement> trained, served;
};

// Tensor parallelism cuts column-parallel weights along dimension 0, and FSDP cuts their parts again along the same
// dimension, so FSDP's shard is strided. Row-parallel weights are cut along dimension 1.
const std::vector<weight> weights{
    {"up.weight", {512, 128}, {placement::strided_shard(0, 2), placement::shard(0)}, {placement::shard(0)}},
    {"down.weight", {128, 512}, {placement::shard(0), placement::shard(1)}, {placement::shard(1)}},
    {"norm.weight", {128}, {placement::shard(0), placement::replicate()}, {placement::replicate()}},
};

float value_of(std::size_t which, std::int64_t element) {
  return static_cast<float>(element % 64) + 0.25F * static_cast<float>(which);  // bfloat16 holds it exactly
}

// The memory for a rank's part of a layout, with its binding.
struct part {
  host_tensor memory;
  tensor_binding binding;
};

part allocate(const layout& l, dtype type, std::int32_t rank) {
  part made{host_tensor::make(type, l.local_shape(rank)).value(), {}};
  if (l.mesh().coordinate_of(rank)) made.binding.slots.push_back(adapter<host_tensor>::view(made.memory));
  return made;
}

// Calls visit(element of the whole tensor, element of the local one).
template <class Visit>
void for_each_element(const layout& l, std::int32_t rank, const Visit& visit) {
  const extents local = l.local_shape(rank);
  const bool is_matrix = l.shape().rank() == 2;
  for (const placed_box& b : l.boxes(rank))
    for (std::int64_t i = 0; i < b.where.sizes[0]; ++i)
      for (std::int64_t j = 0; j < (is_matrix ? b.where.sizes[1] : 1); ++j) {
        const std::int64_t row = b.where.offsets[0] + i, local_row = b.local_offsets[0] + i;
        if (is_matrix)
          visit(row * l.shape()[1] + b.where.offsets[1] + j, local_row * local[1] + b.local_offsets[1] + j);
        else
          visit(row, local_row);
      }
}

result<void> run_rank(any_communicator& comm, const transfer_plan& planned, const std::vector<layout>& trained,
                      const std::vector<layout>& served) {
  std::vector<part> from, to;
  std::vector<const_tensor_binding> sources;
  std::vector<tensor_binding> targets;
  std::vector<std::string> names;
  for (std::size_t w = 0; w < weights.size(); ++w) {
    from.push_back(allocate(trained[w], dtype::float32, comm.rank()));
    to.push_back(allocate(served[w], dtype::bfloat16, comm.rank()));
    for_each_element(trained[w], comm.rank(), [&](std::int64_t element, std::int64_t local) {
      const float value = value_of(w, element);
      std::memcpy(from[w].memory.bytes().data() + 4 * local, &value, 4);
    });
    sources.push_back(from[w].binding);
    targets.push_back(to[w].binding);
    names.push_back(weights[w].name);
  }
  SHARDMESH_TRY(auto mover, executor::make(planned, comm, names));
  SHARDMESH_TRY(mover.run(sources, targets));

  result<void> outcome;
  for (std::size_t w = 0; w < weights.size(); ++w)
    for_each_element(served[w], comm.rank(), [&](std::int64_t element, std::int64_t local) {
      std::uint16_t upper = 0;
      std::memcpy(&upper, to[w].memory.bytes().data() + 2 * local, 2);
      const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;  // bfloat16 is the upper half of a float32
      float found = 0;
      std::memcpy(&found, &bits, 4);
      if (found != value_of(w, element)) outcome = fail(errc::invalid_argument, "wrong value").with_key(names[w]);
    });
  return outcome;
}

}  // namespace

int main() {
  // Ranks 0 to 3 train, ranks 4 and 5 serve.
  const device_mesh trainers = device_mesh::make(extents{2, 2}, {"dp", "tp"}).value();
  const device_mesh servers = device_mesh::make(extents{2}, {"tp"}, {4, 5}).value();
  std::vector<layout> trained, served;
  std::vector<tensor_transfer> transfers;
  for (const weight& w : weights) {
    trained.push_back(layout::make(trainers, w.trained, w.shape).value());
    served.push_back(layout::make(servers, w.served, w.shape).value());
    transfers.push_back(
        {distribute(trained.back()).value(), distribute(served.back()).value(), dtype::float32, dtype::bfloat16});
  }
  const auto planned = plan(std::move(transfers), {.allow_narrowing = true});
  if (!planned) return std::fprintf(stderr, "%s\n", to_string(planned.error()).c_str()), 1;
  const auto ran = run_ranks(6, [&](any_communicator& comm) { return run_rank(comm, *planned, trained, served); });
  if (!ran) return std::fprintf(stderr, "%s\n", to_string(ran.error()).c_str()), 1;
  std::printf("%zu tensors moved from 4 trainers to 2 servers: %lld bytes, and %lld is the least there is to send\n",
              weights.size(), static_cast<long long>(planned->bytes_moved()),
              static_cast<long long>(planned->lower_bound()));
}
