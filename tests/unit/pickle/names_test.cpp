// SPDX-License-Identifier: Apache-2.0
// Tests the names that are found while a pickle is parsed.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "pickles.hpp"
import shardmesh.pickle;

using namespace shardmesh;
using namespace pickles;
using namespace std::string_view_literals;
namespace data = checkpoint_data;

TEST_CASE("names that are found while a pickle is parsed are those of a run for names alone") {
  const auto check = [](const std::vector<std::byte>& bytes) {
    const auto named = pickle::named_graph::parse(bytes);
    const auto graph = pickle::graph::parse(bytes);
    REQUIRE(static_cast<bool>(named) == static_cast<bool>(graph));
    if (!named) {
      CHECK(named.error().message == graph.error().message);
      return;
    }
    CHECK(equal(named->graph.root(), graph->root()));
    const pickle::used_names alone = pickle::names_in(bytes);
    CHECK(named->names.is_cut == alone.is_cut);
    REQUIRE(named->names.names.size() == alone.names.size());
    for (std::size_t i = 0; i < alone.names.size(); ++i) {
      const pickle::used_name &one = named->names.names[i], &other = alone.names[i];
      INFO(other.text);
      CHECK(one.text == other.text);
      CHECK(one.count == other.count);
      CHECK(one.harmless == other.harmless);
      CHECK(one.dangerous == other.dangerous);
    }
  };
  std::vector<std::filesystem::path> files = data::metadata_files();
  for (const auto& entry : std::filesystem::directory_iterator(fixtures))
    if (entry.path().extension() == ".pkl") files.push_back(entry.path());
  for (const auto& file : files) {
    INFO(file);
    check(data::read(file));
  }
  // Calls of getattr, calls of something that is not a global, persistent ids, an extension, and pickles after the
  // first one.
  check(
      bytes_of("\x80\x02"
               "cbuiltins\ngetattr\nq\0cos\nX\6\0\0\0systemq\1\x86Rq\2X\2\0\0\0ls\x85R."sv));
  check(bytes_of("(cm\nA\ncm\nB\nK\1Q\x82\5t."sv));
  check(bytes_of("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R.\x80\2cm\nA\n."sv));
  check(bytes_of("\x80\2N.rest"sv));
}
