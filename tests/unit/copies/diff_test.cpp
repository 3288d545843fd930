// SPDX-License-Identifier: Apache-2.0
// Tests `diff` on chunks that cannot be read, on objects whose values are unknown, and with a selection.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safetensors_files.hpp"
#include "unusual_data.hpp"

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;

using namespace shardmesh;
using namespace unusual_data;
namespace fs = std::filesystem;

namespace {

diff_report compare_paths(const fs::path& left, const fs::path& right) {
  auto a = open_checkpoint(left).value();
  auto b = open_checkpoint(right).value();
  return diff(whole_side(*a), whole_side(*b)).value();
}

// A checkpoint whose chunks need more memory than there is.
class starved_reader final : public forwarding_reader {
 public:
  explicit starved_reader(std::unique_ptr<checkpoint_reader> opened) : forwarding_reader(std::move(opened)) {
    for (std::size_t i = 0; i < inner().contents().tensors.size(); ++i) add_whole_tensor(i);
  }
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry&, std::int32_t) override {
    throw std::bad_alloc();
  }
};

const key_difference* find(const diff_report& report, const std::string& key) {
  for (const key_difference& d : report.differences)
    if (d.key == key) return &d;
  return nullptr;
}

}  // namespace

TEST_CASE("tensors whose reading runs out of memory are named, and are not equal") {
  const fs::path sample = checkpoint_data::golden() / "dtensor_shard0_4" / "checkpoint";
  const auto whole = open_checkpoint(sample).value();
  const writable_copy copy(sample);  // the same files would not be read
  starved_reader starved(open_checkpoint(copy.path()).value());
  REQUIRE_FALSE(starved.contents().tensors.empty());
  const auto compared = diff(whole_side(*whole), whole_side(starved));
  REQUIRE(compared);
  std::size_t read = 0;  // empty tensors are not
  for (const tensor_entry& tensor : starved.contents().tensors) read += numel(tensor.shape) == 0 ? 0 : 1;
  CHECK(compared->differences.size() == read);
  for (const key_difference& found : compared->differences) {
    CHECK(found.kind == difference_kind::unreadable);
    CHECK(found.text.find("not enough memory") != std::string::npos);
  }
}

TEST_CASE("a tensor that cannot be read is said so, and the comparison goes on") {
  const fs::path sample = checkpoint_data::golden() / "dtensor_shard0_4" / "checkpoint";
  const writable_copy copy(sample);
  fs::remove(copy.path() / "__1_0.distcp");
  const diff_report report = compare_paths(sample, copy.path());
  auto whole = open_checkpoint(sample).value();
  std::size_t touched = 0;
  for (const tensor_entry& tensor : whole->contents().tensors)
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      const auto& place = whole->contents().chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)];
      if (whole->contents().files[static_cast<std::size_t>(place.file)] != "__1_0.distcp") continue;
      // Empty chunks are not read.
      if (whole->contents().chunk_box(tensor, tensor.first_chunk + i).is_empty()) continue;
      ++touched;
      const key_difference* found = find(report, tensor.key);
      REQUIRE(found != nullptr);
      CHECK(found->kind == difference_kind::unreadable);
      CHECK(found->text.starts_with("cannot be read: "));
      CHECK(found->text.find("__1_0.distcp") != std::string::npos);
      break;
    }
  CHECK(touched > 0);
  CHECK(report.differences.size() == touched);
  CHECK(report.problems.size() == touched);
  CHECK(report.tensors == static_cast<std::int64_t>(whole->contents().tensors.size()));
}

