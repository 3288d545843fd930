// SPDX-License-Identifier: Apache-2.0
// The document of `inspect --json`, and the functions that the list shares with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "json_writer.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.checkpoint_core;

namespace tool {

/// The entries to show, by index: tensors, then objects.
struct shown_entries {
  std::vector<std::size_t> tensors, objects;
};

/// Returns an object to show. An object that cannot be decoded (an unknown transform) is shown as opaque: it exists all
/// the same.
shardmesh::result<shardmesh::object_value> shown_object(shardmesh::checkpoint_reader& reader, std::size_t index);

/// Whether the reader's own problems, which every command prints, report this entry for the same reason.
bool is_said(const shardmesh::checkpoint_reader& reader, const shardmesh::error& cause);

/// The texts that the files' writers attached, by key: the different values with the files that have them.
using texts_by_key = std::map<std::string_view, std::vector<const shardmesh::file_text*>>;
texts_by_key different_texts(const shardmesh::catalog& contents);

/// The chunks of the shown tensors that lie in files of other folders (an incremental save).
struct shown_references {
  std::int64_t bytes = 0;  // of their elements; saturates
  std::set<std::string> folders;
};
shown_references references_in(const shardmesh::catalog& contents, const shown_entries& shown);

/// Writes the whole document. Returns the exit status: an entry that cannot be read is reported, and listed as a
/// problem.
int write_document(json_writer& out, shardmesh::checkpoint_reader& reader, const shown_entries& shown,
                   const shardmesh::global_report* globals);
/// Writes the document of a checkpoint that cannot be opened.
void write_document_of_nothing(json_writer& out, const shardmesh::error& cause,
                               const shardmesh::global_report* globals);

}  // namespace tool
