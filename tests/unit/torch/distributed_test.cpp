// SPDX-License-Identifier: Apache-2.0
// Tests sharded_tensor, dtensor, state_dict, and FSDP's flat parameters with at::Tensor, on threads. Moved elements are
// compared one by one with LibTorch's own slicing.
#include <ATen/ATen.h>
#include <shardmesh/torch_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.fsdp;
import shardmesh.state;

using namespace shardmesh;

namespace {

// Different in every element, and exact in every tested dtype.
at::Tensor whole_tensor(at::ScalarType type) {
  return at::arange(7 * 5, at::kLong)
      .remainder(2)
      .add(at::arange(7 * 5, at::kLong).remainder(31))
      .to(type)
      .view({7, 5});
}

// The part of `whole` that a rank of a layout holds, as LibTorch slices it. Precondition: one box.
at::Tensor part_of(const at::Tensor& whole, const layout& l, std::int32_t rank) {
  at::Tensor part = whole;
  const extents first = l.first_index(rank), sizes = l.local_shape(rank);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), std::min(first[d], l.shape()[d]), sizes[d]);
  return part;
}

result<void> same(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  if (found.scalar_type() == expected.scalar_type() && found.sizes() == expected.sizes() &&
      at::equal(found.contiguous().view(at::kByte), expected.contiguous().view(at::kByte)))
    return {};
  return fail(errc::checksum_mismatch, what + " is not what LibTorch's slicing gives");
}

layout layout_of(const device_mesh& mesh, std::vector<placement> placements) {
  return layout::make(mesh, std::move(placements), {7, 5}).value();
}

}  // namespace

TEST_CASE("a dtensor of at::Tensor goes from rows to columns and back, uneven, of every size of element") {
  for (const at::ScalarType type : {at::kByte, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexDouble,
                                    at::kFloat8_e4m3fn, at::kBool, at::kUInt16}) {
    const at::Tensor whole = whole_tensor(type);
    const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
      const device_mesh mesh = parse_mesh("dp=4").value();
      const layout rows = layout_of(mesh, {placement::shard(0)}), columns = layout_of(mesh, {placement::shard(1)});
      // A view into the whole with its strides, not a copy.
      auto tensor = dtensor<at::Tensor>::make(rows, comm.rank(), part_of(whole, rows, comm.rank()));
      if (!tensor) return tensor.error();
      auto moved = redistribute(*tensor, columns, comm);
      if (!moved) return moved.error();
      if (auto equal = same(moved->local(), part_of(whole, columns, comm.rank()), "columns"); !equal) return equal;
      auto back = redistribute(*moved, rows, comm);
      if (!back) return back.error();
      return same(back->local(), part_of(whole, rows, comm.rank()), "rows");
    });
    INFO(c10::toString(type) << ": " << (ran ? "" : to_string(ran.error())));
    CHECK(ran);
  }
}

