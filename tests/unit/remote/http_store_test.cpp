// SPDX-License-Identifier: Apache-2.0
// Tests what the store of http URLs calls an object, a folder, and an error.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <forked_child.hpp>
#include <http_server.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::answer;
using http_server::fault;

namespace {

std::shared_ptr<const store> quick_store() {
  return make_http_store({.stall = std::chrono::seconds(20), .attempts = 2});
}

std::string text_of(const byte_source& source, std::int64_t offset, std::size_t size) {
  std::string made(size, '\0');
  const auto done = source.read(offset, std::as_writable_bytes(std::span(made)));
  return done ? made : to_string(done.error());
}

// A listing as nginx writes it.
constexpr const char* listing = R"([
{ "name":"sub", "type":"directory", "mtime":"Mon, 01 Jan 2026 00:00:00 GMT" },
{ "name":"b.safetensors", "type":"file", "mtime":"Mon, 01 Jan 2026 00:00:00 GMT", "size":7 },
{ "name":"a b.json", "type":"file", "mtime":"Mon, 01 Jan 2026 00:00:00 GMT", "size":0 }
])";

}  // namespace

TEST_CASE("an object has a name, a size, and its ETag as version") {
  http_server::server server;
  server.put("/ckpt/model.safetensors", "content", "\"abc\"");
  const auto web = quick_store();
  const auto found = web->look(server.url("/ckpt/model.safetensors"));
  REQUIRE(found);
  CHECK(*found == stored_object{"model.safetensors", false, 7, "\"abc\""});
  CHECK(server.seen().size() == 1);
  CHECK(server.seen()[0].method == "HEAD");

  const auto opened = web->open(server.url("/ckpt/model.safetensors"));
  REQUIRE(opened);
  CHECK((*opened)->size_bytes() == 7);
  CHECK((*opened)->name() == server.url("/ckpt/model.safetensors"));
  CHECK(text_of(**opened, 2, 3) == "nte");
  CHECK(text_of(**opened, 0, 7) == "content");
}

TEST_CASE("a missing object is nothing, and cannot be opened") {
  http_server::server server;
  const auto web = quick_store();
  const auto found = web->look(server.url("/none.json"));
  REQUIRE(found);
  CHECK(!*found);
  CHECK(server.seen().size() == 1);
  const auto opened = web->open(server.url("/none.json"));
  REQUIRE(!opened);
  CHECK(opened.error().code == errc::io);
  CHECK(opened.error().message == "there is no such object");
  CHECK(opened.error().file == server.url("/none.json"));
}

TEST_CASE("an object that changes after it was opened is an error") {
  http_server::server server;
  server.put("/object", "content", "\"1\"");
  const auto opened = quick_store()->open(server.url("/object"));
  REQUIRE(opened);
  server.put("/object", "CONTENT", "\"2\"");
  std::string text(3, '\0');
  const auto done = (*opened)->read(0, std::as_writable_bytes(std::span(text)));
  REQUIRE(!done);
  CHECK(done.error().code == errc::io);
  CHECK(done.error().message == "the object has changed since it was opened");
}

TEST_CASE("a server that refuses HEAD is asked for the first byte") {
  for (const int status : {403, 405}) {
    http_server::server server;
    server.on("/signed", [status](const http_server::request& asked) -> std::string {
      if (asked.method == "HEAD") return answer(status, "");
      if (asked.target != "/signed?Signature=secret") return answer(403, "");
      return "HTTP/1.1 206 Status\r\nContent-Range: bytes 0-0/7\r\nETag: \"1\"\r\nContent-Length: 1\r\n\r\nc";
    });
    const auto found = quick_store()->look(server.url("/signed?Signature=secret"));
    INFO(status << (found ? "" : to_string(found.error())));
    REQUIRE(found);
    CHECK(*found == stored_object{"signed", false, 7, "\"1\""});
    const auto refused = quick_store()->look(server.url("/signed?Signature=wrong"));
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::io);
    CHECK(to_string(refused.error()).find("wrong") == std::string::npos);
    CHECK(refused.error().found == "403");
  }
}

TEST_CASE("a refusal that quotes the URL is shown without its secrets") {
  http_server::server server;
  server.on("/signed", [](const http_server::request& asked) {
    return answer(asked.method == "HEAD" ? 403 : 400,
                  "<Error><Code>Denied</Code><Message>Signature=hidden-one&part=1 is wrong</Message></Error>");
  });
  const auto refused = quick_store()->look(server.url("/signed?Signature=hidden-one&part=1"));
  REQUIRE(!refused);
  CHECK(refused.error().found == "400 Denied: Signature=***&part=1 is wrong");
}

