// SPDX-License-Identifier: Apache-2.0
// Incremental saves from one process: a checkpoint refers to the chunks of an earlier one that have not changed. Saves
// by ranks are in tests/distributed.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.dcp;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using small_tensors::counted;
using small_tensors::tensors;

constexpr std::string_view record_name = ".shardmesh_checksums";

result<save_report> save_after(const fs::path& previous, const fs::path& destination, tensors& all,
                               std::int64_t cuts = 4) {
  return small_tensors::try_write(destination, all, cuts, {.durable = false, .previous = previous});
}

// "a" has four chunks of 2,048 bytes, and "b" four of 64 bytes.
tensors two_tensors() {
  return {{"a", counted({64, 32})}, {"b", counted({8, 8}, 5000)}};
}

tensors read_back(const fs::path& folder) {
  const auto reader = open_checkpoint(folder).value();
  return small_tensors::read_all(*reader);
}

std::string problems_of(const fs::path& folder) {
  const auto reader = open_checkpoint(folder).value();
  std::string text;
  const auto checked = verify(*reader).value();
  for (const error& problem : checked.problems) text += to_string(problem) + "\n";
  return text;
}

std::vector<std::string> references_of(const fs::path& folder) {
  return dcp::references_of(folder).value();
}

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_bytes(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// The folders "step-90" with `two_tensors`, and "step-100", in which the first chunk of "a" differs.
struct two_steps {
  scratch_folder scratch;
  fs::path old = scratch / "step-90", now = scratch / "step-100", item = old / "__0_0.distcp";
  tensors all = two_tensors();

  two_steps() {
    small_tensors::write(old, all, 4);
    all["a"].values[0] = -1;
    save_after(old, now, all).value();
  }
};

}  // namespace

TEST_CASE("a save refers to the chunks that have not changed since the previous one, and writes the others") {
  const scratch_folder scratch;
  tensors all = two_tensors();
  small_tensors::write(scratch / "step-90", all, 4);
  all["a"].values[0] = -1;
  const auto report = save_after(scratch / "step-90", scratch / "step-100", all);
  REQUIRE(report);
  CHECK(report->bytes == 4 * 2048 + 4 * 64);
  CHECK(report->referred_bytes == 3 * 2048 + 4 * 64);
  CHECK(report->written_bytes() == 2048);
  CHECK(report->files == 1);
  CHECK(fs::file_size(scratch / "step-100" / "__0_0.distcp") < 2048 + 2048);
  CHECK(read_back(scratch / "step-100") == all);
  CHECK(problems_of(scratch / "step-100") == "");
  CHECK(references_of(scratch / "step-100") == std::vector<std::string>{"step-90"});
  CHECK(references_of(scratch / "step-90").empty());
}

TEST_CASE("a save of an unchanged state writes no element, and its progress is complete") {
  const scratch_folder scratch;
  tensors all = two_tensors();
  small_tensors::write(scratch / "step-90", all, 4);
  std::int64_t moved = 0;
  save_options options{.durable = false, .previous = scratch / "step-90"};
  options.progress = [&](std::int64_t bytes) { moved += bytes; };
  const auto report = small_tensors::try_write(scratch / "step-100", all, 4, options);
  REQUIRE(report);
  CHECK(moved == report->bytes);
  CHECK(report->written_bytes() == 0);
  CHECK(report->files == 0);
  CHECK(read_back(scratch / "step-100") == all);
  CHECK(problems_of(scratch / "step-100") == "");
}

TEST_CASE("references are flat: they name the folder that holds the bytes, not the one that refers to it") {
  two_steps steps;
  steps.all["a"].values[1] = -2;  // of the chunk that step-100 wrote
  REQUIRE(save_after(steps.now, steps.scratch / "step-110", steps.all));
  CHECK(references_of(steps.scratch / "step-110") == std::vector<std::string>{"step-90"});
  fs::remove_all(steps.now);
  CHECK(read_back(steps.scratch / "step-110") == steps.all);
  CHECK(problems_of(steps.scratch / "step-110") == "");
  REQUIRE(save_after(steps.scratch / "step-110", steps.scratch / "step-120", steps.all));
  CHECK(references_of(steps.scratch / "step-120") == std::vector<std::string>{"step-110", "step-90"});
  CHECK(read_back(steps.scratch / "step-120") == steps.all);
}

TEST_CASE("a chunk with another box, key, dtype, or shape is written, even if its bytes are the same") {
  const scratch_folder scratch;
  tensors all = two_tensors();
  small_tensors::write(scratch / "step-90", all, 4);
  CHECK(save_after(scratch / "step-90", scratch / "cut", all, 2).value().referred_bytes == 0);
  tensors renamed{{"c", all["a"]}};
  CHECK(save_after(scratch / "step-90", scratch / "renamed", renamed).value().referred_bytes == 0);
  tensors flat{{"b", counted({64}, 5000)}};
  CHECK(save_after(scratch / "step-90", scratch / "flat", flat).value().referred_bytes == 0);
  std::vector<float>& values = all["b"].values;
  save_tensor as_integers{"b", {}, {8, 8}, {}};
  as_integers.parts.push_back(
      {box::whole({8, 8}), {reinterpret_cast<const std::byte*>(values.data()), dtype::int32, {}, {8, 8}, {8, 1}}, 0});
  const auto report = save(scratch / "integers", {&as_integers, 1}, target_format::dcp,
                           {.durable = false, .previous = scratch / "step-90"});
  CHECK(report.value().referred_bytes == 0);
}

