// SPDX-License-Identifier: Apache-2.0
// Compares our answers to good and bad shards with PyTorch's (golden/errors.json). An array of cells (shard_cells.hpp)
// and the rules in this file decide which answer is right; PyTorch's must equal ours unless a rule calls it wrong.
// Every field is compared, texts included. tests/data/differences/errors.json lists the differences.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_tensor.hpp"
#include "shard_cells.hpp"
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_extents;
using golden::to_shard;
using golden::to_shards;

std::vector<json> cases(const std::string& function) {
  std::vector<json> found;
  for (const json& c : golden::file("errors.json").at("cases"))
    if (c["function"] == function) found.push_back(c);
  return found;
}

std::vector<shard_cells::shard> to_cells(const json& list) {
  std::vector<shard_cells::shard> made;
  for (const json& s : list) made.push_back({s["offsets"], s["sizes"]});
  return made;
}

bool refused(const json& c) {
  return !c["exception"].is_null();
}
std::string torch_error(const json& c) {
  return refused(c) ? c["exception"]["text"].get<std::string>() : "";
}

// All cases of a function, and the comparison with our answers.
class compared_cases {
 public:
  explicit compared_cases(const std::string& function) : cases_(cases(function)), differences_("errors", function) {}
  const std::vector<json>& all() const { return cases_; }

  /// Compares our answer to case `i`, a result or a refusal, with PyTorch's.
  void compare(std::size_t i, const json& answer) {
    const json& c = cases_[i];
    const bool ours_refuses = golden::refused(answer);
    json ours{{"exception", nullptr}, {"result", nullptr}};
    ours[ours_refuses ? "exception" : "result"] = ours_refuses ? answer["exception"] : answer;
    const std::string rule = refused(c) && ours_refuses ? "both refuse"
                             : ours_refuses             ? "PyTorch misses it"
                                                        : "not wrong";
    differences_.compare(std::to_string(i), {{"exception", c["exception"]}, {"result", c["result"]}}, ours, rule);
  }
  void finish() { differences_.finish(); }

 private:
  static bool refused(const json& c) { return !c["exception"].is_null(); }
  std::vector<json> cases_;
  golden::differences differences_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// PyTorch reports an overlap when one shard is empty and strictly inside the other, or when both are scalars.
bool is_false_overlap(const json& c) {
  if (!contains(torch_error(c), "overlap")) return false;
  return shard_cells::overlapping_pairs(to_cells(c["input"]["shards"])) == 0;
}

// Checks that a report names all problems of the shards, and only those.
void check_report(const cover_report& report, const std::vector<shard_cells::shard>& shards,
                  const shard_cells::numbers& size, const std::vector<shard_metadata>& metadata) {
  const auto truth = shard_cells::look(size, shards);
  REQUIRE(report.ok() == truth.ok());
  REQUIRE(report.total_is_exact);
  REQUIRE(report.total == static_cast<std::int64_t>(report.problems.size()));
  std::size_t outside = 0, overlaps = 0;
  std::vector<int> gap_cells(10'000, 0);
  std::int64_t uncovered = 0;
  for (const cover_problem& p : report.problems) {
    const std::string text = describe(p, metadata);
    INFO(text);
    const auto a = static_cast<std::size_t>(p.first_index), b = static_cast<std::size_t>(p.second_index);
    const auto rank_text = [&](std::size_t i) { return std::to_string(metadata[i].rank().value()); };
    if (p.kind == cover_kind::gap) {
      shard_cells::shard gap{{p.where.offsets.begin(), p.where.offsets.end()},
                             {p.where.sizes.begin(), p.where.sizes.end()}};
      shard_cells::for_each_cell(size, gap, [&](std::int64_t cell) {
        REQUIRE(++gap_cells[static_cast<std::size_t>(cell)] == 1);
        ++uncovered;
        for (const auto& s : shards)
          if (shard_cells::has_rank(s, size.size()))
            shard_cells::for_each_cell(size, s, [&](std::int64_t held) { REQUIRE(held != cell); });
      });
      CHECK(text == to_string(p.where) + " is held by no rank");
    } else if (p.kind == cover_kind::overlap) {
      ++overlaps;
      CHECK(contains(text, " overlap in " + to_string(p.where)));
      CHECK(contains(text, rank_text(a)));
      CHECK(contains(text, rank_text(b)));
      REQUIRE(!shard_cells::is_empty(shard_cells::common(shards[a], shards[b])));
    } else {
      ++outside;
      CHECK(contains(text, "rank " + rank_text(a)));
      CHECK(contains(text, to_string(p.where)));
    }
  }
  CHECK(outside == truth.outside + truth.odd);
  CHECK(uncovered == truth.uncovered);
  CHECK((overlaps > 0) == (truth.doubled > 0));
}

}  // namespace

TEST_CASE("every function of errors.json is tested below", "[errors]") {
  const std::set<std::string> tested{"ShardMetadata",
                                     "Shard",
                                     "build_metadata_from_local_shards",
                                     "build_global_metadata",
                                     "validate_non_overlapping_shards_metadata",
                                     "check_tensor",
                                     "dcp_validate_global_plan"};
  std::set<std::string> found;
  for (const json& c : golden::file("errors.json").at("cases")) found.insert(c["function"].get<std::string>());
  CHECK(found == tested);
}

TEST_CASE("shard metadata is refused when PyTorch refuses it, naming what is wrong", "[errors]") {
  compared_cases compared("ShardMetadata");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const json& in = c["input"];
    const auto placement = in["placement"].is_null() ? std::string() : in["placement"].get<std::string>();
    const auto offsets = in["offsets"].get<std::vector<std::int64_t>>();
    const auto sizes = in["sizes"].get<std::vector<std::int64_t>>();
    const auto made = shard_metadata::make(offsets, sizes, placement);
    // As Python prints it.
    const auto list = [](const extents& numbers) {
      std::string text = golden::to_json(numbers).dump();
      for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos; at += 2) text.insert(at + 1, " ");
      return text;
    };
    compared.compare(
        k, made ? json("ShardMetadata(shard_offsets=" + list(made->offsets) + ", shard_sizes=" + list(made->sizes) +
                       ", placement=" + (made->placement ? to_string(*made->placement) : "None") + ")")
                : golden::refusal(made.error()));
    REQUIRE(made.has_value() == !refused(c));
    if (made) {
      CHECK(made->offsets == extents(offsets));
      CHECK(made->sizes == extents(sizes));
      CHECK(made->placement.has_value() == !in["placement"].is_null());
      continue;
    }
    const std::string text = to_string(made.error());
    if (contains(torch_error(c), "Could not parse")) CHECK(contains(text, "'" + placement + "'"));
    if (contains(torch_error(c), "same number"))
      CHECK(contains(text, "expected " + std::to_string(offsets.size()) + (offsets.size() == 1 ? " size" : " sizes") +
                               ", found " + std::to_string(sizes.size())));
    if (contains(torch_error(c), ">=0")) CHECK(contains(text, "offset is negative in dimension 1: -1"));
    if (contains(torch_error(c), ">= 0")) CHECK(contains(text, "size is negative in dimension 1: -3"));
  }
  compared.finish();
}

