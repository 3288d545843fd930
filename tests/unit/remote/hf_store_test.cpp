// SPDX-License-Identifier: Apache-2.0
// Tests the store of the Hugging Face hub against a hub with one model, whose large file is at another host.
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <http_server.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::answer;

namespace {

const std::string commit = "0123456789abcdef0123456789abcdef01234567";
const std::string sum = std::string(64, 'a');

// A hub with the repository `repository`: config.json, model.safetensors in large file storage, and a folder with a
// file.
struct hub {
  explicit hub(const std::string& repository = "org/model") : base("/api/models/" + repository) {
    server.on(base + "/revision/main",
              [](const http_server::request&) { return answer(200, R"({"sha":")" + commit + R"("})"); });
    list("", R"([{"type":"directory","oid":"d","size":0,"path":"sub"},
                {"type":"file","oid":"1","size":2,"path":"config.json"},
                {"type":"file","oid":"2","size":7,"path":"model.safetensors",
                 "lfs":{"oid":")" +
                 sum + R"(","size":7,"pointerSize":130}}])");
    list("/sub", R"([{"type":"file","oid":"3","size":5,"path":"sub/a b.json"}])");
    const std::string files = "/" + repository + "/resolve/" + commit;
    server.put(files + "/config.json", "{}");
    server.put(files + "/sub/a%20b.json", "[1,2]");
    storage.put("/blob", "content");
    server.on(files + "/model.safetensors", [this](const http_server::request&) {
      return answer(302, "",
                    "Location: " + storage.url("/blob?Signature=" + std::to_string(++signature), "localhost") +
                        "\r\nX-Repo-Commit: " + commit + "\r\nX-Linked-Size: 7\r\nX-Linked-Etag: \"" + linked_sum +
                        "\"\r\n");
    });
  }
  void list(const std::string& folder, const std::string& entries) {
    server.on(base + "/tree/" + commit + folder,
              [entries](const http_server::request&) { return answer(200, entries); });
  }
  std::shared_ptr<const store> open(const std::string& token = "secret") const {
    return make_hf_store({.endpoint = server.url("/"),
                          .token = [token]() -> result<hf_token> { return hf_token{token, "HF_TOKEN"}; },
                          .http = {.stall = std::chrono::seconds(20), .attempts = 2}});
  }
  std::vector<std::string> targets() const {
    std::vector<std::string> made;
    for (const auto& one : server.seen()) made.push_back(one.method + " " + one.path());
    return made;
  }

  std::string base;
  http_server::server storage, server;
  int signature = 0;
  std::string linked_sum = sum;
};

std::string text_of(const byte_source& source, std::int64_t offset, std::size_t size) {
  std::string made(size, '\0');
  const auto done = source.read(offset, std::as_writable_bytes(std::span(made)));
  return done ? made : to_string(done.error());
}

}  // namespace

TEST_CASE("one listing describes all files of a folder of the hub") {
  hub all;
  const auto models = all.open();
  const auto root = models->look("hf://org/model");
  REQUIRE(root);
  CHECK(*root == stored_object{"model", true, 0, ""});
  const auto file = models->look("hf://org/model/model.safetensors");
  REQUIRE(file);
  CHECK(*file == stored_object{"model.safetensors", false, 7, sum});
  const auto small = models->look("hf://org/model@main/config.json");
  REQUIRE(small);
  CHECK(*small == stored_object{"config.json", false, 2, "1"});
  const auto none = models->look("hf://org/model/none.json");
  REQUIRE(none);
  CHECK(!*none);
  const auto members = models->list("hf://org/model/");
  REQUIRE(members);
  CHECK(*members == std::vector<stored_object>{
                        {"config.json", false, 2, "1"}, {"model.safetensors", false, 7, sum}, {"sub", true, 0, ""}});
  CHECK(all.targets() ==
        std::vector<std::string>{"GET " + all.base + "/revision/main", "GET " + all.base + "/tree/" + commit});
  CHECK(all.server.seen()[0].header("authorization") == "Bearer secret");

  const auto inner = models->look("hf://org/model/sub/a b.json");
  REQUIRE(inner);
  CHECK(*inner == stored_object{"a b.json", false, 5, "3"});
  const auto no_folder = models->look("hf://org/model/none/a.json");
  REQUIRE(no_folder);
  CHECK(!*no_folder);
}

TEST_CASE("the bytes of a large file come from its location, without the token") {
  hub all;
  const auto opened = all.open()->open("hf://org/model/model.safetensors");
  REQUIRE(opened);
  CHECK((*opened)->size_bytes() == 7);
  CHECK((*opened)->name() == "hf://org/model/model.safetensors");
  CHECK(text_of(**opened, 2, 3) == "nte");
  CHECK(text_of(**opened, 0, 2) == "co");
  const auto seen = all.storage.seen();
  REQUIRE(seen.size() == 2);
  for (const auto& one : seen) {
    CHECK(one.target == "/blob?Signature=1");
    CHECK(!one.headers.contains("authorization"));
  }
  const auto at_hub = all.server.seen();
  CHECK(at_hub.back().method == "HEAD");
  CHECK(at_hub.back().header("authorization") == "Bearer secret");
}

