// SPDX-License-Identifier: Apache-2.0
// Tests the registry of stores, the forms of URLs, and objects as sources of bytes.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <memory_store.hpp>

import shardmesh.core;
import shardmesh.storage;

using namespace shardmesh;

namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("a URL begins with a scheme and ://") {
  for (const auto& [path, scheme] : std::vector<std::pair<std::string, std::string>>{{"s3://bucket/key", "s3"},
                                                                                     {"HTTPS://host", "HTTPS"},
                                                                                     {"a+b-c.1://x", "a+b-c.1"},
                                                                                     {"s3:/bucket/key", ""},
                                                                                     {"://x", ""},
                                                                                     {"folder/s3://x", ""},
                                                                                     {"with space://x", ""},
                                                                                     {"/folder/file", ""},
                                                                                     {"", ""}}) {
    INFO(path);
    CHECK(scheme_of(path) == scheme);
    CHECK(is_url(path) == !scheme.empty());
  }
}

TEST_CASE("a path that looks like a URL with one slash is refused with both ways to write it, and others are paths") {
  const registered_store store("shelf-short");
  struct refusal {
    std::string path, shown, url;
  };
  for (const refusal& one :
       std::vector<refusal>{{"s3:/bucket/x", "s3:/bucket/x", "s3://bucket/x"},
                            {"S3:/bucket", "S3:/bucket", "S3://bucket"},
                            {"gs:/b", "gs:/b", "gs://b"},
                            {"hf:/owner/name@v1", "hf:/owner/name@v1", "hf://owner/name@v1"},
                            {"http:/host/x", "http:/host/x", "http://host/x"},
                            {"https:/user:secret@host/x?secret", "https:/host/x", "https://host/x"},
                            {"shelf-short:/a//b", "shelf-short:/a//b", "shelf-short://a//b"}}) {
    INFO(one.path);
    const auto refused = detail::check_not_shortened(one.path);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().file == one.shown);
    CHECK(refused.error().message == "looks like a URL with one slash");
    CHECK(refused.error().hint == "write " + one.url + ", or ./" + one.shown + " for a local path");
    CHECK(to_string(refused.error()).find("secret") == std::string::npos);
  }
  const auto file = detail::check_not_shortened("file:/folder/x");
  REQUIRE(!file);
  CHECK(file.error().message == "looks like a URL of a local file");
  CHECK(file.error().hint == "write /folder/x, or ./file:/folder/x for a local path");
  for (const std::string path : {"s3://bucket/x", "./s3:/bucket/x", "/s3:/bucket/x", "s3:", "s3:/", "s3:x", "abc:/x",
                                 "C:/x", "a b:/x", ":/x", "folder/s3:/x", "folder", ""}) {
    INFO(path);
    CHECK(detail::check_not_shortened(path));
  }
}

TEST_CASE("every reader and every destination refuses a path that looks like a URL with one slash") {
  const std::string path = "s3:/bucket/x";
  for (const error& refused :
       {file_pool(1).open(path).error(), read_file(path, 100).error(), staged_output::file(path).error(),
        staged_output::directory(path, {.overwrite = true}).error(), detail::check_can_write(path).error(),
        find_leftovers(path).error()}) {
    CHECK(refused.code == errc::invalid_argument);
    CHECK(refused.file == path);
    CHECK(refused.message == "looks like a URL with one slash");
  }
  CHECK(file_pool(1).open("abc:/x").error().sys == ENOENT);
}

TEST_CASE("a file URL is refused with the way to write a local path") {
  const auto refused = file_pool(1).open("file:///folder/x");
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().message == "is a URL of a local file");
  CHECK(refused.error().hint == "write the local path, without file://");
}

