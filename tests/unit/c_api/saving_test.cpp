// SPDX-License-Identifier: Apache-2.0
// Compares `save` in every format, `convert`, `reshard`, and their refusals through the C interface with the library's
// output.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;

namespace fs = std::filesystem;
using namespace c_answers;

namespace {

// Reads every file below a path, or the file itself, by name.
std::map<std::string, std::string> bytes_of(const fs::path& path) {
  std::map<std::string, std::string> found;
  const auto add = [&](const fs::path& file, const std::string& name) {
    std::ifstream bytes(file, std::ios::binary);
    found[name] = {std::istreambuf_iterator<char>(bytes), {}};
  };
  if (!fs::is_directory(path)) return add(path, ""), found;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) add(entry.path(), fs::relative(entry.path(), path).string());
  return found;
}

std::string fsdp() {
  return (golden::folder() / "fsdp2_tp_2x2/checkpoint").string();
}

// Compares the library's whole report with the one from the C interface.
void check_equal(const shardmesh::result<shardmesh::save_report>& ours, const c::save_report& theirs) {
  INFO((ours ? "" : to_string(ours.error())));
  REQUIRE(ours);
  CHECK(theirs.counts.tensors == ours->tensors);
  CHECK(theirs.counts.bytes == ours->bytes);
  CHECK(theirs.counts.objects == ours->objects);
  CHECK(theirs.counts.files == ours->files);
  CHECK(theirs.counts.skipped_tensors == ours->skipped_tensors);
  CHECK(theirs.counts.skipped_objects == ours->skipped_objects);
  CHECK(theirs.counts.excluded == ours->excluded);
  CHECK(theirs.counts.referred_bytes == ours->referred_bytes);
  CHECK(theirs.counts.note_count == ours->notes.size());
  CHECK(theirs.notes == ours->notes);
}

shardmesh::box to_box(const shardmesh_box& b) {
  const auto rank = static_cast<std::size_t>(b.rank);
  return {shardmesh::extents(std::span(b.offsets, rank)), shardmesh::extents(std::span(b.sizes, rank))};
}

}  // namespace

