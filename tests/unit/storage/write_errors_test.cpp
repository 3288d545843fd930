// SPDX-License-Identifier: Apache-2.0
// Tests write errors that the system reports late or only once. They come from fsync and close of the descriptor that
// wrote, and from the fsync that makes a rename durable. Also tests refused locks. This program replaces these calls
// with its own.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <scratch_folder.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// The faults to inject. A descriptor counts as written from its first `pwrite` on.
struct faults {
  std::mutex lock;
  int close_error = 0;  // for every descriptor that wrote
  int lost_write = 0;   // this write fails silently; fsync or close of its descriptor reports it, once
  int writes = 0;
  fs::path folder;  // its fsync fails with EIO
  std::string_view renamed_to{"\n"};
  std::vector<int> lock_errors;       // for the next calls of flock
  std::function<void()> before_lock;  // runs before the next call of flock
  std::set<int> written;
  std::map<int, int> owed;  // unreported errors by descriptor

  void reset() {
    const std::scoped_lock guard(lock);
    close_error = lost_write = writes = 0;
    folder.clear();
    renamed_to = "\n";
    lock_errors.clear();
    before_lock = {};
    written.clear();
    owed.clear();
  }
  int take(std::map<int, int>& from, int fd) {
    const auto found = from.find(fd);
    return found == from.end() ? 0 : from.extract(found).mapped();
  }
};

faults& system_faults() {
  static faults all;
  return all;
}

fs::path path_of(int fd) {
  std::array<char, 4096> text{};
  const auto length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), text.data(), text.size() - 1);
  return length > 0 ? fs::path(text.data()) : fs::path();
}