TEST_CASE("shards that do not fit their tensors are refused with both sizes", "[errors]") {
  compared_cases compared("Shard");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const extents tensor = to_extents(c["input"]["tensor"]["shape"]);
    const auto metadata = to_shard(c["input"]["metadata"]);
    const auto made = shard<fake_tensor>::make(fake_tensor::make(tensor), metadata);
    compared.compare(k, made ? json() : golden::refusal(made.error()));
    REQUIRE(made.has_value() == !refused(c));
    CHECK(contains(to_string(made.error()), "expected " + to_string(metadata.sizes) + ", found " + to_string(tensor)));
    CHECK(made.error().ranks == std::vector<std::int32_t>{metadata.rank().value()});
  }
  compared.finish();
}

TEST_CASE("overlap is found exactly when two shards share a cell", "[errors]") {
  std::size_t false_overlaps = 0;
  compared_cases compared("validate_non_overlapping_shards_metadata");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const auto shards = to_shards(c["input"]["shards"]);
    const auto cells = to_cells(c["input"]["shards"]);
    const auto found = validate_non_overlapping_shards_metadata(shards);
    compared.compare(k, found ? json() : golden::refusal(found.error()));
    REQUIRE(found.has_value() == (shard_cells::overlapping_pairs(cells) == 0));
    if (refused(c)) {
      REQUIRE(found.has_value() == is_false_overlap(c));
      false_overlaps += found ? 1 : 0;
    }
    if (found) continue;
    // The error names two shards that really overlap, and where.
    const error& e = found.error();
    CHECK(e.code == errc::overlap);
    REQUIRE(e.ranks.size() == 2);
    REQUIRE(e.boxes.size() == 1);
    bool is_true = false;
    for (std::size_t i = 0; i < shards.size(); ++i)
      for (std::size_t other = i + 1; other < shards.size(); ++other) {
        const auto both = shard_cells::common(cells[i], cells[other]);
        is_true = is_true || (shards[i].rank() == e.ranks[0] && shards[other].rank() == e.ranks[1] &&
                              extents(both.offsets) == e.boxes[0].offsets && extents(both.sizes) == e.boxes[0].sizes &&
                              contains(e.message, to_string(shards[i].where())) &&
                              contains(e.message, to_string(shards[other].where())));
      }
    CHECK(is_true);
  }
  CHECK(false_overlaps > 0);
  compared.finish();
}

