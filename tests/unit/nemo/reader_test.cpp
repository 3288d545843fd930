// SPDX-License-Identifier: Apache-2.0
// Tests .nemo files as checkpoints: plain and compressed, their settings, and archives whose weights are not read.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <npz_files.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <tar_files.hpp>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.nemo;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path written(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file;
}

std::unique_ptr<checkpoint_reader> opened(const fs::path& file) {
  auto reader = open_checkpoint(file);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  return *std::move(reader);
}

const std::string values = npz_files::numbers<std::int16_t>({1, 2, 3, 4, 5, 6});

// A file of torch.save with the tensor "w" [2, 3].
std::string weights(const scratch_folder& scratch) {
  const auto source =
      opened(written(scratch / "w.npz", npz_files::archive({{"w.npy", npz_files::array("<i2", "(2, 3)", values)}})));
  REQUIRE(convert(*source, scratch / "w.pt", {.format = target_format::pt, .overwrite = true}));
  return content(scratch / "w.pt");
}

std::string gzip(std::string_view bytes) {
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10) + npz_files::deflated(bytes) +
         npz_files::number(npz_files::crc32(bytes)) + npz_files::number(static_cast<std::uint32_t>(bytes.size()));
}

std::string refused(const fs::path& file) {
  const auto reader = open_checkpoint(file);
  REQUIRE_FALSE(reader);
  return to_string(reader.error());
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("a .nemo file, plain or compressed, has the tensors of its weights and the text of its settings") {
  const scratch_folder scratch;
  const std::string tar = tar_files::member("./model_config.yaml", "a: 1\n") +
                          tar_files::member("./tokenizer.model", "t") +
                          tar_files::member("./model_weights.ckpt", weights(scratch)) + tar_files::end();
  for (const std::string& bytes : {tar, gzip(tar)}) {
    const auto reader = opened(written(scratch / "m.nemo", bytes));
    const catalog& contents = reader->contents();
    CHECK(contents.format == checkpoint_format::nemo);
    REQUIRE(contents.tensors.size() == 1);
    CHECK(contents.tensors[0].key == "w");
    CHECK(contents.tensors[0].shape == extents{2, 3});
    CHECK(contents.texts == std::vector<file_text>{{"model_config.yaml", "a: 1\n", -1}});
    REQUIRE(reader->notes().size() == 1);
    CHECK(reader->notes()[0] == "not kept: members of the .nemo file: tokenizer.model");
    CHECK(reader->warnings().empty());
    CHECK(verify(*reader, {.threads = 1}).value().problems.empty());
    const auto loaded = load_tensor(*reader, "w").value();
    CHECK(std::string(reinterpret_cast<const char*>(loaded.bytes().data()), loaded.bytes().size()) == values);
    const bool is_plain = bytes == tar;
    const stored_range& place = contents.chunk_places[0];
    CHECK(place.file == (is_plain ? 0 : -1));
    if (is_plain) CHECK(bytes.substr(static_cast<std::size_t>(place.offset), 12) == values);
    REQUIRE(convert(*reader, scratch / "out.safetensors", {.overwrite = true}));
    CHECK(opened(scratch / "out.safetensors")->contents().texts.size() == 2);  // and the format
  }
}

TEST_CASE("damaged weights are found by verify and convert") {
  const scratch_folder scratch;
  std::string tar = tar_files::member("model_config.yaml", "a: 1\n") +
                    tar_files::member("model_weights.ckpt", weights(scratch)) + tar_files::end();
  tar[tar.find(values) + 2] ^= 1;
  for (const std::string& bytes : {tar, gzip(tar)}) {
    const auto reader = opened(written(scratch / "m.nemo", bytes));
    const std::vector<error> problems = verify(*reader, {.threads = 1}).value().problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems.front().code == errc::checksum_mismatch);
    const auto copied = convert(*reader, scratch / "out.safetensors", {});
    REQUIRE_FALSE(copied);
    CHECK(copied.error().code == errc::checksum_mismatch);
  }
}

TEST_CASE("names in the pickles of every member are searched") {
  const scratch_folder scratch;
  const std::string pickle = "\x80\4\x8c\5posix\x8c\6system\x93.";
  for (const bool is_compressed : {false, true}) {
    const std::string tar = tar_files::member("model_config.yaml", "a: 1\n") + tar_files::member("extra.pkl", pickle) +
                            tar_files::member("model_weights.ckpt", weights(scratch)) + tar_files::end();
    const auto reader = opened(written(scratch / "m.nemo", is_compressed ? gzip(tar) : tar));
    const std::vector<error> problems = verify(*reader, {.threads = 1}).value().problems;
    REQUIRE(problems.size() == 1);
    CHECK(has(to_string(problems.front()), "extra.pkl"));
    CHECK(has(to_string(problems.front()), "posix.system"));
  }
}

