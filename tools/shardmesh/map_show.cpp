// SPDX-License-Identifier: Apache-2.0
#include "map_show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "output_file.hpp"
#include "page.hpp"
#include "report.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.draw;
import shardmesh.layout;
import shardmesh.mapping;

namespace tool {
namespace {

using namespace shardmesh;

constexpr std::size_t most_drawn = 4096;  // boxes of a picture or a page
constexpr std::size_t most_listed = std::size_t{1} << 20;

// The sources of a list of boxes, each once, in the order of the boxes. Their positions are their numbers in pictures.
class numbered_sources {
 public:
  explicit numbered_sources(const source_box_list& list) {
    for (const source_box& one : list.boxes)
      if (numbers_.emplace(one.source, static_cast<std::int32_t>(sources_.size())).second)
        sources_.push_back(one.source);
  }
  std::int32_t number_of(std::size_t source) const { return numbers_.at(source); }
  const std::vector<std::size_t>& all() const { return sources_; }

 private:
  std::map<std::size_t, std::int32_t> numbers_;
  std::vector<std::size_t> sources_;
};

std::string title_of(const shown_tensor& shown) {
  return fmt::format("{}: {}{}", shown.tensor.key, name(shown.tensor.type), to_string(shown.tensor.shape));
}

// The operations on values that apply to the tensor.
std::vector<std::string> values_of(const shown_tensor& shown) {
  std::vector<std::string> texts;
  const bound_instance& instance = shown.bound.instances[shown.tensor.instance];
  if (instance.form == bound_form::rule)
    for (const value_step& step : shown.bound.rule_of(instance).values) texts.push_back(to_string(step));
  return texts;
}

// One line per piece: its sources, its origin in both tensors, and the loops that move in them.
std::string line_of(const index_piece& piece, const std::string& source) {
  std::string loops;
  for (const index_loop& loop : piece.loops) {
    const auto step = [](const index_loop::step& one) {
      return one.dimension < 0 ? std::string("-") : fmt::format("d{}+{}", one.dimension, one.stride);
    };
    loops += fmt::format("  {}x({} -> {})", loop.extent, step(loop.left), step(loop.right));
  }
  return fmt::format("  {} from {} to {}{}\n", escaped(source), to_string(piece.left_origin),
                     to_string(piece.right_origin), loops);
}

// The tensors of the checkpoint that are one left tensor of the relation: one, or the first and the last of a stack.
std::string sources_of(const shown_tensor& shown, std::size_t left) {
  const bound_instance& instance = shown.bound.instances[shown.tensor.instance];
  const std::size_t first = instance.first_source[left];
  const std::size_t end =
      left + 1 < instance.first_source.size() ? instance.first_source[left + 1] : instance.sources.size();
  if (first == end) return "no tensor";
  const std::string& key = shown.sources[instance.sources[first]].key;
  return end - first == 1 ? key : fmt::format("{} to {}", key, shown.sources[instance.sources[end - 1]].key);
}

std::string text_of(const shown_tensor& shown) {
  const bound_instance& instance = shown.bound.instances[shown.tensor.instance];
  const mapping_rule& rule = shown.bound.rule_of(instance);
  const bool is_scalar = instance.form == bound_form::scalar;
  std::string text = fmt::format("{}\n  rule '{}'", escaped(title_of(shown)), escaped(rule.name));
  if (is_scalar)
    text += instance.sources.size() > 1 ? ": one value, in which its sources agree\n" : ": one value\n";
  else
    text += rule.index.is_rename() ? " renames a tensor\n" : fmt::format(": {}\n", to_string(rule.index));
  for (const std::string& step : values_of(shown)) text += fmt::format("  values: {}\n", step);
  if (is_scalar || rule.index.is_rename()) {
    for (const std::size_t source : instance.sources) text += fmt::format("  {}\n", escaped(shown.sources[source].key));
    return text;
  }
  for (const index_piece& piece : shown.bound.relations[instance.relation].relation.pieces)
    if (piece.right_tensor == shown.tensor.tensor) text += line_of(piece, sources_of(shown, piece.left_tensor));
  return text;
}

void write_document(json_writer& out, const shown_tensor& shown, const source_box_list& list) {
  const bound_instance& instance = shown.bound.instances[shown.tensor.instance];
  const mapping_rule& rule = shown.bound.rule_of(instance);
  const numbered_sources sources(list);
  out.begin_object().member("key", shown.tensor.key).member("dtype", name(shown.tensor.type));
  out.key("shape").list(shown.tensor.shape);
  out.member("from", shown.bound.mapping.left).member("to", shown.bound.mapping.right).member("rule", rule.name);
  out.member("index", rule.index.is_rename() || instance.form == bound_form::scalar ? "" : to_string(rule.index));
  out.key("values").list(values_of(shown));
  out.key("sources").begin_list();
  for (const std::size_t source : sources.all()) {
    const tensor_entry& entry = shown.sources[source];
    out.begin_object().member("key", entry.key).key("shape").list(entry.shape).end_object();
  }
  out.end_list().key("boxes").begin_list();
  for (const source_box& one : list.boxes) {
    out.begin_object();
    write_box(out, one.target);
    out.member("source", sources.number_of(one.source)).key("from").begin_object();
    write_box(out, one.from);
    out.end_object().end_object();
  }
  out.end_list().member("more_boxes", list.more).end_object().finish();
}

// The sources are the owners of the boxes. A tensor of too many boxes would make no readable picture.
result<std::string> picture_of(const shown_tensor& shown, const source_box_list& list) {
  if (list.more > 0)
    return fail(errc::unsupported, "the tensor consists of too many boxes for a picture")
        .with_key(shown.tensor.key)
        .with_values(fmt::format("at most {} boxes", most_drawn), "more")
        .with_hint("pass --json");
  const numbered_sources sources(list);
  std::vector<fragment> fragments;
  std::map<std::int32_t, std::int32_t> slots;  // the next slot of each source
  for (const source_box& one : list.boxes) {
    const std::int32_t number = sources.number_of(one.source);
    fragments.push_back({one.target, number, slots[number]++, extents::filled(one.target.rank(), 0)});
  }
  SHARDMESH_TRY(const distribution drawn,
                distribution::from_fragments(shown.tensor.shape, fragments, owner_space::items));
  constexpr std::size_t most_named = 32;
  std::vector<std::string> caption{title_of(shown)};
  for (std::size_t s = 0; s < std::min(most_named, sources.all().size()); ++s)
    caption.push_back(fmt::format("{}: {}", s, shown.sources[sources.all()[s]].key));
  if (sources.all().size() > most_named)
    caption.push_back(
        fmt::format("and {}", counted(static_cast<std::int64_t>(sources.all().size() - most_named), "more source")));
  return svg_layout(drawn, caption);
}

std::string page_of(const shown_tensor& shown, const source_box_list& list) {
  std::string document;
  json_writer out([&](const std::string& text) { document += text; });
  write_document(out, shown, list);
  return make_page(shown.tensor.key, {"elements.js", "page_state.js", "table.js", "boxes.js", "map.js"}, document);
}

}  // namespace

int show_tensor(const shown_tensor& shown, const map_outputs& outputs, const std::vector<std::string>& checkpoints) {
  auto picture = output_file::open("--svg", outputs.svg, outputs.force, checkpoints);
  if (!picture) return report(picture.error());
  auto page = output_file::open("--html", outputs.html, outputs.force, checkpoints);
  if (!page) return report(page.error());
  if (*picture || *page) {
    const source_box_list list = source_boxes_of(shown.bound, shown.tensor, most_drawn);
    if (*picture) {
      const auto drawn = picture_of(shown, list);
      if (!drawn) return report(drawn.error());
      if (const int status = (*picture)->write(*drawn); status != done) return status;
    }
    if (*page)
      if (const int status = (*page)->write(page_of(shown, list)); status != done) return status;
  }
  if (outputs.json) {
    json_writer out;
    write_document(out, shown, source_boxes_of(shown.bound, shown.tensor, most_listed));
    return done;
  }
  if (*picture || *page) return done;
  return print(text_of(shown)) ? done : not_completed;
}

}  // namespace tool
