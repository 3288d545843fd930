// SPDX-License-Identifier: Apache-2.0
// Tests the small values of room remote: secrets, percent encoding, times, and the environment.
#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;

namespace {

int digit_of(char c) {
  return static_cast<int>(std::string_view("0123456789ABCDEF").find(c));
}

std::string decoded(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      made += text[i];
      continue;
    }
    made += static_cast<char>(digit_of(text[i + 1]) * 16 + digit_of(text[i + 2]));
    i += 2;
  }
  return made;
}

std::string time_text(std::string_view text) {
  const auto time = parse_utc_time(text);
  return time ? readable_utc_time(*time) : "none";
}

}  // namespace

TEST_CASE("a secret prints stars, and keeps its text when it is copied and moved") {
  secret one("hunter2");
  CHECK(to_string(one) == "***");
  CHECK(to_string(secret{}).empty());
  secret copy = one;
  CHECK(copy == one);
  const secret moved = std::move(one);
  CHECK(moved.reveal() == "hunter2");
  CHECK(one.empty());  // NOLINT(bugprone-use-after-move): a moved-from secret is empty
  copy = secret("other");
  CHECK_FALSE(copy == moved);
  copy = moved;
  const secret& alias = copy;
  copy = alias;
  CHECK(copy.reveal() == "hunter2");
  std::string text = "hunter2";
  wipe(text);
  CHECK(text.empty());
}

TEST_CASE("credentials print the end of the access key and no secret") {
  const aws_credentials keys{.access_key = "AKIAIOSFODNN7EXAMPLE",
                             .secret_key = secret("hunter2"),
                             .session_token = secret("token"),
                             .source = "environment"};
  CHECK(to_string(keys) == "the access key ending in MPLE (environment)");
  CHECK(to_string(aws_credentials{.access_key = "short"}) == "an access key");
  CHECK(to_string(aws_credentials{.source = "anonymous"}) == "no credentials (anonymous)");
}

TEST_CASE("percent encoding keeps unreserved characters, and decoding returns every byte") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 dice(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(100); ++round) {
    std::string text = round == 0 ? all : std::string(dice() % 40, '\0');
    if (round > 0)
      for (char& c : text) c = static_cast<char>(dice());
    for (const std::string& encoded : {encode_component(text), encode_path(text)}) {
      CHECK(decoded(encoded) == text);
      CHECK(encoded.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%/") ==
            std::string::npos);
    }
    CHECK(encode_component(text).find('/') == std::string::npos);
  }
  CHECK(encode_path("/a b/\xC3\xA9+%/~") == "/a%20b/%C3%A9%2B%25/~");
  CHECK(encode_component("a/b") == "a%2Fb");
}

TEST_CASE("a query is sorted by encoded name, then by value, and keeps the '=' of empty values") {
  CHECK(encode_query({{"a", "2"}, {"a", "1"}, {"a-1", "0"}, {"\xE1\x88\xB4", ""}, {"B", "x y"}}) ==
        "%E1%88%B4=&B=x%20y&a=1&a=2&a-1=0");
  CHECK(encode_query({}).empty());
}

TEST_CASE("times are read in each spelling of the AWS tools") {
  CHECK(time_text("2026-11-24T10:00:00Z") == "2026-11-24 10:00:00 UTC");
  CHECK(time_text("2026-11-24T10:00:00.123456+00:00") == "2026-11-24 10:00:00 UTC");
  CHECK(time_text("2026-11-24T10:00:00UTC") == "2026-11-24 10:00:00 UTC");
  CHECK(time_text("2026-11-24T00:30:00+01:30") == "2026-11-23 23:00:00 UTC");
  CHECK(time_text("2026-11-24T00:30:00-0030") == "2026-11-24 01:00:00 UTC");
  CHECK(time_text("2024-02-29T23:59:59Z") == "2024-02-29 23:59:59 UTC");
  CHECK(time_text("9999-12-31T23:59:59Z") == "2261-12-30 23:59:59 UTC");
  CHECK(basic_utc_time(parse_utc_time("2013-05-24T01:02:03Z").value()) == "20130524T010203Z");
  CHECK(basic_utc_time(wall_time{}) == "19700101T000000Z");
}

TEST_CASE("texts that are no times are refused") {
  for (const char* const text :
       {"", "2026-11-24", "2026-11-24 10:00:00Z", "2026-11-24T10:00:00", "2026-13-24T10:00:00Z", "2026-02-29T10:00:00Z",
        "2026-11-24T24:00:00Z", "2026-11-24T10:60:00Z", "2026-11-24T10:00:00.Z", "2026-11-24T10:00:00+1:00",
        "2026-11-24T10:00:00+24:00", "1969-12-31T23:59:59Z", "2026-11-24T10:00:00ZZ", "x026-11-24T10:00:00Z"}) {
    INFO(text);
    CHECK_FALSE(parse_utc_time(text));
  }
}

TEST_CASE("the environment is a copy of the variables that matter") {
  ::setenv("SHARDMESH_S3_TEST_ONE", "1", 1);
  ::setenv("SHARDMESH_OTHER_TEST", "1", 1);
  const environment variables = process_environment();
  ::setenv("SHARDMESH_S3_TEST_ONE", "2", 1);
  CHECK(variables.variable("SHARDMESH_S3_TEST_ONE") == "1");
  CHECK(variables.variable("SHARDMESH_OTHER_TEST").empty());
  CHECK_FALSE(variables.variable("HOME").empty());
  ::unsetenv("SHARDMESH_S3_TEST_ONE");
  ::unsetenv("SHARDMESH_OTHER_TEST");
}

TEST_CASE("paths below the home folder are read and shown with ~") {
  environment variables;
  CHECK(variables.expanded("~/x").string() == "~/x");  // without HOME
  variables.set("HOME", "/home/me");
  CHECK(variables.expanded("~/x").string() == "/home/me/x");
  CHECK(variables.expanded("~other/x").string() == "~other/x");
  CHECK(variables.expanded("/x").string() == "/x");
  CHECK(variables.shown("/home/me/.aws/config") == "~/.aws/config");
  CHECK(variables.shown("/home/mean/x") == "/home/mean/x");
}