TEST_CASE("verify finds referred bytes that are flipped, cut off, missing, or behind a link") {
  const two_steps steps;
  const std::string whole = bytes_of(steps.item);
  const auto says = [&](std::string_view text) {
    const std::string found = problems_of(steps.now);
    INFO(found);
    CHECK(found.find(text) != std::string::npos);
    CHECK(found.find("step-90") != std::string::npos);
  };
  CHECK(problems_of(steps.now) == "");
  std::string flipped = whole;
  flipped[flipped.size() - 700] ^= 1;  // in "b", whose item is the last
  write_bytes(steps.item, flipped);
  says("differ from their checksum");
  write_bytes(steps.item, whole.substr(0, whole.size() - 1));
  says("is shorter than the bytes to which the checkpoint refers");
  fs::remove(steps.item);
  says("the file is missing");
  write_bytes(steps.old / "moved", whole);
  fs::create_symlink("moved", steps.item);
  says("is a symbolic link");
  fs::remove_all(steps.old);
  says("the folder is missing");
}

TEST_CASE("a copy made by convert or reshard stands alone") {
  two_steps steps;
  const auto reader = open_checkpoint(steps.now).value();
  REQUIRE(convert(*reader, steps.scratch / "flat", {.format = target_format::dcp, .durable = false}));
  REQUIRE(
      convert(*reader, steps.scratch / "flat.safetensors", {.format = target_format::safetensors, .durable = false}));
  fs::remove_all(steps.old);
  fs::remove_all(steps.now);
  CHECK(references_of(steps.scratch / "flat").empty());
  CHECK(read_back(steps.scratch / "flat") == steps.all);
  CHECK(problems_of(steps.scratch / "flat") == "");
  CHECK(read_back(steps.scratch / "flat.safetensors") == steps.all);
}

TEST_CASE("convert refuses to replace a folder to which its source refers") {
  const two_steps steps;
  const auto reader = open_checkpoint(steps.now).value();
  const auto refused = convert(*reader, steps.old, {.format = target_format::dcp, .overwrite = true});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(read_back(steps.now) == steps.all);
}

TEST_CASE("a previous checkpoint that cannot be referred to is an error that names it and the remedy") {
  struct refusal {
    std::string_view text;
    errc code;
    std::function<fs::path(two_steps&)> break_it;  // returns the previous checkpoint
  };
  const auto edited = [](const fs::path& file, const std::function<void(std::string&)>& edit) {
    std::string bytes = bytes_of(file);
    edit(bytes);
    write_bytes(file, bytes);
  };
  const std::vector<refusal> refusals{
      {"is not a folder", errc::invalid_argument, [](two_steps& s) { return s.scratch / "step-80"; }},
      {"is not a folder", errc::invalid_argument, [](two_steps& s) { return s.item; }},
      {"is the destination", errc::invalid_argument, [](two_steps& s) { return s.scratch / "new"; }},
      {"does not lie beside", errc::invalid_argument,
       [](two_steps& s) {
         fs::create_directory(s.scratch / "other");
         fs::rename(s.old, s.scratch / "other" / "step-90");
         return s.scratch / "other" / "step-90";
       }},
      {"has characters", errc::invalid_argument,
       [](two_steps& s) {
         fs::rename(s.old, s.scratch / "step\n90");
         return s.scratch / "step\n90";
       }},
      {"is not a DCP folder", errc::invalid_argument,
       [](two_steps& s) {
         fs::remove(s.old / ".metadata");
         return s.old;
       }},
      {"has no record", errc::invalid_argument,
       [](two_steps& s) {
         fs::remove(s.old / record_name);
         return s.old;
       }},
      {"record is damaged", errc::checksum_mismatch,
       [&](two_steps& s) {
         edited(s.old / record_name, [](std::string& bytes) { bytes[40] = bytes[40] == '1' ? '2' : '1'; });
         return s.old;
       }},
      // Another program saved into the folder, and left the record as it was.
      {"differ from their checksum", errc::checksum_mismatch,
       [](two_steps& s) {
         fs::copy_file(s.now / ".metadata", s.old / ".metadata", fs::copy_options::overwrite_existing);
         return s.old;
       }},
      {"does not have the recorded length", errc::checksum_mismatch,
       [&](two_steps& s) {
         edited(s.item, [](std::string& bytes) { bytes.pop_back(); });
         return s.old;
       }},
      {"does not have the recorded length", errc::checksum_mismatch,
       [&](two_steps& s) {
         edited(s.item, [](std::string& bytes) { bytes.pop_back(); });
         return s.now;  // which refers to the file
       }},
      {"the folder is missing", errc::bad_format,
       [](two_steps& s) {
         fs::remove_all(s.old);
         return s.now;
       }},
  };
  for (const refusal& one : refusals) {
    INFO(one.text);
    two_steps steps;
    const fs::path destination = steps.scratch / "new";
    if (one.text == "is the destination") small_tensors::write(destination, steps.all, 4);
    const fs::path previous = one.break_it(steps);
    const auto report = small_tensors::try_write(destination, steps.all, 4,
                                                 {.overwrite = true, .durable = false, .previous = previous});
    REQUIRE_FALSE(report);
    INFO(to_string(report.error()));
    CHECK(report.error().code == one.code);
    CHECK(report.error().message.find(one.text) != std::string::npos);
    CHECK(report.error().file.find(steps.scratch.path.filename().string()) != std::string::npos);
    CHECK_FALSE(report.error().hint.empty());
    CHECK(fs::exists(destination) == (one.text == "is the destination"));
  }
}