int failed(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  faults& all = system_faults();
  {
    const std::scoped_lock guard(all.lock);
    all.written.insert(fd);
    if (++all.writes == all.lost_write) all.owed[fd] = EIO;
  }
  return ::syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int fsync(int fd) {
  faults& all = system_faults();
  const std::scoped_lock guard(all.lock);
  if (const int error = all.take(all.owed, fd)) return failed(error);
  if (!all.folder.empty() && path_of(fd) == all.folder) return failed(EIO);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int close(int fd) {
  faults& all = system_faults();
  const std::scoped_lock guard(all.lock);
  int error = all.take(all.owed, fd);
  if (all.written.erase(fd) != 0 && all.close_error != 0) error = all.close_error;
  const auto done = static_cast<int>(::syscall(SYS_close, fd));
  return error != 0 ? failed(error) : done;
}

int flock(int fd, int how) noexcept {
  faults& all = system_faults();
  if (const auto action = std::exchange(all.before_lock, {})) action();
  const std::scoped_lock guard(all.lock);
  if (!all.lock_errors.empty()) {
    const int error = all.lock_errors.front();
    all.lock_errors.erase(all.lock_errors.begin());
    if (error != 0) return failed(error);
  }
  return static_cast<int>(::syscall(SYS_flock, fd, how));
}

int rename(const char* from, const char* to) noexcept {
  if (std::string_view(to).find(system_faults().renamed_to) != std::string_view::npos) return failed(EIO);
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

}  // extern "C"

namespace {

struct with_faults {
  with_faults() { system_faults().reset(); }
  ~with_faults() { system_faults().reset(); }
};

// Allows so few descriptors that a pool holds `pool`.
class few_descriptors {
 public:
  explicit few_descriptors(rlim_t pool) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = pool * 5;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

constexpr std::array bytes{std::byte{'n'}, std::byte{'e'}, std::byte{'w'}};

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every name in the folder and its subfolders, with its text.
std::map<std::string, std::string> all_in(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    found[entry.path().lexically_relative(folder)] = entry.is_directory() ? "/" : text_of(entry.path());
  return found;
}

// Writes `files` files in turn, twice, and commits. Returns the first error.
result<void> save(const fs::path& destination, int files, output_options options) {
  auto made = files == 0 ? staged_output::file(destination, std::move(options))
                         : staged_output::directory(destination, std::move(options));
  if (!made) return std::move(made).error();
  std::vector<std::int32_t> numbers;
  for (int file = 0; file < std::max(files, 1); ++file) {
    auto number = made->add_file(files == 0 ? std::string() : "f" + std::to_string(file));
    if (!number) return std::move(number).error();
    numbers.push_back(*number);
  }
  for (std::int64_t turn = 0; turn < 2; ++turn)
    for (const std::int32_t number : numbers)
      if (auto done = made->write(number, turn * 3, bytes); !done) return done;
  return made->commit();
}

enum class before { nothing, empty_folder, old_one };

void make_before(const fs::path& destination, int files, before there) {
  if (there == before::nothing) return;
  if (files > 0) fs::create_directory(destination);
  if (files > 0 && there == before::old_one) std::ofstream(destination / "f0") << "old";
  if (files == 0 && there == before::old_one) std::ofstream(destination) << "old";
}

folder_rule any_folder() {
  return [](const fs::path&, const destination_snapshot&) { return result<void>(); };
}

// The entries of a folder, without the one under a temporary name, and that one's files and path.
struct with_leftover {
  std::map<std::string, std::string> others, left;
  fs::path path;

  explicit with_leftover(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().find(".shardmesh-tmp-") != std::string::npos) path = entry.path();
    if (!path.empty()) left = all_in(path);
    for (const auto& [name, text] : all_in(folder))
      if (path.empty() || !name.starts_with(path.filename().string())) others.emplace(name, text);
  }
};

std::string hint_of_kept(const fs::path& path) {
  return "the new one is kept as " + path.string() +
         "; remove it with `shardmesh clean` when its parent folder can be synced";
}

}  // namespace

TEST_CASE("an error at close of a file that was written is an error of the save") {
  const bool durable = GENERATE(true, false);
  const int files = GENERATE(0, 1, 12);
  const auto there = GENERATE(before::nothing, before::old_one);
  const few_descriptors few(4);
  const scratch_folder scratch;
  const fs::path destination = scratch.path / "made";
  make_before(destination, files, there);
  const auto old = all_in(scratch.path);
  const with_faults faulty;
  system_faults().close_error = EDQUOT;
  const auto done = save(destination, files, {.overwrite = true, .durable = durable, .may_replace = any_folder()});
  INFO("durable " << durable << ", files " << files);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::no_space);
  CHECK(done.error().sys == EDQUOT);
  CHECK(done.error().message.starts_with("cannot close after writing"));
  CHECK(done.error().file == (files == 0 ? destination : destination / "f0").string());
  CHECK(all_in(scratch.path) == old);
  system_faults().reset();
  CHECK(save(destination, files, {.overwrite = true, .durable = durable, .may_replace = any_folder()}));
}

TEST_CASE("close that a signal cuts short is no error") {
  const scratch_folder scratch;
  const with_faults faulty;
  system_faults().close_error = EINTR;
  CHECK(save(scratch.path / "made", 3, {}));
  CHECK(all_in(scratch.path / "made").size() == 3);
}

TEST_CASE("the descriptor that wrote is synced: whichever write was lost, the save fails") {
  const int files = GENERATE(0, 3, 9);
  const int pool = GENERATE(4, 40);
  const few_descriptors few(static_cast<rlim_t>(pool));
  // Each file's writes are gathered into one if the files outnumber the descriptors.
  const int writes = files > pool ? files : 2 * std::max(files, 1);
  for (int lost = 1; lost <= writes; ++lost) {
    const scratch_folder scratch;
    const fs::path destination = scratch.path / "made";
    const with_faults faulty;
    system_faults().lost_write = lost;
    INFO("files " << files << ", write " << lost);
    const auto done = save(destination, files, {});
    REQUIRE_FALSE(done);
    CHECK(done.error().sys == EIO);
    const std::string name = files == 0 ? "made" : "f" + std::to_string((lost - 1) % files);
    CHECK(fs::path(done.error().file).filename() == name);
    CHECK(all_in(scratch.path).empty());
  }
}

TEST_CASE("an error that was found while files were written stays one") {
  const few_descriptors few(4);
  const scratch_folder scratch;
  const with_faults faulty;
  auto made = staged_output::directory(scratch.path / "made");
  REQUIRE(made);
  std::vector<std::int32_t> numbers;
  for (const std::string_view name : {"a", "b", "c", "d", "e"}) {
    const auto number = made->add_file(name);
    REQUIRE(number);
    numbers.push_back(*number);
  }
  const std::vector<std::byte> large(std::size_t{1} << 18);  // too large to be gathered
  system_faults().lost_write = 1;
  for (std::size_t i = 0; i < 4; ++i) REQUIRE(made->write(numbers[i], 0, large));
  CHECK_FALSE(made->write(numbers[4], 0, large));  // its descriptor takes the place of the first
  CHECK(made->write(numbers[4], 0, large));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto done = made->commit();
    REQUIRE_FALSE(done);
    CHECK(fs::path(done.error().file).filename() == "a");
  }
  CHECK_FALSE(fs::exists(scratch.path / "made"));
}

