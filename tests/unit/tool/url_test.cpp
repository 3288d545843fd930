// SPDX-License-Identifier: Apache-2.0
// Tests URLs on the command line: an unknown scheme, and secrets that no message may repeat.
#include <catch2/catch_test_macros.hpp>
#include <refusal.hpp>
#include <string>
#include <vector>

TEST_CASE("commands refuse a URL of an unknown scheme, and name the scheme but no secret") {
  const std::string url = " 'abc://user:s3cr3t@host/run?signature=s3cr3t' ";
  for (const std::string& command :
       std::vector<std::string>{"inspect" + url, "diff" + url + url, "convert" + url + "/nowhere/copy.pt",
                                "reshard" + url + "/nowhere/copy --mesh dp=2"}) {
    const std::string line = refusal(command, 1);
    CHECK(says(line, "abc://host/run: "));
    CHECK(says(line, "\"abc\""));
    CHECK(line.find("s3cr3t") == std::string::npos);
  }
  const auto verified = run_tool("verify" + url);
  CHECK(verified.status == 1);
  CHECK(says(verified.err, "abc://host/run: "));
  CHECK((verified.out + verified.err).find("s3cr3t") == std::string::npos);
}

TEST_CASE("clean refuses a URL") {
  const std::string line = refusal("clean 's3://bucket/run'", 1);
  CHECK(says(line, "s3://bucket/run: only local paths are cleaned"));
}
