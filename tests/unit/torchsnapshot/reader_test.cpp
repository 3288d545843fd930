// SPDX-License-Identifier: Apache-2.0
// Tests the reader of torchsnapshot folders on hand-written manifests: tensors in whole files, ranges, chunks, and
// shards, plain values, the entries of ranks, and manifests that lie; and archives under a URL. The package's own
// snapshots are read in tests/oracle/snapshots.py.
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <safetensors_files.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <memory_store.hpp>

import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.torchsnapshot;

using namespace shardmesh;

namespace {

using floats = std::vector<float>;
using safetensors_files::temporary_folder;

std::string bytes_of(const floats& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

floats counted(std::int64_t first, std::size_t count) {
  floats values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return values;
}

// The description of a float32 tensor's bytes.
std::string stored(std::string_view file, std::string_view shape, std::string_view range = "null") {
  return fmt::format(R"("location":"{}","serializer":"buffer_protocol","dtype":"torch.float32","shape":{},)"
                     R"("replicated":false,"byte_range":{})",
                     file, shape, range);
}

std::string tensor(std::string_view file, std::string_view shape, std::string_view range = "null") {
  return R"({"type":"Tensor",)" + stored(file, shape, range) + "}";
}

std::string part(std::string_view offsets, std::string_view sizes, std::string_view file) {
  return fmt::format(R"({{"offsets":{},"sizes":{},"tensor":{}}})", offsets, sizes, tensor(file, sizes));
}

// A snapshot with these entries, such as R"("0/w":{...})".
temporary_folder& snapshot(temporary_folder& folder, std::string_view entries, int ranks = 1) {
  folder.write(".snapshot_metadata",
               fmt::format(R"({{"version":"0.1.0","world_size":{},"manifest":{{{}}}}})", ranks, entries));
  return folder;
}

std::unique_ptr<checkpoint_reader> opened(const temporary_folder& folder) {
  auto reader = torchsnapshot::open(folder.path());
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  return *std::move(reader);
}

floats values_of(checkpoint_reader& reader, std::string_view key) {
  const auto loaded = load_tensor(reader, key);
  INFO((loaded ? "" : to_string(loaded.error())));
  REQUIRE(loaded);
  const auto values = loaded->values<float>();
  return floats(values.begin(), values.end());
}

// The only problem of a snapshot with one wrong entry.
error problem_of(std::string_view entries, int ranks = 1) {
  temporary_folder folder;
  folder.write("w", bytes_of(counted(0, 6)));
  const auto reader = opened(snapshot(folder, entries, ranks));
  CHECK(reader->contents().tensors.empty());
  REQUIRE(reader->problems().size() == 1);
  return reader->problems().front();
}

// Objects in memory. While `waits` is set, an opening waits for another one at the same time, for five seconds.
class meeting_store final : public store {
 public:
  memory_store objects{};
  std::atomic<bool> waits = false;

  bool has_met() const {
    const std::scoped_lock guard(lock_);
    return most_ >= 2;
  }
  result<std::optional<stored_object>> look(const std::string& url) const override { return objects.look(url); }
  result<std::vector<stored_object>> list(const std::string& url) const override { return objects.list(url); }
  result<std::unique_ptr<byte_source>> open(const std::string& url) const override {
    if (waits) {
      std::unique_lock guard(lock_);
      most_ = std::max(most_, ++inside_);
      changed_.notify_all();
      changed_.wait_for(guard, std::chrono::seconds(5), [&] { return most_ >= 2; });
      --inside_;
    }
    return objects.open(url);
  }

 private:
  mutable std::mutex lock_;
  mutable std::condition_variable changed_;
  mutable int inside_ = 0, most_ = 0;
};

}  // namespace

TEST_CASE("a tensor is a whole file, or a range of one") {
  temporary_folder folder;
  folder.write("own", bytes_of(counted(1, 6)));
  folder.write("batched", bytes_of(counted(0, 10)));
  const auto reader = opened(
      snapshot(folder, R"("0/a":)" + tensor("own", "[2,3]") + R"(,"0/b":)" + tensor("batched", "[4]", "[8,24]")));
  CHECK(reader->problems().empty());
  REQUIRE(reader->contents().tensors.size() == 2);
  CHECK(reader->contents().tensors[0].key == "a");
  CHECK(reader->contents().tensors[0].shape == extents{2, 3});
  CHECK(reader->contents().tensors[0].type == dtype::float32);
  CHECK(values_of(*reader, "a") == counted(1, 6));
  CHECK(values_of(*reader, "b") == counted(2, 4));
}

TEST_CASE("a chunked tensor and the shards of two ranks are one tensor each") {
  temporary_folder folder;
  folder.write("c0", bytes_of(counted(0, 4)));
  folder.write("c1", bytes_of(counted(4, 2)));
  folder.write("s0", bytes_of({0, 1, 4, 5}));
  folder.write("s1", bytes_of({2, 3, 6, 7}));
  const std::string chunked = R"({"type":"ChunkedTensor","dtype":"torch.float32","shape":[3,2],"chunks":[)" +
                              part("[0,0]", "[2,2]", "c0") + "," + part("[2,0]", "[1,2]", "c1") +
                              R"(],"replicated":true})";
  const std::string left = R"({"type":"ShardedTensor","shards":[)" + part("[0,0]", "[2,2]", "s0") + "]}";
  const std::string right = R"({"type":"ShardedTensor","shards":[)" + part("[0,2]", "[2,2]", "s1") + "]}";
  const auto reader = opened(
      snapshot(folder, R"("0/c":)" + chunked + R"(,"1/c":)" + chunked + R"(,"0/s":)" + left + R"(,"1/s":)" + right, 2));
  CHECK(reader->problems().empty());
  REQUIRE(reader->contents().tensors.size() == 2);
  CHECK(values_of(*reader, "c") == counted(0, 6));
  CHECK(reader->contents().find("s")->shape == extents{2, 4});
  CHECK(values_of(*reader, "s") == counted(0, 8));
}

TEST_CASE("what only one of several ranks saved is below that rank") {
  temporary_folder folder;
  folder.write("zero", bytes_of(counted(0, 2)));
  folder.write("one", bytes_of(counted(5, 2)));
  const auto reader =
      opened(snapshot(folder, R"("0/x":)" + tensor("zero", "[2]") + R"(,"1/x":)" + tensor("one", "[2]"), 2));
  REQUIRE(reader->contents().tensors.size() == 2);
  CHECK(values_of(*reader, "rank_0.x") == counted(0, 2));
  CHECK(values_of(*reader, "rank_1.x") == counted(5, 2));
}

TEST_CASE("plain values keep their types, list items and integer keys their paths") {
  temporary_folder folder;
  const auto value = [](std::string_view type, std::string_view text) {
    return fmt::format(R"({{"type":"{}","serialized_value":"{}","readable":null,"replicated":false}})", type, text);
  };
  const std::string entries = R"("0/list":{"type":"list"},"0/list/0":)" + value("int", "7") +
                              R"(,"0/by":{"type":"dict","keys":[3]},"0/by/3":)" + value("bool", "True") +
                              R"(,"0/text%2Fb":)" + value("str", "abc") + R"(,"0/f":)" +
                              value("float", "AAAAAAAA+D8=") + R"(,"0/none":{"type":"dict","keys":[]})";
  const auto reader = opened(snapshot(folder, entries));
  CHECK(reader->problems().empty());
  const auto json_at = [&](const path& where) -> std::string {
    for (std::size_t i = 0; i < reader->contents().objects.size(); ++i)
      if (reader->contents().objects[i].where == where) return reader->read_object(i).value().json;
    return "nothing at " + to_string(where);
  };
  CHECK(reader->contents().objects.size() == 5);
  CHECK(json_at({"list", 0}) == "7");
  CHECK(json_at({"by", path_key::of_integer(3)}) == "true");
  CHECK(json_at({"text/b"}) == "\"abc\"");
  CHECK(json_at({"f"}) == R"({"$float":"0x1.8000000000000p+0"})");
}

TEST_CASE("an entry that lies is left out, and named with what was expected and found") {
  CHECK(problem_of(R"("0/w":)" + tensor("../w", "[6]")).code == errc::unsafe_path);
  CHECK(problem_of(R"("0/w":)" + tensor("/etc/passwd", "[6]")).code == errc::unsafe_path);
  const error longer = problem_of(R"("0/w":)" + tensor("w", "[7]"));
  CHECK(longer.code == errc::out_of_bounds);
  CHECK(longer.key == "w");
  CHECK(longer.expected == "28 bytes");
  CHECK(longer.found == "24 of 24 bytes");
  CHECK(problem_of(R"("0/w":)" + tensor("w", "[4]", "[16,32]")).code == errc::out_of_bounds);
  CHECK(problem_of(R"("0/w":)" + tensor("w", "[4]", "[16,8]")).code == errc::bad_format);
  CHECK(problem_of(R"("0/w":)" + tensor("w", "[9223372036854775807,4]")).code == errc::overflow);
  CHECK(problem_of(R"("0/w":)" + tensor("w", "[-1]")).code == errc::bad_format);
  CHECK(problem_of(R"("3/w":)" + tensor("w", "[6]")).code == errc::bad_format);
  CHECK(problem_of(R"("0/w":{"type":"Mystery"})").code == errc::unsupported);
  const std::string outside = R"({"type":"ChunkedTensor","dtype":"torch.float32","shape":[2],"chunks":[)" +
                              part("[1]", "[6]", "w") + R"(],"replicated":false})";
  CHECK(problem_of(R"("0/w":)" + outside).code == errc::out_of_bounds);
}

TEST_CASE("a manifest that is none is refused as a whole") {
  temporary_folder folder;
  CHECK_FALSE(torchsnapshot::is_snapshot(folder.path()));
  for (const auto& [text, code] : std::vector<std::pair<std::string, errc>>{
           {"", errc::bad_format},
           {"{", errc::bad_format},
           {"[]", errc::bad_format},
           {R"({"world_size":0,"manifest":{}})", errc::bad_format},
           {R"({"world_size":1})", errc::bad_format},
           {"world_size: 1\nmanifest: {}\n", errc::unsupported},
       }) {
    CAPTURE(text);
    folder.write(".snapshot_metadata", text);
    CHECK(torchsnapshot::is_snapshot(folder.path()));
    const auto reader = torchsnapshot::open(folder.path());
    REQUIRE_FALSE(reader);
    CHECK(reader.error().code == code);
  }
}

TEST_CASE("archives under a URL are opened at the same time for their kinds, and a call that ends early is continued") {
  const auto dcp = open_checkpoint(SHARDMESH_TEST_DATA "/unusual/dcp").value();
  dcp->identify_opaque_tensors();
  const auto served = std::make_shared<meeting_store>();
  std::string entries;
  std::vector<std::string> kinds;
  for (const tensor_entry& one : dcp->contents().tensors) {
    const std::vector<std::byte> archive = dcp->chunk_archive(one, one.first_chunk).value();
    served->objects.add("run/" + one.key, {reinterpret_cast<const char*>(archive.data()), archive.size()});
    entries += fmt::format(R"({}"0/{}":{{"type":"Tensor","location":"{}","serializer":"torch_save",)"
                           R"("dtype":"torch.float32","shape":{},"replicated":false,"byte_range":null}})",
                           entries.empty() ? "" : ",", one.key, one.key, to_string(one.shape));
    kinds.push_back(one.opaque_kind);
  }
  REQUIRE(std::count(kinds.begin(), kinds.end(), "") > 0);
  REQUIRE(std::count(kinds.begin(), kinds.end(), "") + 1 < std::ssize(kinds));
  served->objects.add("run/.snapshot_metadata",
                      fmt::format(R"({{"version":"0.1.0","world_size":1,"manifest":{{{}}}}})", entries));
  register_store("meeting", served);
  const auto reader = torchsnapshot::open("meeting://run").value();
  const auto found = [&] {
    std::vector<std::string> made;
    for (const tensor_entry& one : reader->contents().tensors) made.push_back(one.opaque_kind);
    return made;
  };
  served->objects.take_counts();
  {
    std::stop_source ended;
    ended.request_stop();
    const detail::call_scope limits({.cancel = ended.get_token()});
    reader->identify_opaque_tensors();
  }
  CHECK(found() == std::vector<std::string>(kinds.size()));
  CHECK(served->objects.take_counts() == memory_store::counts{});
  served->waits = true;
  reader->identify_opaque_tensors();
  CHECK(served->has_met());
  CHECK(found() == kinds);
  served->objects.take_counts();
  reader->identify_opaque_tensors();
  CHECK(served->objects.take_counts() == memory_store::counts{});
  register_store("meeting", nullptr);
}
