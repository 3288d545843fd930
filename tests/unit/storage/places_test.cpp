// SPDX-License-Identifier: Apache-2.0
// Tests questions about paths: a store answers as the file system does for the same files, answers are remembered
// within a scope, and the error of a store is not taken for a missing file.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <memory_store.hpp>

import shardmesh.core;
import shardmesh.storage;

using namespace shardmesh;

namespace {

// All answers about one path.
struct answers_about {
  places::file_type type = places::file_type::none, link_type = places::file_type::none;
  bool exists = false, is_folder = false, is_file = false, is_link = true;
  std::optional<std::uintmax_t> size{};
  std::map<std::string, bool> names{};  // in it: whether each is a folder
  friend bool operator==(const answers_about&, const answers_about&) = default;
};

answers_about ask(const places::path& at) {
  answers_about made;
  std::error_code code;
  made.type = places::status(at, code).type();
  made.link_type = places::symlink_status(at, code).type();
  made.exists = places::exists(at, code);
  made.is_folder = places::is_directory(at, code);
  made.is_file = places::is_regular_file(at, code);
  made.is_link = places::is_symlink(at, code);
  if (const auto size = places::file_size(at, code); !code) made.size = size;
  if (!made.is_folder) return made;
  for (places::directory_iterator in(at, code), end; !code && in != end; in.increment(code)) {
    std::error_code ignored;
    CHECK(in->path().string() == (at / in->path().filename()).string());
    CHECK(in->is_regular_file(ignored) != in->is_directory(ignored));
    CHECK(places::is_directory(in->status(ignored)) == in->is_directory(ignored));
    CHECK(!in->is_symlink(ignored));
    made.names.emplace(in->path().filename().string(), in->is_directory(ignored));
  }
  CHECK(!code);
  return made;
}

// Files in nested folders, and names that do not exist.
std::set<std::string> random_names(dice& random) {
  std::set<std::string> names;
  for (std::int64_t left = 1 + random.below(30); left > 0; --left) {
    std::string name;
    for (std::int64_t depth = random.below(3); depth > 0; --depth) name += "d" + std::to_string(random.below(3)) + "/";
    names.insert(name + random.pick({".metadata", "a b.pt", "x+y", "ü", "f%20", "n"}) +
                 std::to_string(random.below(9)));
  }
  return names;
}

}  // namespace

TEST_CASE("a store answers every question as the file system does for the same files") {
  const registered_store store("asked");
  dice random(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    const scratch_folder scratch;
    const std::string top = "bucket/" + std::to_string(round);
    std::set<std::string> asked{""};
    for (const std::string& name : random_names(random)) {
      const std::filesystem::path file = scratch.path / name;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << std::string(static_cast<std::size_t>(random.below(100)), 'x');
      for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1))
        asked.insert(name.substr(0, at));
      asked.insert(name);
    }
    store->add_files(top, scratch.path);
    for (const std::string& name : random_names(random)) asked.insert("missing/" + name);
    const auto compare = [&] {
      for (const std::string& name : asked) {
        INFO(name);
        const places::path local = name.empty() ? scratch.path : scratch.path / name;
        const places::path url = store.url(top + (name.empty() ? "" : "/" + name));
        CHECK(ask(url) == ask(local));
      }
    };
    compare();
    const places::remembered_answers scope;
    compare();
    store->take_counts();
    compare();
    const auto again = store->take_counts();
    CHECK(again.descriptions() == 0);
    CHECK(!scope.failure());
  }
}

TEST_CASE("the list of a folder answers questions about its names, also that there is none") {
  const registered_store store("listed");
  for (const char* const name : {"run/a", "run/b", "run/c/d"}) store->add(name, "content");
  const places::remembered_answers scope;
  std::error_code code;
  for (places::directory_iterator at(store.url("run"), code), end; at != end; at.increment(code)) CHECK(!code);
  store->take_counts();
  CHECK(places::is_regular_file(store.url("run/a"), code));
  CHECK(places::is_directory(store.url("run/c/"), code));
  CHECK(places::file_size(store.url("run/b"), code) == 7);
  CHECK(!places::exists(store.url("run/x"), code));
  CHECK(!code);
  CHECK(store->take_counts().descriptions() == 0);
}

TEST_CASE("a folder in which many names are looked at is listed once") {
  const registered_store store("many");
  for (int i = 0; i < 100; ++i) store->add("run/" + std::to_string(i), "content");
  const places::remembered_answers scope;
  std::error_code code;
  for (int i = 0; i < 100; ++i) CHECK(places::is_regular_file(store.url("run/" + std::to_string(i)), code));
  const auto counts = store->take_counts();
  CHECK(counts.looks == 3);
  CHECK(counts.lists == 1);
}

TEST_CASE("where a server lists no folders, the names of descriptions show what a folder holds") {
  const registered_store store("plain");
  store->can_list = store->knows_folders = false;
  store->add("host/run/.metadata", "description");
  store->add("host/run/__0_0.distcp", "data");
  const places::remembered_answers scope;
  std::error_code code;
  CHECK(places::is_directory(store.url("host/run"), code));
  std::vector<std::string> names;
  for (places::directory_iterator at(store.url("host/run"), code), end; !code && at != end; at.increment(code))
    names.push_back(at->path().filename().string());
  CHECK(names == std::vector<std::string>{".metadata"});
  CHECK(places::is_regular_file(store.url("host/run/__0_0.distcp"), code));
  CHECK(!places::exists(store.url("host/empty"), code));
  CHECK(!code);
  const places::directory_iterator nothing(store.url("host/empty"), code);
  CHECK(nothing == places::directory_iterator());
  CHECK(places::failure(code, "cannot list", store.url("host/empty")).code == errc::unsupported);
}

