// SPDX-License-Identifier: Apache-2.0
// Tests the store of S3 against servers that lie or fail. tests/oracle/remote_s3.py has the tests against a real one.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <http_server.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::answer;

namespace {

std::shared_ptr<const store> store_at(const http_server::server& server,
                                      const std::optional<aws_credentials>& keys = {}) {
  return make_s3_store({.settings = {.region = "us-east-1", .endpoint = server.url(""), .is_anonymous = !keys},
                        .credentials = keys,
                        .http = {.stall = std::chrono::milliseconds(500), .attempts = 2}});
}

std::string entry(const std::string& key) {
  return "<Contents><Key>" + key + "</Key><Size>1</Size><ETag>\"e\"</ETag></Contents>";
}

// A page of a listing; `next` is the token of the following one.
std::string page(const std::string& entries, const std::string& next) {
  return answer(200, "<ListBucketResult>" + entries + "<IsTruncated>" + (next.empty() ? "false" : "true") +
                         "</IsTruncated><NextContinuationToken>" + next +
                         "</NextContinuationToken></ListBucketResult>");
}

}  // namespace

TEST_CASE("a listing of S3 that goes on without end is an error") {
  for (const bool has_objects : {false, true}) {
    INFO("objects " << has_objects);
    int pages = 0;
    http_server::server server;
    server.on("/bucket", [&](const http_server::request&) {
      const std::string number = std::to_string(++pages);
      return page(has_objects ? entry("run/" + number) : "", number);
    });
    const auto listed = store_at(server)->list("s3://bucket/run");
    REQUIRE(!listed);
    CHECK(listed.error().code == errc::bad_format);
    CHECK(listed.error().message == "the server's listing does not end");
    CHECK(listed.error().file == "s3://bucket/run");
    CHECK(server.seen().size() < 1'200);
  }
}

TEST_CASE("a listing of S3 may have empty pages") {
  int pages = 0;
  http_server::server server;
  server.on("/bucket", [&](const http_server::request&) {
    ++pages;
    return page(pages % 3 == 0 ? entry("run/" + std::to_string(pages)) : "", pages == 7 ? "" : std::to_string(pages));
  });
  const auto listed = store_at(server)->list("s3://bucket/run");
  REQUIRE(listed);
  CHECK(*listed == std::vector<stored_object>{{"3", false, 1, "\"e\""}, {"6", false, 1, "\"e\""}});
}

TEST_CASE("an error of S3 does not show the session token that the server quotes") {
  const aws_credentials keys{
      .access_key = "AKIDEXAMPLE", .secret_key = secret("hidden-key"), .session_token = secret("hidden-token")};
  for (const int status : {403, 503}) {
    http_server::server server;
    server.on("/bucket", [&](const http_server::request& asked) {
      return answer(status, "<Error><Code>InvalidToken</Code><Message>the token " +
                                asked.header("x-amz-security-token") + " is wrong</Message></Error>");
    });
    const auto listed = store_at(server, keys)->list("s3://bucket/run");
    REQUIRE(!listed);
    CHECK(listed.error().found == (status == 403 ? "status 403 InvalidToken: the token *** is wrong"
                                                 : "503 InvalidToken: the token *** is wrong"));
  }
}
