// SPDX-License-Identifier: Apache-2.0
// Compares the C interface with the library, with the same options: opening, and `convert` with options other than
// selections.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.kernels;

namespace fs = std::filesystem;
using namespace c_answers;

namespace {

fs::path writers() {
  return golden::folder().parent_path() / "writers";
}

std::string fsdp() {
  return (golden::folder() / "fsdp2_tp_2x2/checkpoint").string();
}

std::vector<std::string> keys_of(const shardmesh::checkpoint_reader& reader) {
  std::vector<std::string> keys;
  for (const shardmesh::tensor_entry& entry : reader.contents().tensors) keys.push_back(entry.key);
  return keys;
}

std::vector<std::string> keys_of(const c::checkpoint& from) {
  std::vector<std::string> keys;
  for (const c::tensor_entry& entry : from.tensors()) keys.push_back(entry.key);
  return keys;
}

// Reads every file below a folder, by name.
std::map<std::string, std::string> bytes_of(const fs::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) {
      std::ifstream bytes(entry.path(), std::ios::binary);
      found[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(bytes), {}};
    }
  return found;
}

c::open_options dequantizing() {
  c::open_options made;
  made.dequantize = true;
  return made;
}

}  // namespace

TEST_CASE("of the keys that are asked for nothing else is listed") {
  const auto whole = shardmesh::open_checkpoint(fsdp()).value();
  for (const std::string& key : keys_of(*whole)) {
    c::open_options options;
    options.only_keys = {key};
    CHECK(keys_of(c::checkpoint::open(fsdp(), options)) == std::vector{key});
  }
  c::open_options options;
  options.only_keys = {"nothing"};
  CHECK(c::checkpoint::open(fsdp(), options).tensors().empty());
  shardmesh_open_options null{};
  null.struct_size = sizeof null;
  null.only_key_count = 1;
  shardmesh_checkpoint* made = nullptr;
  CHECK(shardmesh_checkpoint_open(fsdp().c_str(), &null, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
}

TEST_CASE("opening ends at its timeout if a server does not answer, and a timeout is not negative") {
  c::open_options options;
  options.timeout = std::chrono::minutes(1);
  CHECK(!c::checkpoint::open(fsdp(), options).tensors().empty());
  const auto refusal = [&](const std::string& path) -> std::optional<c::error> {
    try {
      static_cast<void>(c::checkpoint::open(path, options));
    } catch (const c::error& problem) {
      return problem;
    }
    return std::nullopt;
  };
  options.timeout = std::chrono::milliseconds(-1);
  const auto negative = refusal(fsdp());
  REQUIRE(negative);
  CHECK(negative->status == SHARDMESH_INVALID_ARGUMENT);
  // The system accepts connections to this socket, and nobody answers.
  ::setenv("no_proxy", "127.0.0.1", 1);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener, 16) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  options.timeout = std::chrono::milliseconds(300);
  const auto began = std::chrono::steady_clock::now();
  const auto late = refusal("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/run");
  ::close(listener);
  REQUIRE(late);
  if (late->status == SHARDMESH_UNSUPPORTED) SKIP("the library was built without the room remote");
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(1300));
  CHECK(late->status == SHARDMESH_DEADLINE_EXCEEDED);
  CHECK(std::string(late->what()).find("the opening's deadline has passed") != std::string::npos);
}

TEST_CASE("values that ranks without collectives saved are read of one rank, or listed for each") {
  const scratch_folder scratch;
  const fs::path folder = fs::path(scratch / "ranks");
  fs::copy(golden::folder() / "options_no_collectives/checkpoint", folder);
  const auto rep_of = [&](std::optional<std::int32_t> rank) {
    const auto reader = shardmesh::open_checkpoint(folder, {.rank = rank}).value();
    return shardmesh::load_tensor(*reader, "model.rep");
  };
  // Both ranks hold model.rep with equal values. Changing the last byte of rank 1's copy makes the two differ.
  const shardmesh::host_tensor equal = rep_of(std::nullopt).value();
  std::string items = bytes_of(folder).at("__1_0.distcp");
  const std::string values(reinterpret_cast<const char*>(equal.bytes().data()), equal.bytes().size());
  const std::size_t at = items.find(values);
  REQUIRE(at != std::string::npos);
  items[at + values.size() - 1] ^= 1;
  std::ofstream(folder / "__1_0.distcp", std::ios::binary) << items;

  const auto load = [&](const c::open_options& options, const std::string& key) {
    std::vector<float> made(8);
    const c::checkpoint from = c::checkpoint::open(folder.string(), options);
    from.load(std::vector<c::load_request>{{key, c::view(made.data(), {4, 2})}});
    return made;
  };
  const auto floats = [](const shardmesh::host_tensor& tensor) {
    return std::vector<float>(tensor.values<float>().begin(), tensor.values<float>().end());
  };
  const auto conflict = problems_of([&] { load({}, "model.rep"); });
  REQUIRE(conflict.size() == 1);
  CHECK(conflict[0].status == SHARDMESH_DISAGREEMENT);
  CHECK(conflict[0].what() == to_string(rep_of(std::nullopt).error()));
  for (const std::int32_t rank : {0, 1}) {
    c::open_options options;
    options.rank = rank;
    CHECK(load(options, "model.rep") == floats(rep_of(rank).value()));
  }
  CHECK(floats(rep_of(0).value()) != floats(rep_of(1).value()));

  c::open_options each;
  each.keys_at_ranks = true;
  const auto ours = shardmesh::open_checkpoint(folder, {.keys_at_ranks = true}).value();
  const std::vector<std::string> keys = keys_of(c::checkpoint::open(folder.string(), each));
  CHECK(keys == keys_of(*ours));
  CHECK(std::count(keys.begin(), keys.end(), "model.rep@1") == 1);
  CHECK(load(each, "model.rep@1") == floats(rep_of(1).value()));

  each.rank = 1;
  const auto both = problems_of([&] { c::checkpoint::open(folder.string(), each); });
  REQUIRE(both.size() == 1);
  CHECK(both[0].message == "the argument rank is set, and so is keys_at_ranks: set one of them");
  c::open_options negative;
  negative.rank = -1;
  const auto refused = problems_of([&] { c::checkpoint::open(folder.string(), negative); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].message == "the argument rank is negative");
}

