// SPDX-License-Identifier: Apache-2.0
// Tests the files of a folder, which are opened on demand: files inside it, links that lead out of it, and missing
// files.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <memory_store.hpp>

import shardmesh.checkpoint_core;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

class scratch_folder {
 public:
  scratch_folder() { fs::create_directories(path / "inside" / "deeper"); }
  ~scratch_folder() { fs::remove_all(path); }
  scratch_folder(const scratch_folder&) = delete;
  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }

  fs::path path = fs::temp_directory_path() / ("shardmesh-folder-files-" + std::to_string(std::random_device{}()));
};

}  // namespace

TEST_CASE("an item of another folder is not read from a URL, and the error says how to read it") {
  folder_files files("s3://bucket/run/step-2", {"../step-1/__0_0.distcp"}, file_pool(4), file_scope::sibling_folders);
  const auto opened = files.open(0);
  REQUIRE(!opened);
  CHECK(opened.error().code == errc::unsupported);
  CHECK(opened.error().found == "../step-1/__0_0.distcp");
  CHECK(opened.error().hint == "copy it and step-1 into one local folder, and open the copy");
}

TEST_CASE("a file whose name a URL cannot spell is refused by name, and not taken for another object") {
  const registered_store store("unspelled");
  store->untaken = {"a?b"};
  for (const std::string name : {"a", "a?b", "c"}) store->add("run/" + name, name);
  folder_files files(store.url("run"), {"a?b", "c"}, file_pool(4));
  for (const error& refused : {files.open(0).error(), check_inside(store.url("run"), "a?b").error()}) {
    CHECK(refused.code == errc::unsupported);
    CHECK(refused.file == store.url("run"));
    CHECK(refused.found == "a?b");
    CHECK(refused.hint == "rename the file, or open a copy of the folder on this machine");
  }
  CHECK(store->take_counts() == memory_store::counts{});
  CHECK(files.open(1));
  CHECK(check_inside(store.url("run"), "c"));
}

TEST_CASE("files of a folder are those in it, through links as well, and not those that links lead out to") {
  const scratch_folder scratch;
  scratch.write("outside", "12345");
  scratch.write("inside/plain", "1");
  scratch.write("inside/deeper/below", "12");
  fs::create_symlink("deeper/below", scratch.path / "inside" / "link");
  fs::create_symlink("../outside", scratch.path / "inside" / "way_out");
  fs::create_symlink("..", scratch.path / "inside" / "up");
  const std::vector<std::string> names{"plain",  "deeper/below", "link",       "way_out",
                                       "deeper", "up/outside",   "../outside", "nothing"};
  const auto code_of = [&](std::size_t i) {
    folder_files files(scratch.path / "inside", names, file_pool(4));
    const auto opened = files.open(static_cast<std::int32_t>(i));
    const auto checked = check_inside(scratch.path / "inside", names[i]);
    CHECK(opened.has_value() == checked.has_value());
    if (opened) {
      CHECK((*opened)->size_bytes() == (i == 0 ? 1 : 2));
      return errc{};
    }
    CHECK(opened.error() == checked.error());
    CHECK(opened.error().file == (scratch.path / "inside" / names[i]).string());
    return opened.error().code;
  };
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) CHECK(code_of(i) == errc{});
  for (const std::size_t i : {std::size_t{3}, std::size_t{5}, std::size_t{6}}) CHECK(code_of(i) == errc::unsafe_path);
  CHECK(code_of(4) == errc::bad_format);
  CHECK(code_of(7) == errc::bad_format);
}

