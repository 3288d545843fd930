// SPDX-License-Identifier: Apache-2.0
// The document of `diff --json`, and the counts and lines that the text shares with it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json_writer.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace tool {

/// Tensors that no entry names, so that they are not compared: on the left and on the right side.
using unread_counts = std::array<std::int64_t, 2>;

/// The comparison of two checkpoints, whose paths are `left` and `right`. It must outlive the call that it is given to.
struct compared_checkpoints {
  const shardmesh::diff_report& outcome;
  const std::string& left;
  const std::string& right;
  unread_counts unread;
  const std::vector<std::string>& notes;
};

/// How many keys differ, and how many differences of each kind there are.
struct difference_counts {
  std::size_t keys = 0;
  std::map<std::string_view, std::int64_t> by_kind;
};
difference_counts counts_of(const std::vector<shardmesh::key_difference>& differences);

/// Returns the line of a difference: "w: shape [2] against [3]".
std::string line_of(const shardmesh::key_difference& d);

/// The most that a document lists. It counts the rest in "more_differences", "more_problems", and "more_notes".
struct diff_limits {
  std::size_t differences = std::numeric_limits<std::size_t>::max();
  std::size_t difference_bytes = std::numeric_limits<std::size_t>::max();  // of their keys and texts
  std::size_t problems = std::numeric_limits<std::size_t>::max();
  std::size_t notes = std::numeric_limits<std::size_t>::max();
};

void write_document(json_writer& out, const compared_checkpoints& all, const diff_limits& most);

}  // namespace tool
