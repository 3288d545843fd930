// SPDX-License-Identifier: Apache-2.0
// Compares layouts with PyTorch's own answers (golden/layouts.json): every field of every case.
// tests/data/differences/layouts.json lists the differences.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>
import shardmesh.layout;
import shardmesh.test.layouts;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_extents;

layout to_layout(const json& c) {
  return golden::to_layout(c.at("mesh"), c.at("shape"), c.at("placements"));
}

// The global indices that PyTorch's local tensor holds, per dimension.
std::vector<std::vector<std::int64_t>> expected_indices(const json& rank, const extents& local, const extents& offset) {
  std::vector<std::vector<std::int64_t>> indices(local.rank());
  for (std::size_t d = 0; d < local.rank(); ++d) {
    if (rank.contains("index")) {
      indices[d] = rank["index"][d].get<std::vector<std::int64_t>>();
    } else {
      indices[d].resize(static_cast<std::size_t>(local[d]));
      std::iota(indices[d].begin(), indices[d].end(), offset[d]);
    }
  }
  return indices;
}

// A rank's answer in the golden file's form.
json answer_of(const layout& l, std::int32_t rank) {
  const extents local = l.local_shape(rank);
  json made{{"coord", golden::to_json(*l.mesh().coordinate_of(rank))},
            {"shape", golden::to_json(local)},
            {"offset", golden::to_json(l.first_index(rank))}};
  const std::vector<placed_box> boxes = l.boxes(rank);
  if (boxes.size() < 2) return made;
  // The boxes form no single box: the indices of each dimension in local order.
  std::vector<std::vector<std::int64_t>> index(local.rank());
  for (std::size_t d = 0; d < local.rank(); ++d) {
    index[d].resize(static_cast<std::size_t>(local[d]));
    for (const placed_box& b : boxes)
      for (std::int64_t i = 0; i < b.where.sizes[d]; ++i)
        index[d].at(static_cast<std::size_t>(b.local_offsets[d] + i)) = b.where.offsets[d] + i;
  }
  made["index"] = index;
  return made;
}

// The boxes that a save writes: each once, in the order in which ranks hold them, by the holder that `deduplicate`
// chose.
json saved(const layout& l, const distribution& d) {
  std::map<box, owner_id> owners;
  const distribution once = deduplicate(d).value();
  once.for_each_owner(
      [&](owner_id o) { once.fragments_of(o, [&](const fragment& f) { return owners[f.where] = o, true; }); });
  json made{{"chunks", json::array()}, {"owner", json::array()}, {"errors", json::array()}};
  for (std::int32_t rank = 0; rank < l.mesh().size(); ++rank)
    for (const placed_box& b : l.boxes(rank)) {
      const auto first = owners.find(b.where);
      if (first == owners.end()) continue;  // an earlier rank had it
      made["chunks"].push_back(answers::box(b.where));
      made["owner"].push_back(first->second);
      owners.erase(first);
    }
  CHECK(owners.empty());
  return made;
}

}  // namespace

