// SPDX-License-Identifier: Apache-2.0
// Reads drawings of random layouts, checkpoint chunks, and plans, and compares them with a model of each cell's
// holders.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <drawn_map.hpp>
#include <indices.hpp>
#include <map>
#include <random_seed.hpp>
#include <random_shards.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
import shardmesh.draw;

using namespace shardmesh;
using drawn_map::holders;

namespace {

// The holders of each cell, by its row-major number.
std::vector<holders> model_of(const distribution& d) {
  std::vector<holders> cells(static_cast<std::size_t>(checked_volume(d.global_shape()).value()));
  d.for_each_owner([&](owner_id owner) {
    d.fragments_of(owner, [&](const fragment& f) {
      indices::for_each_in(f.where, [&](const extents& cell) {
        cells[static_cast<std::size_t>(indices::row_major(cell, d.global_shape()))].insert(owner);
      });
      return true;
    });
  });
  return cells;
}

extents random_shape(dice& roll) {
  extents shape;
  for (std::int64_t rank = roll.up_to(4); rank > 0; --rank) shape.push_back(roll.one_in(20) ? 0 : 1 + roll.below(9));
  return shape;
}

device_mesh random_mesh(dice& roll) {
  return parse_mesh(roll.pick({"1", "2", "3", "2,2", "8", "2,3", "4,4", "2,2,2", "64", "8,8", "4,4,4", "2,32"}))
      .value();
}

// A layout over up to 64 ranks, with replicas only on request.
distribution random_layout(dice& roll, const extents& shape, const device_mesh& mesh, bool with_replicas) {
  for (;;) {
    std::vector<placement> placements;
    for (std::size_t m = 0; m < mesh.sizes().size(); ++m) {
      const bool replicates = shape.rank() == 0 || (with_replicas && roll.one_in(3));
      const auto dim = static_cast<std::int64_t>(roll.one_of(shape.rank()));
      placements.push_back(replicates ? parse_placements("R").value()[0]
                                      : parse_placements(fmt::format("S({})", dim)).value()[0]);
    }
    const auto made = layout::make(mesh, placements, shape);
    if (made) return distribute(*made).value();
  }
}

// Chunks of files, cut at random and held by a few of up to 64 files, sometimes with gaps and overlaps.
distribution random_chunks(dice& roll) {
  const auto drawn = random_shards::draw(roll.engine(), 64);
  extents shape;
  for (const std::int64_t size : drawn.size) shape.push_back(size);
  distribution_builder chunks(shape, owner_space::items);
  const std::int64_t replicas = roll.pick({1, 1, 3, 12});
  std::int32_t number = 0;
  for (const auto& shard : drawn.shards) {
    if (roll.one_in(8)) continue;
    std::set<owner_id> owners;
    for (std::int64_t i = roll.below(replicas); i >= 0; --i) owners.insert(static_cast<owner_id>(roll.below(64)));
    for (const owner_id owner : owners) chunks.add(owner, number++, shard.offsets, shard.sizes);
  }
  if (roll.one_in(4)) {
    const std::vector<std::int64_t> zeros(shape.rank(), 0);
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : shape) sizes.push_back(size - roll.up_to(size / 2));
    chunks.add(3, number++, zeros, sizes);
  }
  return chunks.finish().value();
}

distribution random_distribution(dice& roll) {
  if (roll.one_in(2)) return random_chunks(roll);
  const extents shape = random_shape(roll);
  return random_layout(roll, shape, random_mesh(roll), true);
}

// Parses "[0:2, 3:4)" into pairs of begin and end.
std::vector<std::pair<std::int64_t, std::int64_t>> intervals_of(const std::string& spelled) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  std::istringstream in(spelled.substr(1));
  for (std::string part; std::getline(in, part, ',');)
    all.emplace_back(std::stoll(part), std::stoll(part.substr(part.find(':') + 1)));
  return all;
}

// Calls `visit` with the number of every cell in the slice's outer dimensions and in these rows and columns.
template <class Visit>
void visit_cells(const extents& shape, std::vector<std::pair<std::int64_t, std::int64_t>> where, Visit visit) {
  box cells{extents::filled(shape.rank(), 0), extents::filled(shape.rank(), 0)};
  where.erase(where.begin(), where.end() - static_cast<std::ptrdiff_t>(std::min(shape.rank(), where.size())));
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    cells.offsets[d] = where[d].first;
    cells.sizes[d] = where[d].second - where[d].first;
  }
  indices::for_each_in(cells,
                       [&](const extents& cell) { visit(static_cast<std::size_t>(indices::row_major(cell, shape))); });
}