TEST_CASE("shards make up a tensor exactly when every cell is held once", "[errors]") {
  std::size_t torch_missed = 0;
  compared_cases compared("check_tensor");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const auto shards = to_shards(c["input"]["shards"]);
    const shard_cells::numbers size = c["input"]["tensor_dims"];
    const auto cells = to_cells(c["input"]["shards"]);
    const auto truth = shard_cells::look(size, cells);
    const auto found = check_tensor(shards, extents(size));
    compared.compare(k, found ? json() : golden::refusal(found.error()));
    REQUIRE(found.has_value() == truth.ok());
    check_report(check_shards(shards, extents(size)), cells, size, shards);
    // PyTorch counts several shards of a scalar twice, and fails on an empty list.
    const bool torch_is_wrong = truth.ok() && (size.empty() || shards.empty());
    if (refused(c)) REQUIRE((!found.has_value() || torch_is_wrong));
    if (!refused(c) && !found) {
      ++torch_missed;  // equal volumes hide an overlap and a gap
      REQUIRE((truth.doubled > 0 && truth.uncovered > 0));
    }
    if (found) continue;
    const std::string text = to_string(found.error());
    if (contains(torch_error(c), "Rank of tensor")) {
      CHECK(found.error().code == errc::shape_mismatch);
      CHECK(contains(text, "expected " + std::to_string(size.size()) + ", found"));
    }
    if (contains(torch_error(c), "exceeds tensor dim")) {
      CHECK(found.error().code == errc::out_of_bounds);
      CHECK(contains(text, to_string(box::whole(extents(size)))));
    }
    if (contains(torch_error(c), "Total volume"))
      CHECK((found.error().code == errc::overlap || found.error().code == errc::gap));
  }
  CHECK(torch_missed > 0);
  compared.finish();
}

TEST_CASE("what the validation of a checkpoint's plan finds is found, and what it misses too", "[errors]") {
  std::size_t missed = 0;
  compared_cases compared("dcp_validate_global_plan");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const auto shards = to_shards(c["input"]["shards"]);
    const shard_cells::numbers size = c["input"]["tensor_dims"];
    const auto cells = to_cells(c["input"]["shards"]);
    const auto report = check_shards(shards, extents(size));
    json texts = json::array();
    for (const cover_problem& p : report.problems) texts.push_back(describe(p, shards));
    compared.compare(k, texts);
    check_report(report, cells, size, shards);
    const bool torch_found = !c["result"].empty();
    if (torch_found) CHECK(!report.ok());
    missed += !torch_found && !report.ok() ? 1 : 0;
  }
  CHECK(missed > 0);
  compared.finish();
}

TEST_CASE("metadata from local shards is PyTorch's, and its refusals are named with rank and values", "[errors]") {
  compared_cases compared("build_metadata_from_local_shards");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    const json& in = c["input"];
    std::vector<shard<fake_tensor>> shards;
    std::optional<error> at_making;
    for (const json& s : in["local_shards"]) {
      const json& t = s["tensor"];
      tensor_properties properties;
      if (t.contains("dtype")) properties.type = parse_dtype(t["dtype"].get<std::string>()).value();
      properties.requires_grad = t.value("requires_grad", false);
      if (t.value("layout", "strided") != "strided") {
        REQUIRE(t["layout"] == "sparse_coo");
        properties.storage = tensor_storage::sparse_coo;
      }
      fake_tensor tensor = fake_tensor::make(to_extents(t["shape"]), properties);
      if (t.value("transposed", false)) std::reverse(tensor.strides.begin(), tensor.strides.end());
      if (t.value("transposed", false)) tensor.strides = {1, tensor.sizes[0]};
      auto made = shard<fake_tensor>::make(std::move(tensor), to_shard(s["metadata"]));
      if (!made) {
        if (!at_making) at_making = made.error();
        continue;
      }
      shards.push_back(*std::move(made));
    }
    const auto group = rank_group::world(in["world_size"]);
    auto found = build_metadata_from_local_shards(shards, to_extents(in["global_size"]), in["current_rank"], group);
    if (at_making) found = *at_making;  // shards of the wrong size cannot be made
    compared.compare(k, found ? json{{"size", golden::to_json(found->size)},
                                     {"shards", answers::shards(found->shards)},
                                     {"dtype", name(found->properties.type)},
                                     {"requires_grad", found->properties.requires_grad}}
                              : golden::refusal(found.error()));
    REQUIRE(found.has_value() == !refused(c));
    if (found) {
      const json& expected = c["result"];
      CHECK(found->shards == to_shards(expected["shards"]));
      CHECK(found->size == to_extents(expected["size"]));
      CHECK(name(found->properties.type) == expected["dtype"].get<std::string>());
      CHECK(found->properties.requires_grad == expected["requires_grad"].get<bool>());
      continue;
    }
    const std::string text = to_string(found.error()), torch = torch_error(c);
    INFO(text);
    CHECK(contains(text, "rank"));
    if (contains(torch, "property need to be the same") && !at_making) {
      // PyTorch names the later shard's value first.
      const auto property =
          torch.substr(torch.find("tensor ") + 7, torch.find(" property") - torch.find("tensor ") - 7);
      CHECK(contains(text, "Local shards' tensor " + property + " property need to be the same on rank:1!"));
    }
    if (contains(torch, "must have local shards")) CHECK(contains(text, "no local shards (rank 1)"));
    if (contains(torch, "Global rank 9")) CHECK(contains(text, "global rank 9 does not exist in the process group"));
    if (contains(torch, "Global rank 9")) CHECK(contains(text, "[0, 1, 2, 3]"));
    if (contains(torch, "remote device is None")) CHECK(contains(text, "no remote device"));
    if (contains(torch, "RPC")) CHECK(contains(text, "trainer0"));
    if (contains(torch, "device does not match")) CHECK(contains(text, "expected cuda:0, found cpu"));
    if (contains(torch, "sparse")) CHECK(contains(text, "torch.sparse_coo"));
    if (contains(torch, "memory_format")) CHECK(contains(text, "torch.contiguous_format"));
    if (contains(torch, "rank does not match") && !at_making) CHECK(contains(text, "expected rank:1, found"));
  }
  compared.finish();
}