TEST_CASE("layouts hold what PyTorch's DTensors hold, in the same local order", "[layouts]") {
  golden::differences differences("layouts", "cases");
  const json& all = golden::file("layouts.json");
  std::int64_t several = 0;
  for (std::size_t i = 0; i < all["cases"].size(); ++i) {
    const json& c = all["cases"][i];
    const layout l = to_layout(c);
    const distribution d = distribute(l).value();
    INFO(to_string(l) << " " << c["spec"]);
    json ours{{"ranks", json::array()}, {"boxes_exact", true}, {"dcp", saved(l, d)}};
    for (std::int32_t r = 0; r < l.mesh().size(); ++r) {
      ours["ranks"].push_back(answer_of(l, r));
      if (l.boxes(r).size() > 1) ours["boxes_exact"] = false;
    }
    const bool has_empty = std::any_of(ours["ranks"].begin(), ours["ranks"].end(),
                                       [](const json& r) { return box::whole(to_extents(r["shape"])).is_empty(); });
    differences.compare(std::to_string(i),
                        {{"ranks", c["ranks"]}, {"boxes_exact", c["boxes_exact"]}, {"dcp", c["dcp"]}}, ours,
                        ours["boxes_exact"] == false ? "strided shards"
                        : has_empty                  ? "empty shards"
                                                     : "owners of replicas");
    std::int64_t fragments = 0;
    for (std::size_t r = 0; r < c["ranks"].size(); ++r) {
      INFO("rank " << r);
      const auto rank = static_cast<std::int32_t>(r);
      const json& expected = c["ranks"][r];
      REQUIRE(l.mesh().coordinate_of(rank).value() == to_extents(expected["coord"]));
      REQUIRE(l.local_shape(rank) == to_extents(expected["shape"]));
      REQUIRE(l.first_index(rank) == to_extents(expected["offset"]));
      const extents local = to_extents(expected["shape"]);
      const auto indices = expected_indices(expected, local, to_extents(expected["offset"]));

      // Every local cell, through the boxes.
      std::int64_t cells = 0;
      for (const placed_box& b : l.boxes(rank)) {
        ++fragments;
        REQUIRE(!b.where.is_empty());
        cells += b.where.volume();
        for (std::size_t dim = 0; dim < local.rank(); ++dim)
          for (std::int64_t k = 0; k < b.where.sizes[dim]; ++k)
            REQUIRE(indices[dim].at(static_cast<std::size_t>(b.local_offsets[dim] + k)) == b.where.offsets[dim] + k);
      }
      REQUIRE(cells == box::whole(local).volume());
      several += l.boxes(rank).size() > 1 ? 1 : 0;

      std::vector<placed_box> held;
      d.fragments_of(rank, [&](const fragment& f) {
        REQUIRE((f.owner == rank && f.slot == 0 && f.term == 0));
        held.push_back({f.where, f.local_offsets});
        return true;
      });
      REQUIRE(held == l.boxes(rank));
    }
    REQUIRE(d.fragment_count() == fragments);
    REQUIRE(check_cover(d).ok());
  }
  REQUIRE(several > 0);
  differences.finish();
}

TEST_CASE("a grid answers as the list of its fragments does") {
  const json& known = golden::file("layouts.json");
  for (const json& c : known["cases"]) {
    const layout l = to_layout(c);
    INFO(to_string(l));
    const distribution grid = distribute(l).value();
    std::vector<fragment> all;
    grid.for_each_owner(
        [&](owner_id o) { grid.fragments_of(o, [&](const fragment& f) { return all.push_back(f), true; }); });
    std::reverse(all.begin(), all.end());
    distribution_builder builder(l.shape(), owner_space::ranks);
    for (const fragment& f : all) builder.add(f);
    builder.at_least_owners(grid.owners());
    const distribution list = builder.finish().value();
    REQUIRE(list.digest() == grid.digest());
    REQUIRE(check_cover(list).ok());

    // Compares overlap queries (every fragment's box, the whole, and a few others) with a filter of all fragments.
    std::reverse(all.begin(), all.end());
    std::vector<box> queries{box::whole(l.shape())};
    for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 8) queries.push_back(all[i].where);
    for (std::size_t i = 0; i < 3; ++i) {
      box q = box::whole(l.shape());
      for (std::size_t d = 0; d < q.rank(); ++d) {
        q.offsets[d] = q.sizes[d] * static_cast<std::int64_t>(i) / 3;
        q.sizes[d] = (q.sizes[d] - q.offsets[d]) / static_cast<std::int64_t>(1 + i);
      }
      queries.push_back(q);
    }
    for (const box& q : queries) {
      std::vector<fragment> expected, from_grid, from_list;
      if (!q.is_empty())
        std::copy_if(all.begin(), all.end(), std::back_inserter(expected),
                     [&](const fragment& f) { return intersect(f.where, q).has_value(); });
      grid.overlapping(q, [&](const fragment& f) { return from_grid.push_back(f), true; });
      list.overlapping(q, [&](const fragment& f) { return from_list.push_back(f), true; });
      const auto order = [](const fragment& a, const fragment& b) {
        return a.owner != b.owner ? a.owner < b.owner : a.where < b.where;
      };
      for (auto* list_of : {&expected, &from_grid, &from_list}) std::sort(list_of->begin(), list_of->end(), order);
      REQUIRE(from_grid == expected);
      REQUIRE(from_list == expected);
    }
  }
}
