// SPDX-License-Identifier: Apache-2.0
// Converts wrapping tensors into their components and back, using only the samples. tests/oracle compares them with
// PyTorch.
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

std::vector<std::string> notes_of_wrappers(std::vector<std::string> notes) {
  std::erase_if(notes, [](const std::string& note) { return note.find("wrapping tensors") == std::string::npos; });
  return notes;
}

// Converts a part of a checkpoint, and returns the notes about wrapping tensors.
std::vector<std::string> notes_of(const fs::path& from, const fs::path& to, target_format format,
                                  std::string_view only) {
  convert_options options{.format = format, .overwrite = true, .durable = false, .threads = 1};
  options.selection.only = {key_pattern::compile(only).value()};
  const auto report = convert(*open_checkpoint(from).value(), to, options);
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  return notes_of_wrappers(report->notes);
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

TEST_CASE("notes name the wrapping tensors that are split or rebuilt, but none that is copied whole or left out") {
  using list = std::vector<std::string>;
  const safetensors_files::temporary_folder folder;
  const fs::path whole = samples / "wrappers.pt", apart = folder.path() / "apart.safetensors";
  const fs::path cut = folder.path() / "cut.safetensors", again = folder.path() / "again.pt";
  CHECK(notes_of(whole, folder.path() / "whole.pt", target_format::pt, ".*") == list{});
  CHECK(notes_of(whole, folder.path() / "dcp", target_format::dcp, ".*") == list{});
  convert_whole(whole, apart, {.format = target_format::safetensors});
  CHECK(notes_of(whole, cut, target_format::safetensors, "plain") == list{});
  CHECK(notes_of(whole, cut, target_format::safetensors, R"(m\.csr\..*|plain)") ==
        list{"wrapping tensors are written as their components: m.csr (sparse CSR tensor)"});
  CHECK(notes_of(apart, again, target_format::pt, "plain") == list{});
  for (const target_format format : {target_format::pt, target_format::dcp, target_format::torch_checkpointing})
    CHECK(notes_of(apart, folder.path() / std::to_string(static_cast<int>(format)), format, R"(m\.csr|plain)") ==
          list{"wrapping tensors are rebuilt from their components: m.csr (sparse CSR tensor)"});
  const auto reader = open_checkpoint(whole).value();
  reshard_options options;
  options.mesh = device_mesh::make(std::array<std::int64_t, 1>{2}, {"dp"}).value();
  const reshard_plan plan = plan_reshard(*reader, options);
  CHECK(plan.problems.empty());
  CHECK(notes_of_wrappers(plan.notes) == list{});
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