TEST_CASE("tensors in parts and strides are saved byte for byte as the library saves them, in every format") {
  const std::vector<float> columns{0, 2, 4, 1, 3, 5};  // [2, 3], of which `turned` is the transpose: 0 1 / 2 3 / 4 5
  const std::vector<std::int64_t> rows{1, 2, 3, 4};
  const shardmesh::const_tensor_view turned{
      reinterpret_cast<const std::byte*>(columns.data()), shardmesh::dtype::float32, {}, {3, 2}, {1, 3}};
  const auto part = [&](std::size_t row) {
    return shardmesh::const_tensor_view{
        reinterpret_cast<const std::byte*>(rows.data() + 2 * row), shardmesh::dtype::int64, {}, {1, 2}, {2, 1}};
  };
  const std::vector<shardmesh::save_tensor> ours{
      {"model.w", {}, {3, 2}, {{{{0, 0}, {3, 2}}, turned, 0}}},
      {"step", {}, {2, 2}, {{{{0, 0}, {1, 2}}, part(0), 0}, {{{1, 0}, {1, 2}}, part(1), 1}}}};
  const std::vector<c::save_tensor> theirs{
      {"model.w", c::view(columns.data(), {3, 2}, {1, 3})},
      {"step", {2, 2}, {{c::view(rows.data(), {1, 2}), {0, 0}, 0}, {c::view(rows.data() + 2, {1, 2}), {1, 0}, 1}}}};

  const c_answers::scratch_folder scratch;
  for (const shardmesh_format format : {SHARDMESH_FORMAT_DCP, SHARDMESH_FORMAT_SAFETENSORS, SHARDMESH_FORMAT_HF}) {
    const std::string name = std::to_string(format) + (format == SHARDMESH_FORMAT_SAFETENSORS ? ".safetensors" : "");
    const fs::path expected = scratch.path / ("ours" + name), made = scratch.path / ("theirs" + name);
    const auto target = format == SHARDMESH_FORMAT_DCP           ? shardmesh::target_format::dcp
                        : format == SHARDMESH_FORMAT_SAFETENSORS ? shardmesh::target_format::safetensors
                                                                 : shardmesh::target_format::hf;
    c::save_options how;
    how.format = format;
    check_equal(shardmesh::save(expected, ours, target), c::save(made.string(), theirs, how));
    CHECK(bytes_of(made) == bytes_of(expected));
    const c::checkpoint from = c::checkpoint::open(made.string());
    CHECK(from.load<float>("model.w") == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(from.load<std::int64_t>("step") == rows);
  }
}

TEST_CASE("several tensors that cannot be saved are a list of errors, the library's, and nothing is written") {
  const std::vector<float> values(6);
  const shardmesh::const_tensor_view half{
      reinterpret_cast<const std::byte*>(values.data()), shardmesh::dtype::float32, {}, {1, 2}, {2, 1}};
  const std::vector<shardmesh::save_tensor> ours{{"a", {}, {3, 2}, {{{{0, 0}, {1, 2}}, half, 0}}},
                                                 {"b", {}, {2, 2}, {{{{1, 0}, {1, 2}}, half, 3}}}};
  const std::vector<c::save_tensor> theirs{{"a", {3, 2}, {{c::view(values.data(), {1, 2}), {0, 0}, 0}}},
                                           {"b", {2, 2}, {{c::view(values.data(), {1, 2}), {1, 0}, 3}}}};
  const c_answers::scratch_folder scratch;
  const auto report = shardmesh::save(scratch.path / "w", ours);
  const auto refused = problems_of([&] { c::save(scratch / "w", theirs); });
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 2);
  CHECK(c_answers::theirs(refused, &to_box) == c_answers::ours(report.error().problems()));
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("a progress that says stop after the last byte leaves what was there") {
  const c_answers::scratch_folder scratch;
  const c::checkpoint from = c::checkpoint::open(fsdp());
  const std::vector<float> values(7, 2);
  c::convert_options converting;
  converting.saving.format = SHARDMESH_FORMAT_DCP;
  converting.saving.overwrite = true;
  std::int64_t all = -1;
  converting.saving.call.progress = [&](std::int64_t bytes) { return all = std::max(all, bytes), true; };
  c::convert(from, scratch / "made", converting);
  REQUIRE(all > 0);
  const auto before = bytes_of(scratch.path / "made");
  for (const std::int64_t last : {all, std::int64_t{28}}) {
    const auto stop = [&](std::int64_t bytes) { return bytes != last; };
    converting.saving.call.progress = stop;
    c::save_options saving{.format = SHARDMESH_FORMAT_DCP, .overwrite = true};
    saving.call.progress = stop;
    const auto refused = problems_of([&] {
      if (last == all)
        c::convert(from, scratch / "made", converting);
      else
        c::save(scratch / "made", {{"w", c::view(values.data(), {7})}}, saving);
    });
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].status == SHARDMESH_CANCELLED);
    CHECK(bytes_of(scratch.path / "made") == before);
  }
}

