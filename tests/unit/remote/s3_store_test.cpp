// SPDX-License-Identifier: Apache-2.0
// Tests the store of S3 against servers that lie or fail. tests/oracle/remote_s3.py has the tests against a real one.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <http_server.hpp>
#include <iterator>
#include <memory>
#include <optional>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <thread>
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
                        .http = {.stall = std::chrono::seconds(20), .attempts = 2}});
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

// A server that keeps one object, "/bucket/one", and answers each request to store it with `answer_to_put`.
struct one_object {
  explicit one_object(std::string answer_to_put) {
    server.on("/bucket/one",
              [this, stored = std::move(answer_to_put)](const http_server::request& asked) -> std::string {
                if (asked.method == "DELETE") {
                  content.reset();
                  return answer(204, "");
                }
                if (asked.method == "PUT") {
                  if (keeps_its_own) return stored;
                  content = asked.body;
                  mark = asked.header("x-amz-meta-shardmesh-upload");
                  return stored;
                }
                const std::string headers = "ETag: \"e\"\r\nx-amz-meta-shardmesh-upload: " + mark + "\r\n";
                return answer(content ? 200 : 404, "", headers);
              });
  }
  result<std::string> put_text(const std::string& text) const {
    const memory_source bytes(std::as_bytes(std::span(text)), "text");
    return store_at(server)->put("s3://bucket/one", bytes, {.if_absent = true});
  }

  std::optional<std::string> content;  // call `server.seen()` before it is read
  std::string mark;
  bool keeps_its_own = false;  // the object of another writer
  http_server::server server;
};

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

TEST_CASE("a folder of S3 is found behind its marker and behind empty pages, and a marker alone is a folder") {
  struct pages {
    std::vector<std::string> entries;
    bool is_found;
  };
  for (const auto& [entries, is_found] : std::vector<pages>{{{entry("run/")}, true},
                                                            {{entry("run/"), entry("run/1")}, true},
                                                            {{"", "", entry("run/1")}, true},
                                                            {{"", entry("run/")}, true},
                                                            {{"", ""}, false},
                                                            {{""}, false}}) {
    INFO(entries.size() << " pages, the first with " << entries.front());
    std::size_t next = 0;
    http_server::server server;
    server.on("/bucket", [&](const http_server::request&) {
      const std::string& now = entries[next++];
      return page(now, next == entries.size() ? "" : std::to_string(next));
    });
    const auto found = store_at(server)->look("s3://bucket/run");
    REQUIRE(found);
    CHECK(*found == (is_found ? std::optional(stored_object{"run", true, 0, {}}) : std::nullopt));
  }
}

TEST_CASE("a search for a folder of S3 in empty pages ends") {
  int pages = 0;
  http_server::server server;
  server.on("/bucket", [&](const http_server::request&) { return page("", std::to_string(++pages)); });
  const auto found = store_at(server)->look("s3://bucket/run");
  REQUIRE(!found);
  CHECK(found.error().code == errc::bad_format);
  CHECK(found.error().message == "the server's listing does not end");
}

TEST_CASE("a missing bucket is no answer about an object") {
  for (const std::string code : {"NoSuchBucket", "NoSuchKey"}) {
    http_server::server server;
    server.on("/bucket", [&](const http_server::request&) {
      return answer(404, "<Error><Code>" + code + "</Code><Message>none</Message></Error>");
    });
    const auto found = store_at(server)->look("s3://bucket/run");
    REQUIRE(!found);
    CHECK(found.error().code == errc::io);
    CHECK(found.error().found == "status 404 " + code + ": none");
    CHECK(found.error().sys == (code == "NoSuchBucket" ? 0 : ENOENT));
    CHECK(found.error().hint == (code == "NoSuchBucket" ? "check the bucket's name and the endpoint" : ""));
  }
}

