// SPDX-License-Identifier: Apache-2.0
// Tests Python's plain objects, as every protocol writes them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint_data.hpp"
import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {
const std::filesystem::path fixtures = std::filesystem::path(SHARDMESH_TEST_DATA) / "pickle";
}

TEST_CASE("Python's plain objects read the same from every protocol") {
  const int protocol = GENERATE(range(0, 6));
  INFO("protocol " << protocol);
  const auto bytes = data::read(fixtures / ("plain_" + std::to_string(protocol) + ".pkl"));
  const memory_source source(bytes, "plain");
  const auto item = torch_file::item::open(source);
  if (!item) FAIL(to_string(item.error()));
  CHECK(item->format() == torch_file::item_format::pickle);
  CHECK(nlohmann::json::parse(object_json(source, *item, item->root()).value()) ==
        data::read_json(fixtures / "plain.json"));
}
