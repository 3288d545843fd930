// SPDX-License-Identifier: Apache-2.0
// Compares small checks with every case that PyTorch answered (golden/seeds/sharded_utils.json): remote devices,
// properties, sizes as arguments, and destinations of gathers. tests/data/differences/sharded_utils.json lists the
// differences.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
import shardmesh.sharding;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::refused;
using golden::to_extents;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class... Arguments>
concept flattens = requires(Arguments... arguments) { flatten_tensor_size(arguments...); };

// Arguments that PyTorch refuses at run time do not compile.
static_assert(flattens<> && flattens<int, long, unsigned> && flattens<std::vector<int>> && flattens<extents>);
static_assert(!flattens<double> && !flattens<const char*> && !flattens<std::string> && !flattens<std::nullptr_t>);
static_assert(!flattens<std::vector<double>> && !flattens<std::vector<int>, int> && !flattens<int, double>);
static_assert(!flattens<bool, int> && !flattens<char> && !flattens<std::string_view>);
static_assert(tensor_property<dtype> && tensor_property<bool> && tensor_property<extents> &&
              tensor_property<tensor_storage> && tensor_property<memory_format>);
static_assert(!tensor_property<int> && !tensor_property<const char*> && !tensor_property<std::vector<int>>);

}  // namespace

TEST_CASE("placements mean what they mean in PyTorch, but a rank outside the group is refused for everybody",
          "[sharded_utils]") {
  golden::differences differences("sharded_utils", "remote_device");
  const json& cases = golden::file("seeds/sharded_utils.json").at("remote_device");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    REQUIRE(c["ranks"].size() == c["world"].get<std::size_t>());
    const auto group = rank_group::make(c["group"].get<std::vector<std::int32_t>>()).value();
    std::optional<remote_device> placement;
    if (!c["placement"].is_null()) placement = parse_remote_device(c["placement"].get<std::string>()).value();
    const auto found = parse_and_validate_remote_device(group, placement);
    for (std::size_t rank = 0; rank < c["ranks"].size(); ++rank) {
      const json& answer = c["ranks"][rank];
      // The rule: a process outside the group gets a member's answer.
      const bool skipped = !refused(answer) && placement->rank && !group.group_rank(*placement->rank);
      if (skipped) REQUIRE(!group.group_rank(static_cast<std::int32_t>(rank)));
      REQUIRE(found.has_value() == (!refused(answer) && !skipped));
      json ours = found ? json::array({found->rank ? json(*found->rank) : json(), to_string(found->where)})
                        : golden::refusal(found.error());
      if (found) CHECK(!found->worker_id);
      differences.compare(std::to_string(i) + "/ranks/" + std::to_string(rank), answer, ours,
                          skipped ? "ranks outside the group" : "refusals");
    }
    if (found) continue;
    const std::string text = to_string(found.error());
    if (!placement) CHECK(contains(text, "no remote device"));
    if (placement && placement->rank)
      CHECK(text == "global rank " + std::to_string(*placement->rank) + " does not exist in the process group (rank " +
                        std::to_string(*placement->rank) + "): expected one of " + to_string(group) + ", found " +
                        std::to_string(*placement->rank));
    if (placement && !placement->worker.empty())
      CHECK(contains(text, "'" + placement->worker + "' is not the name of a known worker"));
  }
  differences.finish();
}

TEST_CASE("workers are found by their names") {
  const std::vector<remote_worker> workers{{"trainer", 0}, {"ps", 7}};
  const auto found =
      parse_and_validate_remote_device(rank_group::world(2), parse_remote_device("ps/cuda:1").value(), workers).value();
  CHECK(found == placed_device{std::nullopt, 7, parse_device("cuda:1").value()});
  const auto unknown =
      parse_and_validate_remote_device(rank_group::world(2), parse_remote_device("other/cpu").value(), workers);
  REQUIRE(!unknown);
  CHECK(to_string(unknown.error()) ==
        "'other' is not the name of a known worker: expected one of 2 workers, found other");
}