TEST_CASE("a save does not replace a folder to which the previous checkpoint refers") {
  two_steps steps;
  const auto report =
      small_tensors::try_write(steps.old, steps.all, 4, {.overwrite = true, .durable = false, .previous = steps.now});
  REQUIRE_FALSE(report);
  CHECK(report.error().code == errc::invalid_argument);
  CHECK(report.error().message.find("refers to the destination") != std::string::npos);
  CHECK(read_back(steps.now) == steps.all);
}

TEST_CASE("only a DCP folder refers to a previous checkpoint") {
  two_steps steps;
  const auto report = save_after(steps.now, steps.scratch / "new.safetensors", steps.all);
  REQUIRE_FALSE(report);
  CHECK(report.error().code == errc::invalid_argument);
  CHECK(report.error().expected == "dcp");
  CHECK(report.error().found == "safetensors");
  CHECK_FALSE(fs::exists(steps.scratch / "new.safetensors"));
}

TEST_CASE("a previous checkpoint that changes during the save fails it, and nothing is left") {
  for (const bool removes : {true, false}) {
    two_steps steps;
    save_options options{.durable = false, .previous = steps.old};
    options.hooks.before_commit = [&] {
      if (removes)
        fs::remove_all(steps.old);
      else
        write_bytes(steps.item, bytes_of(steps.item) + "more");
    };
    const auto report = small_tensors::try_write(steps.scratch / "new", steps.all, 4, options);
    REQUIRE_FALSE(report);
    CHECK(report.error().code == errc::io);
    CHECK(report.error().message.find("changed or removed during the save") != std::string::npos);
    CHECK(report.error().file.ends_with("step-90/__0_0.distcp"));
    CHECK_FALSE(fs::exists(steps.scratch / "new"));
  }
}

TEST_CASE("a previous checkpoint is found through a link, and the reference names its real folder") {
  two_steps steps;
  fs::create_directory_symlink("step-90", steps.scratch / "latest");
  REQUIRE(save_after(steps.scratch / "latest", steps.scratch / "new", steps.all));
  CHECK(references_of(steps.scratch / "new") == std::vector<std::string>{"step-90"});
}

TEST_CASE("in random chains of saves, each step holds its state, and exactly the changed chunks are written") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    const scratch_folder scratch;
    struct saved_step {
      fs::path folder;
      tensors all;
      std::int64_t cuts = 1;
    };
    std::vector<saved_step> steps;
    tensors all;
    for (std::int64_t i = roll.below(5); i >= 0; --i)
      all["t" + std::to_string(i)] = counted({1 + roll.below(12), 1 + roll.below(40)}, static_cast<float>(100 * i));
    all["scalar"] = counted({}, 7);
    all["empty"] = counted({0, 3});
    std::int64_t cuts = 1 + roll.below(4);
    for (int number = 0; number < 6; ++number) {
      for (auto& [key, one] : all)
        if (!one.values.empty() && roll.one_in(2)) one.values[roll.one_of(one.values.size())] += 0.5F;
      if (roll.one_in(4)) cuts = 1 + roll.below(4);
      const saved_step* const before = steps.empty() ? nullptr : &steps[roll.one_of(steps.size())];
      const fs::path folder = scratch / ("step-" + std::to_string(number));
      const auto report = save_after(before ? before->folder : fs::path(), folder, all, cuts);
      REQUIRE(report);
      std::int64_t unchanged = 0, bytes = 0;
      for (auto& [key, one] : all)
        for (const box& where : small_tensors::rows_of(one.shape, cuts)) {
          bytes += where.volume() * 4;
          if (!before) continue;
          tensors old = before->all;
          for (const box& stored : small_tensors::rows_of(one.shape, before->cuts))
            if (stored == where && small_tensors::part_of(old[key], where) == small_tensors::part_of(one, where))
              unchanged += where.volume() * 4;
        }
      CHECK(report->bytes == bytes);
      CHECK(report->referred_bytes == unchanged);
      steps.push_back({folder, all, cuts});
    }
    for (const saved_step& step : steps) {
      INFO(step.folder);
      CHECK(read_back(step.folder) == step.all);
      CHECK(problems_of(step.folder) == "");
    }
  }
}