TEST_CASE("a small file comes from the hub, with the token") {
  hub all;
  const auto models = all.open();
  const auto opened = models->open("hf://org/model/sub/a b.json");
  REQUIRE(opened);
  CHECK(text_of(**opened, 0, 5) == "[1,2]");
  CHECK(all.server.seen().back().method == "GET");
  CHECK(all.server.seen().back().header("authorization") == "Bearer secret");
  CHECK(all.storage.seen().empty());
}

TEST_CASE("a location that has expired is resolved again") {
  hub all;
  all.storage.on("/blob", [](const http_server::request& asked) -> std::string {
    if (asked.target != "/blob?Signature=2") return answer(403, "<Code>AccessDenied</Code>");
    return "HTTP/1.1 206 Status\r\nContent-Range: bytes 0-6/7\r\nContent-Length: 7\r\n\r\ncontent";
  });
  const auto models = all.open();
  const auto opened = models->open("hf://org/model/model.safetensors");
  REQUIRE(opened);
  CHECK(text_of(**opened, 0, 7) == "content");

  all.storage.on("/blob", [](const http_server::request&) { return answer(403, "<Code>AccessDenied</Code>"); });
  std::string text(7, '\0');
  const auto done = (*opened)->read(0, std::as_writable_bytes(std::span(text)));
  REQUIRE(!done);
  CHECK(done.error().file == "hf://org/model/model.safetensors");
  CHECK(done.error().found == "403 AccessDenied");
}

TEST_CASE("a file that the hub describes in two ways is an error") {
  hub all;
  all.linked_sum = std::string(64, 'b');
  const auto models = all.open();
  const auto opened = models->open("hf://org/model/model.safetensors");
  REQUIRE(opened);
  std::string text(7, '\0');
  const auto done = (*opened)->read(0, std::as_writable_bytes(std::span(text)));
  REQUIRE(!done);
  CHECK(done.error().message == "the hub describes the file in two ways");
  CHECK(done.error().found == all.linked_sum);
}

TEST_CASE("a listing has all its pages") {
  hub all;
  all.server.on(all.base + "/tree/" + commit, [](const http_server::request& asked) {
    const bool is_first = asked.target.find("cursor") == std::string::npos;
    const std::string name = is_first ? "b" : "a";
    return answer(200, R"([{"type":"file","oid":"1","size":1,"path":")" + name + R"("}])",
                  is_first ? "Link: <" + asked.path() + "?recursive=false&cursor=2>; rel=\"next\"\r\n" : "");
  });
  const auto members = all.open()->list("hf://org/model");
  REQUIRE(members);
  CHECK(*members == std::vector<stored_object>{{"a", false, 1, "1"}, {"b", false, 1, "1"}});
}

TEST_CASE("a listing that leads to another host, or goes on without entries, is refused") {
  hub all;
  const std::string elsewhere = all.storage.url("/next"), again = all.server.url("/next");
  for (const auto& [entries, next] : std::vector<std::pair<std::string, std::string>>{
           {R"([{"type":"file","oid":"1","size":1,"path":"a"}])", elsewhere}, {"[]", again}}) {
    all.server.on(all.base + "/tree/" + commit, [body = entries, link = next](const http_server::request&) {
      return answer(200, body, "Link: <" + link + ">; rel=\"next\"\r\n");
    });
    const auto members = all.open()->list("hf://org/model");
    REQUIRE(!members);
    CHECK(members.error().code == errc::bad_format);
  }
  CHECK(all.storage.seen().empty());
}

TEST_CASE("listings with names that leave the folder are refused") {
  hub all;
  for (const std::string entry : {R"({"type":"file","size":1,"path":"../a"})", R"({"type":"file","size":1,"path":""})",
                                  R"({"type":"file","path":"a"})", R"({"type":"file","size":-1,"path":"a"})",
                                  R"({"type":"link","size":1,"path":"a"})", R"(1)"}) {
    INFO(entry);
    all.list("", "[" + entry + "]");
    const auto members = all.open()->list("hf://org/model");
    REQUIRE(!members);
    CHECK(members.error().code == errc::bad_format);
    CHECK(members.error().file == "hf://org/model");
  }
}

