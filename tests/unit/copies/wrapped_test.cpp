// SPDX-License-Identifier: Apache-2.0
// Converts wrapping tensors into their components and back, using only the samples. tests/oracle compares them with
// PyTorch.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "unusual_data.hpp"

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.torch_file;

using namespace shardmesh;
using namespace unusual_data;
namespace fs = std::filesystem;

namespace {

const fs::path samples = fs::path(SHARDMESH_TEST_DATA) / "writers" / "wrappers";

// Converts a part of a checkpoint to another format, and requires that everything arrives.
void convert_whole(const fs::path& from, const fs::path& to, convert_options options, std::string_view only = ".*") {
  auto reader = open_checkpoint(from).value();
  options.selection.only = {key_pattern::compile(only).value()};
  options.overwrite = true;
  options.durable = false;
  options.threads = 1;
  const auto report = convert(*reader, to, options);
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
}

diff_report compare(const fs::path& a, const fs::path& b) {
  auto left = open_checkpoint(a).value(), right = open_checkpoint(b).value();
  return diff(whole_side(*left), whole_side(*right)).value();
}

}  // namespace

TEST_CASE("quantized tensors and torchao's of DCP are the same pickles again after safetensors") {
  const safetensors_files::temporary_folder folder;
  for (const auto& [source, keys] : {std::pair{unusual() / "dcp", "q|qc|w"}, std::pair{samples / "dcp", ".*"}}) {
    convert_whole(source, folder.path() / "kept", {.format = target_format::dcp}, keys);
    convert_whole(folder.path() / "kept", folder.path() / "apart", {.format = target_format::hf});
    auto apart = open_checkpoint(folder.path() / "apart").value();
    CHECK(apart->contents().objects.size() == 2);
    for (const tensor_entry& tensor : apart->contents().tensors) CHECK(tensor.opaque_type.empty());
    convert_whole(folder.path() / "apart", folder.path() / "back", {.format = target_format::dcp});
    const diff_report same = compare(folder.path() / "kept", folder.path() / "back");
    CHECK(same.differences.empty());
    CHECK(same.problems.empty());
  }
}

TEST_CASE("components that were put together are seen under the wrapper's key, and their checksums are compared") {
  const safetensors_files::temporary_folder folder;
  const fs::path apart = folder.path() / "apart.safetensors";
  convert_whole(samples / "wrappers.pt", apart, {.format = target_format::safetensors});
  auto inner = open_checkpoint(apart).value();
  auto whole = torch_file::wrap_components(*inner).value();
  REQUIRE(whole);
  CHECK(whole->contents().objects.empty());
  const tensor_entry* const csr = whole->contents().find("m.csr");
  REQUIRE(csr != nullptr);
  CHECK(csr->opaque_kind == "sparse CSR tensor");
  CHECK(csr->shape == extents{4, 9});
  CHECK(whole->contents().find("m.csr.values") == nullptr);
  REQUIRE(whole->chunk_archive(*csr, csr->first_chunk));
  // The last byte of the file belongs to a component.
  flip(apart, static_cast<std::size_t>(fs::file_size(apart)) - 1, 1);
  auto damaged = open_checkpoint(apart).value();
  const auto report =
      convert(*damaged, folder.path() / "out.pt", {.format = target_format::pt, .durable = false, .threads = 1});
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 1);
  CHECK(report.error().code == errc::checksum_mismatch);
  CHECK_FALSE(fs::exists(folder.path() / "out.pt"));
}

TEST_CASE("a component that a selection left out is named, and components can stay apart") {
  const safetensors_files::temporary_folder folder;
  const fs::path apart = folder.path() / "apart.safetensors", cut = folder.path() / "cut.safetensors";
  convert_whole(samples / "wrappers.pt", apart, {.format = target_format::safetensors});
  convert_whole(apart, cut, {.format = target_format::safetensors}, "m.coo.indices|m.coo.wrapper|plain");
  auto reader = open_checkpoint(cut).value();
  const auto report =
      convert(*reader, folder.path() / "out.pt", {.format = target_format::pt, .durable = false, .threads = 1});
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 1);
  CHECK(report.error().code == errc::missing_key);
  CHECK(report.error().key == "m.coo.values");
  CHECK(report.error().file == cut.string());
  CHECK_FALSE(fs::exists(folder.path() / "out.pt"));
  convert_whole(cut, folder.path() / "out.pt", {.format = target_format::pt, .components = true});
  CHECK(open_checkpoint(folder.path() / "out.pt").value()->contents().find("m.coo.indices") != nullptr);
}
