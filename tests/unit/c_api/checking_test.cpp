// SPDX-License-Identifier: Apache-2.0
// Compares `verify` and `diff` through the C interface with the library. Also tests progress, cancellation, and
// timeouts.
#include <atomic>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;

namespace fs = std::filesystem;
using namespace c_answers;

namespace {

shardmesh::box to_box(const shardmesh_box& b) {
  const auto rank = static_cast<std::size_t>(b.rank);
  return {shardmesh::extents(std::span(b.offsets, rank)), shardmesh::extents(std::span(b.sizes, rank))};
}

void check_equal(const shardmesh::verify_report& ours, const c::verify_report& theirs) {
  CHECK(c_answers::theirs(theirs.problems, &to_box) == c_answers::ours(ours.problems));
  CHECK(c_answers::theirs(theirs.warnings, &to_box) == c_answers::ours(ours.warnings));
  CHECK(theirs.counts.problem_count == ours.problems.size());
  CHECK(theirs.counts.more_problems == ours.more_problems);
  CHECK(theirs.counts.chunks == ours.chunks);
  CHECK(theirs.counts.objects == ours.objects);
  CHECK(theirs.counts.bytes == ours.bytes);
  CHECK(theirs.counts.checked_bytes == ours.checked_bytes);
  CHECK(theirs.counts.unchecked_chunks == ours.unchecked_chunks);
  CHECK(theirs.counts.unchecked_objects == ours.unchecked_objects);
  CHECK(theirs.counts.unread_tensors == ours.unread_tensors);
}

// Saves 64 MiB in 64 tensors: enough work for at least one progress call before the end.
std::string large_checkpoint(const c_answers::scratch_folder& scratch) {
  const std::vector<float> values(std::size_t{1} << 18, 0.5F);
  std::vector<c::save_tensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.emplace_back("w" + std::to_string(i), c::view(values.data(), {1 << 18}));
  c::save_options fast;
  fast.durable = false;
  c::save(scratch / "large", tensors, fast);
  return scratch / "large";
}

template <class Call>
shardmesh_status status_of(Call&& call) {
  const auto problems = problems_of(call);
  return problems.empty() ? SHARDMESH_OK : problems[0].status;
}

}  // namespace

TEST_CASE("verify of every damaged checkpoint that opens reports what the library reports") {
  std::size_t bad = 0;
  for (const auto& entry : fs::directory_iterator(golden::folder() / "corrupt")) {
    const fs::path path = entry.path() / "checkpoint";
    CAPTURE(path);
    const auto reader = shardmesh::open_checkpoint(path);
    if (!reader) continue;
    const c::checkpoint from = c::checkpoint::open(path.string());
    check_equal(shardmesh::verify(**reader).value(), c::verify(from));
    c::verify_options quick;
    quick.quick = true;
    quick.max_problems = 1;
    check_equal(shardmesh::verify(**reader, {.quick = true, .max_problems = 1}).value(), c::verify(from, quick));
    bad += c::verify(from).ok() ? 0 : 1;
  }
  CHECK(bad > 10);
}

TEST_CASE("dangerous names in pickles are problems, unless they are allowed; unknown ones are warnings") {
  const c_answers::scratch_folder scratch;
  const std::string path = scratch / "m.pkl";
  std::ofstream(path, std::ios::binary) << "\x80\x02" << "cposix\nsystem\n0cmine\nNet\n0}.";
  const c::checkpoint from = c::checkpoint::open(path);
  const c::verify_report refused = c::verify(from);
  REQUIRE(refused.problems.size() == 1);
  CHECK(std::string(refused.problems[0].what()).find("posix.system") != std::string::npos);
  CHECK(refused.warnings.size() == 1);
  c::verify_options allowing;
  allowing.allow_globals = {"posix.system", "mine.Net"};
  CHECK(c::verify(from, allowing).ok());
  CHECK(c::verify(from, allowing).warnings.empty());
  // Callers that were compiled before the option existed.
  shardmesh_verify_options before{};
  before.struct_size = offsetof(shardmesh_verify_options, allow_globals);
  before.allow_global_count = 7;
  shardmesh_verify_report* report = nullptr;
  REQUIRE(shardmesh_verify(from.c(), &before, &report, nullptr) == SHARDMESH_OK);
  CHECK(shardmesh_verify_report_problems(report) != nullptr);
  shardmesh_verify_report_free(report);
}