TEST_CASE("an object of S3 is removed only while it has the version") {
  struct removal {
    std::string there, asked;  // the ETag of the object, and the version to remove
    int refusal;               // the status of a DELETE with a condition; 0: the server ignores the condition
    std::vector<std::string> sent;
    bool is_removed;
  };
  const std::string looks = "HEAD", bare = "DELETE", conditional = "DELETE \"1\"";
  for (const removal& one : std::vector<removal>{{"\"1\"", "\"1\"", 0, {looks, conditional}, true},
                                                 {"\"1\"", "1", 0, {looks, conditional}, true},
                                                 {"\"1\"", "", 0, {looks, bare}, true},
                                                 {"\"2\"", "\"1\"", 0, {looks}, false},
                                                 {"\"1\"", "\"1\"", 501, {looks, conditional, looks, bare}, true},
                                                 {"\"1\"", "\"1\"", 412, {looks, conditional, looks, bare}, true},
                                                 {"", "\"1\"", 0, {looks}, true}}) {
    INFO(one.there << " asked " << one.asked << " refusal " << one.refusal);
    std::vector<std::string> sent;
    bool is_there = !one.there.empty();
    http_server::server server;
    server.on("/bucket/one", [&](const http_server::request& asked) {
      const std::string condition = asked.header("if-match");
      sent.push_back(asked.method + (condition.empty() ? "" : " " + condition));
      if (asked.method == "HEAD") return answer(is_there ? 200 : 404, "", "ETag: " + one.there + "\r\n");
      if (!condition.empty() && one.refusal != 0) return answer(one.refusal, "");
      is_there = false;
      return answer(204, "");
    });
    const auto done = store_at(server)->remove_version("s3://bucket/one", one.asked);
    static_cast<void>(server.seen());  // the test may then read what the server wrote
    CHECK(sent == one.sent);
    CHECK(is_there == !one.is_removed);
    REQUIRE(done.has_value() == one.is_removed);
    if (!done) {
      CHECK(done.error().code == errc::destination_exists);
      CHECK(done.error().file == "s3://bucket/one");
    }
  }
}

TEST_CASE("an object of S3 that changes during its removal stays") {
  bool has_changed = false;
  http_server::server server;
  server.on("/bucket/one", [&](const http_server::request& asked) {
    if (asked.method == "HEAD") return answer(200, "", has_changed ? "ETag: \"2\"\r\n" : "ETag: \"1\"\r\n");
    has_changed = true;
    return answer(412, "");
  });
  const auto done = store_at(server)->remove_version("s3://bucket/one", "\"1\"");
  REQUIRE(!done);
  CHECK(done.error().code == errc::destination_exists);
  CHECK(server.seen().size() == 3);
}

