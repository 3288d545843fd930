// SPDX-License-Identifier: Apache-2.0
// Tests unfinished uploads as leftovers under URLs: their paths, which of them are dead, and their removal.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;

namespace {

using std::chrono::hours;

// A store that only knows unfinished uploads, of any URL.
class uploading_store final : public store {
 public:
  std::vector<unfinished_upload> uploads{};
  mutable std::vector<std::string> ended{};  // the URL and the identifier of each

  result<std::optional<stored_object>> look(const std::string&) const override {
    return std::optional<stored_object>();
  }
  result<std::vector<stored_object>> list(const std::string&) const override { return std::vector<stored_object>(); }
  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    return fail(errc::io, "there is no such object").with_file(url);
  }
  result<std::vector<unfinished_upload>> unfinished_uploads(const std::string& url) const override {
    if (url == "loading://broken") return fail(errc::io, "the server failed").with_file(url);
    return uploads;
  }
  result<void> end_upload(const unfinished_upload& upload) const override {
    ended.push_back(upload.url + " " + upload.id);
    return {};
  }
};

struct registered {
  std::shared_ptr<uploading_store> store = std::make_shared<uploading_store>();
  registered() { register_store("loading", store); }
  ~registered() { register_store("loading", nullptr); }
  registered(const registered&) = delete;
  registered& operator=(const registered&) = delete;
};

}  // namespace

TEST_CASE("an upload that was begun a day ago is a dead leftover, and a later one may be a writer's") {
  const registered loading;
  const auto now = std::chrono::system_clock::now();
  loading.store->uploads = {{"loading://b/run/y", "1", now - hours(25), 300},
                            {"loading://b/run/x?uploadId=a", "2", now - hours(23), 20},
                            {"loading://b/run/x", "3", std::nullopt, 1},
                            {"loading://b/run/x", "4", now + hours(100'000), 0}};
  const auto found = find_leftovers("loading://b/run").value();
  struct expected {
    std::string path;
    std::int64_t size_bytes;
    leftover_owner owner;
  };
  const std::vector<expected> all = {{"loading://b/run/x?uploadId=3", 1, leftover_owner::unknown},
                                     {"loading://b/run/x?uploadId=4", 0, leftover_owner::unknown},
                                     {"loading://b/run/x?uploadId=a?uploadId=2", 20, leftover_owner::unknown},
                                     {"loading://b/run/y?uploadId=1", 300, leftover_owner::dead}};
  REQUIRE(found.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(found[i].path.string() == all[i].path);
    CHECK(found[i].size_bytes == all[i].size_bytes);
    CHECK(found[i].owner == all[i].owner);
  }
  for (const leftover& one : found) {
    const auto removed = remove_leftover(one.path);
    REQUIRE(removed.has_value() == (one.owner == leftover_owner::dead));
    if (removed) continue;
    CHECK(removed.error().code == errc::destination_exists);
    CHECK(removed.error().message ==
          "is kept: its writer may be alive, because the upload is less than a day old or its age is unknown");
    CHECK(removed.error().file == one.path.string().substr(0, one.path.string().find('?')));
    CHECK(removed.error().found == "upload " + one.path.string().substr(one.path.string().rfind('=') + 1));
  }
  CHECK(loading.store->ended == std::vector<std::string>{"loading://b/run/y 1"});
}

TEST_CASE("an upload that has ended meanwhile is no error, and another URL names no upload") {
  const registered loading;
  loading.store->uploads = {{"loading://b/x", "1", std::chrono::system_clock::now() - hours(25), 1}};
  CHECK(remove_leftover("loading://b/x?uploadId=2"));
  CHECK(remove_leftover("loading://b/y?uploadId=1"));
  const auto refused = remove_leftover("loading://b/x");
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(refused.error().message == "is not an unfinished upload");
  CHECK(refused.error().file == "loading://b/x");
  CHECK(loading.store->ended.empty());
}

TEST_CASE("a store that cannot list its unfinished uploads is an error, and one that has none is not") {
  const registered loading;
  CHECK(find_leftovers("loading://b/run").value().empty());
  for (const error& refused :
       {find_leftovers("loading://broken").error(), remove_leftover("loading://broken?uploadId=1").error()}) {
    CHECK(refused.code == errc::io);
    CHECK(refused.file == "loading://broken");
  }
}