TEST_CASE("small writes in turn to more files than descriptors are few calls") {
  constexpr int files = 12, turns = 100;
  const few_descriptors few(4);
  const scratch_folder scratch;
  const with_faults faulty;
  auto made = staged_output::directory(scratch.path / "made");
  REQUIRE(made);
  std::vector<std::int32_t> numbers;
  for (int file = 0; file < files; ++file) numbers.push_back(made->add_file("f" + std::to_string(file)).value());
  for (std::int64_t turn = 0; turn < turns; ++turn)
    for (const std::int32_t number : numbers) REQUIRE(made->write(number, turn * 3, bytes));
  REQUIRE(made->prepare());
  CHECK(system_faults().writes == files);
  REQUIRE(made->commit());
  std::string expected;
  for (int turn = 0; turn < turns; ++turn) expected += "new";
  for (int file = 0; file < files; ++file)
    CHECK(text_of(scratch.path / "made" / ("f" + std::to_string(file))) == expected);
}

TEST_CASE("what was gathered is read back, may come in any order, and goes with its file") {
  const few_descriptors few(4);
  const scratch_folder scratch;
  auto made = staged_output::directory(scratch.path / "made");
  REQUIRE(made);
  std::vector<std::int32_t> numbers;
  for (int file = 0; file < 6; ++file) numbers.push_back(made->add_file("f" + std::to_string(file)).value());
  const std::vector<std::byte> large(std::size_t{1} << 18, std::byte{'l'});
  REQUIRE(made->write(numbers[0], 3, bytes));
  REQUIRE(made->write(numbers[0], 0, bytes));
  REQUIRE(made->write(numbers[0], 6, large));
  REQUIRE(made->write(numbers[0], 6 + std::ssize(large), bytes));
  REQUIRE(made->write(numbers[1], 0, bytes));
  REQUIRE(made->write(numbers[2], 0, bytes));
  REQUIRE(made->add_file("later"));  // writes gathered bytes first: a description must not be older than its files
  CHECK(text_of(made->folder() / "f2") == "new");
  REQUIRE(made->write(numbers[1], 0, bytes));
  std::array<std::byte, 3> read{};
  REQUIRE(made->read(numbers[0], 6 + std::ssize(large), read));
  CHECK(read == bytes);
  REQUIRE(made->read(numbers[0], 1, read));
  CHECK(read == std::array{std::byte{'e'}, std::byte{'w'}, std::byte{'n'}});
  REQUIRE(made->remove_file(numbers[1]));
  REQUIRE(made->commit());
  CHECK(text_of(scratch.path / "made" / "f0") == "newnew" + std::string(large.size(), 'l') + "new");
  CHECK_FALSE(fs::exists(scratch.path / "made" / "f1"));
}