TEST_CASE("an empty object of a server that refuses HEAD is found") {
  http_server::server server;
  server.on("/empty", [](const http_server::request& asked) {
    return asked.method == "HEAD" ? answer(405, "") : answer(416, "", "Content-Range: bytes */0\r\n");
  });
  const auto found = quick_store()->look(server.url("/empty"));
  REQUIRE(found);
  CHECK(*found == stored_object{"empty", false, 0, ""});
}

TEST_CASE("a missing object of a bucket that cannot be listed is nothing") {
  http_server::server server;
  server.on("/bucket/none.json", [](const http_server::request&) {
    return answer(403, "<Code>AccessDenied</Code>", "x-amz-request-id: 1\r\n");
  });
  const auto found = quick_store()->look(server.url("/bucket/none.json"));
  REQUIRE(found);
  CHECK(!*found);
}

TEST_CASE("a server without ranges is an error with the remedy") {
  http_server::server server;
  server.put("/object", "content");
  server.plan({fault::none, fault::whole_object, fault::whole_object});
  const auto opened = quick_store()->open(server.url("/object"));
  REQUIRE(opened);
  CHECK(text_of(**opened, 0, 7) == "content");  // the whole object needs no range
  std::string text(3, '\0');
  const auto done = (*opened)->read(1, std::as_writable_bytes(std::span(text)));
  REQUIRE(!done);
  CHECK(done.error().code == errc::unsupported);
  CHECK(done.error().hint == "download the file, and open the copy");

  server.on("/none", [](const http_server::request&) { return answer(200, "content", "Accept-Ranges: none\r\n"); });
  const auto refused = quick_store()->open(server.url("/none"));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().message == "the server refuses requests for ranges");
}

TEST_CASE("a redirect to a slash is a folder, whose listing is nginx's JSON") {
  http_server::server server;
  server.on("/ckpt", [](const http_server::request&) { return answer(301, "", "Location: /ckpt/\r\n"); });
  server.on("/ckpt/",
            [](const http_server::request&) { return answer(200, listing, "Content-Type: application/json\r\n"); });
  const auto web = quick_store();
  const auto found = web->look(server.url("/ckpt"));
  REQUIRE(found);
  CHECK(*found == stored_object{"ckpt", true, 0, ""});
  const auto members = web->list(server.url("/ckpt"));
  REQUIRE(members);
  CHECK(*members ==
        std::vector<stored_object>{{"a b.json", false, 0, ""}, {"b.safetensors", false, 7, ""}, {"sub", true, 0, ""}});
  const auto opened = web->open(server.url("/ckpt/"));
  REQUIRE(!opened);
  CHECK(opened.error().message == "is a folder, not a file");
}

TEST_CASE("hidden descriptions, which nginx does not list, are members of their folder") {
  http_server::server server;
  bool lists_hidden = false;
  server.on("/run/", [&](const http_server::request&) {
    const std::string hidden = R"({"name": ".other", "type": "file", "size": 3},)";
    return answer(200, "[" + (lists_hidden ? hidden : "") + R"({"name": "__0_0.distcp", "type": "file", "size": 7}])");
  });
  server.put("/run/.metadata", "12345");
  server.on("/run/.shardmesh_checksums", [](const http_server::request&) { return answer(403, "no"); });
  const auto web = quick_store();
  const auto members = web->list(server.url("/run"));
  REQUIRE(members);
  CHECK(*members == std::vector<stored_object>{{".metadata", false, 5, "\"1\""}, {"__0_0.distcp", false, 7, ""}});
  CHECK(server.seen().size() == 5);  // the denied one is also asked for its first byte
  lists_hidden = true;
  server.forget_seen();
  const auto all = web->list(server.url("/run"));
  REQUIRE(all);
  CHECK(*all == std::vector<stored_object>{{".other", false, 3, ""}, {"__0_0.distcp", false, 7, ""}});
  CHECK(server.seen().size() == 1);
}

TEST_CASE("a failure to look for a hidden description is an error of the listing") {
  http_server::server server;
  server.on("/run/", [](const http_server::request&) { return answer(200, "[]"); });
  server.put("/run/.metadata", "12345");
  server.always(fault::internal_error);
  const auto members = quick_store()->list(server.url("/run"));
  REQUIRE(!members);
  CHECK(members.error().code == errc::io);
  CHECK(members.error().file == server.url("/run/.metadata"));
}