// Checks every slice of the text; the legend below the map resolves shortened labels.
void check_text(const distribution& d, const std::string& text, bool is_exact) {
  const extents& shape = d.global_shape();
  const std::vector<holders> model = model_of(d);
  const auto lines = drawn_map::lines_of(text);
  std::size_t checked = 0;
  for (std::size_t at = 0; at < lines.size();) {
    std::vector<std::pair<std::int64_t, std::int64_t>> where;
    if (shape.rank() > 2) {
      REQUIRE(lines[at].starts_with("slice ["));
      where = intervals_of(lines[at++].substr(6));
    }
    const drawn_map::map map = drawn_map::read_map(lines, at);
    std::map<std::string, std::set<holders>> legend;
    for (; at < lines.size() && lines[at].find(".. is ") != std::string::npos; ++at)
      legend[lines[at].substr(0, lines[at].find(" is "))].insert(
          drawn_map::holders_of(lines[at].substr(lines[at].find(" is ") + 4)));
    for (std::size_t y = 0; y + 1 < map.rows.size(); ++y)
      for (std::size_t x = 0; x + 1 < map.columns.size(); ++x) {
        auto cells = where;
        cells.emplace_back(map.rows[y], map.rows[y + 1]);
        cells.emplace_back(map.columns[x], map.columns[x + 1]);
        holders together;
        std::set<holders> each;
        visit_cells(shape, cells, [&](std::size_t cell) {
          together.insert(model[cell].begin(), model[cell].end());
          each.insert(model[cell]);
          ++checked;
        });
        const std::string& label = map.labels[y][x];
        INFO(label);
        if (is_exact) CHECK(each.size() == 1);
        if (!label.ends_with(".."))
          CHECK(drawn_map::holders_of(label) == together);
        else if (is_exact)
          CHECK(legend[label].contains(together));
      }
  }
  CHECK(checked == model.size());
}

}  // namespace

