// SPDX-License-Identifier: Apache-2.0
// Values of our types for the debugger to print: printers.py stops in `look_at` and prints the locals of its caller.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.tree;

using namespace shardmesh;
using tensors = sharded_tensor<host_tensor>;

namespace {

// The debugger's breakpoint.
[[gnu::noinline]] void look_at(const void* value) {
  std::printf("%s\n", value ? "there" : "nothing");  // the debugger stops here
}

void look_at_core() {
  const extents scalar{}, sizes{2, 3};
  const box whole = box::whole({10, 7}), part{{4, 0}, {2, 8}}, point{};
  const dtype type = dtype::bfloat16;
  const device host{}, second = parse_device("cuda:1").value();
  const remote_device named = parse_remote_device("rank:3/cuda:0").value();
  const remote_device worker = parse_remote_device("worker0/cpu").value();
  const error nothing{};
  const error gap = fail(errc::gap, "rows are held by \"nobody\"")
                        .with_key("model.w")
                        .with_file("folder/.metadata")
                        .with_rank(1)
                        .with_rank(2)
                        .with_box(part)
                        .with_values("8 rows", "6 rows")
                        .with_hint("save it again");
  const error refused = fail_sys(2, "cannot open", "a file");
  const result<box> answer = part, no_answer = gap;
  const result<void> success, failure = refused;
  const result<std::int32_t> number = 7;
  const host_tensor empty, matrix = host_tensor::zeros(dtype::float32, {2, 3}).value();
  const tensor_view view{nullptr, dtype::int64, host, {4, 5}, {5, 1}};
  look_at(&matrix);
}

void look_at_layout() {
  const placement whole = placement::replicate(), rows = placement::shard(0), strided = placement::strided_shard(1, 4);
  const placement sum = placement::partial(reduce_op::sum), fused = placement::shard_segments(0, {64, 16, 16});
  const split_rule chunks, sizes = split_rule::explicit_sizes({2, 8}).value();
  const device_mesh one, flat = device_mesh::make({2, 3}).value(),
                         named = device_mesh::make({2, 3}, {"dp", "tp"}).value();
  const device_mesh some = device_mesh::make({2}, {}, {5, 3}).value();
  const layout plain, cut = layout::make(named, {rows, placement::shard(1)}, {10, 7}).value();
  const fragment here{{{4, 0}, {2, 7}}, 3, 0, {0, 0}, 0};
  const fragment there{{{0, 0}, {4, 7}}, 1, 2, {1, 0}, 5};
  const distribution nothing, grid = distribute(cut).value();
  const distribution terms = distribute(layout::make(flat, {sum, rows}, {10, 7}).value()).value();
  const distribution list = distribution::from_fragments({10, 7}, std::vector{here}, owner_space::items).value();
  look_at(&list);
}

shard_metadata metadata_of(std::int64_t first, std::string_view placement) {
  return shard_metadata::make(std::vector<std::int64_t>{first, 0}, std::vector<std::int64_t>{2, 3}, placement).value();
}

tensors two_shards() {
  const sharded_tensor_metadata all{
      {metadata_of(0, "rank:0/cpu"), metadata_of(2, "rank:1/cpu")}, {4, 3}, {.type = dtype::float32}};
  std::vector<shard<host_tensor>> local;
  local.push_back(shard<host_tensor>::make(host_tensor::zeros(dtype::float32, {2, 3}).value(), all.shards[1]).value());
  return tensors::make(std::move(local), all, rank_group::world(2), 1).value();
}

tensors nested_shard() {
  sharded_tensor_metadata outer{
      {shard_metadata::make(std::vector<std::int64_t>{0, 0}, std::vector<std::int64_t>{4, 3}, "rank:1/cpu").value()},
      {4, 3},
      {.type = dtype::float32}};
  std::vector<shard<host_tensor>> local;
  local.push_back(shard<host_tensor>::make(two_shards(), outer.shards[0]).value());
  return tensors::make(std::move(local), outer, rank_group::make({4, 1}).value(), 1).value();
}

void look_at_sharding() {
  const shard_metadata placed = metadata_of(4, "rank:1/cuda:0"), nowhere = metadata_of(4, "");
  const rank_group alone, world = rank_group::world(4), chosen = rank_group::make({0, 1, 3}).value();
  const tensors sharded = two_shards(), nested = nested_shard();
  const layout rows = layout::make(device_mesh::make({2}).value(), {placement::shard(0)}, {4, 3}).value();
  const auto distributed = dtensor<host_tensor>::allocate(rows, 1, dtype::float32).value();
  const auto outside = dtensor<host_tensor>::make(rows, 9, std::nullopt).value();
  look_at(&nested);
}

state_dict<host_tensor> model_and_more() {
  const auto vector = [] { return host_tensor::zeros(dtype::int16, {2}).value(); };
  state_dict_builder<host_tensor> b;
  b.begin(node_kind::mapping).begin("model", node_kind::mapping).begin("layers", node_kind::sequence);
  for (int layer = 0; layer < 2; ++layer) b.begin(node_kind::mapping).value("w", vector()).end();
  b.end().value("whole", two_shards()).end();
  b.begin("betas", node_kind::tuple).value(0.5).value(-2).end();
  b.value("name", "adam").value("fused", true).value("nothing", state_value<host_tensor>());
  b.value("raw", std::vector<std::byte>(3)).begin("empty", node_kind::mapping).end();
  return b.end().finish().value();
}

void look_at_state() {
  const path root, deep{"model", "a.b", 3, "a name of more than fifteen bytes", "weight"};
  const path_key index = 4, integer_key = path_key::of_integer(-12), name = "bias",
                 long_name = "a name of more than fifteen bytes";
  const state_dict<host_tensor> empty, dict = model_and_more();
  const tree_spec spec = dict.spec(), no_spec;
  const state_value<host_tensor> text = "ad\"am", integer = 12;
  look_at(&dict);
}

}  // namespace

int main() {
  look_at_core();
  look_at_layout();
  look_at_sharding();
  look_at_state();
}
