// SPDX-License-Identifier: Apache-2.0
// Tests destinations under URLs: the order of uploads, their conditions, and what is left after a failure.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

import shardmesh.storage;

using namespace shardmesh;

namespace {

// Objects in memory. It notes every change, and refuses the write of one name. It can lose the answer of one write, and
// fail for good afterwards, or end a write whose effect may come later. Another writer can act after a list or a
// refusal.
class noting_store final : public store {
 public:
  result<std::optional<stored_object>> look(const std::string& url) const override {
    if (is_broken) {
      changes.push_back("try to look at " + last_part(url));
      return broken(url);
    }
    if (const auto found = objects.find(url); found != objects.end())
      return std::optional(described(url, found->second));
    const auto below = objects.lower_bound(url + "/");
    if (below == objects.end() || !below->first.starts_with(url + "/")) return std::optional<stored_object>();
    return std::optional(stored_object{last_part(url), true});
  }
  result<std::vector<stored_object>> list(const std::string& url) const override {
    std::vector<stored_object> made;
    for (const auto& [name, content] : objects)
      if (name.starts_with(url + "/")) made.push_back(described(name, content));
    if (another) another();
    return made;
  }
  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    const auto found = objects.find(url);
    if (found == objects.end()) return fail(errc::io, "there is no such object").with_file(url);
    return std::unique_ptr<byte_source>(std::make_unique<memory_source>(std::as_bytes(std::span(found->second)), url));
  }
  bool can_write() const override { return true; }
  result<std::string> put(const std::string& url, const byte_source& content,
                          const put_condition& condition) const override {
    const auto found = objects.find(url);
    memory.push_back(condition.memory_bytes);
    if (last_part(url) == refused) {
      if (another) another();
      return fail(errc::io, "the server refuses").with_file(url);
    }
    if (last_part(url) == ended_early) {
      error ended_by_limit = fail(errc::cancelled, "was cancelled").with_file(url);
      ended_by_limit.sys = may_come ? EINPROGRESS : 0;
      return ended_by_limit;
    }
    if (condition.if_absent && found != objects.end()) return fail(errc::destination_exists, "exists").with_file(url);
    if (!condition.if_version.empty() && (found == objects.end() || found->second != condition.if_version))
      return fail(errc::destination_exists, "has changed").with_file(url);
    std::string text(static_cast<std::size_t>(content.size_bytes()), ' ');
    if (auto done = content.read(0, std::as_writable_bytes(std::span(text))); !done) return std::move(done).error();
    changes.push_back("put " + last_part(url));
    objects[url] = text;
    if (last_part(url) != lost) return text;
    is_broken = breaks;
    return fail(errc::io, "the answer was lost").with_file(url);
  }
  result<void> remove(const std::string& url) const override {
    if (is_broken) return broken(url);
    if (last_part(url) == irremovable)
      return fail(errc::io, "the server refuses").with_file(url).with_hint("ask the owner");
    changes.push_back("remove " + last_part(url));
    ended.push_back(!detail::check_current_call());
    objects.erase(url);
    if (after_removal) after_removal();
    return {};
  }

  mutable std::map<std::string, std::string> objects;
  mutable std::vector<std::string> changes;
  mutable std::vector<bool> ended;           // for each removal: a limit of its call was reached
  mutable std::vector<std::int64_t> memory;  // that each write may take
  std::string refused, lost, irremovable, ended_early;
  std::function<void()> another, after_removal;  // what another writer does
  bool breaks = false;                           // after `lost`
  bool may_come = false;                         // the effect of `ended_early`
  mutable bool is_broken = false;

 private:
  static error broken(const std::string& url) { return fail(errc::io, "the server is broken").with_file(url); }
  static std::string last_part(const std::string& url) { return url.substr(url.rfind('/') + 1); }
  static stored_object described(const std::string& url, const std::string& content) {
    return {last_part(url), false, static_cast<std::int64_t>(content.size()), content};
  }
};

// A store that is registered for a scheme while this object lives.
struct registered {
  explicit registered(std::string name) : scheme(std::move(name)) { register_store(scheme, made); }
  ~registered() { register_store(scheme, nullptr); }
  std::string url(const std::string& name) const { return scheme + "://bucket/" + name; }
  std::string scheme;
  std::shared_ptr<noting_store> made = std::make_shared<noting_store>();
};

// `meanwhile` runs between the look at the destination and the upload.
result<void> write_folder(const std::string& url, std::span<const std::pair<std::string, std::string>> files,
                          const output_options& options = {}, const std::function<void()>& meanwhile = {}) {
  auto output = staged_output::directory(url, options);
  if (!output) return std::move(output).error();
  for (const auto& [name, content] : files) {
    const auto number = output->add_file(name);
    if (!number) return number.error();
    if (auto done = output->write(*number, 0, std::as_bytes(std::span(content))); !done) return done;
  }
  if (meanwhile) meanwhile();
  return output->commit();
}