TEST_CASE("after an error of the last fsync the destination is as it was") {
  const int files = GENERATE(0, 2);
  const auto there = GENERATE(before::nothing, before::empty_folder, before::old_one);
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  make_before(folder / "made", files, there);
  if (files > 0 && there == before::empty_folder) fs::permissions(folder / "made", fs::perms::owner_all);
  const auto old = all_in(folder);
  const with_faults faulty;
  system_faults().folder = folder;
  const auto done = save(folder / "made", files, {.overwrite = true, .may_replace = any_folder()});
  REQUIRE_FALSE(done);
  CHECK(done.error().sys == EIO);
  CHECK(done.error().file == folder.string());
  const with_leftover now(folder);
  CHECK(now.others == old);
  if (files == 0) {
    CHECK(done.error().hint.empty());
    CHECK(now.path.empty());
  } else {  // a power cut could bring back the folder as the destination, so it stays whole
    CHECK(done.error().hint == hint_of_kept(now.path));
    CHECK(now.left == std::map<std::string, std::string>{{"f0", "newnew"}, {"f1", "newnew"}});
  }
  if (files > 0 && there == before::empty_folder)
    CHECK(fs::status(folder / "made").permissions() == fs::perms::owner_all);
}

TEST_CASE("a new folder that cannot be taken back is whole, and the error says where it is") {
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  const with_faults faulty;
  system_faults().folder = folder;
  system_faults().renamed_to = ".shardmesh-tmp-";
  const auto done = save(folder / "made", 2, {});
  REQUIRE_FALSE(done);
  CHECK(done.error().hint == "the new one is in place and complete, but a power failure may lose it");
  CHECK(all_in(folder) ==
        std::map<std::string, std::string>{{"made", "/"}, {"made/f0", "newnew"}, {"made/f1", "newnew"}});
}

TEST_CASE("a folder that was exchanged back is deleted only after the fsync of its parent folder") {
  const bool is_synced = GENERATE(true, false);
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  make_before(folder / "made", 2, before::old_one);
  const with_faults faulty;
  auto made = staged_output::directory(folder / "made", {.overwrite = true, .may_replace = any_folder()});
  REQUIRE(made);
  const auto number = made->add_file("f0");
  REQUIRE(number);
  REQUIRE(made->write(*number, 0, bytes));
  // Another program adds a file after the destination was compared: `commit` locks the old folder before the exchange.
  system_faults().before_lock = [&] { std::ofstream(folder / "made" / "mine") << "mine"; };
  if (!is_synced) system_faults().folder = folder;
  const auto done = made->commit();
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::destination_exists);
  CHECK(done.error().found == "new: mine");
  const fs::path staged = made->folder();
  {
    const staged_output ended = *std::move(made);
  }
  const with_leftover now(folder);
  CHECK(now.others == std::map<std::string, std::string>{{"made", "/"}, {"made/f0", "old"}, {"made/mine", "mine"}});
  CHECK(now.path.string() == (is_synced ? std::string() : staged.string()));
  CHECK(done.error().hint == (is_synced ? std::string() : hint_of_kept(staged)));
  if (!is_synced) CHECK(now.left == std::map<std::string, std::string>{{"f0", "new"}});
}

TEST_CASE("a process that joined a folder removes it only when the names beside it are durable") {
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  const auto made = staged_output::directory(folder / "made");
  REQUIRE(made);
  const fs::path staged = made->folder();
  const with_faults faulty;
  for (const bool is_synced : {false, true}) {
    {
      auto joined = staged_output::join(staged);
      REQUIRE(joined);
      REQUIRE(joined->add_file("f0"));
      system_faults().folder = is_synced ? fs::path() : folder;
    }
    CHECK(fs::exists(staged / "f0") == !is_synced);
    system_faults().folder.clear();
  }
  CHECK(fs::is_empty(folder));
}