TEST_CASE("global metadata is PyTorch's, or right where PyTorch's is not", "[errors]") {
  std::size_t ours_only = 0;
  compared_cases compared("build_global_metadata");
  for (std::size_t k = 0; k < compared.all().size(); ++k) {
    const json& c = compared.all()[k];
    INFO(c.dump());
    std::vector<std::optional<sharded_tensor_metadata>> gathered;
    json shards = json::array();
    for (const json& m : c["input"]["gathered"]) {
      if (m.is_null()) {
        gathered.emplace_back();
        continue;
      }
      tensor_properties properties{.type = parse_dtype(m["dtype"].get<std::string>()).value(),
                                   .requires_grad = m["requires_grad"].get<bool>(),
                                   .pin_memory = m["pin_memory"].get<bool>()};
      gathered.push_back(sharded_tensor_metadata{to_shards(m["shards"]), to_extents(m["size"]), properties});
      shards.insert(shards.end(), m["shards"].begin(), m["shards"].end());
    }
    const bool recalculate = c["input"].value("recalc_metadata", false);
    const auto found = build_global_metadata(gathered, {.recalculate = recalculate});
    compared.compare(k, found ? json{{"size", golden::to_json(found->size)}, {"shards", answers::shards(found->shards)}}
                              : golden::refusal(found.error()));
    if (!refused(c)) {
      REQUIRE(found.has_value());
      CHECK(found->shards == to_shards(c["result"]["shards"]));
      CHECK(found->size == to_extents(c["result"]["size"]));
      continue;
    }
    const std::string torch = torch_error(c);
    if (contains(torch, " overlap") && shard_cells::overlapping_pairs(to_cells(shards)) == 0) {
      // No overlap. The cells decide whether the rest is right.
      const bool right = shard_cells::look(c["input"]["gathered"][0]["size"], to_cells(shards)).ok();
      REQUIRE(found.has_value() == right);
      ++ours_only;
      continue;
    }
    REQUIRE(!found.has_value());
    std::string text = found.error().message;
    INFO(to_string(found.error()));
    if (contains(torch, "does not match from different ranks")) {
      std::string expected = torch;
      for (auto at = expected.find("torch.Size("); at != std::string::npos; at = expected.find("torch.Size(")) {
        expected.erase(expected.find(')', at), 1);
        expected.erase(at, 11);
      }
      CHECK(text == expected);
      CHECK(found.error().ranks.size() == 2);
    }
    if (contains(torch, " overlap")) CHECK(found.error().code == errc::overlap);
    if (contains(torch, "Total volume")) CHECK(found.error().code == errc::gap);
    if (contains(torch, "exceeds")) CHECK(found.error().code == errc::out_of_bounds);
    if (contains(torch, "Rank of tensor")) CHECK(found.error().code == errc::shape_mismatch);
    if (contains(torch, "no local shards")) CHECK(contains(text, "no rank has a shard"));
    if (contains(torch, "list index")) CHECK(found.error().code == errc::gap);
  }
  CHECK(ours_only > 0);
  compared.finish();
}