TEST_CASE("wrapping tensors are compared by their components, foreign objects by their bytes, whatever the formats") {
  const diff_report same = compare_paths(unusual() / "quantized.pt", unusual() / "dcp");
  // The folder has more entries than the file, and keeps whole the tensors that the file splits into components.
  CHECK(find(same, "q") == nullptr);
  CHECK(find(same, "qc") == nullptr);
  const writable_copy copy(unusual() / "dcp");
  auto reader = open_checkpoint(copy.path()).value();
  for (const tensor_entry& tensor : reader->contents().tensors) {
    if (tensor.key != "q") continue;
    const stored_range& place = reader->contents().chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
    const std::vector<std::byte> bytes = checkpoint_data::read(copy.path() / "__0_0.distcp");
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t header = text.find("data/0FB", static_cast<std::size_t>(place.offset));
    REQUIRE(header != std::string_view::npos);
    flip(copy.path() / "__0_0.distcp", text.find_first_not_of('Z', header + 10), 1);
  }
  const std::size_t mean =
      find_bytes(copy.path() / "__0_0.distcp", std::string_view("\0\0\0\0\0\0\x08\x40\0\0\0\0\0\0\x10\x40", 16));
  REQUIRE(mean != std::string::npos);
  flip(copy.path() / "__0_0.distcp", mean + 8, 4);  // settings.mean[4]
  const diff_report object = compare_paths(unusual() / "dcp", copy.path());
  REQUIRE(find(object, "settings") != nullptr);
  CHECK(find(object, "history") == nullptr);
  const diff_report changed = compare_paths(unusual() / "quantized.pt", copy.path());
  CHECK(find(changed, "q") == nullptr);
  const key_difference* found = find(changed, "q.int_repr");
  REQUIRE(found != nullptr);
  CHECK(found->kind == difference_kind::values);
  CHECK(found->different == 1);
  CHECK(find(changed, "qc") == nullptr);
}

TEST_CASE("an object is the same whichever protocol spelt the names in it") {
  // {"cfg": getattr(m.E, "A")}, which is how protocol 2 writes enums of Python 3.11.0; protocol 3 renamed `__builtin__`
  // to `builtins`.
  const std::string_view pickled("\x80\x02}X\x03\0\0\0cfgc__builtin__\ngetattr\ncm\nE\nX\x01\0\0\0A\x86Rs.", 47);
  const safetensors_files::temporary_folder folder;
  const auto archive = torch_file::object_archive(std::as_bytes(std::span(pickled.data(), pickled.size())));
  const fs::path file = folder.write("cfg.pt", {reinterpret_cast<const char*>(archive.data()), archive.size()});
  auto reader = open_checkpoint(file).value();
  REQUIRE(reader->contents().objects.size() == 1);
  REQUIRE(convert(*reader, folder.path() / "dcp", {.format = target_format::dcp}));
  const diff_report report = compare_paths(file, folder.path() / "dcp");
  CHECK(report.differences.empty());
  CHECK(report.objects == 1);
}

TEST_CASE("a tolerance that is no number of 0 or more is refused") {
  auto reader = open_checkpoint(unusual() / "views.pt").value();
  const auto outcome = diff(whole_side(*reader), whole_side(*reader), {.tolerance = -1});
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code == errc::invalid_argument);
}

TEST_CASE("a selection chooses and renames the entries of both sides, and each rule may match on one side alone") {
  const safetensors_files::temporary_folder folder;
  const fs::path of_left = folder.write(
      "left.safetensors", safetensors_files::bytes(R"({"model.a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                                   R"("extra":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                                   4));
  const fs::path of_right = folder.write(
      "right.safetensors", safetensors_files::bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                                    R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                                    3));
  auto left = open_checkpoint(of_left).value(), right = open_checkpoint(of_right).value();
  CHECK(diff(*left, *right).value().differences.size() == 4);  // no key is on both sides
  selection_options chosen{.skip = {key_pattern::exactly("extra"), key_pattern::exactly("b")},
                           .strip_prefix = "model."};
  const diff_report same = diff(*left, *right, {.selection = chosen}).value();
  CHECK(same.differences.empty());
  CHECK(same.tensors == 1);
  chosen.skip.pop_back();
  const diff_report more = diff(*left, *right, {.selection = chosen}).value();
  REQUIRE(more.differences.size() == 1);
  CHECK(more.differences[0].key == "b");
  CHECK(more.differences[0].kind == difference_kind::only_right);
}

TEST_CASE("a rule of a selection that matches on neither side is refused by its option") {
  const auto reader = open_checkpoint(unusual() / "views.pt").value();
  const diff_options options{.selection = {.only = {key_pattern::exactly("embed"), key_pattern::exactly("nothing")}}};
  const auto refused = diff(*reader, *reader, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().message == "only 'nothing' matches no key");
}
