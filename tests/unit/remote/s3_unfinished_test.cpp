// SPDX-License-Identifier: Apache-2.0
// Tests unfinished uploads in S3: errors that leave them, their list, and their end, against servers that lie or fail.
// tests/oracle/remote_s3.py and other_stores.py have the tests against real ones.
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <http_server.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::answer;

namespace {

std::shared_ptr<const store> store_at(const http_server::server& server) {
  return make_s3_store({.settings = {.region = "us-east-1", .endpoint = server.url(""), .is_anonymous = true},
                        .http = {.stall = std::chrono::seconds(20), .attempts = 2}});
}

std::string upload(const std::string& key, const std::string& id, const std::string& began) {
  return "<Upload><Key>" + key + "</Key><UploadId>" + id + "</UploadId><Initiated>" + began + "</Initiated></Upload>";
}

// One page of uploads; `next` is the key after which the following one begins.
std::string page(const std::string& uploads, const std::string& next = {}) {
  return answer(200, "<ListMultipartUploadsResult>" + uploads + "<IsTruncated>" + (next.empty() ? "false" : "true") +
                         "</IsTruncated><NextKeyMarker>" + next + "</NextKeyMarker><NextUploadIdMarker>u" + next +
                         "</NextUploadIdMarker></ListMultipartUploadsResult>");
}

std::string parts(const std::string& sizes, const std::string& next = {}, const std::string& root = "ListPartsResult") {
  return answer(200, "<" + root + ">" + sizes + "<IsTruncated>" + (next.empty() ? "false" : "true") +
                         "</IsTruncated><NextPartNumberMarker>" + next + "</NextPartNumberMarker></" + root + ">");
}

bool asks(const http_server::request& asked, std::string_view field) {
  return asked.target.find(field) != std::string::npos;
}

// The error of a bucket that lists uploads with this answer, and parts with that one.
error refusal(const std::string& of_uploads, const std::string& of_parts = parts("")) {
  http_server::server server;
  server.on("/bucket", [&](const http_server::request&) { return of_uploads; });
  server.on("/bucket/run/x", [&](const http_server::request&) { return of_parts; });
  const auto found = store_at(server)->unfinished_uploads("s3://bucket/run");
  REQUIRE(!found);
  return found.error();
}

}  // namespace

TEST_CASE("the unfinished uploads of an object, and of the objects directly in a folder, are found on all pages") {
  http_server::server server;
  std::vector<std::string> targets;
  server.on("/bucket", [&](const http_server::request& asked) {
    targets.push_back(asked.target);
    if (!asks(asked, "key-marker"))
      return page(upload("run", "1", "2026-01-02T03:04:05.678Z") + upload("run/in/x", "2", "") +
                      upload("run/x", "3", "2026-01-02T03:04:05Z"),
                  "run/x");
    return page(upload("run/x", "4", "yesterday") + upload("run/y", "5", "") + upload("run/", "6", "") +
                upload("run1", "7", "") + upload("rune/x", "8", ""));
  });
  server.on("/bucket/run", [&](const http_server::request&) {
    return parts("<Part><Size>7</Size></Part>", "", "ListPartsResponse");  // as moto spells it
  });
  server.on("/bucket/run/x", [&](const http_server::request& asked) {
    if (asks(asked, "uploadId=4")) return answer(404, "");
    return asks(asked, "part-number-marker=2") ? parts("<Part><Size>100</Size></Part>")
                                               : parts("<Part><Size>1</Size></Part><Part><Size>20</Size></Part>", "2");
  });
  server.on("/bucket/run/y", [&](const http_server::request&) { return parts(""); });
  for (const std::string url : {"s3://bucket/run", "s3://bucket/run/"}) {
    targets.clear();
    const auto found = store_at(server)->unfinished_uploads(url).value();
    REQUIRE(found.size() == 4);
    const auto began = std::chrono::sys_days(std::chrono::year(2026) / 1 / 2) + std::chrono::hours(3) +
                       std::chrono::minutes(4) + std::chrono::seconds(5);
    const std::vector<store::unfinished_upload> all = {{"s3://bucket/run", "1", began, 7},
                                                       {"s3://bucket/run/x", "3", began, 121},
                                                       {"s3://bucket/run/x", "4", std::nullopt, 0},
                                                       {"s3://bucket/run/y", "5", std::nullopt, 0}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(found[i].url == all[i].url);
      CHECK(found[i].id == all[i].id);
      CHECK((found[i].began == all[i].began));
      CHECK(found[i].size_bytes == all[i].size_bytes);
    }
    REQUIRE(targets.size() == 2);
    CHECK(targets[0].find("prefix=run&uploads") != std::string::npos);
    CHECK(targets[1].find("key-marker=run%2Fx") != std::string::npos);
    CHECK(targets[1].find("upload-id-marker=urun%2Fx") != std::string::npos);
  }
}

