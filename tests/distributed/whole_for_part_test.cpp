// SPDX-License-Identifier: Apache-2.0
// A whole tensor instead of a rank's part is refused; a larger buffer must be declared. Streams are refused where
// memory has none.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <on_ranks.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

constexpr auto& on_ranks = fabric::on_ranks<any_communicator>;
constexpr auto& on_all_sizes = fabric::on_all_sizes<any_communicator>;

layout cut(std::int32_t ranks, const placement& p, const extents& shape) {
  const std::int64_t sizes[] = {ranks};
  return layout::make(device_mesh::make(sizes).value(), {p}, shape).value();
}

// Every element is its number in the whole tensor.
host_tensor numbered(const extents& shape) {
  host_tensor made = host_tensor::make(dtype::int32, shape).value();
  auto* const values = reinterpret_cast<std::int32_t*>(made.bytes().data());
  std::iota(values, values + box::whole(shape).volume(), 0);
  return made;
}

std::vector<std::int32_t> numbers(const host_tensor& tensor) {
  const auto* const values = reinterpret_cast<const std::int32_t*>(tensor.bytes().data());
  return {values, values + tensor.bytes().size() / sizeof(std::int32_t)};
}

}  // namespace

TEST_CASE("the whole tensor in the place of a rank's part is refused on every rank, as source and as destination") {
  on_ranks({2, 3, 4}, [](any_communicator& comm) -> std::string {
    const std::int32_t n = comm.size();
    const extents shape{2 * n, 3};
    const layout rows = cut(n, placement::shard(0), shape), all = cut(n, placement::replicate(), shape);
    host_tensor whole = numbered(shape), copy_of_all = numbered(shape);
    host_tensor part = host_tensor::make(dtype::int32, rows.local_shape(comm.rank())).value();
    // With `every_run`, each rank gets the error of the lowest rank, and the communicator stays usable.
    const redistribute_options checked{.check = check_policy::every_run};
    const auto refused = [&](const result<redistribute_report>& done, const std::string& side) -> std::string {
      if (done) return "the whole was taken as " + side;
      const error& e = done.error();
      if (e.code != errc::shape_mismatch || e.ranks != std::vector<std::int32_t>{0} || e.expected != "[2, 3]" ||
          e.found != to_string(shape) || e.message.find(side) == std::string::npos ||
          e.hint.find("slot_room") == std::string::npos)
        return to_string(e);
      return {};
    };
    std::string wrong =
        refused(redistribute(side_of(rows, whole).value(), side_of(all, copy_of_all).value(), comm, checked), "source");
    if (!wrong.empty()) return wrong;
    wrong = refused(redistribute(side_of(all, copy_of_all).value(), side_of(rows, whole).value(), comm, checked),
                    "destination");
    if (!wrong.empty()) return wrong;
    wrong = refused(
        redistribute(side_of(distribute(rows).value(), whole), side_of(all, copy_of_all).value(), comm, checked),
        "source");
    if (!wrong.empty()) return wrong;
    // A buffer that is declared larger holds the part at its beginning, and nothing else in it is written.
    std::fill_n(reinterpret_cast<std::int32_t*>(whole.bytes().data()), box::whole(shape).volume(), -1);
    const auto done =
        redistribute(side_of(all, copy_of_all).value(), side_of(rows, whole, slot_room::larger).value(), comm, checked);
    if (!done) return to_string(done.error());
    std::vector<std::int32_t> expected(static_cast<std::size_t>(box::whole(shape).volume()), -1);
    std::iota(expected.begin(), expected.begin() + 6, comm.rank() * 6);
    return numbers(whole) == expected ? "" : "other values in larger room";
  });
}

TEST_CASE("a call with a device stream is refused where memory is the host's, naming the rank", "[host_memory]") {
  on_all_sizes([](any_communicator& comm) -> std::string {
    int queue = 0;
    const call_options streamed{.stream = {&queue}};
    const layout all = cut(comm.size(), placement::replicate(), {4});
    host_tensor from = numbered({4}), to = numbered({4});
    const auto done = redistribute(side_of(all, from).value(), side_of(all, to).value(), comm, {.call = streamed});
    if (done || done.error().code != errc::unsupported) return "a stream was taken";
    if (done.error().ranks != std::vector<std::int32_t>{comm.rank()}) return to_string(done.error());
    const auto sound = comm.all_gather({}, {});
    return sound ? "" : to_string(sound.error());
  });
}
