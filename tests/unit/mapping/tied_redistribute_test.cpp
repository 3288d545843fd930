// SPDX-License-Identifier: Apache-2.0
// Tests tied tensors in moves between ranks with a mapping: the comparison of tied sources, and targets of tied names.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rank_tensors.hpp"
#include "small_tensors.hpp"

import shardmesh.comm;
import shardmesh.layout;
import shardmesh.mapping;
import shardmesh.transfer;

using namespace shardmesh;
using namespace rank_tensors;
using small_tensors::counted;
using small_tensors::tensor;

namespace {

// The rules of a tied head, whose partner is the embedding.
constexpr const char* tied_head =
    "[sizes]\nn = 4\nh = 2\n[[rule]]\nleft = 'embed'\nright = 'v'\nindex = 'a: n h -> b: h n'\n"
    "[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'embed'\n";

// The transpose of the embedding counted({4, 2}, 1).
tensor turned_embedding() {
  return {{2, 4}, {1, 3, 5, 7, 2, 4, 6, 8}};
}

}  // namespace

TEST_CASE("tied sources are compared in any layouts, and only a partner in another layout travels") {
  const auto rules = rules_of(tied_head);
  const distribution over_rows = rows({4, 2}, 2), whole = on_every_rank({4, 2}, 2).value();
  const auto moved = [&](any_communicator& comm, const distribution& of_head, float last, std::int64_t bytes) {
    tensor embed = local_of(over_rows, comm.rank(), counted({4, 2}, 1)), all = counted({4, 2}, 1);
    all.values.back() = last;
    tensor head = local_of(of_head, comm.rank(), all), v = counted({2, 2});
    const distribution columns =
        distribute(layout::make(device_mesh::make({2}).value(), {placement::shard(1)}, {2, 4}).value()).value();
    const std::vector<named_source> from{{"embed", {over_rows, dtype::float32, {{small_tensors::view_of(embed)}}}},
                                         {"head", {of_head, dtype::float32, {{small_tensors::view_of(head)}}}}};
    const std::vector<named_target> to{{"v", {columns, dtype::float32, {{small_tensors::view_of(v)}}}}};
    auto done = redistribute(from, to, rules, {}, comm);
    if (!done) return done;
    if (v != local_of(columns, comm.rank(), turned_embedding()))
      return result<redistribute_report>(wrong("the target has other elements"));
    if (done->received_bytes != bytes)
      return result<redistribute_report>(wrong(fmt::format("received {} bytes", done->received_bytes)));
    return done;
  };
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, over_rows, 8, 0); }) == "no error");
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, whole, 8, 16); }) == "no error");
  for (const distribution& of_head : {over_rows, whole}) {
    const std::string apart = error_of_all(2, [&](any_communicator& comm) { return moved(comm, of_head, 9, 0); });
    CHECK(contains(apart, "head: the mapping ties this tensor to embed, and their values differ"));
  }
}

TEST_CASE("tied sources that share their memory are equal, also as terms of a sum") {
  const auto rules = rules_of(tied_head);
  const auto partial =
      distribute(layout::make(device_mesh::make({2}).value(), {placement::partial(reduce_op::sum)}, {4, 2}).value())
          .value();
  const auto moved = [&](any_communicator& comm, const distribution& of_head) {
    tensor embed = counted({4, 2}, 1), v = counted({2, 4});
    const std::vector<named_source> from{{"embed", {partial, dtype::float32, {{small_tensors::view_of(embed)}}}},
                                         {"head", {of_head, dtype::float32, {{small_tensors::view_of(embed)}}}}};
    const std::vector<named_target> to{
        {"v", {on_every_rank({2, 4}, 2).value(), dtype::float32, {{small_tensors::view_of(v)}}}}};
    auto done = redistribute(from, to, rules, {}, comm);
    tensor expected = turned_embedding();
    for (float& one : expected.values) one *= 2;
    if (done && v != expected) return result<redistribute_report>(wrong("the sums are wrong"));
    return done;
  };
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, partial); }) == "no error");
  const std::string refused =
      error_of_all(2, [&](any_communicator& comm) { return moved(comm, on_every_rank({4, 2}, 2).value()); });
  CHECK(contains(refused, "head: the mapping ties this tensor to embed, and Partial tensors in two layouts"));
}