TEST_CASE("what is there is replaced only where that is asked for") {
  const c_answers::scratch_folder scratch;
  const std::vector<float> one{1}, two{2};
  c::save(scratch / "w", {{"w", c::view(one.data(), {1})}});
  const auto refused = problems_of([&] { c::save(scratch / "w", {{"w", c::view(two.data(), {1})}}); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_DESTINATION_EXISTS);
  CHECK(c::checkpoint::open(scratch / "w").load<float>("w") == one);
  c::save_options replacing;
  replacing.overwrite = true;
  c::save(scratch / "w", {{"w", c::view(two.data(), {1})}}, replacing);
  CHECK(c::checkpoint::open(scratch / "w").load<float>("w") == two);
}

TEST_CASE("a save after a previous checkpoint refers to what has not changed, and conversions refuse that option") {
  const c_answers::scratch_folder scratch;
  std::vector<float> frozen(100, 1), trained(10, 2);
  const auto save_step = [&](const char* name, const std::string& previous) {
    c::save_options how;
    how.previous = previous;
    return c::save(scratch / name,
                   {{"frozen", c::view(std::as_const(frozen).data(), {100})},
                    {"trained", c::view(std::as_const(trained).data(), {10})}},
                   how);
  };
  CHECK(save_step("step-1", "").counts.referred_bytes == 0);
  trained[3] = 7;
  const c::save_report report = save_step("step-2", scratch / "step-1");
  CHECK(report.counts.bytes == 440);
  CHECK(report.counts.referred_bytes == 400);
  const c::checkpoint from = c::checkpoint::open(scratch / "step-2");
  CHECK(from.load<float>("frozen") == frozen);
  CHECK(from.load<float>("trained") == trained);
  const auto missing = problems_of([&] { save_step("step-3", scratch / "step-0"); });
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].status == SHARDMESH_INVALID_ARGUMENT);
  CHECK_FALSE(fs::exists(scratch.path / "step-3"));

  c::convert_options converting;
  converting.saving.format = SHARDMESH_FORMAT_DCP;
  converting.saving.previous = scratch / "step-1";
  c::reshard_options cutting;
  cutting.mesh = "2";
  cutting.saving.previous = scratch / "step-1";
  for (const auto& refused : {problems_of([&] { c::convert(from, scratch / "step-3", converting); }),
                              problems_of([&] { c::reshard(from, scratch / "step-3", cutting); })}) {
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].status == SHARDMESH_INVALID_ARGUMENT);
    CHECK(refused[0].message.find("previous") != std::string::npos);
  }
  CHECK_FALSE(fs::exists(scratch.path / "step-3"));
}

TEST_CASE("convert with a selection writes the library's bytes and report") {
  const c_answers::scratch_folder scratch;
  const auto reader = shardmesh::open_checkpoint(fsdp()).value();
  shardmesh::convert_options ours;
  ours.format = shardmesh::target_format::hf;
  ours.selection.skip = {shardmesh::key_pattern::compile(".*bias").value()};
  ours.selection.rename = {shardmesh::parse_rename_rule("model\\.(.*)=\\1").value()};
  ours.selection.cast = {shardmesh::parse_cast_rule("bfloat16").value()};
  ours.selection.no_optimizer = true;
  ours.max_shard_bytes = 2000;
  c::convert_options theirs;
  theirs.saving.format = SHARDMESH_FORMAT_HF;
  theirs.select.skip = {".*bias"};
  theirs.select.rename = {"model\\.(.*)=\\1"};
  theirs.select.cast = {"bfloat16"};
  theirs.select.no_optimizer = true;
  theirs.max_shard_bytes = 2000;
  check_equal(shardmesh::convert(*reader, scratch.path / "ours", ours),
              c::convert(c::checkpoint::open(fsdp()), scratch / "theirs", theirs));
  CHECK(bytes_of(scratch.path / "theirs") == bytes_of(scratch.path / "ours"));
  CHECK(bytes_of(scratch.path / "theirs").size() > 2);
}