TEST_CASE("a printable URL has neither user information nor a query, and a path is unchanged") {
  for (const auto& [given, shown] : std::vector<std::pair<std::string, std::string>>{
           {"https://host/model.pt?X-Amz-Signature=secret", "https://host/model.pt"},
           {"https://user:secret@host:80/a@b", "https://host:80/a@b"},
           {"https://secret@host", "https://host"},
           {"hf://gpt2@main/model.safetensors", "hf://gpt2@main/model.safetensors"},
           {"hf://owner/name@main/x?y", "hf://owner/name@main/x"},
           {"hf://user:secret@owner/name@main/x", "hf://owner/name@main/x"},
           {"hf://name@main/a:b@c", "hf://name@main/a:b@c"},
           {"s3://bucket/a b+c", "s3://bucket/a b+c"},
           {"folder/a?b@c", "folder/a?b@c"},
           {"folder/s3://user@host?x", "folder/s3://user@host?x"},
           {"", ""}}) {
    INFO(given);
    CHECK(printable_url(given) == shown);
    CHECK(fail(errc::io, "failed").with_file(given).file == shown);
    CHECK(fail_sys(EIO, "cannot read", given).file == shown);
  }
}

TEST_CASE("the store of a scheme is the one that was registered last, and none after it was taken back") {
  CHECK(!store_of("twice://x"));
  {
    const registered_store first("twice");
    CHECK(store_of("twice://x").value() == first.store);
    const auto second = std::make_shared<memory_store>();
    register_store("twice", second);
    CHECK(store_of("twice://x").value() == second);
  }
  const auto gone = store_of("twice://user:secret@x?secret");
  REQUIRE(!gone);
  CHECK(gone.error().code == errc::unsupported);
  CHECK(gone.error().found == "twice");
  CHECK(to_string(gone.error()).find("secret") == std::string::npos);
}

TEST_CASE("a store that only reads refuses to write, and says so") {
  const registered_store store("reads");
  const std::string url = store.url("a?secret");
  const auto put = store->put(url, memory_source({}, "nothing"), {});
  REQUIRE(!put);
  CHECK(put.error().code == errc::unsupported);
  CHECK(put.error().file == store.url("a"));
  CHECK(put.error().message == "the store of reads:// only reads");
  const auto removed = store->remove(url);
  REQUIRE(!removed);
  CHECK(removed.error().code == errc::unsupported);
}

TEST_CASE("a destination in a store that only reads is refused before any request") {
  const registered_store store("only-reads");
  store->add("bucket/run/.metadata", "old");
  CHECK(!store->can_write());
  for (const bool overwrite : {false, true})
    for (const std::string name : {"bucket/run", "bucket/new", "bucket/a.safetensors?secret"}) {
      INFO(name);
      const auto folder = staged_output::directory(store.url(name), {.overwrite = overwrite});
      const auto file = staged_output::file(store.url(name), {.overwrite = overwrite});
      REQUIRE(!folder);
      REQUIRE(!file);
      for (const error& refused : {folder.error(), file.error()}) {
        CHECK(refused.code == errc::unsupported);
        CHECK(refused.file == printable_url(store.url(name)));
        CHECK(refused.message == "the store of only-reads:// only reads");
        CHECK(refused.hint == "write to a local path, and upload the result");
      }
    }
  CHECK(store->take_counts() == memory_store::counts{});
}

