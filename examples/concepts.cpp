// SPDX-License-Identifier: Apache-2.0
// The code of docs/concepts.md: one small model or use of each concept that no other example shows.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.fsdp;
import shardmesh.sharding;
import shardmesh.state;
import shardmesh.transfer;
import shardmesh.tree;

using namespace shardmesh;
using tensor = host_tensor;

namespace {

// leaf_transformer: decides which leaves of a state dict stay.
bool without_optimizer() {
  state_dict<tensor> dict;
  dict.set({"model", "weight"}, tensor::zeros(dtype::float32, {4, 2}).value()).value();
  dict.set({"optimizer", "lr"}, 0.1).value();
  auto smaller = transform(std::move(dict), [](const path& where, state_value<tensor>&) {
    return where[0] == "optimizer" ? leaf_change<tensor>::drop() : leaf_change<tensor>::keep();
  });
  return smaller && smaller->size() == 1;
}

// distributed: the fragments of any object that has a distribution.
bool holders() {
  const device_mesh mesh = device_mesh::make({2, 2}, {"dp", "tp"}).value();
  const layout rows = layout::make(mesh, {placement::replicate(), placement::shard(0)}, {10, 7}).value();
  auto held = distribution_of(rows).value();
  int boxes = 0;
  held.fragments_of(3, [&](const fragment& f) {
    std::printf("rank 3 holds %s\n", to_string(f.where).c_str());
    return ++boxes > 0;
  });
  const auto whole = layout::make(mesh, {placement::replicate(), placement::replicate()}, {10, 7}).value();
  const transfer_plan gathers = plan(rows, whole, dtype::bfloat16).value();
  std::printf("%lld bytes\n", static_cast<long long>(gathers.bytes_moved()));
  return boxes == 1 && gathers.bytes_moved() == gathers.lower_bound();
}

// fsdp_extension: tensor parallelism has cut these parameters before FSDP flattens them.
bool flattens() {
  const device_mesh mesh = device_mesh::make({1, 1}, {"fsdp", "tp"}).value();
  std::vector<named_parameter<tensor>> named;
  named.push_back({"weight", state_value<tensor>(tensor::zeros(dtype::float32, {4, 2}).value())});
  const std::int32_t rank = 0;
  auto unit = flatten_parameters<tensor>(std::move(named), tensor_parallel_extension{mesh, 0}, mesh, 0, rank).value();
  return adapter<tensor>::view(unit.shard).sizes == extents{8};
}

// communicator: functions of several ranks take a variable of any model. Here the program's own threads flatten nested
// shards and move one tensor.
bool among_threads() {
  thread_group group(1);
  thread_communicator mine = group.communicator(0);
  state_dict<tensor> dict;
  dict.set({"weight"}, tensor::zeros(dtype::float32, {4, 2}).value()).value();
  auto flat = flatten_nested_shards(std::move(dict), mine, rank_group::world(1)).value();  // every rank calls it
  const layout one = layout::make(device_mesh::make({1}).value(), {placement::replicate()}, {4, 2}).value();
  auto from = dtensor<tensor>::make(one, 0, tensor::zeros(dtype::float32, {4, 2}).value()).value();
  auto to = redistribute(from, one, mine).value();
  return flat.dict.size() == 1 && to.has_local();
}

// collective_communicator: ranks that are threads add up their values.
result<void> add_up() {
  return run_ranks(4, [](any_communicator& comm) -> result<void> {
    float mine = static_cast<float>(comm.rank()), sum = 0;
    const auto term = std::as_bytes(std::span(&mine, 1));
    const auto total = std::as_writable_bytes(std::span(&sum, 1));
    if (comm.has_collectives()) comm.all_reduce(term, total, dtype::float32, reduce_op::sum, {}).value().wait().value();
    return sum == 6 ? result<void>() : fail(errc::communication, "0 + 1 + 2 + 3 is 6");
  });
}

// item_source: an owner that is a file, here in memory; one item is a vector of bytes.
struct memory_items {
  std::vector<std::byte> bytes;
  result<void> read(item_id, const box& part, const tensor_view& to) {
    for (std::int64_t i = 0; i < part.sizes[0]; ++i)
      to.data[i * to.strides[0]] = bytes[static_cast<std::size_t>(part.offsets[0] + i)];
    return {};
  }
  bool reads_in_order(item_id) { return false; }
};

bool read_items() {
  memory_items file{std::vector<std::byte>(10, std::byte{7})};
  const fragment whole{box::whole({10}), 0, 0, {0}, 0};
  const std::vector<distribution> from{
      distribution::from_fragments({10}, std::span(&whole, 1), owner_space::items).value()};
  tensor to = tensor::zeros(dtype::uint8, {4}).value();
  const memory_target wanted{.transfer = 0, .where = {{3}, {4}}, .to = adapter<tensor>::view(to)};
  run_to_memory(from, {}, std::span(&wanted, 1), file).value();
  return to.bytes()[3] == std::byte{7};
}

// size_range, state_integer: only lossless conversions.
bool numbers() {
  extents size = flatten_tensor_size(std::vector{8, 4}).value();
  state_value<tensor> step = std::int32_t{1000};
  return size == extents{8, 4} && *step.integer() == 1000;
}

}  // namespace

int main() {
  const bool good =
      without_optimizer() && holders() && flattens() && among_threads() && add_up() && read_items() && numbers();
  std::puts(good ? "every concept has a model" : "something is wrong");
  return good ? 0 : 1;
}