TEST_CASE("a folder keeps its name and its files when the fsync before its removal fails") {
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  make_before(folder / "made", 2, before::old_one);
  make_before(folder / "file", 0, before::old_one);
  const auto old = all_in(folder);
  {
    const with_faults faulty;
    system_faults().folder = folder;
    const auto removed = discard_destination(folder / "made", any_folder());
    REQUIRE_FALSE(removed);
    CHECK(removed.error().sys == EIO);
    CHECK(removed.error().file == folder.string());
    CHECK(removed.error().hint ==
          (folder / "made").string() + " keeps its entries; remove it again when its parent folder can be synced");
    CHECK(all_in(folder) == old);
    CHECK(discard_destination(folder / "file"));  // a file disappears whole, with or without an fsync
  }
  CHECK(discard_destination(folder / "made", any_folder()));
  CHECK(all_in(folder).empty());
}

TEST_CASE("a leftover folder keeps its files when the fsync before its removal fails") {
  const scratch_folder scratch;
  const fs::path folder = fs::canonical(scratch.path);
  const fs::path left = folder / ".made.shardmesh-tmp-999999999-00000001";
  fs::create_directory(left);
  std::ofstream(left / "f0") << "part";
  const auto old = all_in(folder);
  {
    const with_faults faulty;
    system_faults().folder = folder;
    const auto removed = remove_leftover(left, {.shared = false});
    REQUIRE_FALSE(removed);
    CHECK(removed.error().sys == EIO);
    CHECK(removed.error().file == folder.string());
    CHECK(removed.error().hint ==
          left.string() + " keeps its entries; remove it again when its parent folder can be synced");
    CHECK(all_in(folder) == old);
  }
  CHECK(remove_leftover(left, {.shared = false}));
  CHECK(all_in(folder).empty());
}

TEST_CASE("a lock that a signal cut short is taken") {
  const scratch_folder scratch;
  const with_faults faulty;
  system_faults().lock_errors = {EINTR, EINTR};
  const auto made = staged_output::directory(scratch.path / "made");
  REQUIRE(made);
  system_faults().lock_errors = {EINTR};
  const auto found = find_leftovers(scratch.path / "made", {.shared = false});
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK(found->front().owner == leftover_owner::alive);
  system_faults().lock_errors = {EINTR};
  CHECK_FALSE(remove_leftover(found->front().path, {.shared = false}));
  CHECK(fs::exists(made->folder()));
}

TEST_CASE("what is written without a lock is nobody's to take away") {
  const int error = GENERATE(ENOLCK, EIO, EINVAL);
  const int files = GENERATE(0, 1);
  const scratch_folder scratch;
  const with_faults faulty;
  system_faults().lock_errors = {error};
  auto made = files == 0 ? staged_output::file(scratch.path / "made") : staged_output::directory(scratch.path / "made");
  REQUIRE(made);
  const auto number = made->add_file(files == 0 ? "" : "f0");
  REQUIRE(number);
  for (const std::optional<bool> shared : {std::optional<bool>(), std::optional(false), std::optional(true)}) {
    const auto found = find_leftovers(scratch.path / "made", {.shared = shared});
    REQUIRE(found);
    REQUIRE(found->size() == 1);
    CHECK(found->front().owner == leftover_owner::unknown);
    const auto removed = remove_leftover(found->front().path, {.shared = shared});
    REQUIRE_FALSE(removed);
    CHECK(removed.error().code == errc::destination_exists);
  }
  REQUIRE(made->write(*number, 0, bytes));
  CHECK(made->commit());
  CHECK(all_in(scratch.path).size() == static_cast<std::size_t>(1 + files));
}

TEST_CASE("a leftover whose lock cannot be asked for is kept") {
  const scratch_folder scratch;
  const fs::path left = scratch.path / ".made.shardmesh-tmp-1-00000001";
  std::ofstream(left) << "part";
  const with_faults faulty;
  system_faults().lock_errors = {ENOLCK, ENOLCK};
  const auto found = find_leftovers(scratch.path / "made", {.shared = false});
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK(found->front().owner == leftover_owner::unknown);
  CHECK_FALSE(remove_leftover(left, {.shared = false}));
  CHECK(text_of(left) == "part");
}