using lines = std::vector<std::string>;
const std::vector<std::pair<std::string, std::string>> dcp_files{
    {".metadata", "new"}, {".shardmesh_checksums", "sums"}, {"__0_0.distcp", "data 0"}, {"__1_0.distcp", "data 1"}};

}  // namespace

TEST_CASE("a folder is uploaded with its description last, and its data first") {
  const registered at("upload-order");
  REQUIRE(write_folder(at.url("run"), dcp_files));
  CHECK(at.made->changes == lines{"put __0_0.distcp", "put __1_0.distcp", "put .shardmesh_checksums", "put .metadata"});
  CHECK(at.made->objects.at(at.url("run/__1_0.distcp")) == "data 1");
  CHECK(at.made->objects.size() == 4);
  for (const std::string_view name :
       {"metadata.pkl", "model.safetensors.index.json", "model.safetensors", ".snapshot_metadata"}) {
    const registered other("upload-other");
    const std::vector<std::pair<std::string, std::string>> files{{std::string(name), "1"}, {"zzz", "2"}};
    REQUIRE(write_folder(other.url("run"), files));
    CHECK(other.made->changes == lines{"put zzz", "put " + std::string(name)});
  }
}

TEST_CASE("a destination at whose URL no reader would find it is refused before any request") {
  const registered at("upload-odd");
  const auto query = staged_output::directory(at.url("run?x"));
  REQUIRE(!query);
  CHECK(query.error().code == errc::unsupported);
  CHECK(query.error().file == at.url("run"));
  CHECK(query.error().message == "a URL with a question mark names one object, and this is to be a folder");
  for (const auto& slashes : {staged_output::directory(at.url("run//")), staged_output::file(at.url("run///"))}) {
    REQUIRE(!slashes);
    CHECK(slashes.error().code == errc::invalid_argument);
    CHECK(slashes.error().message == "ends with more than one slash");
    CHECK(slashes.error().hint == "leave out all but one");
  }
  CHECK(staged_output::file(at.url("run?x")));
  CHECK(at.made->changes.empty());
  REQUIRE(write_folder(at.url("run/"), dcp_files));
  CHECK(at.made->objects.contains(at.url("run/.metadata")));
}

TEST_CASE("after an error of the store, what was uploaded is removed, and the error names the object") {
  const registered at("upload-error");
  at.made->refused = ".metadata";
  const auto done = write_folder(at.url("run"), dcp_files);
  REQUIRE(!done);
  CHECK(done.error().code == errc::io);
  CHECK(done.error().file == at.url("run/.metadata"));
  CHECK(at.made->objects.empty());
}

TEST_CASE("what was uploaded is removed even though the deadline of the save has passed") {
  const registered at("upload-late");
  at.made->refused = ".metadata";
  const detail::call_scope late({.within = std::chrono::steady_clock::now() - std::chrono::seconds(1)});
  REQUIRE(!write_folder(at.url("run"), dcp_files));
  CHECK(at.made->objects.empty());
  CHECK(at.made->ended == std::vector<bool>(3, false));
}

TEST_CASE("data stays when the description may have been stored, although its answer was lost") {
  for (const bool breaks : {false, true}) {
    const registered at("upload-lost-description");
    at.made->lost = ".metadata";
    at.made->breaks = breaks;
    const auto done = write_folder(at.url("run"), dcp_files);
    REQUIRE(!done);
    CHECK(done.error().file == at.url("run/.metadata"));
    CHECK(done.error().hint == "check it with verify: the server may have stored this object");
    CHECK(at.made->objects.size() == dcp_files.size());
  }
}

TEST_CASE("objects that could not be removed are named, and a broken server is asked once") {
  const registered at("upload-lost-data");
  at.made->lost = "__1_0.distcp";
  at.made->breaks = true;
  const std::vector<std::pair<std::string, std::string>> files{
      {".metadata", "new"}, {"__0_0.distcp", "0"}, {"__0_1.distcp", "1"}, {"__1_0.distcp", "2"}};
  const auto done = write_folder(at.url("run"), files);
  REQUIRE(!done);
  CHECK(done.error().hint == "remove what is left of the upload: __1_0.distcp, __0_1.distcp, __0_0.distcp");
  CHECK(at.made->changes == lines{"put __0_0.distcp", "put __0_1.distcp", "put __1_0.distcp",
                                  "try to look at __1_0.distcp", "try to look at __0_1.distcp"});
}

