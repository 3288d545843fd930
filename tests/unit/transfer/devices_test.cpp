// SPDX-License-Identifier: Apache-2.0
// Tests device memory: which backend allocates it, copies between any two memories, and runs on it. Tables are made
// once, and every rank reports an unsupported operation before a byte moves.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <random_seed.hpp>
#include <random_views.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.test.fake_device;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

constexpr device gpu{device_type::cuda, 0};

tensor_view matrix(std::vector<float>& values, std::int64_t rows, std::int64_t columns, device where = {}) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::float32, where, {rows, columns}, {columns, 1}};
}

struct fake {
  std::shared_ptr<test::fake_backend> backend = std::make_shared<test::fake_backend>(device_type::cuda);
  backend_scope scope{backend};
};

transfer_plan rows_to_columns() {
  const auto cut = [](const char* how) {
    return distribute(layout::make(parse_mesh("2").value(), parse_placements(how).value(), {4, 4}).value()).value();
  };
  return plan({{cut("S(0)"), cut("S(1)"), dtype::float32, dtype::float32}}).value();
}

}  // namespace

TEST_CASE("the backend of a device is the one whose scope was opened last, and the host's is always there") {
  CHECK(backend_for({}).value() == host_backend());
  const auto missing = backend_for(gpu);
  REQUIRE(!missing);
  CHECK(missing.error().code == errc::unsupported);
  CHECK(missing.error().message == "the memory is not host memory, and no backend reaches it");
  CHECK(missing.error().found == "cuda:0");
  const auto first = std::make_shared<test::fake_backend>(device_type::cuda);
  const auto second = std::make_shared<test::fake_backend>(device_type::cuda);
  auto outer = std::make_unique<backend_scope>(first);
  {
    const backend_scope inner(second);
    CHECK(backend_for(gpu).value() == second);
    outer.reset();  // scopes may end in any order
    CHECK(backend_for(gpu).value() == second);
  }
  CHECK(!backend_for(gpu));
  const auto host = std::make_shared<test::fake_backend>(device_type::cpu);
  const backend_scope replaced(host);
  CHECK(backend_for({}).value() == host);
}

TEST_CASE("copies between any two memories convert, and leave what lies between elements") {
  const fake devices;
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::array<device, 3> places{device{}, gpu, device{device_type::cuda, 1}};
  const std::array<dtype, 4> types{dtype::float32, dtype::bfloat16, dtype::int64, dtype::uint8};
  for (int round = 0; round < 600; ++round) {
    extents sizes;
    for (std::uint64_t rank = random() % 5; rank > 0; --rank) sizes.push_back(static_cast<std::int64_t>(random() % 5));
    const dtype from_type = types[random() % 4], to_type = types[random() % 4];
    auto from = random_views::make(random, sizes, from_type, static_cast<std::size_t>(item_bytes(from_type)), true);
    auto to = random_views::make(random, sizes, to_type, static_cast<std::size_t>(item_bytes(to_type)), false);
    for (std::byte& b : from.memory) b = static_cast<std::byte>(random() % 32);  // neither NaN nor a large number
    auto expected = to;
    expected.view.data = expected.memory.data() + (to.view.data - to.memory.data());
    REQUIRE(copy(expected.view, from.view));
    from.view.where = places[random() % 3];
    to.view.where = places[random() % 3];
    INFO("round " << round << ": " << to_string(sizes) << " of " << name(from_type) << " on "
                  << to_string(from.view.where) << " to " << name(to_type) << " on " << to_string(to.view.where));
    const auto done = copy_between(to.view, from.view);
    REQUIRE((done ? "" : to_string(done.error())) == "");
    REQUIRE(to.memory == expected.memory);
  }
}