TEST_CASE("all parts of a folder are one checkpoint") {
  const fs::path folder = writers() / "trainers/accelerate";
  const auto ours = shardmesh::open_parts(folder).value();
  c::open_options options;
  options.all_parts = true;
  const c::checkpoint theirs = c::checkpoint::open(folder.string(), options);
  CHECK(theirs.summary().format == SHARDMESH_FORMAT_PARTS);
  CHECK(keys_of(theirs) == keys_of(*ours));
  CHECK_FALSE(theirs.tensors().empty());
}

TEST_CASE("a DCP folder with files beside it is all of them") {
  const scratch_folder scratch;
  const fs::path folder = fs::path(scratch / "beside");
  fs::copy(fsdp(), folder, fs::copy_options::recursive);
  fs::copy(writers() / "wrappers/wrappers.pt", folder / "more.pt");
  c::open_options options;
  options.all_parts = true;
  std::vector<std::string> expected;
  for (const std::string& key : keys_of(c::checkpoint::open(fsdp()))) expected.push_back("checkpoint." + key);
  for (const std::string& key : keys_of(c::checkpoint::open((folder / "more.pt").string())))
    expected.push_back("more." + key);
  CHECK(keys_of(c::checkpoint::open(folder.string(), options)) == expected);
}

TEST_CASE("dequantized weights are the library's, whole and in boxes, and are converted as those") {
  const fs::path folder = writers() / "quantized_hf/checkpoint";
  const auto ours = shardmesh::dequantized(shardmesh::open_checkpoint(folder).value()).value();
  const c::checkpoint theirs = c::checkpoint::open(folder.string(), dequantizing());
  REQUIRE(keys_of(theirs) == keys_of(*ours));
  for (const c::tensor_entry& entry : theirs.tensors()) {
    if (entry.dtype != SHARDMESH_DTYPE_FLOAT32) continue;
    CAPTURE(entry.key);
    std::vector<float> found(static_cast<std::size_t>(entry.numel()));
    theirs.load({{entry.key, c::view(found.data(), entry.shape), {}}});
    shardmesh::host_tensor loaded = shardmesh::load_tensor(*ours, entry.key).value();
    const auto* bytes = reinterpret_cast<const std::byte*>(found.data());
    CHECK(std::equal(bytes, bytes + found.size() * 4, shardmesh::adapter<shardmesh::host_tensor>::view(loaded).data));
  }
  const scratch_folder scratch;
  c::convert_options options;
  options.saving.format = SHARDMESH_FORMAT_DCP;
  c::convert(theirs, scratch / "theirs", options);
  const c::checkpoint written = c::checkpoint::open(scratch / "theirs");
  CHECK(written.tensor_at(written.find_tensor("a.weight")).dtype == SHARDMESH_DTYPE_FLOAT32);
  CHECK(c::diff(theirs, written).equal());
  c::open_options wrong = dequantizing();
  wrong.block_size = -1;
  const auto refused = problems_of([&] { c::checkpoint::open(folder.string(), wrong); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_INVALID_ARGUMENT);
}

TEST_CASE("a damaged scale stops a conversion of what it belongs to") {
  const scratch_folder scratch;
  c::convert_options options;
  options.saving.format = SHARDMESH_FORMAT_DCP;
  c::convert(c::checkpoint::open((writers() / "quantized_hf/checkpoint").string()), scratch / "stored", options);
  const c::checkpoint stored = c::checkpoint::open(scratch / "stored");
  const c::chunk_entry chunk = stored.chunks(stored.find_tensor("a.weight_scale_inv")).at(0);
  flip_byte(fs::path(scratch / "stored") / chunk.file, chunk.offset + chunk.length - 1);
  const c::checkpoint from = c::checkpoint::open(scratch / "stored", dequantizing());
  const auto refused = problems_of([&] { c::convert(from, scratch / "made", options); });
  REQUIRE_FALSE(refused.empty());
  CHECK(refused[0].status == SHARDMESH_CHECKSUM_MISMATCH);
  CHECK_FALSE(fs::exists(scratch / "made"));
}

TEST_CASE("folders of torch_checkpointing are the library's, byte for byte, of either payload and with an item") {
  const auto reader = shardmesh::open_checkpoint(fsdp()).value();
  const c::checkpoint from = c::checkpoint::open(fsdp());
  const scratch_folder scratch;
  for (const shardmesh_payload payload : {SHARDMESH_PAYLOAD_TORCH, SHARDMESH_PAYLOAD_SAFETENSORS})
    for (const char* item : {"", "all"}) {
      shardmesh::convert_options ours;
      ours.format = shardmesh::target_format::torch_checkpointing;
      ours.payload = static_cast<shardmesh::payload_kind>(payload);
      ours.item = item;
      c::convert_options theirs;
      theirs.saving.format = SHARDMESH_FORMAT_TORCH_CHECKPOINTING;
      theirs.payload = payload;
      theirs.item = item;
      theirs.saving.overwrite = ours.overwrite = true;
      REQUIRE(shardmesh::convert(*reader, scratch.path / "ours", ours));
      c::convert(from, scratch / "theirs", theirs);
      CHECK(bytes_of(scratch.path / "theirs") == bytes_of(scratch.path / "ours"));
    }
  CHECK(c::checkpoint::open(scratch / "theirs").summary().format == SHARDMESH_FORMAT_TORCH_CHECKPOINTING);
}

TEST_CASE("a payload that the header does not list is refused") {
  const c::checkpoint from = c::checkpoint::open(fsdp());
  const scratch_folder scratch;
  c::convert_options options;
  options.saving.format = SHARDMESH_FORMAT_TORCH_CHECKPOINTING;
  for (const shardmesh_payload payload : {-1, 2}) {
    options.payload = payload;
    const auto problems = problems_of([&] { c::convert(from, scratch / "made", options); });
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].status == SHARDMESH_INVALID_ARGUMENT);
    CHECK(problems[0].message == "the argument payload is neither TORCH nor SAFETENSORS");
  }
  CHECK_FALSE(fs::exists(scratch / "made"));
}

