// SPDX-License-Identifier: Apache-2.0
// Decides which files and items of a checkpoint are searched for pickles.
module;
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.dcp;
import :global_collector;
import :item_scan;
import :pickle_globals;
import :pickle_scan;
import :searched_files;
import :stored_readers;

namespace shardmesh {
namespace fs = places;
namespace {

// `name` is relative to the checkpoint's folder.
void scan_file(const fs::path& path, const std::string& name, const checkpoint_reader* reader, global_collector& into) {
  if (scan_nemo(path, name, into)) return;
  file_pool pool(1);
  auto source = pool.open(path);
  const std::string no_key;
  if (!source) {
    // An unread file may hold a pickle, unless it was removed after it was listed. Without a reader, the caller has an
    // error already; a store, however, may have failed for this file only.
    const bool is_unread = reader != nullptr && source.error().sys != ENOENT;
    if (is_url(path) || is_unread) into.problem(std::move(source).error(), no_key);
    return;
  }
  scan_bytes(**source, {.file = name, .key = no_key, .known = reader ? dcp::names_of_metadata(*reader, path) : nullptr},
             into);
}

bool holds_items(checkpoint_format format) {
  return format == checkpoint_format::dcp || format == checkpoint_format::torchsnapshot ||
         format == checkpoint_format::parts || format == checkpoint_format::delta;
}

}  // namespace

global_report find_globals(const fs::path& path, checkpoint_reader* reader, const global_options& options) {
  global_collector found(options);
  const places::remembered_answers answers;
  std::error_code code;
  const bool is_metadata = path.filename() == ".metadata";
  const fs::path folder = is_metadata ? path.parent_path() : path;
  if (!is_metadata && !fs::is_directory(path, code)) {
    scan_file(path, fs::name_of(path).string(), reader, found);
  } else {
    const bool is_parts = reader != nullptr && reader->contents().format == checkpoint_format::parts;
    for (const fs::path& file : is_parts ? files_below(folder, reader->contents()) : files_beside(folder))
      scan_file(file, file.lexically_relative(folder).string(), reader, found);
  }
  if (reader != nullptr && holds_items(reader->contents().format)) {
    scan_items(*reader, options.threads, found);
    for (checkpoint_reader* const copies : readers_of_copies(*reader)) scan_items(*copies, options.threads, found);
  }
  global_report report = found.take();
  // If a store failed to list a folder or to describe a file, the search may have missed a pickle. Without a reader,
  // the caller has an error already.
  auto failed = answers.failure();
  if (failed && reader != nullptr && report.problems.empty()) report.problems.push_back(*std::move(failed));
  return report;
}

}  // namespace shardmesh
