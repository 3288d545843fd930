// SPDX-License-Identifier: Apache-2.0
// Tests plans along one mesh dimension: they use NCCL's collectives of rank groups, which the communicator makes once.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gpu_double/on_double.hpp>
#include <span>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.gpu_ranks;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

struct move_case {
  const char *from_mesh, *from, *to_mesh, *to;
  extents shape;
  bool by_groups = true;
  reduce_op op = reduce_op::none;
};

distribution on(const char* mesh, const char* placements, const extents& shape) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
      .value();
}

// The value of an element, or of one term of a Partial's element.
std::int32_t value_of(const fragment& f, const extents& shape, std::int64_t at, bool is_term) {
  std::int64_t number = 0, place = 1;
  for (std::size_t d = shape.rank(); d-- > 0;) {
    number += (f.where.offsets[d] + at % f.where.sizes[d]) * place;
    at /= f.where.sizes[d];
    place *= shape[d];
  }
  return static_cast<std::int32_t>(is_term ? number * 10 + f.term : number);
}

std::int32_t expected_of(std::int32_t element, reduce_op op, std::int32_t terms) {
  if (op == reduce_op::none) return element;
  if (op == reduce_op::max) return element * 10 + terms - 1;
  return element * 10 * terms + terms * (terms - 1) / 2;
}

std::string carry_out(nccl_communicator& comm, const move_case& c) {
  const distribution from = on(c.from_mesh, c.from, c.shape), to = on(c.to_mesh, c.to, c.shape);
  const auto fragment_of = [&](const distribution& d) {
    fragment found;
    found.where = {extents::filled(c.shape.rank(), 0), extents::filled(c.shape.rank(), 0)};
    d.fragments_of(comm.rank(), [&](const fragment& f) { return found = f, true; });
    return found;
  };
  const fragment held = fragment_of(from), wanted = fragment_of(to);
  const auto make = [&](const fragment& f) {
    return device_tensor::make(dtype::int32, f.where.sizes, comm.memory()).value();
  };
  device_tensor source = make(held), target = make(wanted);
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < held.where.volume(); ++i)
    numbers.push_back(value_of(held, c.shape, i, c.op != reduce_op::none));
  const auto on_host_as = [](std::vector<std::int32_t>& of, const fragment& f) {
    return tensor_view{
        reinterpret_cast<std::byte*>(of.data()), dtype::int32, {}, f.where.sizes, contiguous_strides(f.where.sizes)};
  };
  if (!numbers.empty()) copy_between(view_of(source), on_host_as(numbers, held)).value();
  auto made = executor::make(plan({{from, to, dtype::int32, dtype::int32}}, {.deterministic = false}), comm, {"w"});
  if (!made) return to_string(made.error());
  // The run's messages exclude collectives; a rank without a part has no messages in either case.
  const bool has_messages = made->sent_bytes() + made->received_bytes() > 0, has_part = wanted.where.volume() > 0;
  if (has_messages != (!c.by_groups && has_part)) return c.by_groups ? "messages" : "groups";
  const_tensor_binding given;
  if (!numbers.empty()) given.slots.push_back(view_of(source));
  const tensor_binding taken{{view_of(target)}};
  for (int run = 0; run < 2; ++run)
    if (auto done = made->run(std::span(&given, 1), std::span(&taken, 1)); !done) return to_string(done.error());
  std::vector<std::int32_t> got(static_cast<std::size_t>(wanted.where.volume()), -1);
  copy_between(on_host_as(got, wanted), view_of(target)).value();
  for (std::int64_t i = 0; i < wanted.where.volume(); ++i)
    if (got[static_cast<std::size_t>(i)] != expected_of(value_of(wanted, c.shape, i, false), c.op, from.terms()))
      return "another value";
  return {};
}

std::string text_of(const move_case& c) {
  return std::string(c.from) + " on " + c.from_mesh + " -> " + c.to + " on " + c.to_mesh + ": ";
}

}  // namespace

TEST_CASE("what moves along one dimension of a mesh is a collective of NCCL in each group of its ranks") {
  const watchdog dog{std::chrono::seconds(120)};
  const move_case cases[] = {
      {"2,3", "S(0),S(1)", "2,3", "R,S(1)", {4, 7}},  // all_gather over columns of the mesh
      {"2,3", "S(1),S(0)", "2,3", "S(1),R", {6, 5}},
      {"2,3", "R,S(0)", "2,3", "R,R", {9, 5}},  // within each row of the mesh
      {"2,3", "S(0),R", "2,3", "R,R", {8, 1}},
      {"2,3", "P(sum),S(1)", "2,3", "R,S(1)", {5, 6}, true, reduce_op::sum},
      {"2,3", "S(1),P(max)", "2,3", "S(1),R", {5, 7}, true, reduce_op::max},
      {"2,3", "R,P(sum)", "2,3", "R,R", {3, 2}, true, reduce_op::sum},
      {"2,3", "P(sum),S(1)", "2,3", "S(0),S(1)", {6, 5}, true, reduce_op::sum},
      {"3", "S(0)", "2,3", "R,S(0)", {7, 2}},  // from the first row to the other
      // No collectives of groups: uneven blocks, blocks along another dimension, and ranks that hold nothing.
      {"2,3", "S(0),S(1)", "2,3", "R,S(1)", {5, 7}, false},
      {"2,3", "S(0),S(1)", "2,3", "S(0),R", {4, 6}, false},
      {"2,3", "S(0),S(1)", "6", "S(0)", {6, 6}, false},
      {"2,3", "P(sum),S(1)", "2,3", "S(0),S(1)", {6, 4}, false, reduce_op::sum},
  };
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 6, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          for (const move_case& c : cases)
            if (const std::string wrong = carry_out(comm, c); !wrong.empty()) return text_of(c) + wrong;
          return {};
        }) == "");
  // One split for the rows of the mesh, and one for its columns.
  CHECK(double_calls("ncclCommSplit") == 2 * 6);
}

TEST_CASE("groups are kept, and need one number for every rank") {
  const watchdog dog{std::chrono::seconds(60)};
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 4, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          const std::vector<std::int32_t> halves{0, 1, 0, 1};
          const auto mine = comm.groups(halves), again = comm.groups(halves);
          if (!mine || !again || *mine != *again) return "another group";
          if ((*mine)->size() != 2 || (*mine)->rank() != comm.rank() / 2) return "another rank";
          for (const std::vector<std::int32_t>& wrong : {std::vector<std::int32_t>{0, 1}, {0, -1, 0, 0}}) {
            const auto refused = comm.groups(wrong);
            if (refused || refused.error().code != errc::invalid_argument ||
                refused.error().ranks != std::vector<std::int32_t>{comm.rank()})
              return "not refused";
          }
          return comm.status() ? "" : "poisoned";
        }) == "");
  CHECK(double_calls("ncclCommSplit") == 4);
}