TEST_CASE("a folder is recognised by the well-known files in it") {
  for (const std::string name : {"model.safetensors.index.json", ".metadata", "model.safetensors"}) {
    http_server::server server;
    server.put("/run/step-1.5/" + name, "content");
    const auto found = quick_store()->look(server.url("/run/step-1.5"));
    REQUIRE(found);
    CHECK(*found == stored_object{"step-1.5", true, 0, ""});
    const auto file = quick_store()->look(server.url("/run/none.safetensors"));
    REQUIRE(file);
    CHECK(!*file);
  }
}

TEST_CASE("other listings are refused") {
  http_server::server server;
  const auto web = quick_store();
  const auto refusal = [&](const std::string& body) {
    server.on("/ckpt/", [body](const http_server::request&) { return answer(200, body); });
    const auto members = web->list(server.url("/ckpt"));
    return members ? error{} : members.error();
  };
  for (const std::string text : {"<html><a href=\"a\">a</a></html>", "", "{}", "[1]", R"([{"name":"a"}])",
                                 R"([{"name":"a","type":"file"}])", R"([{"name":"a","type":"file","size":-1}])"}) {
    INFO(text);
    CHECK(refusal(text).code == errc::unsupported);
    CHECK(refusal(text).file == server.url("/ckpt"));
  }
  for (const std::string name : {"..", ".", "", "a/b", "../a"})
    CHECK(refusal(R"([{"name":")" + name + R"(","type":"file","size":1}])").code == errc::bad_format);
}

TEST_CASE("an encoded name that leads out of its folder is refused without a request") {
  http_server::server server;
  server.put("/ckpt/a%2Fb%2e.json", "content");
  const auto web = quick_store();
  for (const std::string name :
       {"%2e%2e/secret", "%2E./secret", "..%2fsecret", "a%2F..%2F..%2Fsecret", "..%5Csecret"}) {
    INFO(name);
    const auto found = web->look(server.url("/ckpt/" + name));
    const auto opened = web->open(server.url("/ckpt/" + name));
    const auto listed = web->list(server.url("/ckpt/" + name));
    REQUIRE(!found);
    REQUIRE(!opened);
    REQUIRE(!listed);
    CHECK(found.error().code == errc::unsafe_path);
    CHECK(opened.error().code == errc::unsafe_path);
    CHECK(listed.error().code == errc::unsafe_path);
    CHECK(found.error().file == server.url("/ckpt/" + name));
  }
  CHECK(server.seen().empty());
  CHECK(web->look(server.url("/ckpt/a%2Fb%2e.json")).value());
}

TEST_CASE("a name with a query or an encoded character is not taken, and every other name is") {
  const auto web = quick_store();
  for (const std::string name : {"a?b", "?", "x%41.bin", "%2f", "%2E%2e"}) CHECK(!web->takes_name(name));
  for (const std::string name : {"a b", "a#b", "100%", "100%.bin", "%4", "%zz", "a+b&c=d", "\xC3\xA9", "a;b"})
    CHECK(web->takes_name(name));
  CHECK(make_s3_store()->takes_name("a?b%41"));  // keys are used unchanged
}

TEST_CASE("names are encoded once") {
  http_server::server server;
  server.put("/a%20b%23%C3%A9%25.bin", "content");
  const auto found = quick_store()->look(server.url("/a b#\xC3\xA9%.bin"));
  REQUIRE(found);
  CHECK(*found == stored_object{"a b#\xC3\xA9%.bin", false, 7, "\"1\""});
  const auto encoded = quick_store()->look(server.url("/a%20b%23%C3%A9%25.bin"));
  REQUIRE(encoded);
  CHECK(*encoded == *found);
}

TEST_CASE("a forked child reads what its parent opened") {
  http_server::server server;
  server.put("/object", "content");
  const auto opened = quick_store()->open(server.url("/object"));
  REQUIRE(opened);
  CHECK(text_of(**opened, 0, 7) == "content");
  CHECK(status_of_child([&] { return text_of(**opened, 2, 3) == "nte" ? 0 : 1; }) == 0);
  CHECK(text_of(**opened, 0, 7) == "content");
}

TEST_CASE("the stores of the room are registered, and those of S3 also write") {
  for (const std::string url : {"http://host/a", "https://host/a", "hf://owner/name/a"}) {
    INFO(url);
    const auto found = store_of(url);
    REQUIRE(found);
    CHECK(!(*found)->can_write());
    const std::byte content{};
    const memory_source source(std::span(&content, 1), "content");
    const auto written = (*found)->put(url, source, {});
    REQUIRE(!written);
    CHECK(written.error().code == errc::unsupported);
    CHECK(written.error().file == url);
  }
  for (const std::string url : {"s3://bucket/a", "gs://bucket/a"}) {
    INFO(url);
    const auto found = store_of(url);
    REQUIRE(found);
    CHECK((*found)->can_write());
  }
}
