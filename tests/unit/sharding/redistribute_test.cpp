// SPDX-License-Identifier: Apache-2.0
// Tests `redistribute` of dtensors over threads: every element is compared with its number in the whole tensor.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.sharding;

using namespace shardmesh;

namespace {

layout on(const char* mesh, const char* placements, const extents& shape) {
  return layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value();
}

// Visits a rank's elements: the position in its row-major local tensor, and the number in the whole.
template <class Visit>
void for_each_element(const layout& l, std::int32_t rank, const Visit& visit) {
  const extents local = contiguous_strides(l.local_shape(rank)), global = contiguous_strides(l.shape());
  distribute(l).value().fragments_of(rank, [&](const fragment& f) {
    for (std::int64_t n = 0; n < f.where.volume(); ++n) {
      std::int64_t rest = n, to = 0, number = 0;
      for (std::size_t d = f.where.rank(); d-- > 0;) {
        to += (rest % f.where.sizes[d] + f.local_offsets[d]) * local[d];
        number += (rest % f.where.sizes[d] + f.where.offsets[d]) * global[d];
        rest /= f.where.sizes[d];
      }
      visit(to, number, f.term);
    }
    return true;
  });
}

// Each element is its number; terms other than the first are zero.
result<dtensor<host_tensor>> filled(const layout& l, std::int32_t rank) {
  if (!l.mesh().coordinate_of(rank)) return dtensor<host_tensor>::make(l, rank, std::nullopt);
  auto local = host_tensor::make(dtype::float32, l.local_shape(rank));
  if (!local) return local.error();
  auto* const values = reinterpret_cast<float*>(local->bytes().data());
  for_each_element(l, rank, [&](std::int64_t at, std::int64_t number, std::int32_t term) {
    values[at] = term == 0 ? static_cast<float>(number) : 0.0F;
  });
  return dtensor<host_tensor>::make(l, rank, *std::move(local));
}

std::string moved(const layout& from, const layout& to, std::int32_t ranks) {
  const auto done = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto tensor = filled(from, comm.rank());
    if (!tensor) return tensor.error();
    const auto got = redistribute(*tensor, to, comm);
    if (!got) return got.error();
    if (got->layout() != to) return fail(errc::shape_mismatch, "another layout");
    if (!got->has_local()) return {};
    const auto* const values = reinterpret_cast<const float*>(got->local().bytes().data());
    bool right = true;
    for_each_element(to, comm.rank(), [&](std::int64_t at, std::int64_t number, std::int32_t term) {
      right = right && values[at] == (term == 0 ? static_cast<float>(number) : 0.0F);
    });
    if (!right) return fail(errc::checksum_mismatch, "another value").with_rank(comm.rank());
    return {};
  });
  return done ? "" : to_string(done.error());
}

}  // namespace

TEST_CASE("dtensors move between meshes that are equal, larger, smaller, overlapping and disjoint") {
  const extents shape{7, 5, 4};
  const layout layouts[] = {on("4", "S(0)", shape),         on("2,2", "S(1),R", shape),
                            on("2,3", "S(2),S(0)", shape),  on("2,3", "SS(0,3),S(0)", shape),
                            on("3", "P(sum)", shape),       on("1", "R", shape),
                            on("3", "SG(0,4:1:2)", shape),  on("2,2", "SG(1,2:0:3),SG(0,7)", shape),
                            on("2,2", "P(sum),S(1)", shape)};
  for (const layout& from : layouts)
    for (const layout& to : layouts) {
      INFO(to_string(from) << " -> " << to_string(to));
      CHECK(moved(from, to, 6) == "");
    }
  const layout low =
      layout::make(device_mesh::make(extents{2}, {}, {1, 0}).value(), {placement::shard(0)}, shape).value();
  const layout high =
      layout::make(device_mesh::make(extents{3}, {}, {5, 2, 4}).value(), {placement::shard(1)}, shape).value();
  CHECK(moved(low, high, 6) == "");
  CHECK(moved(high, low, 6) == "");
}

TEST_CASE("a fused tensor that moves from its segments to plain shards and back is the same on every rank") {
  const extents shape{96, 3};
  for (const char* segments : {"SG(0,64:16:16)", "SG(0,95:0:1)", "SG(0,7:50:39)"}) {
    const layout fused = on("5", segments, shape), plain = on("5", "S(0)", shape);
    const auto done = run_ranks(5, [&](any_communicator& comm) -> result<void> {
      const auto before = filled(fused, comm.rank());
      if (!before) return before.error();
      const auto between = redistribute(*before, plain, comm);
      if (!between) return between.error();
      const auto after = redistribute(*between, fused, comm);
      if (!after) return after.error();
      if (!std::ranges::equal(before->local().bytes(), after->local().bytes()))
        return fail(errc::checksum_mismatch, "other values").with_rank(comm.rank());
      return {};
    });
    INFO(segments);
    CHECK((done ? "" : to_string(done.error())) == "");
  }
}

TEST_CASE("redistributing a dtensor to another tensor's layout or to a mesh that is too large fails on every rank") {
  CHECK(moved(on("2", "S(0)", {4}), on("2", "S(0)", {5}), 2).find("the source and the destination differ in shape") !=
        std::string::npos);
  CHECK(moved(on("2", "S(0)", {4}), on("3", "S(0)", {4}), 2).find("a rank that is not in the group") !=
        std::string::npos);
}