TEST_CASE("sizes are put together as PyTorch does", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "flatten_tensor_size");
  const json& cases = golden::file("seeds/sharded_utils.json").at("flatten_tensor_size");
  std::size_t beyond = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const json& c = cases[k];
    INFO(c.dump());
    std::vector<size_argument> arguments;
    bool compiles = true;
    const auto number = [&](const json& v) -> std::int64_t {
      if (v.is_object() && v.contains("$int")) return beyond = beyond + 1, 0;  // more than 64 bits, tested below
      compiles = compiles && v.is_number_integer();
      return compiles ? v.get<std::int64_t>() : 0;
    };
    const std::size_t beyond_before = beyond;
    for (const json& a : c["args"]["$tuple"]) {
      const json* list = a.is_array() ? &a : nullptr;
      for (const char* tag : {"$tuple", "$size"})
        if (a.is_object() && a.contains(tag)) list = &a[tag];
      if (!list) {
        arguments.emplace_back(number(a));
        continue;
      }
      std::vector<std::int64_t> sizes;
      for (const json& v : *list) sizes.push_back(number(v));
      arguments.emplace_back(sizes);
    }
    // The static assertions test bools, floats, strings, None, and dicts.
    if (!compiles) {
      differences.compare(std::to_string(k), c["result"], "does not compile", "does not compile");
      continue;
    }
    if (beyond > beyond_before) {
      differences.compare(std::to_string(k), c["result"], "no such number", "numbers beyond 64 bits");
      continue;
    }
    const auto found = flatten_tensor_size(std::span<const size_argument>(arguments));
    differences.compare(std::to_string(k), c["result"],
                        found ? golden::to_json(*found) : golden::refusal(found.error()), "refusals");
  }
  differences.finish();
}

TEST_CASE("sizes of any integer type, one by one or from any range") {
  CHECK(flatten_tensor_size().value() == extents{});
  CHECK(flatten_tensor_size(1, 2L, std::uint8_t{3}).value() == extents{1, 2, 3});
  CHECK(flatten_tensor_size(std::list<short>{4, 5}).value() == extents{4, 5});
  CHECK(flatten_tensor_size(-1).value() == extents{-1});
  CHECK(to_string(flatten_tensor_size(1, std::uint64_t{1} << 63).error()) ==
        "size 1 does not fit in 64 bits: expected at most 9223372036854775807, found 9223372036854775808");
  CHECK(flatten_tensor_size(std::vector<std::uint64_t>{7, ~std::uint64_t{0}}).error().code == errc::overflow);
  CHECK(to_string(flatten_tensor_size(std::vector<int>(17, 1)).error()) ==
        "a tensor has too many dimensions: expected at most 16, found 17");
  const std::vector<size_argument> mixed{std::int64_t{2}, std::vector<std::int64_t>{1}};
  CHECK(to_string(flatten_tensor_size(std::span<const size_argument>(mixed)).error()) ==
        "size has to be a sequence of integers: expected numbers only, or one list of them, found argument 1 of 2 is a "
        "list of 1");
}

