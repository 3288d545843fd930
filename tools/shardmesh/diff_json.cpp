// SPDX-License-Identifier: Apache-2.0
#include "diff_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "known_options.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.tree;

namespace tool {
using namespace shardmesh;

namespace {

// The text of an unreadable entry is that of an error, whose hint offers options.
std::string text_of(const key_difference& d) {
  const std::size_t hint = d.kind == difference_kind::unreadable ? d.text.find("; ") : std::string::npos;
  if (hint == std::string::npos) return d.text;
  const std::string offered = without_unknown_options(d.text.substr(hint + 2));
  return d.text.substr(0, hint) + (offered.empty() ? "" : "; " + offered);
}

void write(json_writer& out, const key_difference& d) {
  out.begin_object().member("key", d.key).member("kind", name(d.kind)).member("text", text_of(d));
  if (d.kind == difference_kind::values)
    out.member("different", d.different)
        .member("elements", d.elements)
        .key("first_index")
        .list(d.first_index)
        .member("largest_difference", fmt::format("{}", d.largest));
  out.end_object();
}

// Writes null if unreadable entries are the only differences.
void write_equality(json_writer& out, const diff_report& report) {
  out.key("equal");
  for (const key_difference& d : report.differences)
    if (d.kind != difference_kind::unreadable) return static_cast<void>(out.value(false));
  if (report.problems.empty())
    out.value(true);
  else
    out.null();
}

// Returns how many differences the document lists.
std::size_t listed_differences(const diff_report& report, const diff_limits& most) {
  std::size_t count = 0, room = most.difference_bytes;
  for (const key_difference& d : report.differences) {
    const std::size_t bytes = d.key.size() + d.text.size();
    if (count == most.differences || bytes > room) break;
    room -= bytes;
    ++count;
  }
  return count;
}

// Writes {"only-left":1,"values":2}: of all differences, also of those that are not listed.
void write_counts(json_writer& out, const difference_counts& counts) {
  out.member("differing_keys", counts.keys).key("kinds").begin_object();
  for (const auto& [kind, count] : counts.by_kind) out.member(kind, count);
  out.end_object();
}

// The first problems are the unreadable differences, in the same order; their lines are already printed.
void write_problems(json_writer& out, const diff_report& outcome, std::size_t most) {
  const std::size_t listed = std::min(outcome.problems.size(), most);
  auto unreadable = outcome.differences.begin();
  out.key("problems").begin_list();
  for (std::size_t i = 0; i < listed; ++i) {
    unreadable = std::find_if(unreadable, outcome.differences.end(),
                              [](const key_difference& d) { return d.kind == difference_kind::unreadable; });
    if (unreadable == outcome.differences.end())
      write(out, outcome.problems[i]);
    else
      write(out, outcome.problems[i], line_of(*unreadable++));
  }
  out.end_list().member("more_problems", outcome.problems.size() - listed);
}

void write_notes(json_writer& out, const std::vector<std::string>& notes, std::size_t most) {
  const std::size_t listed = std::min(notes.size(), most);
  out.key("notes").begin_list();
  for (std::size_t i = 0; i < listed; ++i) out.value(notes[i]);
  out.end_list();
  if (listed < notes.size()) out.member("more_notes", notes.size() - listed);
}

}  // namespace

difference_counts counts_of(const std::vector<key_difference>& differences) {
  difference_counts counts;
  std::set<std::string_view> keys;
  for (const key_difference& d : differences) ++counts.by_kind[name(d.kind)], keys.insert(d.key);
  counts.keys = keys.size();
  return counts;
}

std::string line_of(const key_difference& d) {
  return fmt::format("{}: {}", d.key.empty() ? "\"\"" : escaped(d.key), escaped(text_of(d)));
}

void write_document(json_writer& out, const compared_checkpoints& all, const diff_limits& most) {
  const diff_report& outcome = all.outcome;
  const std::size_t listed = listed_differences(outcome, most);
  out.begin_object().member("ok", outcome.problems.empty()).member("left", all.left).member("right", all.right);
  write_equality(out, outcome);
  write_counts(out, counts_of(outcome.differences));
  out.key("differences").begin_list();
  for (std::size_t i = 0; i < listed; ++i) write(out, outcome.differences[i]);
  out.end_list().member("more_differences", outcome.differences.size() - listed);
  write_problems(out, outcome, most.problems);
  out.member("tensors", outcome.tensors)
      .member("objects", outcome.objects)
      .member("bytes", outcome.bytes)
      .key("unread_tensors")
      .list(all.unread);
  write_notes(out, all.notes, most.notes);
  out.end_object().finish();
}

}  // namespace tool