TEST_CASE("components stay apart where that is asked for, as the library keeps them") {
  const scratch_folder scratch;
  const auto source = shardmesh::open_checkpoint(writers() / "wrappers/wrappers.pt").value();
  REQUIRE(shardmesh::convert(*source, scratch.path / "apart.safetensors", {}));
  const auto reader = shardmesh::open_checkpoint(scratch.path / "apart.safetensors").value();
  const c::checkpoint from = c::checkpoint::open(scratch / "apart.safetensors");
  std::vector<std::vector<std::string>> written;
  for (const bool components : {false, true}) {
    shardmesh::convert_options ours;
    ours.format = shardmesh::target_format::dcp;
    ours.components = components;
    ours.overwrite = true;
    c::convert_options theirs;
    theirs.saving.format = SHARDMESH_FORMAT_DCP;
    theirs.components = components;
    theirs.saving.overwrite = true;
    REQUIRE(shardmesh::convert(*reader, scratch.path / "ours", ours));
    c::convert(from, scratch / "theirs", theirs);
    written.push_back(keys_of(c::checkpoint::open(scratch / "theirs")));
    CHECK(written.back() == keys_of(*shardmesh::open_checkpoint(scratch.path / "ours").value()));
  }
  CHECK(written[0] != written[1]);
}

TEST_CASE("tensors are held against another checkpoint's shapes, or cut and filled to them") {
  const scratch_folder scratch;
  const std::vector<float> values{0, 1, 2, 3, 4, 5}, zeros(9);
  c::save(scratch / "stored", {{"w", c::view(values.data(), {2, 3})}});
  c::save(scratch / "like", {{"w", c::view(zeros.data(), {3, 3})}});
  const c::checkpoint stored = c::checkpoint::open(scratch / "stored"), like = c::checkpoint::open(scratch / "like");
  c::convert_options options;
  options.like = &like;
  const auto refused = problems_of([&] { c::convert(stored, scratch / "made.safetensors", options); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_SHAPE_MISMATCH);
  CHECK(refused[0].key == "w");
  options.allow_shape_mismatch = true;
  c::convert(stored, scratch / "made.safetensors", options);
  CHECK(c::checkpoint::open(scratch / "made.safetensors").load<float>("w") ==
        std::vector<float>{0, 1, 2, 3, 4, 5, 0, 0, 0});
}
