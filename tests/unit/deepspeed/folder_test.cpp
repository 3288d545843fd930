// SPDX-License-Identifier: Apache-2.0
// Tests how DeepSpeed's folders are recognised and their steps chosen, and which sets of ranks' files are refused. The
// content of DeepSpeed's own files is read in tests/oracle/deepspeed_*.py.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <safetensors_files.hpp>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.deepspeed;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using safetensors_files::temporary_folder;

void touch(const fs::path& file, std::string_view content = "") {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << content;
}

constexpr const char* model_file = "mp_rank_00_model_states.pt";

// The error of opening a folder with these empty files.
error refused(const std::vector<std::string>& files) {
  temporary_folder folder;
  for (const std::string& file : files) touch(folder.path() / file);
  const auto reader = deepspeed::open(folder.path());
  REQUIRE_FALSE(reader);
  return reader.error();
}

}  // namespace

TEST_CASE("a step is a folder with files named as ranks' states, and a run is a folder of steps") {
  temporary_folder folder;
  const fs::path& run = folder.path();
  CHECK_FALSE(deepspeed::holds_checkpoint(run));
  touch(run / "readme.txt");
  CHECK_FALSE(deepspeed::holds_checkpoint(run));
  touch(run / "global_step10" / model_file);
  CHECK(deepspeed::holds_checkpoint(run));
  CHECK(deepspeed::holds_checkpoint(run / "global_step10"));
  CHECK(deepspeed::step_folder(run / "global_step10").value() == run / "global_step10");
  CHECK(deepspeed::step_folder(run).value() == run / "global_step10");  // the only one
}

TEST_CASE("of several steps, the file `latest` names the one to open") {
  temporary_folder folder;
  const fs::path& run = folder.path();
  for (const char* const step : {"global_step10", "global_step20", "best"}) touch(run / step / model_file);
  const auto several = deepspeed::step_folder(run);
  REQUIRE_FALSE(several);
  CHECK(several.error().code == errc::bad_format);
  CHECK(several.error().hint.find("global_step10") != std::string::npos);
  touch(run / "latest", " global_step20\n");
  CHECK(deepspeed::step_folder(run).value() == run / "global_step20");
  touch(run / "latest", "best");
  CHECK(deepspeed::step_folder(run).value() == run / "best");
  touch(run / "latest", "global_step30");
  const auto gone = deepspeed::step_folder(run);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == errc::bad_format);
  CHECK(gone.error().expected == "global_step30");
}

TEST_CASE("`latest` names no step outside the folder") {
  temporary_folder folder;
  const fs::path run = folder.path() / "run", elsewhere = folder.path() / "elsewhere";
  touch(run / "global_step10" / model_file);
  touch(elsewhere / model_file);
  for (const char* const tag : {"../elsewhere", "..", "", "a/b", "a\\b", "a\nb"}) {
    CAPTURE(tag);
    touch(run / "latest", tag);
    const auto step = deepspeed::step_folder(run);
    REQUIRE_FALSE(step);
    CHECK(step.error().code == errc::unsafe_path);
  }
  fs::create_directory_symlink(elsewhere, run / "linked");
  touch(run / "latest", "linked");
  const auto linked = deepspeed::step_folder(run);
  REQUIRE_FALSE(linked);
  CHECK(linked.error().code == errc::unsafe_path);
  fs::create_directory_symlink(run / "global_step10", run / "inside");
  touch(run / "latest", "inside");
  CHECK(deepspeed::step_folder(run).value() == run / "inside");
}

TEST_CASE("files without a merge rule, and files of two saves, are refused by name") {
  const error experts = refused({model_file, "expp_rank_0_mp_rank_00_optim_states.pt"});
  CHECK(experts.code == errc::unsupported);
  CHECK(experts.file.ends_with("expp_rank_0_mp_rank_00_optim_states.pt"));
  CHECK(refused({"layer_01-model_00-model_states.pt"}).code == errc::unsupported);
  const error twice = refused(
      {model_file, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"});
  CHECK(twice.code == errc::bad_format);
  CHECK(twice.found == "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
}

TEST_CASE("a missing file of a rank is an unfinished save, and named") {
  const error optimizer = refused({model_file, "zero_pp_rank_1_mp_rank_00_optim_states.pt"});
  CHECK(optimizer.code == errc::incomplete_save);
  CHECK(optimizer.file.ends_with("zero_pp_rank_0_mp_rank_00_optim_states.pt"));
  CHECK(refused({"zero_pp_rank_0_mp_rank_00_model_states.pt"}).code == errc::incomplete_save);
}
