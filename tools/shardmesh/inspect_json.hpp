// SPDX-License-Identifier: Apache-2.0
// The document of `inspect --json`, and what the list takes from the same places.
#pragma once
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "json_writer.hpp"

import shardmesh;
import shardmesh.catalog;

namespace tool {

/// The entries to show, by index: tensors, then objects.
struct shown_entries {
  std::vector<std::size_t> tensors, objects;
};

/// An object behind something that we do not decode (an unknown transform) is shown as opaque: it is there all the
/// same.
shardmesh::result<shardmesh::object_value> shown_object(shardmesh::checkpoint_reader& reader, std::size_t index);

/// Whether the reader's own problems, which every command prints, name the entry for the same reason.
bool is_said(const shardmesh::checkpoint_reader& reader, const shardmesh::error& cause);

/// What the files' writers attached to them, key by key: the different values with the files that say so.
using texts_by_key = std::map<std::string_view, std::vector<const shardmesh::file_text*>>;
texts_by_key different_texts(const shardmesh::catalog& contents);

/// The whole document. Returns the exit status: what cannot be read is said and stands in it as a problem.
int write_document(json_writer& out, shardmesh::checkpoint_reader& reader, const shown_entries& shown,
                   const shardmesh::global_report* globals);
/// The document of a checkpoint that cannot be opened.
void write_document_of_nothing(json_writer& out, const shardmesh::error& cause,
                               const shardmesh::global_report* globals);

}  // namespace tool