TEST_CASE("small ranges of an object that follow each other are read in few requests, and others as they are") {
  const registered_store store("ahead");
  std::mt19937_64 random(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  std::string content(std::size_t{1} << 20, '\0');
  for (char& c : content) c = static_cast<char>(random());
  store->add("bucket/object", content);
  constexpr std::size_t length = 500;
  const auto part = [&](const byte_source& source, std::size_t offset) {
    std::array<std::byte, length> bytes{};
    REQUIRE(source.read(static_cast<std::int64_t>(offset), bytes));
    CHECK(text_of(bytes) == content.substr(offset, length));
  };
  for (const bool is_far : {false, true}) {
    store->bytes_per_request = is_far ? 256 << 10 : 0;
    file_pool pool(1);
    const auto source = pool.open(store.url("bucket/object")).value();
    store->take_counts();
    int ranges = 0;
    for (std::size_t offset = 0; offset + length <= content.size(); offset += length + random() % 100, ++ranges)
      part(*source, offset);
    auto counts = store->take_counts();
    CHECK(counts.reads <= (is_far ? 10 : ranges));
    CHECK((is_far || counts.reads == ranges));
    CHECK(counts.bytes <= static_cast<std::int64_t>(content.size()) + (is_far ? 8 * 500 : 0));
    // In falling order, no range continues another.
    const auto fresh = pool.open(store.url("bucket/object")).value();
    store->take_counts();
    for (std::size_t i = 100; i-- > 0;) part(*fresh, i * 10'000);
    CHECK(store->take_counts().reads == 100);
  }
}

TEST_CASE("threads read small ranges of one object in few requests") {
  const registered_store store("ahead-threads");
  std::string content(std::size_t{4} << 20, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 256);
  store->add("bucket/object", content);
  store->bytes_per_request = 1 << 20;
  file_pool pool(1);
  const auto source = pool.open(store.url("bucket/object")).value();
  store->take_counts();
  const auto done = parallel_for(4, 4, [&](std::int64_t thread) -> result<void> {
    std::array<std::byte, 1024> bytes{};
    for (std::int64_t at = thread << 20; at < (thread + 1) << 20; at += 1024) {
      if (auto read = source->read(at, bytes); !read) return read;
      if (text_of(bytes) != content.substr(static_cast<std::size_t>(at), 1024)) return fail(errc::io, "wrong bytes");
    }
    return {};
  });
  CHECK(done);
  CHECK(store->take_counts().reads <= 40);
}

TEST_CASE("objects that are read to their end and stay open leave the memory of small ranges to others") {
  const registered_store store("ahead-many");
  store->add("bucket/object", std::string(std::size_t{960} << 10, 'x'));
  store->bytes_per_request = 1 << 20;
  file_pool pool(1);
  std::vector<std::unique_ptr<byte_source>> opened;
  std::vector<std::byte> bytes(std::size_t{16} << 10);
  for (int i = 0; i < 160; ++i) {
    INFO("object " << i);
    opened.push_back(pool.open(store.url("bucket/object")).value());
    store->take_counts();
    for (std::int64_t at = 0; at < opened.back()->size_bytes(); at += std::ssize(bytes))
      REQUIRE(opened.back()->read(at, bytes));
    REQUIRE(store->take_counts().reads <= 8);
  }
}

TEST_CASE("calls with one small range each, as of small tensors, are read ahead") {
  const registered_store store("ahead-ranges");
  std::string content(std::size_t{1} << 20, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 256);
  store->add("bucket/object", content);
  store->bytes_per_request = 1 << 20;
  file_pool pool(1);
  const auto source = pool.open(store.url("bucket/object")).value();
  store->take_counts();
  bool is_equal = true;
  for (std::size_t at = 0; at < content.size(); at += 256) {
    std::array<std::byte, 256> bytes{};
    const source_range one{static_cast<std::int64_t>(at), bytes};
    REQUIRE(source->read_ranges({&one, 1}));
    is_equal &= text_of(bytes) == content.substr(at, 256);
  }
  CHECK(is_equal);
  CHECK(store->take_counts().reads <= 10);
}

TEST_CASE("an object is read by range, without a descriptor and under its printable name") {
  const registered_store store("ranges");
  store->add("bucket/object", "0123456789");
  file_pool pool(1);
  const auto source = pool.open(store.url("bucket/object?secret")).value();
  CHECK(source->size_bytes() == 10);
  CHECK(source->name() == store.url("bucket/object"));
  CHECK(!source->plain_file());
  std::array<std::byte, 4> part{};
  REQUIRE(source->read(3, part));
  CHECK(text_of(part) == "3456");
  CHECK(source->read(10, std::span<std::byte>{}));
  for (const std::int64_t offset : {-1, 7, 11}) {
    const auto beyond = source->read(offset, part);
    REQUIRE(!beyond);
    CHECK(beyond.error().code == errc::out_of_bounds);
    CHECK(beyond.error().file == store.url("bucket/object"));
  }
  CHECK(text_of(read_file(store.url("bucket/object"), 100).value()) == "0123456789");
  CHECK(read_file(store.url("bucket/object"), 9).error().code == errc::bad_format);
  const auto mapped = mapped_file::open(store.url("bucket/object"));
  REQUIRE(!mapped);
  CHECK(mapped.error().code == errc::unsupported);
  CHECK(mapped.error().hint == "load it");
}

TEST_CASE("an object that was replaced or removed after it was opened is an error that names it") {
  const registered_store store("changes");
  store->add("a", "before");
  store->add("b", "before");
  file_pool pool;
  const auto a = pool.open(store.url("a")).value(), b = pool.open(store.url("b")).value();
  store->add("a", "after!");
  store->erase("b");
  std::array<std::byte, 6> bytes{};
  for (const byte_source* source : {a.get(), b.get()}) {
    const auto read = source->read(0, bytes);
    REQUIRE(!read);
    CHECK(read.error().code == errc::io);
    CHECK(read.error().file == source->name());
  }
  CHECK(text_of(read_file(store.url("a"), 100).value()) == "after!");
}

TEST_CASE("an object that was replaced after its folder was listed cannot be opened by the pool that keeps the list") {
  const registered_store store("listed");
  for (const std::string name : {"run/a", "run/b", "run/c"}) store->add(name, "before");
  file_pool pool, other;
  {
    const places::remembered_answers scope;
    std::error_code code;
    const places::directory_iterator listed(store.url("run"), code);
    REQUIRE(!code);
    REQUIRE(pool.open(store.url("run/a")));
    REQUIRE(pool.keep_lists());
  }
  store->add("run/b", "after!");
  store->take_counts();
  CHECK(pool.open(store.url("run/c")));
  CHECK(store->take_counts().lists == 0);
  const auto refused = pool.open(store.url("run/b"));
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().message == "the object has changed since the checkpoint was opened");
  CHECK(refused.error().file == store.url("run/b"));
  CHECK(refused.error().expected == "version 1");
  CHECK(refused.error().found == "2");
  CHECK(other.open(store.url("run/b")));
  store->add("run/d", "new");
  CHECK(pool.open(store.url("run/d")));  // nothing is known about it
}

TEST_CASE("a pool notices when it keeps a list that an object it has opened was replaced after the list") {
  const registered_store store("listed");
  store->add("run/a", "before");
  file_pool pool;
  const places::remembered_answers scope;
  std::error_code code;
  const places::directory_iterator listed(store.url("run"), code);
  REQUIRE(!code);
  store->add("run/a", "after!");
  REQUIRE(pool.open(store.url("run/a")));
  const auto refused = pool.keep_lists();
  REQUIRE(!refused);
  CHECK(refused.error().message == "the object has changed since the checkpoint was opened");
  CHECK(refused.error().file == store.url("run/a"));
}

TEST_CASE("a store may spell versions in lists in another way") {
  const registered_store store("listed");
  store->list_mark = "list-";
  for (const std::string name : {"run/a", "run/b"}) store->add(name, "before");
  file_pool pool;
  const places::remembered_answers scope;
  std::error_code code;
  const places::directory_iterator listed(store.url("run"), code);
  REQUIRE(!code);
  REQUIRE(pool.keep_lists());
  store->take_counts();
  CHECK(pool.open(store.url("run/a")));
  CHECK(store->take_counts().lists == 1);
  CHECK(pool.open(store.url("run/b")));
  CHECK(store->take_counts().lists == 0);
}

TEST_CASE("within a scope, an object is opened once, and its first bytes are requested once") {
  const registered_store store("heads");
  const std::string content(200'000, 'x');
  store->add("large", content);
  store->add("small", "tiny");
  const auto read = [&](const std::string& name, std::int64_t offset, std::size_t length) {
    std::vector<std::byte> bytes(length);
    REQUIRE(file_pool().open(store.url(name)).value()->read(offset, bytes));
    return text_of(bytes);
  };
  {
    const places::remembered_answers scope;
    CHECK(read("large", 0, 8) == "xxxxxxxx");
    CHECK(read("large", 8, 60'000) == std::string(60'000, 'x'));
    CHECK(read("small", 1, 3) == "iny");
    CHECK(read("small", 0, 4) == "tiny");
    auto counts = store->take_counts();
    CHECK(counts.opens == 2);
    CHECK(counts.reads == 2);
    CHECK(counts.bytes == (1 << 16) + 4);
    CHECK(read("large", 60'000, 100'000) == std::string(100'000, 'x'));
    counts = store->take_counts();
    CHECK(counts.opens == 0);
    CHECK(counts.bytes == 100'000);
  }
  CHECK(read("small", 1, 3) == "iny");
  const auto counts = store->take_counts();
  CHECK(counts.opens == 1);
  CHECK(counts.bytes == 3);
}