TEST_CASE("the destination of a gather is where it must be, whatever it holds", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "validate_output_tensor_for_gather");
  const json& cases = golden::file("seeds/sharded_utils.json").at("validate_output_tensor_for_gather");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    const auto rank = c["my_rank"].get<std::int32_t>(), destination_rank = c["dst_rank"].get<std::int32_t>();
    const extents size = to_extents(c["size"]);
    std::optional<tensor_view> out;
    if (!c["out"].is_null()) out = tensor_view{.sizes = to_extents(c["out"])};
    const auto found = validate_output_tensor_for_gather(rank, destination_rank, size, out);
    // The rule: presence and sizes decide.
    const bool right = rank == destination_rank ? out && out->sizes == size : !out;
    REQUIRE(found.has_value() == right);
    // PyTorch lets a tensor pass on another rank when its one element is zero.
    const bool falsy = rank != destination_rank && out && box::whole(out->sizes).volume() == 1 && c["fill"] == 0.0;
    REQUIRE(refused(c["result"]) == (!right && !falsy));
    differences.compare(std::to_string(i), c["result"], found ? json() : golden::refusal(found.error()),
                        falsy ? "a tensor that counts as false" : "refusals");
    if (found) continue;
    CHECK(found.error().ranks == std::vector<std::int32_t>{rank});
    const std::string text = to_string(found.error());
    if (!out || rank != destination_rank) CHECK(contains(text, "destination rank " + std::to_string(destination_rank)));
    if (out && rank == destination_rank)
      CHECK(contains(text, "expected " + to_string(size) + ", found " + to_string(out->sizes)));
  }
  differences.finish();
}

TEST_CASE("properties that differ are told in PyTorch's words", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "raise_if_mismatch");
  const json& cases = golden::file("seeds/sharded_utils.json").at("raise_if_mismatch");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    // One rank for local, two for global: other counts fail in PyTorch and do not compile here.
    const bool is_local = c["is_local"];
    const std::size_t ranks = c["ranks"].is_array() ? c["ranks"].size() : 0;
    if (ranks != (is_local ? 0U : 2U)) {
      CHECK(refused(c["result"]));
      differences.compare(std::to_string(i), c["result"], "does not compile", "does not compile");
      continue;
    }
    const auto property = c["prop"].get<std::string>();
    const auto plain = [](std::string text) {  // torch.Size([2]) and [2] are the same size
      for (auto at = text.find("torch.Size("); at != std::string::npos; at = text.find("torch.Size(")) {
        text.erase(text.find(')', at), 1);
        text.erase(at, 11);
      }
      return text;
    };
    const auto check = [&](auto expected, auto actual) {
      const auto found = is_local ? check_match(expected, actual, property, c["ranks"].get<std::int32_t>())
                                  : check_match(expected, actual, property, c["ranks"][0].get<std::int32_t>(),
                                                c["ranks"][1].get<std::int32_t>());
      const bool same = plain(c["expected"]) == plain(c["actual"]);
      REQUIRE(found.has_value() == same);
      json theirs = c["result"];
      // The message is PyTorch's; the error's fields hold the rest.
      if (refused(theirs)) theirs["exception"]["text"] = plain(theirs["exception"]["text"]);
      json ours;
      if (!found)
        ours = {
            {"exception", {{"type", make_error_code(found.error().code).message()}, {"text", found.error().message}}}};
      differences.compare(std::to_string(i), theirs, ours, same ? "a tuple and a list" : "refusals");
      if (!same) CHECK(found.error().message == plain(c["result"]["exception"]["text"]));
      if (!same) CHECK(found.error().ranks.size() == (is_local ? 1U : 2U));
      // PyTorch calls a tuple and a list of equal numbers different.
      if (same && refused(c["result"])) CHECK(c["expected"] != c["actual"]);
    };
    const auto text = [&](const char* which) { return c[which].get<std::string>(); };
    if (property == "dtype") {
      check(parse_dtype(text("expected").substr(6)).value(), parse_dtype(text("actual").substr(6)).value());
    } else if (property.find("size") != std::string::npos) {
      check(parse_shape(plain(text("expected"))).value(), parse_shape(plain(text("actual"))).value());
    } else if (property == "layout") {
      const auto storage = [](const std::string& t) {
        if (t != "torch.strided") REQUIRE(t == "torch.sparse_coo");
        return t == "torch.strided" ? tensor_storage::strided : tensor_storage::sparse_coo;
      };
      check(storage(text("expected")), storage(text("actual")));
    } else {
      check(text("expected") == "True", text("actual") == "True");
    }
  }
  differences.finish();
}