TEST_CASE("weights that are not read are refused, with the remedy") {
  const scratch_folder scratch;
  const auto with = [&](const std::string& members) {
    return refused(
        written(scratch / "m.nemo", tar_files::member("model_config.yaml", "") + members + tar_files::end()));
  };
  CHECK(has(with(""), "m.nemo: holds no weights: expected model_weights.ckpt, found 1 other member"));
  CHECK(has(with(tar_files::member("model_weights/w/.zarray", "{}")), "its weights are in zarr"));
  CHECK(has(with(tar_files::member("model_weights/__0_0.distcp", "")), "incomplete save: it has no .metadata"));
  CHECK(has(with(tar_files::member("mp_rank_00/model_weights.ckpt", "")), "mp_rank_00/model_weights.ckpt"));
  CHECK(has(with(tar_files::member("model_weights.ckpt", "")), "m.nemo: model_weights.ckpt: it is empty"));
  CHECK(has(with(tar_files::member("model_weights.ckpt", "text")), "m.nemo: model_weights.ckpt: it is neither"));
  const std::string settings = tar_files::member("model_config.yaml", std::string((16 << 20) + 1, 'a'));
  CHECK(has(refused(written(scratch / "m.nemo",
                            settings + tar_files::member("model_weights.ckpt", weights(scratch)) + tar_files::end())),
            "m.nemo: model_config.yaml: is too large"));
  CHECK(has(refused(written(scratch / "m.nemo", "text")), "m.nemo: is not a .nemo file"));
  CHECK(has(with(tar_files::member("model_weights.ckpt", "", '2')), "a member is a symbolic link, which is not read"));
}

TEST_CASE("a folder of torch.distributed.checkpoint in the archive is the checkpoint that it is outside") {
  const scratch_folder scratch;
  const fs::path folder = fs::path(SHARDMESH_TEST_DATA) / "golden" / "era_torch_2.15.0" / "checkpoint";
  std::string tar = tar_files::member("model_config.yaml", "a: 1\n");
  for (const auto& entry : fs::directory_iterator(folder))
    tar += tar_files::member("model_weights/" + entry.path().filename().string(), content(entry.path()));
  tar += tar_files::end();
  const auto inside = opened(written(scratch / "m.nemo", tar)), outside = opened(folder);
  CHECK(inside->contents().format == checkpoint_format::dcp);
  CHECK(inside->warnings().empty());
  CHECK(inside->contents().texts == std::vector<file_text>{{"model_config.yaml", "a: 1\n", -1}});
  CHECK(verify(*inside, {.threads = 1}).value().problems.empty());
  const diff_report difference = diff(*inside, *outside).value();
  CHECK(difference.differences.empty());
  CHECK(difference.problems.empty());
  CHECK(difference.tensors > 0);
  const auto converts = [&](checkpoint_reader& from, const std::string& name) {
    const auto copied = convert(from, scratch / name, {});
    INFO((copied ? "" : to_string(copied.error())));
    REQUIRE(copied);
  };
  converts(*inside, "in.safetensors");
  const auto plain = convert(*inside, scratch / "in.pt", {.format = target_format::pt});
  REQUIRE(plain);
  CHECK(std::count(plain->notes.begin(), plain->notes.end(), "not kept: texts of the .nemo file: model_config.yaml") ==
        1);
  converts(*outside, "out.safetensors");
  CHECK(diff(*opened(scratch / "in.safetensors"), *opened(scratch / "out.safetensors")).value().differences.empty());

  CHECK(has(refused(written(scratch / "packed.nemo", gzip(tar))), "decompress the archive with gunzip"));
  std::string leftover = tar.substr(0, tar.size() - 1024);
  leftover += tar_files::member("model_weights/__9_9.distcp", "rest") + tar_files::end();
  const auto warned = opened(written(scratch / "warned.nemo", leftover));
  REQUIRE(warned->warnings().size() == 1);
  CHECK(has(to_string(warned->warnings()[0]), "model_weights/__9_9.distcp: nothing refers to this file"));
}

TEST_CASE("a damaged item of a folder in the archive is found by verify and convert") {
  const scratch_folder scratch;
  const fs::path folder = fs::path(SHARDMESH_TEST_DATA) / "golden" / "era_torch_2.15.0" / "checkpoint";
  std::string tar = tar_files::member("model_config.yaml", "a: 1\n");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::string bytes = content(entry.path());
    if (name.ends_with(".distcp"))
      for (std::size_t i = 0; i < bytes.size(); i += 97) bytes[i] = static_cast<char>(bytes[i] ^ 1);
    tar += tar_files::member("model_weights/" + name, bytes);
  }
  const auto reader = opened(written(scratch / "m.nemo", tar + tar_files::end()));
  const auto problems = verify(*reader, {.threads = 1}).value().problems;
  CHECK_FALSE(problems.empty());
  CHECK_FALSE(convert(*reader, scratch / "out.safetensors", {}));
}

TEST_CASE("members that may hold tensors, and missing settings, are named in warnings") {
  const scratch_folder scratch;
  const auto reader =
      opened(written(scratch / "m.nemo", tar_files::member("model_weights.ckpt", weights(scratch)) +
                                             tar_files::member("adapter.ckpt", "a") + tar_files::end()));
  REQUIRE(reader->warnings().size() == 2);
  CHECK(has(to_string(reader->warnings()[0]), "has no model_config.yaml"));
  CHECK(has(to_string(reader->warnings()[1]), "adapter.ckpt"));
}