TEST_CASE("copies between memories say what is wrong") {
  std::vector<float> a(6), b(6, 7);
  const auto unreachable = copy_between(matrix(b, 2, 3, gpu), matrix(a, 2, 3));
  REQUIRE(!unreachable);
  CHECK(unreachable.error().code == errc::unsupported);
  CHECK(unreachable.error().found == "cuda:0");
  const fake devices;
  CHECK(copy_between(matrix(b, 2, 3, gpu), matrix(a, 3, 2)).error().code == errc::shape_mismatch);
  tensor_view bits = matrix(b, 2, 3, gpu);
  bits.type = dtype::bits16;
  CHECK(copy_between(bits, matrix(a, 2, 3)).error().code == errc::unsupported);
  tensor_view folded = matrix(b, 2, 3, gpu);
  folded.strides = {1, 1};  // two rows share elements
  const auto twice = copy_between(folded, matrix(a, 2, 3));
  REQUIRE(!twice);
  CHECK(twice.error().code == errc::invalid_argument);
  CHECK(twice.error().found == "[2, 3] with strides [1, 1]");
  CHECK(b == std::vector<float>(6, 7));
}

TEST_CASE("tables of an executor are made once, also when the memory is another") {
  const fake devices;
  const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    any_communicator there(test::device_communicator{&comm, {device_type::cuda, 0}});
    auto runs = executor::make(rows_to_columns(), there);
    if (!runs) return runs.error();
    for (int round = 0; round < 3; ++round) {
      std::vector<float> from(8), to(8, -1);
      std::iota(from.begin(), from.end(), static_cast<float>(8 * comm.rank() + 100 * round));
      const const_tensor_binding source{{matrix(from, 2, 4, gpu)}};
      const tensor_binding target{{matrix(to, 4, 2, gpu)}};
      if (auto ran = runs->run(std::span(&source, 1), std::span(&target, 1)); !ran) return ran;
      std::vector<float> wanted;
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 2; ++column)
          wanted.push_back(static_cast<float>(100 * round + 4 * row + 2 * comm.rank() + column));
      if (to != wanted) return fail(errc::checksum_mismatch, "wrong values");
    }
    return {};
  });
  CHECK((done ? "" : to_string(done.error())) == "");
  // One batch per rank, prepared before the messages: received bytes go directly to their place.
  CHECK(devices.backend->prepared == 2);
  CHECK(devices.backend->launched == 6);
  CHECK(devices.backend->crossed == 0);
}

TEST_CASE("memory on a device that no backend reaches is an error of every rank, before a byte moves") {
  for (const check_policy policy : {check_policy::every_run, check_policy::once}) {
    std::array<std::vector<float>, 2> to{std::vector<float>(8, -1), std::vector<float>(8, -1)};
    std::array<std::string, 2> said;
    const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
      const auto rank = static_cast<std::size_t>(comm.rank());
      std::vector<float> from(8, 1);
      auto runs = executor::make(rows_to_columns(), comm, {"layer.weight"}, {.check = policy});
      if (!runs) return runs.error();
      const const_tensor_binding source{{matrix(from, 2, 4, comm.rank() == 1 ? gpu : device{})}};
      const tensor_binding target{{matrix(to[rank], 4, 2)}};
      const auto ran = runs->run(std::span(&source, 1), std::span(&target, 1));
      if (!ran) said[rank] = to_string(ran.error());
      return {};
    });
    CHECK(done);
    for (const std::string& line : said) {
      CHECK(line.find("layer.weight") != std::string::npos);
      CHECK(line.find("slot 0 of the source lies in memory that no backend reaches") != std::string::npos);
      CHECK(line.find("rank 1") != std::string::npos);
      CHECK(line.find("cuda:0") != std::string::npos);
    }
    CHECK(to[1] == std::vector<float>(8, -1));
    // With one check only, the other rank may have copied its own part before it learns of the error.
    if (policy == check_policy::every_run) CHECK(to[0] == std::vector<float>(8, -1));
  }
}

TEST_CASE("a communicator whose device no backend reaches makes no executor, on any rank") {
  const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    any_communicator there(test::device_communicator{&comm, gpu});
    any_communicator& mine = comm.rank() == 0 ? there : comm;
    const auto runs = executor::make(rows_to_columns(), mine);
    if (runs) return fail(errc::invalid_argument, "there is an executor");
    if (runs.error().code != errc::unsupported || to_string(runs.error()).find("cuda:0") == std::string::npos)
      return runs.error();
    return {};
  });
  CHECK((done ? "" : to_string(done.error())) == "");
}