TEST_CASE("a cast that loses values of integers is refused with its key, and made where narrowing is allowed") {
  const c_answers::scratch_folder scratch;
  const std::vector<std::int64_t> step{16777217};
  c::save(scratch / "counter", {{"step", c::view(step.data(), {1})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "counter");
  c::convert_options how;
  how.saving.format = SHARDMESH_FORMAT_SAFETENSORS;
  how.select.cast = {"step=int64:float32"};
  try {
    c::convert(from, scratch / "cast.safetensors", how);
    FAIL("the cast was made");
  } catch (const c::error& e) {
    CHECK(e.status == SHARDMESH_NARROWING);
    CHECK(e.key == "step");
    CHECK(e.message == "casting int64 to float32 loses values");
  }
  how.select.allow_narrowing = true;
  CHECK(c::convert(from, scratch / "cast.safetensors", how).notes ==
        std::vector<std::string>{
            "1 tensor is cast from int64 to float32, which does not hold every value of int64: step"});
  how.select.cast = {"step=float32"};
  CHECK_THROWS_WITH(c::convert(from, scratch / "other.safetensors", how),
                    Catch::Matchers::ContainsSubstring("'step=int64:float32' casts int64"));
}

TEST_CASE("reshard onto a mesh, and like another checkpoint, writes the library's bytes and report") {
  const c_answers::scratch_folder scratch;
  const auto reader = shardmesh::open_checkpoint(fsdp()).value();
  const c::checkpoint from = c::checkpoint::open(fsdp());
  shardmesh::reshard_options ours;
  ours.mesh = shardmesh::parse_mesh("dp=2,tp=2").value();
  ours.place = shardmesh::parse_placement_rules({".*weight=S(0),R"}).value();
  ours.default_placements = shardmesh::parse_placements("R,R").value();
  ours.optimizer_follows = false;
  ours.selection.optimizer_follows = true;
  ours.selection.rename = {shardmesh::parse_rename_rule("model\\.(.*)weight=model.\\1new_weight").value()};
  c::reshard_options theirs;
  theirs.mesh = "dp=2,tp=2";
  theirs.place = {".*weight=S(0),R"};
  theirs.default_placements = "R,R";
  theirs.optimizer_follows = false;
  theirs.select.optimizer_follows = true;
  theirs.select.rename = {"model\\.(.*)weight=model.\\1new_weight"};
  check_equal(shardmesh::reshard(*reader, scratch.path / "ours", ours), c::reshard(from, scratch / "theirs", theirs));
  CHECK(bytes_of(scratch.path / "theirs") == bytes_of(scratch.path / "ours"));

  const auto model = shardmesh::open_checkpoint(scratch.path / "ours").value();
  const c::checkpoint like = c::checkpoint::open(scratch / "theirs");
  shardmesh::reshard_options ours_like;
  ours_like.like = model.get();
  ours_like.selection = ours.selection;
  c::reshard_options theirs_like;
  theirs_like.like = &like;
  theirs_like.select = theirs.select;
  check_equal(shardmesh::reshard(*reader, scratch.path / "ours_like", ours_like),
              c::reshard(from, scratch / "theirs_like", theirs_like));
  CHECK(bytes_of(scratch.path / "theirs_like") == bytes_of(scratch.path / "ours_like"));
}

TEST_CASE("a mesh and a checkpoint to be like contradict each other; a text with a null character is no text") {
  const c_answers::scratch_folder scratch;
  const c::checkpoint from = c::checkpoint::open(fsdp());
  c::reshard_options both;
  both.mesh = "2";
  both.like = &from;
  const auto refused = problems_of([&] { c::reshard(from, scratch / "w", both); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_INVALID_ARGUMENT);
  CHECK(refused[0].message.find("mesh") != std::string::npos);
  const std::string cut = scratch / "w" + std::string("\0x", 2);
  CHECK_THROWS_AS(c::checkpoint::open(fsdp() + std::string("\0x", 2)), std::invalid_argument);
  CHECK_THROWS_AS(c::save(cut, {}), std::invalid_argument);
  CHECK_THROWS_AS(c::convert(from, cut), std::invalid_argument);
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("a rule that is none is an error that names the option") {
  const c_answers::scratch_folder scratch;
  c::convert_options wrong;
  wrong.select.only = {"("};
  const auto refused = problems_of([&] { c::convert(c::checkpoint::open(fsdp()), scratch / "w", wrong); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_INVALID_ARGUMENT);
  CHECK(refused[0].message.rfind("only ", 0) == 0);
  CHECK(fs::is_empty(scratch.path));
}
