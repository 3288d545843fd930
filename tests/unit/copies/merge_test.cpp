// SPDX-License-Identifier: Apache-2.0
// Tests which tensors `convert` writes only once, and nested paths that do not fit into one tree.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "unusual_data.hpp"

import shardmesh.checkpoint;

using namespace shardmesh;
using namespace unusual_data;
namespace fs = std::filesystem;

namespace {

struct result_of_merging {
  std::vector<std::string> keys, notes;
};

result_of_merging merged(const fs::path& source, dedup_rule how, selection_options selection = {}) {
  const safetensors_files::temporary_folder work;
  auto reader = open_checkpoint(source).value();
  convert_options options;
  options.dedup = how;
  options.selection = std::move(selection);
  options.durable = false;
  const auto report = convert(*reader, work.path() / "out.safetensors", options);
  REQUIRE(report);
  result_of_merging made;
  made.notes = report->notes;
  auto written = open_checkpoint(work.path() / "out.safetensors").value();
  for (const tensor_entry& tensor : written->contents().tensors) made.keys.push_back(tensor.key);
  std::sort(made.keys.begin(), made.keys.end());
  return made;
}

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("tied weights are written once, equal ones that are not tied are kept") {
  const strings all{"copy_of_embed", "count", "embed", "first_rows", "lm_head", "other_part", "part", "turned"};
  CHECK(merged(unusual() / "views.pt", dedup_rule::none).keys == all);
  const strings untied{"copy_of_embed", "count", "embed", "first_rows", "other_part", "part", "turned"};
  for (const fs::path& file : {unusual() / "views.pt", unusual() / "views_deflated.pt"}) {
    const result_of_merging tied = merged(file, dedup_rule::tied);
    CHECK(tied.keys == untied);
    CHECK(tied.notes == strings{"lm_head is tied to embed and is written once"});
  }
}

TEST_CASE("equal bytes are merged when asked for, beside ties") {
  const result_of_merging made = merged(unusual() / "views.pt", dedup_rule::equal);
  CHECK(made.keys == strings{"count", "embed", "first_rows", "other_part", "part", "turned"});
  CHECK(made.notes == strings{"lm_head is tied to embed and is written once",
                              "copy_of_embed has the bytes of embed and is written once"});
}

TEST_CASE("ties that become different dtypes are both kept") {
  selection_options casts;
  casts.cast = {parse_cast_rule("lm_head=float64").value()};
  const strings keys = merged(unusual() / "views.pt", dedup_rule::tied, casts).keys;
  CHECK(std::count(keys.begin(), keys.end(), "lm_head") == 1);
  CHECK(std::count(keys.begin(), keys.end(), "embed") == 1);
}

TEST_CASE("nesting keys of which one lies inside another is a problem that names both") {
  const safetensors_files::temporary_folder work;
  const auto source = work.write("flat.safetensors",
                                 safetensors_files::bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                                          R"("a.b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                                                          R"("a-b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                                                          6));
  auto reader = open_checkpoint(source).value();
  convert_options options{.format = target_format::dcp, .nest = true};
  const auto refused = convert(*reader, work.path() / "nested", options);
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().problem_count() == 1);
  CHECK(refused.error().code == errc::duplicate_key);
  CHECK(to_string(refused.error()) == "a.b: a.b is below a, which is a value: one nested path cannot be both");
  CHECK_FALSE(fs::exists(work.path() / "nested"));
  options.nest = false;
  CHECK(convert(*reader, work.path() / "flat", options));
  options.nest = true;
  options.selection.skip = {key_pattern::exactly("a")};
  CHECK(convert(*reader, work.path() / "nested", options));
}