TEST_CASE("a list of unfinished uploads that is refused, damaged, or endless is one error") {
  const std::string one = upload("run/x", "1", "");
  error why = refusal(answer(403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"));
  CHECK(why.sys == EACCES);
  CHECK(why.file == "s3://bucket/");
  CHECK(why.message.find("s3:ListBucketMultipartUploads") != std::string::npos);
  why = refusal(page(one), answer(403, ""));
  CHECK(why.file == "s3://bucket/run/x");
  CHECK(why.message.find("s3:ListMultipartUploadParts") != std::string::npos);
  CHECK(refusal(page(one, "run/x")).message == "the server's list of unfinished uploads does not end");
  CHECK(refusal(page(one), parts("", "1")).message == "the server's list of unfinished uploads does not end");
  CHECK(refusal(page(one), parts("", "2")).file == "s3://bucket/run/x");
  CHECK(refusal(page(one), parts("<Part><Size>-1</Size></Part>")).code == errc::bad_format);
  CHECK(refusal(page(one), answer(200, "<Other/>")).code == errc::bad_format);
  CHECK(refusal(answer(200, "<Other/>")).code == errc::bad_format);
  CHECK(refusal(page(upload("run/x", "", ""))).message ==
        "the server's list of unfinished uploads has one without a key or an identifier");
  CHECK(refusal(page(upload("", "1", ""))).file == "s3://bucket/run");
}

TEST_CASE("an unfinished upload is ended, and one that has ended is no error") {
  for (const int status : {204, 200, 404, 403}) {
    http_server::server server;
    server.on("/bucket/run/x", [&](const http_server::request&) { return answer(status, ""); });
    const auto ended = store_at(server)->end_upload({.url = "s3://bucket/run/x", .id = "a/b"});
    CHECK(ended.has_value() == (status != 403));
    if (!ended) CHECK(ended.error().message.find("s3:AbortMultipartUpload") != std::string::npos);
    const auto seen = server.seen();
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].method == "DELETE");
    CHECK(seen[0].target == "/bucket/run/x?uploadId=a%2Fb");
  }
}

TEST_CASE("an error of an upload in parts says what the server may keep of it") {
  const std::string begun =
      answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
  const auto listed = [](const std::string& key) { return page(upload(key, "v", "")); };
  const std::string no_list = answer(403, "");
  const std::string keeps = " an unfinished upload of this object, which `shardmesh clean` ends after a day";
  const std::string has = "the server has" + keeps, may = "the server may have" + keeps;
  const std::string aborts = "abort the unfinished upload u of this object: the server keeps its parts";
  struct {
    std::string beginning, ending, list, hint;
  } const cases[] = {
      {answer(200, "cut"), answer(404, ""), listed("one"), has},  // the answer to the beginning is damaged
      {answer(200, "cut"), answer(404, ""), listed("one/more"), ""},
      {answer(200, "cut"), answer(404, ""), no_list, may},
      {answer(400, ""), answer(404, ""), listed("one"), ""},  // nothing was begun
      {begun, answer(204, ""), listed("two"), ""},
      {begun, answer(204, ""), no_list, ""},
      {begun, answer(204, ""), listed("one"), has},  // an earlier attempt at the beginning
      {begun, answer(404, ""), no_list, may},        // the identifier was damaged
      {begun, answer(403, ""), listed("one"), aborts},
  };
  const std::vector<std::byte> content(6 << 20);
  for (const auto& one : cases) {
    INFO(one.beginning << one.ending << one.list);
    http_server::server server;
    server.on("/bucket", [&](const http_server::request&) { return one.list; });
    server.on("/bucket/one", [&](const http_server::request& asked) {
      if (asked.method == "POST") return one.beginning;
      if (asked.method == "DELETE") return one.ending;
      return asked.method == "GET" ? parts("") : answer(400, "");  // the upload of a part fails
    });
    const auto done = store_at(server)->put("s3://bucket/one", memory_source(content, "content"), {.memory_bytes = 1});
    REQUIRE(!done);
    CHECK(done.error().hint == one.hint);
  }
}