TEST_CASE("the error of a store reaches the reader, and is not a missing file") {
  const registered_store store("fails");
  store->denied = {"hidden/denied"};
  store->failing = {"broken/failing"};
  const places::remembered_answers scope;
  std::error_code code;
  CHECK(!places::exists(store.url("hidden/denied"), code));
  CHECK(code == std::errc::permission_denied);
  CHECK(places::failure(code, "cannot open", store.url("hidden/denied")).message == "access is denied");
  CHECK(!scope.failure());
  CHECK(places::checked_status(store.url("hidden/denied")).value().type() == places::file_type::not_found);

  CHECK(!places::is_regular_file(store.url("broken/failing"), code));
  CHECK(code);
  CHECK(places::failure(code, "cannot open", store.url("broken/failing")).message == "the server failed");
  const auto checked = places::checked_status(store.url("broken/failing"));
  REQUIRE(!checked);
  CHECK(checked.error().file == store.url("broken/failing"));
  REQUIRE(scope.failure());
  CHECK(scope.failure()->message == "the server failed");

  CHECK(places::status("nowhere://x", code).type() == places::file_type::none);
  CHECK(places::failure(code, "cannot open", "nowhere://x").code == errc::unsupported);
}

TEST_CASE("a URL with a query names one object, and the query is part of no name") {
  const registered_store store("signed");
  store->add("run/model.safetensors", "content");
  store->query = "signature=a/b";
  const places::path url = store.url("run/model.safetensors?signature=a/b");
  std::error_code code;
  CHECK(places::is_regular_file(url, code));
  CHECK(places::name_of(url).string() == "model.safetensors");
  CHECK(places::folder_of(url).string() == store.url("run"));
  CHECK(places::name_of("folder/a?b/c").string() == "c");
  CHECK(places::folder_of("folder/a?b/c").string() == "folder/a?b");
  CHECK(!places::is_directory(store.url("run?signature=a/b"), code));
  const error refused = places::failure(code, "cannot open", url);
  CHECK(refused.code == errc::unsupported);
  CHECK(to_string(refused).find("signature") == std::string::npos);
}

TEST_CASE("a URL is canonical without slashes at its end, and not with a part that leads up") {
  std::error_code code;
  CHECK(places::canonical("s3://bucket/run//", code).string() == "s3://bucket/run");
  CHECK(!code);
  for (const char* const url : {"s3://bucket/../other", "s3://bucket/./run", "s3://bucket/.."}) {
    INFO(url);
    CHECK(places::canonical(url, code).empty());
    CHECK(code == std::errc::invalid_argument);
    CHECK(places::failure(code, "cannot resolve", url).code == errc::unsafe_path);
  }
}

TEST_CASE("a listed file whose name a URL cannot spell is refused by name, and others of the folder are not") {
  const registered_store store("spelled");
  store->untaken = {"a?b", "c%41"};
  for (const std::string name : {"a", "a?b", "c%41", "cA", "d"}) store->add("run/" + name, name);
  const places::remembered_answers scope;
  std::error_code code;
  CHECK(places::directory_iterator(store.url("run"), code) != places::directory_iterator());
  REQUIRE(!code);
  store->take_counts();
  for (const std::string name : {"a?b", "c%41"}) {
    INFO(name);
    const auto opened = file_pool(1).open(store.url("run/" + name));
    REQUIRE(!opened);
    CHECK(opened.error().code == errc::unsupported);
    CHECK(opened.error().file == store.url("run"));
    CHECK(opened.error().found == name);
    CHECK(places::status(store.url("run/" + name), code).type() == places::file_type::none);
    CHECK(places::failure(code, "cannot look at", store.url("run")) == opened.error());
  }
  CHECK(store->take_counts() == memory_store::counts{});
  CHECK(file_pool(1).open(store.url("run/d")));
  CHECK(file_pool(1).open(store.url("run/a?signature=x")));  // no name that is listed: the query of a URL
}

TEST_CASE("a store that lists a name with a slash is refused") {
  class liar final : public store {
   public:
    explicit liar(std::string name) : name_(std::move(name)) {}
    result<std::optional<stored_object>> look(const std::string&) const override {
      return std::optional(stored_object{.name = "run", .is_folder = true, .version = {}});
    }
    result<std::vector<stored_object>> list(const std::string&) const override {
      std::vector<stored_object> listed(1);
      listed.front().name = name_;
      return listed;
    }
    result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
      return fail(errc::io, "there is no such object").with_file(url);
    }

   private:
    std::string name_;
  };
  for (const std::string name : {"../escape", "a/b", "..", ".", ""}) {
    INFO(name);
    register_store("liar", std::make_shared<liar>(name));
    std::error_code code;
    const places::directory_iterator listed("liar://run", code);
    CHECK(listed == places::directory_iterator());
    REQUIRE(code);
    CHECK(places::failure(code, "cannot list", "liar://run").code == errc::unsafe_path);
  }
  register_store("liar", nullptr);
}
