// SPDX-License-Identifier: Apache-2.0
// Tests the nearest key against a plain table of edits, which keys count as near, and how entries are found by key.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

using views = std::vector<std::string_view>;

// The optimal string alignment distance, from the whole table: no part of a text is edited twice.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  return table[a.size()][b.size()];
}

std::string near(const views& keys, std::string_view wanted) {
  return std::string(nearest_key(keys, wanted).value_or("-"));
}

}  // namespace

TEST_CASE("the nearest key has the fewest edits, the first of equals, and none is far") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  const auto draw = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  std::size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    // Few letters and no dots: many keys are near each other, and no key is another key with a prefix.
    const auto word = [&] {
      std::string made(2 + draw(12), ' ');
      for (char& c : made) c = static_cast<char>('a' + draw(2));
      return made;
    };
    std::vector<std::string> words(1 + draw(20));
    for (std::string& one : words) one = word();
    const std::string wanted = word();
    const std::size_t limit = std::min<std::size_t>(8, (wanted.size() + 3) / 4);
    std::string expected = "-";
    std::size_t least = limit + 1;
    for (const std::string& one : words)
      if (const std::size_t edits = distance(wanted, one); edits < least) least = edits, expected = one;
    INFO(wanted);
    CHECK(near(views(words.begin(), words.end()), wanted) == expected);
    found += expected == "-" ? 0U : 1U;
  }
  CHECK(found > 200);
  CHECK(found < 1900);
}

TEST_CASE("a forgotten or an added prefix is near, however long; a word of one letter and another word are not") {
  const views keys{"model.layers.0.weight", "model.layers.10.weight", "optimizer.model.layers.0.weight", "b"};
  CHECK(near(keys, "model.layers.0.wieght") == "model.layers.0.weight");
  CHECK(near(keys, "layers.10.weight") == "model.layers.10.weight");
  CHECK(near(keys, "weight") == "model.layers.0.weight");
  CHECK(near(keys, "module.module.model.layers.0.weight") == "model.layers.0.weight");
  CHECK(near(keys, "ayers.10.weight") == "-");
  CHECK(near(keys, "a") == "-");
  CHECK(near(keys, "") == "-");
  CHECK(near({}, "model") == "-");
  CHECK(did_you_mean(nearest_key(keys, "model.layer.0.weight")) == "did you mean model.layers.0.weight?");
  CHECK(did_you_mean(std::nullopt).empty());
}

TEST_CASE("two swapped letters are one edit, so that they are near in a short word, too") {
  CHECK(near({"rank"}, "rnak") == "rank");
  CHECK(near({"--key"}, "--kye") == "--key");
  CHECK(near({"map"}, "mpa") == "map");
  CHECK(near({"ab"}, "ba") == "ab");
  CHECK(near({"abc"}, "cba") == "-");  // two letters that are no neighbours
  CHECK(near({"lr", "rl.step"}, "rl") == "lr");
}

TEST_CASE("a catalog finds its tensors and objects by key, copies too, and of equal keys the first") {
  catalog contents;
  for (const char* const key : {"w", "b", "w"}) {
    tensor_entry one;
    one.key = key;
    contents.tensors.push_back(one);
  }
  contents.objects.push_back({"step", {"step"}, {}});
  CHECK(contents.find("w") == &contents.tensors[0]);
  CHECK(contents.find("b") == &contents.tensors[1]);
  CHECK(contents.find("step") == nullptr);
  CHECK(contents.find_object("step") == &contents.objects[0]);
  CHECK(contents.find_object("w") == nullptr);
  catalog copy = contents;
  copy.tensors.push_back(copy.tensors[1]);
  copy.tensors.back().key = "more";
  CHECK(copy.find("more") == &copy.tensors[3]);
  CHECK(copy.find("w") == &copy.tensors[0]);
  contents = copy;
  CHECK(contents.find("more") == &contents.tensors[3]);
}
