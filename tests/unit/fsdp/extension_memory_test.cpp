// SPDX-License-Identifier: Apache-2.0
// Tests how FSDP flattens tensors that are not row-major, how nested tensors number their ranks, and loads from their
// inner tensors.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

// The values 0, 1, 2, .. by row-major index, in any memory order.
struct ordered_tensor {
  std::vector<float> memory;
  extents sizes, strides;
};

}  // namespace

template <>
struct shardmesh::adapter<ordered_tensor> {
  // This adapter has no const view; tensors that are only read go through the mutable one.
  static tensor_view view(ordered_tensor& tensor) {
    return {reinterpret_cast<std::byte*>(tensor.memory.data()), dtype::float32, {}, tensor.sizes, tensor.strides};
  }
  static ordered_tensor allocate(dtype, const extents& sizes, device) {
    return {std::vector<float>(static_cast<std::size_t>(box::whole(sizes).volume())), sizes, contiguous_strides(sizes)};
  }
};

namespace {

ordered_tensor counted(const extents& sizes, const extents& strides) {
  ordered_tensor made{{}, sizes, strides};
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.rank(); ++d) last += (sizes[d] - 1) * strides[d];
  made.memory.assign(static_cast<std::size_t>(last + 1), -1);
  std::vector<float> values(static_cast<std::size_t>(box::whole(sizes).volume()));
  std::iota(values.begin(), values.end(), 0.0F);
  const tensor_view from{
      reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, sizes, contiguous_strides(sizes)};
  REQUIRE(copy(adapter<ordered_tensor>::view(made), from));
  return made;
}

flattened_unit<ordered_tensor> flattened(ordered_tensor tensor) {
  const device_mesh mesh = device_mesh::make(extents{1, 1}).value();
  std::vector<named_parameter<ordered_tensor>> parameters;
  parameters.push_back({"weight", state_value<ordered_tensor>(std::move(tensor))});
  parameters.push_back({"bias", state_value<ordered_tensor>(ordered_tensor{{100, 101}, {2}, {1}})});
  return flatten_parameters<ordered_tensor>(std::move(parameters), tensor_parallel_extension{mesh}, mesh, 0, 0).value();
}

}  // namespace

TEST_CASE("a channels_last parameter is flattened in the order of its memory, as PyTorch does it") {
  // FullyShardedDataParallel of torch.nn.Conv2d(3, 2, (2, 2)).to(memory_format=torch.channels_last), PyTorch 2.13.
  const auto unit = flattened(counted({2, 3, 2, 2}, {12, 1, 6, 3}));
  CHECK(unit.shard.memory == std::vector<float>{0,  4,  8,  1,  5,  9,  2,  6,  10, 3,  7,  11,  12,
                                                16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23, 100, 101});
  const parameter_info& weight = unit.unit.parameters.parameters()[0];
  CHECK(weight.shape == extents{2, 3, 2, 2});
  CHECK(weight.strides == extents{12, 1, 6, 3});
  CHECK_FALSE(unit.unit.parameters.is_contiguous(0));
  CHECK(unit.unit.parameters.is_contiguous(1));
}

TEST_CASE("transposed parameters keep their order, those with gaps are flattened row-major") {
  CHECK(flattened(counted({2, 3}, {1, 2})).shard.memory == std::vector<float>{0, 3, 1, 4, 2, 5, 100, 101});
  CHECK(flattened(counted({2, 3}, {4, 1})).shard.memory == std::vector<float>{0, 1, 2, 3, 4, 5, 100, 101});
}

TEST_CASE("ranks whose local channels_last parts have one channel, or none, describe the same unit") {
  // Three channels over two ranks of tensor parallelism: local parts [2, 2, 2, 2] and [2, 1, 2, 2].
  const device_mesh mesh = device_mesh::make(extents{1, 2}).value();
  const layout cut = layout::make(mesh, {placement::replicate(), placement::shard(1)}, {2, 3, 2, 2}).value();
  std::vector<digest128> described;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const std::int64_t channels = cut.local_shape(rank)[1];
    auto local = counted(cut.local_shape(rank), {4 * channels, 1, 2 * channels, channels});
    std::vector<named_parameter<ordered_tensor>> parameters;
    parameters.push_back(
        {"w", state_value<ordered_tensor>(dtensor<ordered_tensor>::make(cut, rank, std::move(local)).value())});
    const auto made =
        flatten_parameters<ordered_tensor>(std::move(parameters), tensor_parallel_extension{mesh}, mesh, 0, rank)
            .value();
    described.push_back(distribution_of(made.unit, 0).value().description_digest());
    CHECK(made.unit.parallel.flat(0).parameters()[0].strides == extents{8, 1, 4, 2});
  }
  CHECK(described[0] == described[1]);
}