TEST_CASE("verify names the tensor whose byte was flipped, watched or not") {
  const c_answers::scratch_folder scratch;
  const std::vector<float> values{1, 2, 3, 4};
  c::save_options how;
  how.format = SHARDMESH_FORMAT_SAFETENSORS;
  c::save(scratch / "w.safetensors", {{"w", c::view(values.data(), {4})}}, how);
  CHECK(c::verify(c::checkpoint::open(scratch / "w.safetensors")).ok());
  flip_byte(scratch.path / "w.safetensors",
            static_cast<std::int64_t>(fs::file_size(scratch.path / "w.safetensors")) - 3);
  const c::checkpoint from = c::checkpoint::open(scratch / "w.safetensors");
  std::vector<std::int64_t> told;
  c::verify_options watched;
  watched.call.progress = [&](std::int64_t bytes) {
    told.push_back(bytes);
    return true;
  };
  for (const auto& report : {c::verify(from), c::verify(from, watched)}) {
    REQUIRE(report.problems.size() == 1);
    CHECK(report.problems[0].status == SHARDMESH_CHECKSUM_MISMATCH);
    CHECK(report.problems[0].key == "w");
  }
  REQUIRE(!told.empty());
  CHECK(told.back() == 16);
}

TEST_CASE("diff reports every field of what differs") {
  const c_answers::scratch_folder scratch;
  const std::vector<float> a{1, 2, 3, 4}, b{1, 2, 3.5F, 5};
  const std::vector<double> d{1};
  c::save(scratch / "a", {{"same", c::view(a.data(), {4})},
                          {"w", c::view(a.data(), {2, 2})},
                          {"t", c::view(a.data(), {1})},
                          {"left", c::view(a.data(), {4})}});
  c::save(scratch / "b", {{"same", c::view(a.data(), {4})},
                          {"w", c::view(b.data(), {2, 2})},
                          {"t", c::view(d.data(), {1})},
                          {"right", c::view(a.data(), {4})}});
  const c::checkpoint left = c::checkpoint::open(scratch / "a"), right = c::checkpoint::open(scratch / "b");
  const auto ours_left = shardmesh::open_checkpoint(scratch.path / "a").value();
  const auto ours_right = shardmesh::open_checkpoint(scratch.path / "b").value();
  for (const bool ignore_dtype : {false, true}) {
    const auto ours = shardmesh::diff(shardmesh::whole_side(*ours_left), shardmesh::whole_side(*ours_right),
                                      {.ignore_dtype = ignore_dtype})
                          .value();
    c::diff_options how;
    how.ignore_dtype = ignore_dtype;
    const c::diff_report theirs = c::diff(left, right, how);
    CHECK(theirs.differences.size() == (ignore_dtype ? 3 : 4));
    REQUIRE(theirs.differences.size() == ours.differences.size());
    CHECK(theirs.counts.tensors == ours.tensors);
    CHECK(theirs.counts.objects == ours.objects);
    CHECK(theirs.counts.bytes == ours.bytes);
    CHECK(theirs.counts.problem_count == 0);
    for (std::size_t i = 0; i < ours.differences.size(); ++i) {
      const shardmesh::key_difference& one = ours.differences[i];
      const c::difference& other = theirs.differences[i];
      CHECK(other.key == one.key);
      CHECK(other.text == one.text);
      CHECK(other.kind == static_cast<int>(one.kind));
      CHECK(other.different == one.different);
      CHECK(other.elements == one.elements);
      CHECK(other.largest == one.largest);
      CHECK(shardmesh::extents(std::span<const std::int64_t>(other.first_index)) == one.first_index);
    }
  }
  CHECK(c::diff(left, left).equal());
  c::diff_options wrong;
  wrong.tolerance = -1;
  const auto refused = problems_of([&] { c::diff(left, right, wrong); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_INVALID_ARGUMENT);
}

TEST_CASE("diff compares wrapping tensors by their components, watched or not") {
  const c_answers::scratch_folder scratch;
  const fs::path source = golden::folder().parent_path() / "writers" / "wrappers" / "wrappers.pt";
  const c::checkpoint from = c::checkpoint::open(source.string());
  c::convert(from, scratch / "apart.safetensors");
  const c::checkpoint apart = c::checkpoint::open(scratch / "apart.safetensors");
  c::diff_options watched;
  watched.call.timeout = std::chrono::minutes(1);
  for (const c::diff_options& how : {c::diff_options(), watched}) {
    const c::diff_report report = c::diff(from, apart, how);
    CHECK(report.equal());
    CHECK(report.counts.tensors > 0);
  }
}

TEST_CASE("a timeout ends each kind of work, with nothing written") {
  const c_answers::scratch_folder scratch;
  const std::string path = large_checkpoint(scratch);
  const c::checkpoint from = c::checkpoint::open(path);
  c::watching hurried;
  hurried.timeout = std::chrono::milliseconds(1);
  c::verify_options checking;
  checking.call = hurried;
  CHECK(status_of([&] { c::verify(from, checking); }) == SHARDMESH_DEADLINE_EXCEEDED);
  c::diff_options comparing;
  comparing.call = hurried;
  CHECK(status_of([&] { c::diff(from, c::checkpoint::open(path), comparing); }) == SHARDMESH_DEADLINE_EXCEEDED);
  c::convert_options converting;
  converting.saving.call = hurried;
  CHECK(status_of([&] { c::convert(from, scratch / "other.safetensors", converting); }) == SHARDMESH_DEADLINE_EXCEEDED);
  CHECK_FALSE(fs::exists(scratch.path / "other.safetensors"));
}

TEST_CASE("a timeout also ends a call that waits for another one on its checkpoint") {
  const c_answers::scratch_folder scratch;
  const std::vector<float> values(4);
  c::save(scratch / "w", {{"w", c::view(values.data(), {4})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "w"), other = c::checkpoint::open(scratch / "w");
  std::vector<float> memory(4);
  std::atomic<bool> has_arrived = false, may_end = false;
  c::start_load_options slow;
  slow.on_arrival = [&](const std::string&) {
    has_arrived = true;
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  c::loading loading(from, {{"w", c::view(memory.data(), {4}), {}}}, slow);
  while (!has_arrived) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  c::watching hurried;
  hurried.timeout = std::chrono::milliseconds(50);
  c::verify_options checking;
  checking.call = hurried;
  CHECK(status_of([&] { c::verify(from, checking); }) == SHARDMESH_DEADLINE_EXCEEDED);
  c::diff_options comparing;
  comparing.call = hurried;
  CHECK(status_of([&] { c::diff(from, other, comparing); }) == SHARDMESH_DEADLINE_EXCEEDED);
  CHECK(status_of([&] { c::diff(other, from, comparing); }) == SHARDMESH_DEADLINE_EXCEEDED);
  c::convert_options converting;
  converting.saving.call = hurried;
  CHECK(status_of([&] { c::convert(from, scratch / "copy", converting); }) == SHARDMESH_DEADLINE_EXCEEDED);
  c::reshard_options resharding;
  resharding.mesh = "2";
  resharding.saving.call = hurried;
  CHECK(status_of([&] { c::reshard(from, scratch / "copy", resharding); }) == SHARDMESH_DEADLINE_EXCEEDED);
  CHECK_FALSE(fs::exists(scratch.path / "copy"));
  checking.call.timeout = std::chrono::milliseconds(0);
  checking.call.progress = [](std::int64_t) { return false; };
  CHECK(status_of([&] { c::verify(from, checking); }) == SHARDMESH_CANCELLED);
  std::vector<float> others(4);
  c::load_options beside;
  beside.call.timeout = std::chrono::minutes(1);
  CHECK(status_of([&] { from.load({{"w", c::view(others.data(), {4}), {}}}, beside); }) == SHARDMESH_OK);
  may_end = true;
  loading.wait();
  CHECK(c::verify(from).problems.empty());
}

TEST_CASE("a progress that says stop ends the work as cancelled") {
  const c_answers::scratch_folder scratch;
  const c::checkpoint from = c::checkpoint::open(large_checkpoint(scratch));
  std::vector<float> memory(std::size_t{64} << 16);
  std::vector<c::load_request> all;  // many small requests, enough work for at least one progress call
  for (int tensor = 0; tensor < 64; ++tensor)
    for (std::int64_t first = 0; first < 1 << 18; first += 64)
      all.push_back({"w" + std::to_string(tensor), c::view(memory.data() + 16 * all.size(), {16}), {first}});
  c::load_options watched;
  watched.call.progress = [](std::int64_t) { return false; };
  watched.threads = 1;
  CHECK(status_of([&] { from.load(all, watched); }) == SHARDMESH_CANCELLED);
}

TEST_CASE("what progress throws leaves the call, and stops it") {
  const c_answers::scratch_folder scratch;
  const c::checkpoint from = c::checkpoint::open(large_checkpoint(scratch));
  c::verify_options watched;
  watched.call.progress = [](std::int64_t) -> bool { throw std::runtime_error("enough"); };
  CHECK_THROWS_AS(c::verify(from, watched), std::runtime_error);
}