TEST_CASE("an error says that the previous checkpoint of a store is gone") {
  const registered at("upload-gone");
  at.made->objects = {{at.url("run/.metadata"), "old"}, {at.url("run/__0_0.distcp"), "old"}};
  at.made->refused = "__1_0.distcp";
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  const auto done = write_folder(at.url("run"), dcp_files, replacing);
  REQUIRE(!done);
  CHECK(done.error().hint == "write it again: the previous checkpoint was removed to make room");
  CHECK(at.made->objects == std::map<std::string, std::string>{{at.url("run/__0_0.distcp"), "data 0"}});
}

TEST_CASE("an existing folder in a store is replaced only on request, its description first removed") {
  const registered at("upload-again");
  at.made->objects = {
      {at.url("run/.metadata"), "old"}, {at.url("run/__0_0.distcp"), "old"}, {at.url("run/stale"), "old"}};
  const auto refused = write_folder(at.url("run"), dcp_files);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(at.made->changes.empty());
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  REQUIRE(write_folder(at.url("run"), dcp_files, replacing));
  CHECK(at.made->changes == lines{"remove .metadata", "put __0_0.distcp", "put __1_0.distcp",
                                  "put .shardmesh_checksums", "put .metadata", "remove stale"});
}

TEST_CASE("an old folder in a store stays readable until its description is removed, and then the error says so") {
  const registered at("upload-lost");
  const std::map<std::string, std::string> old{{at.url("run/.metadata"), "old"},
                                               {at.url("run/.shardmesh_checksums"), "old"},
                                               {at.url("run/__0_0.distcp"), "old"}};
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  at.made->objects = old;
  at.made->irremovable = ".metadata";
  const auto kept = write_folder(at.url("run"), dcp_files, replacing);
  REQUIRE(!kept);
  CHECK(kept.error().hint ==
        "ask the owner; check the previous checkpoint with verify: this object may be gone, and these were removed: "
        ".shardmesh_checksums");
  CHECK(at.made->changes == lines{"remove .shardmesh_checksums"});
  CHECK(at.made->objects.at(at.url("run/.metadata")) == "old");
  CHECK(at.made->objects.at(at.url("run/__0_0.distcp")) == "old");

  at.made->objects = old;
  at.made->irremovable.clear();
  at.made->changes.clear();
  at.made->refused = "__1_0.distcp";
  const auto lost = write_folder(at.url("run"), dcp_files, replacing);
  REQUIRE(!lost);
  CHECK(lost.error().file == at.url("run/__1_0.distcp"));
  CHECK(lost.error().hint == "write it again: the previous checkpoint was removed to make room");
  CHECK(at.made->changes == lines{"remove .shardmesh_checksums", "remove .metadata", "put __0_0.distcp"});
  CHECK(!at.made->objects.contains(at.url("run/.metadata")));
}

TEST_CASE("a checkpoint that another writer has put in place of the old one is left alone") {
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  const std::string description = ".metadata", data = "__0_0.distcp";
  // The object that changes, and whether it changes after the last look at the folder. Descriptions can be equal.
  for (const auto& [changed, is_late] :
       std::vector<std::pair<std::string, bool>>{{description, false}, {data, false}, {description, true}}) {
    INFO(changed << (is_late ? " late" : ""));
    const registered at("upload-replaced");
    at.made->objects = {{at.url("run/" + description), "old"}, {at.url("run/" + data), "old"}};
    const auto replace = [&] { at.made->objects.at(at.url("run/" + changed)) = "theirs"; };
    const auto done = write_folder(at.url("run"), dcp_files, replacing, [&] {
      if (is_late)
        at.made->another = replace;
      else
        replace();
    });
    REQUIRE(!done);
    CHECK(done.error().code == errc::destination_exists);
    CHECK(done.error().file == at.url("run/" + changed));
    CHECK(done.error().message == "appeared or changed while the new checkpoint was written, and is left alone");
    CHECK(done.error().hint.empty());
    CHECK(at.made->changes.empty());
    CHECK(at.made->objects.size() == 2);
    CHECK(at.made->objects.at(at.url("run/" + changed)) == "theirs");
  }
}

TEST_CASE("a record of checksums that was removed before the description changed is named") {
  const registered at("upload-record");
  at.made->objects = {{at.url("run/.metadata"), "old"},
                      {at.url("run/.shardmesh_checksums"), "old"},
                      {at.url("run/__0_0.distcp"), "old"}};
  at.made->after_removal = [&] { at.made->objects.at(at.url("run/.metadata")) = "theirs"; };
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  const auto done = write_folder(at.url("run"), dcp_files, replacing);
  REQUIRE(!done);
  CHECK(done.error().code == errc::destination_exists);
  CHECK(done.error().file == at.url("run/.metadata"));
  CHECK(done.error().hint ==
        "check the checkpoint with verify: of the previous one, these were removed: .shardmesh_checksums");
  CHECK(at.made->changes == lines{"remove .shardmesh_checksums"});
}

