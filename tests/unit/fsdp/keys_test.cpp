// SPDX-License-Identifier: Apache-2.0
// Tests that the names of wrappers are removed from keys.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
import shardmesh.fsdp;

using namespace shardmesh;

TEST_CASE("wrappers' names are removed wherever they stand") {
  CHECK(clean_key("_fsdp_wrapped_module.up.weight") == "up.weight");
  CHECK(clean_key("_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up.weight") == "blocks.0.up.weight");
  CHECK(clean_key("blocks.1._checkpoint_wrapped_module._fsdp_wrapped_module.w") == "blocks.1.w");
  CHECK(clean_key("_fsdp_wrapped_module._fsdp_wrapped_module.w") == "w");
  CHECK(clean_key("blocks.1._checkpoint_wrapped_module") == "blocks.1");
  CHECK(clean_key("_fsdp_wrapped_module").empty());
}

TEST_CASE("names that only contain a wrapper's name stay whole") {
  CHECK(clean_key("my_fsdp_wrapped_module.w") == "my_fsdp_wrapped_module.w");
  CHECK(clean_key("_fsdp_wrapped_module2.w") == "_fsdp_wrapped_module2.w");
  CHECK(clean_key("up.weight") == "up.weight");
  CHECK(clean_key("").empty());
  CHECK(clean_key("a..b.") == "a..b.");
  CHECK(clean_key("..") == "..");
}

TEST_CASE("the wrappers can be others") {
  const std::array<std::string_view, 1> compiled{"_orig_mod"};
  CHECK(clean_key("_orig_mod.a._fsdp_wrapped_module.b", compiled) == "a._fsdp_wrapped_module.b");
}

TEST_CASE("keys are joined and prefixes replaced") {
  CHECK(joined_key("blocks.0", "up") == "blocks.0.up");
  CHECK(joined_key("", "up") == "up");
  CHECK(joined_key("blocks", "") == "blocks");
}