TEST_CASE("a Partial of at::Tensor is summed, and a copy of a dtensor shares its elements") {
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    const device_mesh mesh = parse_mesh("tp=3").value();
    const at::Tensor mine = at::full({7, 5}, static_cast<float>(comm.rank() + 1));
    auto tensor = dtensor<at::Tensor>::make(layout_of(mesh, {placement::partial(reduce_op::sum)}), comm.rank(), mine);
    if (!tensor) return tensor.error();
    const dtensor<at::Tensor> copy = *tensor;
    if (copy.local().data_ptr() != mine.data_ptr()) return fail(errc::io, "the copy has elements of its own");
    auto sum = redistribute(copy, layout_of(mesh, {placement::replicate()}), comm);
    if (!sum) return sum.error();
    return same(sum->local(), at::full({7, 5}, 6.0F), "the sum");
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("a sharded tensor of at::Tensor is cut, resharded and gathered") {
  const at::Tensor whole = whole_tensor(at::kFloat);
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const rank_group group = rank_group::world(4);
    chunk_sharding_spec rows{.dim = 0, .placements = {}}, columns{.dim = 1, .placements = {}};
    for (std::int32_t rank = 0; rank < 4; ++rank)
      for (chunk_sharding_spec* spec : {&rows, &columns})
        spec->placements.push_back({.rank = rank, .worker = {}, .where = {}});
    const at::Tensor transposed = whole.t().contiguous().t();
    auto cut = shard_tensor(comm.rank() == 1 ? &transposed : nullptr, rows, 1, comm, group);
    if (!cut) return cut.error();
    for (const auto& one : cut->local_shards())
      if (auto equal = same(one.tensor(), whole.narrow(0, one.metadata().offsets[0], one.metadata().sizes[0]), "rows");
          !equal)
        return equal;
    auto other = reshard(*cut, columns, comm);
    if (!other) return other.error();
    auto gathered = gather(*other, 2, comm);
    if (!gathered) return gathered.error();
    return *gathered ? same(**gathered, whole, "the whole") : result<void>();
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("nested sharded tensors of at::Tensor are flattened without a copy") {
  const at::Tensor local = at::arange(4, at::kFloat).view({2, 2});
  const auto on = [](std::int32_t rank) { return remote_device{rank, {}, {}}; };
  const shard_metadata inner_place{.offsets = {1, 0}, .sizes = {2, 2}, .placement = on(0)};
  const shard_metadata other_place{.offsets = {0, 0}, .sizes = {1, 2}, .placement = on(1)};
  const shard_metadata outer_place{.offsets = {0, 2}, .sizes = {3, 2}, .placement = on(0)};
  const shard_metadata outer_other{.offsets = {0, 0}, .sizes = {3, 2}, .placement = on(1)};
  const rank_group group = rank_group::world(2);
  auto inner = sharded_tensor<at::Tensor>::make({shard<at::Tensor>::make(local, inner_place).value()},
                                                {{other_place, inner_place}, {3, 2}, {}}, group, 0)
                   .value();
  auto outer = sharded_tensor<at::Tensor>::make({shard<at::Tensor>::make(std::move(inner), outer_place).value()},
                                                {{outer_other, outer_place}, {3, 4}, {}}, group, 0)
                   .value();
  state_dict<at::Tensor> state;
  REQUIRE(state.set({"w"}, std::move(outer)));
  const auto flat = flatten_nested_shards(std::move(state));
  REQUIRE(flat);
  const auto* tensor = flat->dict.find({"w"})->sharded_tensor();
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->local_shards().size() == 1);
  CHECK(tensor->local_shards()[0].metadata().offsets == extents{1, 2});
  CHECK(tensor->local_shards()[0].tensor().data_ptr() == local.data_ptr());
}

TEST_CASE("FSDP's flat parameters of at::Tensor give their parameters whole, and take them back") {
  const at::Tensor weight = at::arange(15, at::kFloat).view({5, 3}), bias = at::arange(5, at::kFloat) * 10;
  const at::Tensor all = at::cat({weight.flatten(), bias});
  const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    auto flat = flat_parameter::make({{"weight", {5, 3}, {}}, {"bias", {5}, {}}}, {}, {.group_size = 3}).value();
    const index_range held = flat.shard_range(comm.rank());
    at::Tensor mine = at::zeros({flat.sharded_numel()}).requires_grad_();
    mine.detach().narrow(0, 0, held.size).copy_(all.narrow(0, held.begin, held.size));
    fsdp_model model;
    model.units.push_back({"layer", flat, shard_group::world(3), view_of(mine)});
    auto full = full_state_dict<at::Tensor>(model, comm);
    if (!full) return full.error();
    if (auto equal = same(*full->state.find({"layer.weight"})->tensor(), weight, "weight"); !equal) return equal;
    if (auto equal = same(*full->state.find({"layer.bias"})->tensor(), bias, "bias"); !equal) return equal;
    mine.detach().zero_();
    auto loaded = load_state_dict(model, full->state, comm);
    if (!loaded) return loaded.error();
    return same(mine.detach().narrow(0, 0, held.size), all.narrow(0, held.begin, held.size), "the flat parameter");
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("a state dict of at::Tensor compares, and its copies share elements as in Python") {
  state_dict<at::Tensor> state;
  REQUIRE(state.set({"model", "w"}, at::ones({2, 2}).requires_grad_()));
  REQUIRE(state.set({"step"}, 3));
  const state_dict<at::Tensor> copy = state;
  CHECK(copy == state);
  state.find({"model", "w"})->tensor()->detach().fill_(5);
  CHECK(copy == state);
  state_dict<at::Tensor> other;
  REQUIRE(other.set({"model", "w"}, at::ones({2, 2}).requires_grad_()));
  REQUIRE(other.set({"step"}, 3));
  CHECK_FALSE(other == state);
}

TEST_CASE(
    "ranks load into tensors that require grad and into views of a tensor that is no leaf, and autograd sees it") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "shardmesh_unit_torch_saved";
  const at::Tensor whole = whole_tensor(at::kFloat);
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    const device_mesh mesh = parse_mesh("dp=2").value();
    const layout rows = layout_of(mesh, {placement::shard(0)});
    state_dict<at::Tensor> saved;
    auto part = dtensor<at::Tensor>::make(rows, comm.rank(), part_of(whole, rows, comm.rank()));
    if (auto set = saved.set({"w"}, *std::move(part)); !set) return set;
    if (const auto report = save(folder, local_view(saved).value(), comm, {.overwrite = true}); !report)
      return report.error();

    at::Tensor leaf = at::zeros({7, 5}).requires_grad_();
    const at::Tensor used = (leaf * leaf).sum();
    const at::Tensor base = at::zeros({9, 5}).requires_grad_() * 1;  // no leaf
    at::Tensor view = base.narrow(0, 1, 7);
    const auto base_version = base._version();
    for (at::Tensor* const destination : {&leaf, &view}) {
      state_dict<at::Tensor> wanted;
      if (auto set = wanted.set({"w"}, *destination); !set) return set;
      auto held = local_view(wanted).value();
      if (const auto report = load(folder, held, comm); !report) return report.error();
      if (auto equal = same(destination->detach(), whole, "what was loaded"); !equal) return equal;
    }
    if (base._version() == base_version) return fail(errc::io, "the base of the view counts no change");
    if (base[0].abs().sum().item<float>() != 0) return fail(errc::io, "rows beside the view were written");
    try {
      used.backward();
      return fail(errc::io, "autograd did not see that its saved tensor changed");
    } catch (const c10::Error&) {
      return {};
    }
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
  std::filesystem::remove_all(folder);
}