TEST_CASE("after an error, an object that another writer has replaced stays, and is named") {
  const registered at("upload-theirs");
  at.made->refused = ".metadata";
  at.made->another = [&] { at.made->objects.at(at.url("run/__0_0.distcp")) = "theirs"; };
  const auto done = write_folder(at.url("run"), dcp_files);
  REQUIRE(!done);
  CHECK(done.error().hint == "these have changed since their upload, and are left alone: __0_0.distcp");
  CHECK(at.made->objects == std::map<std::string, std::string>{{at.url("run/__0_0.distcp"), "theirs"}});
}

TEST_CASE("a file of the old checkpoint that another writer has replaced stays, and a note names it") {
  const registered at("upload-stale");
  at.made->objects = {{at.url("run/.metadata"), "old"}, {at.url("run/stale"), "old"}};
  const output_options replacing{.overwrite = true,
                                 .may_replace = [](const auto&, const auto&) { return result<void>(); }};
  auto output = staged_output::directory(at.url("run"), replacing);
  REQUIRE(output);
  const auto number = output->add_file(".metadata");
  REQUIRE(number);
  REQUIRE(output->write(*number, 0, std::as_bytes(std::span(std::string_view("new")))));
  at.made->objects.at(at.url("run/stale")) = "theirs";
  REQUIRE(output->commit());
  CHECK(at.made->objects ==
        std::map<std::string, std::string>{{at.url("run/.metadata"), "new"}, {at.url("run/stale"), "theirs"}});
  REQUIRE(!output->notes().empty());
  CHECK(output->notes().back() ==
        "a file of the old checkpoint could not be removed: " + at.url("run/stale") + ": has changed meanwhile");
}

TEST_CASE("data stays when the server may store the description after a limit has ended its upload") {
  for (const bool may_come : {true, false}) {
    const registered at("upload-ended");
    at.made->ended_early = ".metadata";
    at.made->may_come = may_come;
    const auto done = write_folder(at.url("run"), dcp_files);
    REQUIRE(!done);
    CHECK(done.error().code == errc::cancelled);
    CHECK(done.error().hint == (may_come ? "check it with verify: the server may have stored this object" : ""));
    CHECK(at.made->objects.size() == (may_come ? dcp_files.size() - 1 : 0));
  }
}

TEST_CASE("a full folder for temporary files is named, with the space that the upload needs") {
  const registered at("upload-full");
  const auto output = staged_output::directory(at.url("run"));
  REQUIRE(output);
  CHECK(output->reserve(1));
  constexpr std::int64_t needed = std::numeric_limits<std::int64_t>::max();
  const auto refused = output->reserve(needed);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::no_space);
  CHECK(refused.error().file == at.url("run"));
  CHECK(refused.error().expected == std::to_string(needed) + " bytes of free space");
  CHECK(refused.error().hint == "free space in " + std::filesystem::temp_directory_path().string() +
                                    ", where the files are written before they are uploaded, or set TMPDIR to a folder "
                                    "with more");
}

TEST_CASE("an upload tells the store how much memory it may take") {
  const registered at("upload-memory");
  REQUIRE(write_folder(at.url("run"), dcp_files, {.memory_bytes = 12345}));
  CHECK(at.made->memory == std::vector<std::int64_t>(4, 12345));
  REQUIRE(write_folder(at.url("again"), dcp_files));
  CHECK(at.made->memory.back() == 0);
}

TEST_CASE("a single file in a store is replaced only while it is the one that was examined") {
  const registered at("upload-file");
  const auto write = [&](const output_options& options, const std::string& meanwhile) -> result<void> {
    auto output = staged_output::file(at.url("a.pt"), options);
    if (!output) return std::move(output).error();
    const auto number = output->add_file("");
    if (!number) return number.error();
    if (auto done = output->write(*number, 0, std::as_bytes(std::span(std::string_view("new")))); !done) return done;
    if (!meanwhile.empty()) at.made->objects[at.url("a.pt")] = meanwhile;
    return output->commit();
  };
  REQUIRE(write({}, ""));
  CHECK(write({}, "").error().code == errc::destination_exists);
  CHECK(write({.overwrite = true}, "another").error().code == errc::destination_exists);
  CHECK(at.made->objects.at(at.url("a.pt")) == "another");
  REQUIRE(write({.overwrite = true}, ""));
  CHECK(at.made->objects.at(at.url("a.pt")) == "new");
}