TEST_CASE("refusals of the hub name the repository, the revision, and what to do") {
  struct refusal {
    int status;
    std::string code, token, message, hint;
  };
  const std::string name = "check the name (a repository without an owner needs \"@\": hf://gpt2@main/FILE), ";
  for (const refusal& one : std::vector<refusal>{
           {403, "GatedRepo", "", "the repository org/model is gated",
            "set HF_TOKEN to the token of a user who has access"},
           {403, "GatedRepo", "secret", "the repository org/model is gated", "accept its conditions at "},
           {404, "RevisionNotFound", "", "the repository org/model has no revision \"main\"",
            "name a branch, a tag, or a commit after \"@\""},
           {401, "RepoNotFound", "", "there is no repository org/model, or it is private", name + "or set HF_TOKEN"},
           {404, "", "secret", "there is no repository org/model, or it is private",
            name + "or the access of the token in HF_TOKEN"}}) {
    INFO(one.status << " " << one.code);
    hub all;
    const std::string header = one.code.empty() ? "" : "X-Error-Code: " + one.code + "\r\n";
    all.server.on(all.base + "/revision/main",
                  [=](const http_server::request&) { return answer(one.status, "", header); });
    const auto found = all.open(one.token)->look("hf://org/model");
    REQUIRE(!found);
    CHECK(found.error().code == errc::io);
    CHECK(found.error().message == one.message);
    CHECK(found.error().hint.starts_with(one.hint));
    CHECK(found.error().file == "hf://org/model");
    CHECK(to_string(found.error()).find("secret") == std::string::npos);
  }
}

TEST_CASE("an error of the hub does not show the token that the server quotes") {
  hub all;
  for (const int status : {403, 503}) {
    all.server.on(all.base + "/revision/main", [status](const http_server::request& asked) {
      return answer(status, "", "X-Error-Message: not with " + asked.header("authorization") + "\r\n");
    });
    const auto found = all.open("hf_hidden")->look("hf://org/model");
    REQUIRE(!found);
    CHECK(found.error().found == std::to_string(status) + ": not with Bearer ***");
  }
}

TEST_CASE("an error of the token's file names this file, and is no answer about a file of the hub") {
  hub all;
  const auto models = make_hf_store({.endpoint = all.server.url("/"), .token = []() -> result<hf_token> {
                                       error why = fail(errc::io, "cannot open").with_file("~/token");
                                       why.sys = EACCES;
                                       return why;
                                     }});
  const auto found = models->look("hf://org/model/config.json");
  REQUIRE(!found);
  CHECK(found.error().message == "cannot open");
  CHECK(found.error().file == "~/token");
  CHECK(found.error().sys == 0);
  CHECK(all.server.seen().empty());
}

TEST_CASE("a repository without an owner is found by its name") {
  hub all("gpt2");
  const auto models = all.open();
  const auto named = models->look("hf://gpt2@main/config.json");
  REQUIRE(named);
  CHECK(*named == stored_object{"config.json", false, 2, "1"});

  const auto other = all.open();
  const auto root = other->look("hf://gpt2");
  REQUIRE(root);
  CHECK(*root == stored_object{"gpt2", true, 0, ""});
  const auto below = other->look("hf://gpt2/config.json");  // as a reader writes it, which has looked at the root
  REQUIRE(below);
  CHECK(*below == stored_object{"config.json", false, 2, "1"});
}

TEST_CASE("a commit, a tag with a slash, and a pull request are revisions") {
  hub all;
  for (const std::string revision : {"v1%2Fa", "refs%2Fpr%2F7"})
    all.server.on(all.base + "/revision/" + revision,
                  [](const http_server::request&) { return answer(200, R"({"sha":")" + commit + R"("})"); });
  const auto models = all.open();
  for (const std::string& revision :
       {commit, std::string("v1%2Fa"), std::string("refs/pr/7"), std::string("refs%2Fpr%2F7")}) {
    INFO(revision);
    const auto found = models->look("hf://org/model@" + revision + "/config.json");
    REQUIRE(found);
    CHECK(*found == stored_object{"config.json", false, 2, "1"});
  }
}

TEST_CASE("URLs that name no place in a model are refused") {
  hub all;
  const auto models = all.open();
  for (const std::string url : {"hf://", "hf:///", "hf://org/model@", "hf://org/model@/a", "hf://o rg/model",
                                "hf://org/..", "hf://org/model/../a", "hf://org/model/a/./b", "hf://@main/a"}) {
    INFO(url);
    const auto found = models->look(url);
    REQUIRE(!found);
    CHECK(found.error().code == errc::invalid_argument);
    CHECK(found.error().file == url);
  }
  for (const std::string url : {"hf://datasets/org/name", "hf://spaces/org/name"}) {
    const auto found = models->look(url);
    REQUIRE(!found);
    CHECK(found.error().code == errc::unsupported);
    CHECK(found.error().message == "only repositories of models are read");
  }
  const auto found = models->look("hf://user:hf_hidden@org/model");
  REQUIRE(!found);
  CHECK(found.error().code == errc::invalid_argument);
  CHECK(to_string(found.error()) ==
        "hf://org/model: is not a place in a repository: expected hf://owner/name@revision/path, found a name with a "
        "\":\"");
  CHECK(all.server.seen().empty());
}
