// SPDX-License-Identifier: Apache-2.0
// Tests plain values as torch.save archives and back, and values that no archive can hold.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint_data.hpp"

import shardmesh.torch_file;

using namespace shardmesh;

namespace {

// {"lr": 0.5, "betas": (0.9, 0.99), 3: [], "none": None, "raw": b"\x00\xff"}
local_state_object container() {
  tree_builder builder;
  builder.begin(node_kind::mapping);
  builder.leaf("lr");
  builder.begin(node_kind::tuple, "betas");
  builder.leaf();
  builder.leaf();
  builder.end();
  builder.begin(node_kind::sequence, 3);
  builder.end();
  builder.leaf("none");
  builder.leaf("raw");
  builder.end();
  return {{},
          builder.finish().value(),
          {0.5, 0.9, 0.99, plain_value(), std::vector<std::byte>{std::byte{0}, std::byte{255}}}};
}

std::string json_of(std::span<const std::byte> archive) {
  const memory_source source(archive, "item");
  const torch_file::item item = torch_file::item::open(source).value();
  return object_json(source, item, item.root()).value();
}

}  // namespace

TEST_CASE("plain values and containers of them come back from their archive") {
  const auto max = std::numeric_limits<std::int64_t>::max();
  std::vector<local_state_object> objects{container()};
  for (const plain_value& value :
       {plain_value(), plain_value(true), plain_value(max), plain_value(-max - 1), plain_value(-0.0),
        plain_value(std::string("\xc3\xa9\n")), plain_value(std::string()), plain_value(std::vector<std::byte>(300))})
    objects.push_back({{}, {}, {value}});
  for (const local_state_object& object : objects) {
    INFO(torch_file::summary_of(object));
    const auto archive = torch_file::archive_of_object(object).value();
    CHECK(torch_file::object_of_archive(archive).value() == object);
  }
  CHECK(json_of(torch_file::archive_of_object(container()).value()) ==
        R"({"$dict":[["lr",{"$float":"0x1.0000000000000p-1"}],["betas",{"$tuple":[{"$float":"0x1.ccccccccccccdp-1"},)"
        R"({"$float":"0x1.fae147ae147aep-1"}]}],[3,[]],["none",null],["raw",{"$bytes":"00ff"}]]})");
}

TEST_CASE("PyTorch's objects mean the same after a way through plain values") {
  std::size_t plain = 0, opaque = 0;
  for (const checkpoint_data::item& item : checkpoint_data::items()) {
    if (!item.is_object) continue;
    INFO(item.case_name << " " << item.fqn);
    const auto file = checkpoint_data::read(item.file);
    const auto archive =
        std::span(file).subspan(static_cast<std::size_t>(item.offset), static_cast<std::size_t>(item.length));
    const local_state_object object = torch_file::object_of_archive(archive).value();
    ++(object.form.nodes().empty() && std::holds_alternative<opaque_object>(object.leaves.front()) ? opaque : plain);
    const auto again = torch_file::archive_of_object(object).value();
    CHECK(json_of(again) == json_of(archive));
  }
  CHECK(plain > 20);
  CHECK(opaque > 0);
}

TEST_CASE("objects that no archive can hold are refused") {
  local_state_object object = container();
  object.leaves.pop_back();
  CHECK(to_string(torch_file::archive_of_object(object).error()) ==
        "the leaves of an object do not match its structure: expected 5 leaves, found 4");
  object.leaves.push_back(opaque_object{"my.type", {}});
  CHECK(to_string(torch_file::archive_of_object(object).error()) ==
        "an opaque object lies inside a container, which cannot be stored: found my.type");
  object = {{}, {}, {opaque_object{"my.type", std::vector<std::byte>(7)}}};
  CHECK(to_string(torch_file::archive_of_object(object).error()) ==
        "an opaque object's bytes are not an archive of torch.save, so they cannot be stored: found my.type");
}

TEST_CASE("an object that contains itself is kept as it is") {
  // l = []; l.append(l), protocol 2
  const std::string text(
      "\x80\x02]q\x00h\x00"
      "a.",
      9);
  const auto bytes = std::as_bytes(std::span(text));
  const auto archive = torch_file::object_archive(std::vector<std::byte>(bytes.begin(), bytes.end()));
  const local_state_object object = torch_file::object_of_archive(archive).value();
  REQUIRE(object.leaves.size() == 1);
  const auto* const opaque = std::get_if<opaque_object>(&object.leaves.front());
  REQUIRE(opaque != nullptr);
  CHECK(opaque->bytes == archive);
}
