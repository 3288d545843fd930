// SPDX-License-Identifier: Apache-2.0
// `redistribute` with a mapping on every communicator: fused heads, an operation on values with a cast, and the error
// of one rank. Random mappings are in tests/unit/mapping.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <on_ranks.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh.mapping;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

constexpr const char* rules =
    "left = 'hf'\nright = 'grouped'\n[sizes]\ng = 6\nr = 2\nd = 2\nh = 3\n[[rule]]\nleft.q = 'q'\nleft.k = 'k'\n"
    "left.v = 'v'\nright = 'qkv'\nindex = 'q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h'\n"
    "[[rule]]\nleft = 'norm'\nright = 'scale'\nvalues = ['x + 1']\n";

// The element of a tensor at a row and a column.
using elements = std::function<double(std::int64_t row, std::int64_t column)>;

distribution over(const extents& shape, std::int64_t ranks, std::int32_t dimension) {
  return distribute(layout::make(device_mesh::make({ranks}).value(), {placement::shard(dimension)}, shape).value())
      .value();
}

template <class T>
host_tensor local_of(const distribution& where, owner_id rank, const elements& element) {
  extents sizes = extents::filled(where.global_shape().rank(), 0);
  where.fragments_of(rank, [&](const fragment& f) {
    sizes = f.where.sizes;
    return true;
  });
  host_tensor made = host_tensor::make(dtype_of<T>, sizes).value();
  where.fragments_of(rank, [&](const fragment& f) {
    const std::int64_t columns = sizes.rank() == 2 ? sizes[1] : 1;
    for (std::int64_t i = 0; i < f.where.volume(); ++i)
      made.values<T>()[static_cast<std::size_t>(i)] = static_cast<T>(
          element(f.where.offsets[0] + i / columns, sizes.rank() == 2 ? f.where.offsets[1] + i % columns : 0));
    return true;
  });
  return made;
}

bool equal(const host_tensor& a, const host_tensor& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

// A row of `qkv` in terms of q (rows 0 to 23), k (24 to 35), and v (36 to 47).
std::int64_t source_row(std::int64_t row) {
  const std::int64_t group = row / 8, within = row % 8;
  if (within < 4) return group * 4 + within;
  return within < 6 ? 24 + group * 2 + within - 4 : 36 + group * 2 + within - 6;
}

}  // namespace

TEST_CASE("shards under one convention fill those of another, with cast and computed values") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size(), rank = comm.rank();
    const std::vector<mapping_rules> mappings{parse_mapping(rules).value()};
    std::vector<named_source> from;
    std::vector<named_target> to;
    std::vector<host_tensor> held, made, expected;
    held.reserve(4), made.reserve(2), expected.reserve(2);
    const auto hold = [&](const char* key, const extents& shape, std::int64_t first_row) {
      const distribution where = over(shape, n, 0);
      held.push_back(local_of<float>(where, rank, [&](std::int64_t row, std::int64_t column) {
        return static_cast<double>((first_row + row) * 3 + column);
      }));
      from.push_back({key, side_of(where, held.back())});
    };
    hold("q", {24, 3}, 0);
    hold("k", {12, 3}, 24);
    hold("v", {12, 3}, 36);
    hold("norm", {7}, 0);
    const distribution of_qkv = over({48, 3}, n, 1), of_scale = over({7}, n, 0);
    expected.push_back(local_of<double>(of_qkv, rank, [](std::int64_t row, std::int64_t column) {
      return static_cast<double>(source_row(row) * 3 + column);
    }));
    expected.push_back(local_of<double>(
        of_scale, rank, [](std::int64_t row, std::int64_t) { return static_cast<double>(row * 3 + 1); }));
    made.push_back(local_of<double>(of_qkv, rank, [](std::int64_t, std::int64_t) { return -1.0; }));
    made.push_back(local_of<double>(of_scale, rank, [](std::int64_t, std::int64_t) { return -1.0; }));
    to.push_back({"qkv", side_of(of_qkv, made[0])});
    to.push_back({"scale", side_of(of_scale, made[1])});
    const auto done = redistribute(from, to, mappings, {}, comm);
    if (!done) return to_string(done.error());
    if (!equal(made[0], expected[0])) return "qkv is wrong";
    if (!equal(made[1], expected[1])) return "scale is wrong";
    if (n == 1 && done->sent_bytes + done->received_bytes != 0) return "sent to nobody";
    return {};
  });
}

TEST_CASE("a rank whose sources lack a tensor tells the others, and the communicator stays usable") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    const std::vector<mapping_rules> mappings{parse_mapping("left = 'a'\nright = 'b'\n[rename]\n'w' = 'v'\n").value()};
    const distribution where = over({8}, comm.size(), 0);
    const auto number = [](std::int64_t row, std::int64_t) { return static_cast<double>(row); };
    const host_tensor w = local_of<float>(where, comm.rank(), number);
    host_tensor v = local_of<float>(where, comm.rank(), [](std::int64_t, std::int64_t) { return -1.0; });
    const std::vector<named_target> to{{"v", side_of(where, v)}};
    const bool lacks = comm.rank() == comm.size() - 1;
    const auto refused =
        redistribute(std::vector<named_source>{{lacks ? "x" : "w", side_of(where, w)}}, to, mappings, {}, comm);
    if (refused) return "no error";
    if (to_string(refused.error()).find("the checkpoint lacks it") == std::string::npos)
      return to_string(refused.error());
    const auto done = redistribute(std::vector<named_source>{{"w", side_of(where, w)}}, to, mappings, {}, comm);
    if (!done) return to_string(done.error());
    return equal(v, w) ? "" : "v is wrong";
  });
}