TEST_CASE("files of folders beside the folder are opened for a reader of references alone") {
  const scratch_folder scratch;
  fs::create_directories(scratch.path / "beside");
  scratch.write("beside/item.distcp", "123");
  scratch.write("beside/notes.txt", "1234");
  scratch.write("inside/own.distcp", "12");
  const std::vector<std::string> names{"../beside/item.distcp", "../beside/notes.txt", "own.distcp"};
  const auto code_of = [&](std::int32_t file, file_scope scope) {
    const auto opened = folder_files(scratch.path / "inside", names, file_pool(4), scope).open(file);
    return opened ? errc::ok : opened.error().code;
  };
  CHECK(code_of(0, file_scope::sibling_folders) == errc::ok);
  CHECK(code_of(0, file_scope::folder) == errc::unsafe_path);
  for (const file_scope scope : {file_scope::folder, file_scope::sibling_folders}) {
    CHECK(code_of(1, scope) == errc::unsafe_path);
    CHECK(code_of(2, scope) == errc::ok);
  }
  folder_files files(scratch.path / "inside", names, file_pool(4), file_scope::sibling_folders);
  CHECK(files.section(0, 1, 2).value()->size_bytes() == 2);
  fs::remove(scratch.path / "beside" / "item.distcp");
  CHECK(code_of(0, file_scope::sibling_folders) == errc::bad_format);
}

TEST_CASE("no file is opened from a folder that has taken the place of the first one, also behind a link") {
  for (const bool is_link : {false, true}) {
    INFO("behind a link: " << is_link);
    const scratch_folder scratch;
    fs::create_directories(scratch.path / "other");
    for (const std::string folder : {"inside", "other"}) {
      for (const std::string name : {"a", "b", "c"}) scratch.write(folder + "/" + name, folder);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the folders get different times
    }
    const fs::path path = scratch.path / (is_link ? "latest" : "inside");
    if (is_link) fs::create_symlink("inside", path);
    folder_files files(path, {"a", "b", "c"}, file_pool(4));
    REQUIRE(files.open(0));
    fs::rename(path, scratch.path / "old");
    if (is_link)
      fs::create_symlink("other", path);
    else
      fs::rename(scratch.path / "other", path);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto refused = files.open(1);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::io);
    CHECK(refused.error().message == "the checkpoint was replaced after it was opened");
    CHECK(refused.error().file == path.string());
    CHECK(refused.error().hint == "open it again");
    fs::rename(path, scratch.path / "new");
    CHECK(files.open(2).error().message == "the file is missing");
    fs::rename(scratch.path / "old", path);
    CHECK(files.open(1));
  }
}

TEST_CASE("files are opened from a folder to which others were added, and from one with another number and its time") {
  const scratch_folder scratch;
  fs::create_directories(scratch.path / "other");
  for (const std::string folder : {"inside", "other"})
    for (const std::string name : {"a", "b"}) scratch.write(folder + "/" + name, folder);
  folder_files files(scratch.path / "inside", {"a", "b"}, file_pool(4));
  scratch.write("inside/notes", "added");
  CHECK(files.open(0));
  fs::last_write_time(scratch.path / "inside", fs::last_write_time(scratch.path / "other"));
  folder_files later(scratch.path / "inside", {"a", "b"}, file_pool(4));
  fs::rename(scratch.path / "inside", scratch.path / "old");
  fs::rename(scratch.path / "other", scratch.path / "inside");
  CHECK(later.open(1));
}

TEST_CASE("a section that ends behind its file is refused, whatever its numbers are") {
  const scratch_folder scratch;
  scratch.write("inside/plain", "0123456789");
  folder_files files(scratch.path / "inside", {"plain"}, file_pool(4));
  CHECK(files.section(0, 4, 6).value()->size_bytes() == 6);
  CHECK(files.section(0, 10, 0).value()->size_bytes() == 0);
  CHECK(files.section(0, 4, 7).error().code == errc::out_of_bounds);
  CHECK(files.section(0, 11, 0).error().code == errc::out_of_bounds);
  CHECK(files.section(0, 1, INT64_MAX).error().code == errc::out_of_bounds);
}

TEST_CASE("a missing file is the same error again at once, and is found when somebody has put it there") {
  const scratch_folder scratch;
  folder_files files(scratch.path / "inside", {"late"}, file_pool(4));
  const auto first = files.open(0);
  REQUIRE_FALSE(first);
  CHECK(first.error().message == "the file is missing");
  CHECK(files.section(0, 0, 1).error() == first.error());
  scratch.write("inside/late", "12");
  const auto found = [&] {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         std::chrono::steady_clock::now() < end; std::this_thread::yield())
      if (const auto opened = files.open(0)) return (*opened)->size_bytes();
    return std::int64_t{-1};
  };
  CHECK(found() == 2);
}