TEST_CASE("a nested tensor calls ranks by the same numbers outside and inside") {
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();  // four ranks, which are global ranks 4 to 7
  const layout rows = layout::make(mesh, {placement::replicate(), placement::shard(0)}, {4, 3}).value();
  const auto value = [&] {
    return state_value<ordered_tensor>(
        dtensor<ordered_tensor>::make(rows, 1, counted(rows.local_shape(1), {3, 1})).value());
  };
  // The ranks that hold the same part as rank 1 of the mesh.
  const rank_group column = rank_group::make({5, 7}).value();
  tensor_parallel_extension extension{mesh};
  const auto mixed = extension.chunk_tensor(value(), 0, column);
  REQUIRE_FALSE(mixed);
  CHECK(mixed.error().code == errc::invalid_argument);
  CHECK(mixed.error().expected == "global rank 1");
  CHECK(mixed.error().found == "global rank 5");
  extension.ranks = rank_group::make({4, 5, 6, 7}).value();
  const auto named = extension.chunk_tensor(value(), 0, column).value();
  std::vector<std::string> outside, inside;
  for (const auto& one : named.metadata().shards) outside.push_back(to_string(one));
  for (const auto& one : named.local_shards()[0].nested().metadata().shards) inside.push_back(to_string(one));
  CHECK(outside == std::vector<std::string>{"[0:2, 0:3) on rank:4/cpu", "[2:4, 0:3) on rank:5/cpu"});
  CHECK(inside == std::vector<std::string>{"[0:1, 0:3) on rank:5/cpu", "[1:2, 0:3) on rank:7/cpu"});
  // When mesh ranks equal global ranks, `ranks` can stay empty.
  extension.ranks = {};
  CHECK(extension.chunk_tensor(value(), 0, rank_group::make({1, 3}).value()));
}

TEST_CASE("a state dict of the inner tensors that the extension gives is loaded, column by column") {
  // 5 rows over two ranks of tensor parallelism, uneven; FSDP shards each part over two ranks.
  const device_mesh mesh = device_mesh::make(extents{2, 2}).value();
  const layout rows = layout::make(mesh, {placement::replicate(), placement::shard(0)}, {5, 3}).value();
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const std::int32_t rank = comm.rank();
    const tensor_parallel_extension extension{mesh};
    const auto local = [&] {
      auto made = host_tensor::make(dtype::float32, rows.local_shape(rank)).value();
      auto* values = reinterpret_cast<float*>(made.bytes().data());
      std::iota(values, values + made.bytes().size() / 4, static_cast<float>(rows.first_index(rank)[0] * 3));
      return state_value<host_tensor>(dtensor<host_tensor>::make(rows, rank, std::move(made)).value());
    };
    std::vector<named_parameter<host_tensor>> parameters;
    parameters.push_back({"w", local()});
    auto flat = flatten_parameters<host_tensor>(std::move(parameters), extension, mesh, 0, rank);
    if (!flat) return std::move(flat).error();
    const rank_group column = rank_group::make({rank % 2, rank % 2 + 2}).value();
    auto nested = extension.chunk_tensor(local(), rank / 2, column);
    if (!nested) return std::move(nested).error();
    auto inner = extension.pre_load_state_dict_transform(*std::move(nested));
    if (!inner) return std::move(inner).error();
    if (inner->size() != rows.local_shape(rank)) return fail(errc::invalid_argument, "the inner tensor's size");
    state_dict<host_tensor> dict;
    if (auto set = dict.set(path{"w"}, *std::move(inner)); !set) return set;
    const std::vector<std::byte> before(flat->shard.bytes().begin(), flat->shard.bytes().end());
    std::fill(flat->shard.bytes().begin(), flat->shard.bytes().end(), std::byte{0});
    fsdp_model model;
    model.units.push_back(flat->unit);
    auto report = load_state_dict(model, dict, comm);
    if (!report) return std::move(report).error();
    if (!std::equal(before.begin(), before.end(), flat->shard.bytes().begin()))
      return fail(errc::invalid_argument, "other values").with_rank(rank);
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}