TEST_CASE("an upload that a deadline ends says that the server may still store the object") {
  using namespace std::chrono_literals;
  for (const bool is_stored : {false, true}) {
    INFO("stored before the look: " << is_stored);
    std::string mark;
    bool is_there = false;
    http_server::server server;
    server.on("/bucket/one", [&](const http_server::request& asked) {
      if (asked.method == "PUT") {
        mark = asked.header("x-amz-meta-shardmesh-upload");
        is_there = is_stored;
        std::this_thread::sleep_for(900ms);
        return answer(200, "", "ETag: \"e\"\r\n");
      }
      if (asked.method == "DELETE") is_there = false;
      const std::string headers = "ETag: \"e\"\r\nx-amz-meta-shardmesh-upload: " + mark + "\r\n";
      return answer(asked.method == "DELETE" ? 204 : is_there ? 200 : 404, "", headers);
    });
    const std::string text = "new";
    const memory_source bytes(std::as_bytes(std::span(text)), "text");
    const detail::call_scope limits({.within = std::chrono::steady_clock::now() + 600ms});
    const auto done = store_at(server)->put("s3://bucket/one", bytes, {.if_absent = true});
    REQUIRE(!done);
    CHECK(done.error().code == errc::deadline_exceeded);
    CHECK(done.error().sys == (is_stored ? 0 : EINPROGRESS));
  }
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

TEST_CASE("an error of S3 does not show the password or the query of a URL") {
  http_server::server server;
  for (const std::string url : {"s3://me:hunter2@bucket/one", "s3://bucket/one?hunter2"}) {
    const auto found = store_at(server)->list(url);
    const auto opened = store_at(server)->open(url);
    REQUIRE(!found);
    REQUIRE(!opened);
    CHECK(to_string(found.error()).find("hunter2") == std::string::npos);
    CHECK(to_string(opened.error()).find("hunter2") == std::string::npos);
  }
}

TEST_CASE("a missing program of credentials is no answer about an object of S3") {
  const scratch_folder scratch;
  const std::string program = (scratch / "missing").string(), config = (scratch / "config").string();
  std::ofstream(config) << "[profile mine]\ncredential_process = " << program << "\n";
  ::setenv("AWS_CONFIG_FILE", config.c_str(), 1);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  http_server::server server;
  const auto objects =
      make_s3_store({.settings = {.region = "us-east-1", .endpoint = server.url("")}, .profile = "mine"});
  const auto found = objects->look("s3://bucket/one");
  ::unsetenv("AWS_CONFIG_FILE");
  ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  REQUIRE(!found);
  CHECK(found.error().file == program);
  CHECK(found.error().message.starts_with("cannot start the credential process"));
  CHECK(found.error().sys == 0);
  CHECK(server.seen().empty());
}

TEST_CASE("an object that the server stores without a confirmation is removed again") {
  one_object failing(answer(500, ""));
  const auto done = failing.put_text("new");
  REQUIRE(!done);
  CHECK(done.error().code == errc::io);
  CHECK(failing.server.seen().back().method == "DELETE");
  CHECK(!failing.content);

  one_object other(answer(500, ""));
  other.content = "old";
  other.mark = "another writer's";
  other.keeps_its_own = true;
  CHECK(!other.put_text("new"));
  CHECK(other.server.seen().back().method == "HEAD");
  CHECK(other.content == "old");
}

TEST_CASE("an object is replaced on servers that compare its version without quotation marks, and on others") {
  std::string etag = "\"e\"", accepted = "e";
  std::vector<std::string> forms;
  http_server::server server;
  server.on("/bucket/one", [&](const http_server::request& asked) {
    if (asked.method == "HEAD") return answer(200, "", "ETag: " + etag + "\r\n");
    forms.push_back(asked.header("if-match"));
    return answer(forms.back() == accepted ? 200 : 412, "", "ETag: \"new\"\r\n");
  });
  const auto objects = store_at(server);
  const std::vector<std::byte> content(10);
  const memory_source bytes(content, "content");
  const auto put = [&] {
    auto done = objects->put("s3://bucket/one", bytes, {.if_version = "\"e\""});
    static_cast<void>(server.seen());  // the test may then read what the server wrote
    return done;
  };
  CHECK(put());
  CHECK(put());
  CHECK(server.seen().size() == 4);  // the form is found out once, by HEAD
  CHECK(forms == std::vector<std::string>{"\"e\"", "e", "e"});
  accepted = "\"e\"";
  forms.clear();
  CHECK(put());
  CHECK(forms == std::vector<std::string>{"e", "\"e\""});
  // The object has changed: the refusal counts, and neither form is tried again.
  etag = "\"another\"";
  accepted = "another";
  forms.clear();
  const auto refused = put();
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(forms == std::vector<std::string>{"\"e\""});
  // No form is accepted although the object has the version.
  etag = "\"e\"";
  forms.clear();
  CHECK(put().error().code == errc::destination_exists);
  CHECK(forms == std::vector<std::string>{"\"e\"", "e"});
}

TEST_CASE("an upload in parts needs no ETag in the last answer, if the object is ours") {
  for (const bool is_ours : {true, false}) {
    std::string mark;
    http_server::server server;
    server.on("/bucket/one", [&](const http_server::request& asked) {
      if (asked.method == "POST" && asked.body.empty()) {
        mark = asked.header("x-amz-meta-shardmesh-upload");
        return answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
      }
      if (asked.method == "POST")
        return answer(200, "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>");
      if (asked.method == "HEAD")
        return answer(200, "",
                      "ETag: \"whole\"\r\nx-amz-meta-shardmesh-upload: " + (is_ours ? mark : "another") + "\r\n");
      return answer(asked.method == "DELETE" ? 204 : 200, "", "ETag: \"part\"\r\n");
    });
    const std::vector<std::byte> content(6 << 20);
    const auto done = store_at(server)->put("s3://bucket/one", memory_source(content, "content"), {.memory_bytes = 1});
    REQUIRE(done.has_value() == is_ours);
    if (done)
      CHECK(*done == "\"whole\"");
    else
      CHECK(done.error().message == "the server's answer has no <ETag>");
  }
}

TEST_CASE("an object that appears or changes before an upload in parts is completed is not replaced by it") {
  const std::vector<std::byte> content(6 << 20);
  for (const bool is_new : {true, false})
    for (const std::string there : {"", "denied", "\"1\"", "\"2\""}) {
      INFO((is_new ? "a new object, and " : "a replaced object, and ") << there);
      std::vector<std::string> sent;
      http_server::server server;
      server.on("/bucket/one", [&](const http_server::request& asked) {
        if (asked.method == "HEAD") {
          if (there.empty() || there == "denied") return answer(there.empty() ? 404 : 403, "");
          return answer(200, "", "ETag: " + there + "\r\n");
        }
        if (asked.method == "PUT") return answer(200, "", "ETag: \"part\"\r\n");
        if (asked.method == "POST" && asked.body.empty())
          return answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
        sent.push_back(asked.method);
        if (asked.method == "DELETE") return answer(204, "");
        return answer(200, "<CompleteMultipartUploadResult><ETag>\"3\"</ETag></CompleteMultipartUploadResult>");
      });
      put_condition condition{.if_absent = is_new, .memory_bytes = 1};
      if (!is_new) condition.if_version = "\"1\"";
      const auto done = store_at(server)->put("s3://bucket/one", memory_source(content, "content"), condition);
      const bool holds = there.empty() || there == "denied" || (!is_new && there == "\"1\"");
      // The beginning, two parts, the look, and the end; after an error, also the list of unfinished uploads.
      CHECK(server.seen().size() == (holds ? 5U : 6U));
      CHECK(sent == std::vector<std::string>{holds ? "POST" : "DELETE"});
      REQUIRE(done.has_value() == holds);
      if (done) {
        CHECK(*done == "\"3\"");
      } else {
        CHECK(done.error().code == errc::destination_exists);
        CHECK(done.error().message == (is_new ? "exists already" : "has changed meanwhile"));
        CHECK(done.error().file == "s3://bucket/one");
      }
    }
}

TEST_CASE("the parts of an upload in flight fit in its memory") {
  constexpr std::int64_t mebibyte = 1 << 20;
  // Counts the parts that were read and not yet answered.
  class counted final : public byte_source {
   public:
    explicit counted(std::int64_t size) : bytes_(static_cast<std::size_t>(size)) {}
    std::int64_t size_bytes() const override { return std::ssize(bytes_); }
    std::string name() const override { return "content"; }
    result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
      ++parts;
      return memory_source(bytes_, "content").read(offset, out);
    }
    mutable std::atomic<int> parts = 0;

   private:
    std::vector<std::byte> bytes_;
  };
  struct sent {
    std::int64_t memory, size;
    int most_at_once;
    std::vector<std::size_t> sizes;  // of the parts, descending
  };
  for (const sent& one : std::vector<sent>{{1, 11 * mebibyte, 1, {5 << 20, 5 << 20, 1 << 20}},
                                           {7 * mebibyte, 15 * mebibyte, 1, {7 << 20, 7 << 20, 1 << 20}},
                                           {33 * mebibyte, 49 * mebibyte, 2, {16 << 20, 16 << 20, 16 << 20, 1 << 20}},
                                           {0, 17 * mebibyte, 8, {16 << 20, 1 << 20}}}) {
    INFO(one.memory << " bytes of memory");
    const counted content(one.size);
    int answered = 0, most_at_once = 0;
    std::vector<std::size_t> sizes;
    http_server::server server;
    server.on("/bucket/one", [&](const http_server::request& asked) {
      if (asked.method == "HEAD") return answer(404, "");
      if (asked.method == "POST" && asked.body.empty())
        return answer(200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
      if (asked.method == "POST")
        return answer(200, "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>");
      most_at_once = std::max(most_at_once, content.parts - answered);
      ++answered;
      sizes.push_back(asked.body.size());
      return answer(200, "", "ETag: \"p\"\r\n");
    });
    CHECK(store_at(server)->put("s3://bucket/one", content, {.if_absent = true, .memory_bytes = one.memory}));
    CHECK(server.seen().size() == one.sizes.size() + 3);
    CHECK(most_at_once <= one.most_at_once);
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    CHECK(sizes == one.sizes);
  }
}

TEST_CASE("a stored object needs no ETag in the server's answer") {
  one_object quiet(answer(200, ""));
  CHECK(quiet.put_text("new"));
  CHECK(quiet.server.seen().back().method == "PUT");
  CHECK(quiet.content == "new");
}
