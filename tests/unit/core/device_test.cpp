// SPDX-License-Identifier: Apache-2.0
// Tests the text of remote devices, as PyTorch's _remote_device parses it.
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
import shardmesh.core;

using namespace shardmesh;

TEST_CASE("remote devices are read as PyTorch reads them and written back") {
  CHECK(to_string(parse_remote_device("rank:1/cuda:0").value()) == "rank:1/cuda:0");
  CHECK(to_string(parse_remote_device("worker0/cpu").value()) == "worker0/cpu");
  CHECK(to_string(parse_remote_device("cuda:2").value()) == "cuda:2");
  CHECK(to_string(parse_remote_device("rank:7").value()) == "rank:7/cpu");
  CHECK(to_string(parse_remote_device("worker0").value()) == "worker0/cpu");
}

TEST_CASE("what is no remote device is refused with its text") {
  for (const char* text : {"", "/cpu", "a/b/c", "a:b:c/cpu", "rank:x/cpu", "rank:/cpu", "rank:-1/cpu", "rank:1:2/cpu",
                           "rank:99999999999/cpu", "cuda:x", "cpu/rank:1"}) {
    INFO(text);
    const auto found = parse_remote_device(text);
    REQUIRE(!found);
    CHECK(found.error().message.find("'" + std::string(text) + "'") != std::string::npos);
  }
}
