// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "counted.hpp"
#include "layout_json.hpp"
#include "opening.hpp"
#include "report.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.draw;
import shardmesh.layout;
import shardmesh.mapping;
import shardmesh.transfer;

namespace tool {
namespace {

using namespace shardmesh;

constexpr std::size_t most_rows = 64;  // of the table of ranks

// Counts the bytes of tensors on each rank. The sizes of the ranks' parts are computed once for each layout.
class byte_counter {
 public:
  explicit byte_counter(std::size_t ranks) : held_(ranks, 0) {}

  void add(const layout& where, const digest128& key, dtype type) {
    auto [found, is_new] = elements_.try_emplace({key.low, key.high});
    if (is_new)
      for (std::size_t rank = 0; rank < held_.size(); ++rank)
        found->second.push_back(box::whole(where.local_shape(static_cast<owner_id>(rank))).volume());
    for (std::size_t rank = 0; rank < held_.size(); ++rank)
      held_[rank] += size_bytes(type, found->second[rank]).value_or(0);
  }

  std::vector<std::int64_t> take() && { return std::move(held_); }

 private:
  std::vector<std::int64_t> held_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::int64_t>> elements_;
};

// The tensors of a side with their distributions, and the bytes of each rank.
template <tensor_view_type View>
struct placed_tensors {
  std::vector<basic_named_side<View>> sides;
  std::vector<std::int64_t> held;
};

template <tensor_view_type View>
result<placed_tensors<View>> placed(std::span<const tensor_entry> tensors, const placed_mesh& side,
                                    const split_rule& rule, std::vector<std::string>& notes) {
  std::vector<keyed_shape> shapes;
  for (const tensor_entry& one : tensors) {
    if (!one.opaque_type.empty())
      return fail(errc::unsupported, "a tensor of this kind does not move between ranks")
          .with_key(one.key)
          .with_values("plain elements", one.opaque_kind)
          .with_hint("leave it out: convert the checkpoint with --skip, or with --dequantize");
    shapes.push_back({one.key, one.shape});
  }
  placement_options options;
  if (!side.has_implicit_default) options.default_placements = side.all.placements;
  const placement_resolution resolved = resolve_placements(shapes, side.all.mesh, side.rules, options);
  if (!resolved.ok()) return fail_all(resolved.errors);
  notes.insert(notes.end(), resolved.notes.begin(), resolved.notes.end());
  placed_tensors<View> made;
  byte_counter counter(static_cast<std::size_t>(side.all.mesh.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto where = layout::make(side.all.mesh, resolved.placements[i], tensors[i].shape, rule);
    if (!where) return std::move(where).error().with_key(tensors[i].key);
    auto distributed = distribute(*where);
    if (!distributed) return std::move(distributed).error().with_key(tensors[i].key);
    counter.add(*where, distributed->description_digest(), tensors[i].type);
    made.sides.push_back({tensors[i].key, {*std::move(distributed), tensors[i].type, {}}});
  }
  made.held = std::move(counter).take();
  return made;
}

std::string row_of(const checkpoint_plan& made, std::size_t rank, const owner_cost& cost) {
  const auto held = [&](const std::vector<std::int64_t>& of) { return human_bytes(rank < of.size() ? of[rank] : 0); };
  return fmt::format("{:>7} {:>11} {:>11} {:>11} {:>11} {:>11}\n", rank, held(made.held_before), held(made.held_after),
                     human_bytes(cost.sent_bytes), human_bytes(cost.received_bytes), human_bytes(cost.peak_bytes));
}

// The costs of all ranks, also of those that neither hold nor receive anything.
std::vector<owner_cost> costs_of(const checkpoint_plan& made) {
  std::vector<owner_cost> all(std::max(made.held_before.size(), made.held_after.size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank].owner = static_cast<owner_id>(rank);
  for (const owner_cost& one : made.cost.owners)
    if (static_cast<std::size_t>(one.owner) < all.size()) all[static_cast<std::size_t>(one.owner)] = one;
  return all;
}

}  // namespace

result<std::vector<placement_rule>> parse_rules(const std::vector<std::string>& texts) {
  std::vector<placement_rule> rules;
  for (const std::string& text : texts) {
    auto rule = parse_placement_rule(text);
    if (!rule) return std::move(rule).error();
    rules.push_back(*std::move(rule));
  }
  return rules;
}

result<void> check_agreement(const checkpoint_reader& reader) {
  std::vector<error> conflicts;
  for (const error& one : reader.warnings())
    if (one.code == errc::disagreement && !one.ranks.empty()) conflicts.push_back(one);
  if (!conflicts.empty()) return fail_all(std::move(conflicts));
  return {};
}

result<placed_on_mesh> place_tensors(const checkpoint_reader& reader, const placed_mesh& side, const split_rule& rule,
                                     std::vector<std::string>& notes) {
  SHARDMESH_TRY(auto placed_sides, placed<tensor_view>(reader.contents().tensors, side, rule, notes));
  placed_on_mesh made;
  for (auto& one : placed_sides.sides) made.where.push_back(std::move(one.side.where));
  made.held = std::move(placed_sides.held);
  return made;
}

void write_mesh_side(json_writer& out, std::string_view name, const placed_mesh& side) {
  out.key(name).begin_object();
  write_mesh(out, side.all.mesh, side.all.placements);
  out.key("rules").begin_list();
  for (const placement_rule& rule : side.rules) {
    out.begin_object().member("pattern", rule.pattern.text()).key("placements").begin_list();
    for (const placement& one : rule.placements) out.value(to_string(one));
    out.end_list().end_object();
  }
  out.end_list().end_object();
}

result<checkpoint_plan> plan_checkpoint(const checkpoint_plan_request& request, const common_options& common) {
  SHARDMESH_TRY(auto reader, open_source(request.source, common));
  SHARDMESH_TRY(check_agreement(*reader));
  checkpoint_plan made;
  std::vector<mapping_rules> mappings;
  model_sizes sizes;
  SHARDMESH_TRY(auto from,
                placed<const_tensor_view>(reader->contents().tensors, request.from, request.rule, made.notes));
  const std::size_t objects = reader->contents().objects.size();
  if (request.mapping.is_given()) {
    SHARDMESH_TRY(mappings, find_mappings(request.mapping));
    SHARDMESH_TRY(sizes, read_sizes(request.mapping, request.source));
    SHARDMESH_TRY(reader, map_checkpoint(std::move(reader), mappings, sizes));
  }
  for (const std::string& note : reader->notes()) made.notes.push_back(note);
  made.warnings = reader->warnings();
  made.problems = reader->problems();
  if (objects > 0)
    made.notes.push_back(fmt::format("{} not in the plan: only tensors move", counted(objects, "object")));
  SHARDMESH_TRY(auto to, placed<tensor_view>(reader->contents().tensors, request.to, request.rule, made.notes));
  made.from_tensors = static_cast<std::int64_t>(from.sides.size());
  made.to_tensors = static_cast<std::int64_t>(to.sides.size());
  made.held_before = std::move(from.held);
  made.held_after = std::move(to.held);
  SHARDMESH_TRY(made.plan, plan(from.sides, to.sides, mappings, sizes));
  made.cost = made.plan.cost();
  return made;
}

std::string text_of(const checkpoint_plan& made, bool color) {
  std::string text =
      fmt::format("{} {} {}: {} move between ranks (at least {}), {} in all; at most {} of messages on a rank\n",
                  counted(made.from_tensors, "tensor"), made.from_tensors == 1 ? "becomes" : "become", made.to_tensors,
                  human_bytes(made.cost.bytes_moved), human_bytes(made.cost.lower_bound),
                  human_bytes(made.cost.bytes_total), human_bytes(made.cost.peak_bytes));
  text += fmt::format("{:>7} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "rank", "before", "after", "sends", "receives",
                      "messages");
  const std::vector<owner_cost> all = costs_of(made);
  for (std::size_t rank = 0; rank < std::min(all.size(), most_rows); ++rank) text += row_of(made, rank, all[rank]);
  if (all.size() > most_rows) text += fmt::format("and {}\n", counted(all.size() - most_rows, "more rank"));
  return text + draw_plan(made.plan, {.color = color});
}

void write_document(json_writer& out, const checkpoint_plan& made, const checkpoint_plan_request& request) {
  out.begin_object().member("checkpoint", printable_url(request.source)).member("map", request.mapping.map);
  write_mesh_side(out, "from", request.from);
  write_mesh_side(out, "to", request.to);
  out.member("tensors_before", made.from_tensors)
      .member("tensors_after", made.to_tensors)
      .member("moves", made.plan.transfers().size())
      .member("bytes_total", made.cost.bytes_total)
      .member("bytes_moved", made.cost.bytes_moved)
      .member("lower_bound", made.cost.lower_bound)
      .key("notes")
      .list(made.notes);
  out.member("ok", made.problems.empty());
  write_problems(out, made.problems);
  out.key("warnings");
  write(out, made.warnings);
  out.key("ranks").begin_list();
  const auto held = [](const std::vector<std::int64_t>& of, std::size_t rank) {
    return rank < of.size() ? of[rank] : std::int64_t{0};
  };
  const std::vector<owner_cost> all = costs_of(made);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    out.begin_object()
        .member("rank", rank)
        .member("bytes_before", held(made.held_before, rank))
        .member("bytes_after", held(made.held_after, rank))
        .member("sent_bytes", all[rank].sent_bytes)
        .member("received_bytes", all[rank].received_bytes)
        .member("peak_bytes", all[rank].peak_bytes)
        .end_object();
  out.end_list().key("links").begin_list();
  for (const link_cost& one : made.cost.links)
    out.begin_object().member("from", one.from).member("to", one.to).member("bytes", one.size_bytes).end_object();
  out.end_list().end_object().finish();
}

}  // namespace tool