TEST_CASE("tied sources of other strides are compared element by element") {
  const auto rules = rules_of(tied_head);
  const distribution whole = on_every_rank({4, 2}, 1).value();
  const auto moved = [&](any_communicator& comm, float last) {
    tensor embed = counted({4, 2}, 1), v = counted({2, 4});
    std::vector<float> columns{1, 3, 5, 7, 2, 4, 6, last};
    const tensor_view head{reinterpret_cast<std::byte*>(columns.data()), dtype::float32, {}, {4, 2}, {1, 4}};
    const std::vector<named_source> from{{"embed", {whole, dtype::float32, {{small_tensors::view_of(embed)}}}},
                                         {"head", {whole, dtype::float32, {{head}}}}};
    const std::vector<named_target> to{
        {"v", {on_every_rank({2, 4}, 1).value(), dtype::float32, {{small_tensors::view_of(v)}}}}};
    return redistribute(from, to, rules, {}, comm);
  };
  CHECK(error_of_all(1, [&](any_communicator& comm) { return moved(comm, 8); }) == "no error");
  const std::string apart = error_of_all(1, [&](any_communicator& comm) { return moved(comm, 9); });
  CHECK(contains(apart, "head: the mapping ties this tensor to embed, and their values differ"));
}

TEST_CASE("a target of a tied name equals its partner: in the same memory, in its layout, and in another one") {
  const std::vector<mapping_rules> rules{rules_of(tied_head)[0].inverse()};
  const distribution over_rows = rows({4, 2}, 2), whole = on_every_rank({4, 2}, 2).value();
  enum class memory { shared, own };
  const auto moved = [&](any_communicator& comm, memory of_head, const distribution& head_layout, std::int64_t bytes) {
    const distribution columns =
        distribute(layout::make(device_mesh::make({2}).value(), {placement::shard(1)}, {2, 4}).value()).value();
    tensor v = local_of(columns, comm.rank(), turned_embedding());
    tensor embed = counted({2, 2}, -9), head{local_sizes(head_layout, comm.rank()), {}};
    head.values.assign(static_cast<std::size_t>(small_tensors::volume(head.shape)), -9);
    int notified = 0;
    const std::vector<named_source> from{{"v", {columns, dtype::float32, {{small_tensors::view_of(v)}}}}};
    std::vector<named_target> to{{"head",
                                  {head_layout,
                                   dtype::float32,
                                   {{small_tensors::view_of(of_head == memory::shared ? embed : head)},
                                    slot_room::exact,
                                    {},
                                    [&] { ++notified; }}}},
                                 {"embed", {over_rows, dtype::float32, {{small_tensors::view_of(embed)}}}}};
    auto done = redistribute(from, to, rules, {}, comm);
    if (!done) return done;
    const tensor all = counted({4, 2}, 1);
    if (embed != local_of(over_rows, comm.rank(), all))
      return result<redistribute_report>(wrong("the partner has other elements"));
    if (of_head == memory::own && head != local_of(head_layout, comm.rank(), all))
      return result<redistribute_report>(wrong("the tied target has other elements"));
    if (notified != 1) return result<redistribute_report>(wrong(fmt::format("notified {} times", notified)));
    if (done->received_bytes != bytes)
      return result<redistribute_report>(wrong(fmt::format("received {} bytes", done->received_bytes)));
    return done;
  };
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, memory::shared, over_rows, 0); }) ==
        "no error");
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, memory::own, over_rows, 0); }) == "no error");
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, memory::own, whole, 16); }) == "no error");
}

TEST_CASE("a tied target whose memory does not fit is the same error on every rank") {
  const std::vector<mapping_rules> rules{rules_of(tied_head)[0].inverse()};
  const std::string found = error_of_all(2, [&](any_communicator& comm) {
    tensor v = counted({2, 2}), embed = counted({2, 2}), head = counted({comm.rank() == 1 ? 3 : 2, 2});
    const distribution columns =
        distribute(layout::make(device_mesh::make({2}).value(), {placement::shard(1)}, {2, 4}).value()).value();
    const std::vector<named_source> from{{"v", {columns, dtype::float32, {{small_tensors::view_of(v)}}}}};
    const std::vector<named_target> to{{"embed", {rows({4, 2}, 2), dtype::float32, {{small_tensors::view_of(embed)}}}},
                                       {"head", {rows({4, 2}, 2), dtype::float32, {{small_tensors::view_of(head)}}}}};
    return redistribute(from, to, rules, {}, comm);
  });
  CHECK(contains(found, "head: slot 0 is larger than this rank's part of the tensor"));
}
