// SPDX-License-Identifier: Apache-2.0
// Compares the command line's own JSON check, which guards ready values in documents, with nlohmann's parser.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <vector>

#include "../../../tools/shardmesh/json_check.cpp"

TEST_CASE("a text is JSON to the letter of the grammar") {
  for (const std::string text :
       {"0", "-0", "-1.5e+3", "1E9", "\"\"", R"("a\n\u00e9\"\\\/")", "[]", "{}", " [ 1 , [ ] , { } ] ",
        R"({"a":{"b":[null]}})", "true", "false", "null", R"({"":0,"":1})", R"("\udcff")", R"(["\ud83d\ude00"])"})
    CHECK(tool::is_json(text));
  for (const std::string text :
       {"",        " ",        "01",         "-",     "+1",        "1.",    ".5",  "1e",      "1e+",
        "0x1",     "nan",      "Infinity",   "t",     "nulls",     "'a'",   "\"",  "\"\\x\"", "\"\\u12\"",
        "\"\n\"",  "[",        "]",          "[1,]",  "[,1]",      "[1 2]", "{",   "{]",      "[}",
        "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\" 1}", "1 2",   "[]]", "{}{}",    R"({"value":})"})
    CHECK_FALSE(tool::is_json(text));
  CHECK(tool::is_json(std::string(1'000'000, '[') + std::string(1'000'000, ']')));
  CHECK_FALSE(tool::is_json(std::string(1'000'000, '[') + std::string(999'999, ']')));
}

TEST_CASE("texts that were JSON and are turned are taken and refused as nlohmann's parser does") {
  const char* const given = std::getenv("SHARDMESH_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  const std::vector<std::string> whole{R"({"a":[1,-2.5,true,null],"b":{"c":"d\n"},"e":[]})",
                                       R"([[[]],{},"x",0,-0.0,12345])", R"({"kind":"int","value":7})", R"("\\\"/ \t")"};
  const std::string alphabet = "{}[]\",:.-+0123456789 truefalsn\\\n";
  std::size_t taken = 0;
  for (std::uint64_t round = 0; round < random_seed::rounds(20'000); ++round) {
    std::string text = whole[below(whole.size())];
    for (std::size_t edit = below(4); edit > 0; --edit) {
      const std::size_t at = below(text.size());
      if (below(2) == 0)
        text[at] = alphabet[below(alphabet.size())];
      else if (below(2) == 0)
        text.insert(at, 1, alphabet[below(alphabet.size())]);
      else if (text.size() > 1)
        text.erase(at, 1);
    }
    // By the grammar alone, numbers that no double holds and lone surrogates are JSON; nlohmann refuses them.
    bool has_exponent = false;
    for (std::size_t e = text.find('e', 1); e != std::string::npos; e = text.find('e', e + 1))
      has_exponent |= text[e - 1] >= '0' && text[e - 1] <= '9';
    if (text.find("\\u") != std::string::npos || has_exponent) continue;
    INFO(text);
    const bool expected = nlohmann::json::accept(text);
    taken += expected ? 1 : 0;
    REQUIRE(tool::is_json(text) == expected);
  }
  CHECK(taken > 1000);
}