TEST_CASE("every cell of a drawing names exactly its holders") {
  std::vector<std::uint64_t> seeds = random_seed::seeds(400);
  seeds.insert(seeds.end(), {1040, 4220});  // equal holders in tiles of different widths
  for (const std::uint64_t seed : seeds) {
    dice roll(seed);
    const distribution d = random_distribution(roll);
    const std::string text = draw_layout(d, {.max_columns = 400, .max_slices = 10'000});
    INFO("SHARDMESH_SEED=" << seed << "\n" << text);
    if (model_of(d).empty())
      CHECK(text == "  no cells\n");
    else if (d.global_shape().rank() == 0)
      CHECK(drawn_map::holders_of(text.substr(10, text.size() - 11)) == model_of(d)[0]);
    else
      check_text(d, text, true);
  }
}

TEST_CASE("rectangles of a drawing that is too coarse name all that hold something of them") {
  for (const std::uint64_t seed : random_seed::seeds(100)) {
    dice roll(seed);
    const extents shape{8 + roll.below(90), 40 + roll.below(50)};
    const distribution d = random_layout(roll, shape, parse_mesh(roll.pick({"64", "2,32", "8,8"})).value(), true);
    const std::string text = draw_layout(d, {.max_columns = 60});
    INFO("SHARDMESH_SEED=" << seed << "\n" << text);
    check_text(d, text, false);
  }
}

TEST_CASE("colours of a drawing are those of the first holders, and change no letter") {
  for (const std::uint64_t seed : random_seed::seeds(100)) {
    dice roll(seed);
    const distribution d = random_distribution(roll);
    const std::string plain = draw_layout(d);
    std::vector<int> colors;
    INFO("SHARDMESH_SEED=" << seed << "\n" << plain);
    REQUIRE(drawn_map::without_colors(draw_layout(d, {.color = true}), colors) == plain);
    std::size_t line = 0;
    for (std::size_t i = 0; i < plain.size(); i = plain.find('\n', i) + 1, line = i) {
      const std::size_t end = plain.find('\n', i);
      const bool is_inside = plain.substr(i, end - i).ends_with('|') || plain.substr(i, end - i).ends_with('+');
      const std::size_t margin = is_inside ? plain.find_first_of("|+", i) : end;
      for (std::size_t x = i; x < end; ++x) {
        const bool begins = x > margin && std::isdigit(plain[x]) != 0 && (plain[x - 1] == ' ' || plain[x - 1] == '|');
        const bool is_letter = x > margin && (std::isdigit(plain[x]) != 0);
        if (begins) CHECK(colors[x] == 31 + std::stoi(plain.substr(x)) % 6);
        CHECK((colors[x] != 0) >= is_letter);
        if (!is_letter && std::string(",-.").find(plain[x]) == std::string::npos) CHECK(colors[x] == 0);
      }
    }
  }
}

TEST_CASE("every cell of an SVG map lies below rectangles of exactly its holders, to scale, replicas in one colour") {
  for (const std::uint64_t seed : random_seed::seeds(300)) {
    dice roll(seed);
    const distribution d = random_distribution(roll);
    const extents& shape = d.global_shape();
    const std::string svg = svg_layout(d);
    const std::vector<holders> model = model_of(d);
    INFO("SHARDMESH_SEED=" << seed << "\n" << svg);
    std::vector<holders> drawn(model.size());
    std::map<std::int32_t, std::string> color_of_first;
    std::set<std::string> colors;
    for (const drawn_map::rectangle& r : drawn_map::rectangles_of(svg)) {
      const std::size_t on = r.title.find(" on ");
      const holders owners = drawn_map::holders_of(r.title.substr(on + 4));
      auto where = intervals_of(r.title.substr(0, on));
      const double columns = static_cast<double>(shape.rank() > 0 ? shape[shape.rank() - 1] : 1);
      CHECK(std::abs(r.x - 56 - 480 * static_cast<double>(where.back().first) / columns) < 0.01);
      CHECK(std::abs(r.x + r.width - 56 - 480 * static_cast<double>(where.back().second) / columns) < 0.02);
      if (where.size() == 1) where.insert(where.begin(), {0, 1});
      const double rows = static_cast<double>(shape.rank() > 1 ? shape[shape.rank() - 2] : 1);
      CHECK(std::abs(r.height - 320 * static_cast<double>(where[0].second - where[0].first) / rows) < 0.01);
      if (shape.rank() > 2) {
        const auto outer = intervals_of(r.slice);
        where.insert(where.begin(), outer.begin(), outer.end());
      }
      visit_cells(shape, where, [&](std::size_t cell) { drawn[cell].insert(owners.begin(), owners.end()); });
      const auto& known = color_of_first.try_emplace(*owners.begin(), r.fill).first->second;
      CHECK(known == r.fill);
    }
    for (const auto& [owner, color] : color_of_first) CHECK(colors.insert(color).second);
    if (svg.find(" more slices") == std::string::npos) CHECK(drawn == model);
    for (std::size_t cell = 0; cell < model.size(); ++cell)
      if (!drawn[cell].empty()) CHECK(drawn[cell] == model[cell]);
  }
}

TEST_CASE("a drawing of a plan has the bytes of every pair, as text and as SVG") {
  for (const std::uint64_t seed : random_seed::seeds(150)) {
    dice roll(seed);
    const extents shape{1 + roll.below(20), 1 + roll.below(20)};
    const distribution from = random_layout(roll, shape, random_mesh(roll), false);
    const distribution to = random_layout(roll, shape, random_mesh(roll), true);
    const transfer_plan planned = plan({{from, to, dtype::float32, dtype::float32}}).value();
    std::map<std::pair<int, int>, std::int64_t> sent;
    const auto senders = model_of(from), takers = model_of(to);
    for (std::size_t cell = 0; cell < senders.size(); ++cell)
      for (const int taker : takers[cell])
        if (const int sender = *senders[cell].begin(); sender != taker) sent[{sender, taker}] += 4;
    std::int64_t largest = 1;
    int rows = 0, columns = 0;
    for (const auto& [pair, bytes] : sent) {
      largest = std::max(largest, bytes);
      rows = std::max(rows, pair.first + 1);
      columns = std::max(columns, pair.second + 1);
    }
    std::map<std::string, std::string> titles;
    for (const auto& [pair, bytes] : sent)
      titles[fmt::format("{} to {}", pair.first, pair.second)] = human_bytes(bytes);
    std::map<std::string, std::string> drawn;
    for (const drawn_map::rectangle& r : drawn_map::rectangles_of(svg_plan(planned)))
      drawn[r.title.substr(0, r.title.find(':'))] = r.title.substr(r.title.find(": ") + 2);
    const std::string text = draw_plan(planned);
    INFO("SHARDMESH_SEED=" << seed << "\n" << text);
    CHECK(drawn == titles);
    if (sent.empty()) {
      CHECK(text == "nothing moves\n");
      continue;
    }
    const auto lines = drawn_map::lines_of(text);
    const bool has_digits = text.find(" a ninth of it") != std::string::npos;
    for (int sender = 0; sender < rows; ++sender) {
      std::string expected = fmt::format("{:>7}{}", sender, has_digits ? " " : "");
      std::string row = lines.at(static_cast<std::size_t>(sender) + (has_digits ? 2 : 1));
      for (int taker = 0; taker < columns; ++taker) {
        const auto found = sent.find({sender, taker});
        const std::string amount = found == sent.end() ? "." : human_bytes(found->second);
        if (has_digits)
          expected += found == sent.end() ? "." : fmt::format("{}", (found->second * 9 + largest - 1) / largest);
        else
          expected += " " + amount;
      }
      if (!has_digits)
        for (std::size_t at = row.find("  ", 7); at != std::string::npos; at = row.find("  ", 7)) row.erase(at, 1);
      CHECK(row == expected);
    }
  }
}
