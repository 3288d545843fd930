// SPDX-License-Identifier: Apache-2.0
#include "inspect_json.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "inspect_summary.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.storage;

namespace tool {
using namespace shardmesh;

namespace {

void write_tensor(json_writer& out, const catalog& contents, const tensor_entry& tensor) {
  out.key(tensor.key).begin_object().member("dtype", name(tensor.type)).key("shape").list(tensor.shape);
  if (const std::string blocks = block_type_of(contents, tensor); !blocks.empty()) out.member("blocks", blocks);
  out.member("bytes", bytes_of(contents, tensor)).key("chunks").begin_list();
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    const std::int32_t chunk = tensor.first_chunk + i;
    const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
    out.begin_object();
    write_box(out, contents.chunk_box(tensor, chunk));
    if (place.file >= 0)
      out.member("file", contents.files[static_cast<std::size_t>(place.file)])
          .member("offset", place.offset)
          .member("length", place.length);
    else
      out.key("file").null().key("offset").null().key("length").null();
    out.end_object();
  }
  out.end_list().end_object();
}

void write_opaque(json_writer& out, const catalog& contents, const tensor_entry& tensor) {
  out.key(tensor.key)
      .begin_object()
      .member("kind", "opaque-tensor")
      .member("type", tensor.opaque_type)
      .key("value")
      .null()
      .member("representation", tensor.opaque_kind)
      .member("bytes", bytes_of(contents, tensor))
      .end_object();
}

// Writes the tensors inside an object, under the keys that they get when the object is split into its tensors.
void write_tensors_inside(json_writer& out, const std::vector<tensor_entry>& tensors) {
  if (tensors.empty()) return;
  out.key("tensors").begin_object();
  for (const tensor_entry& tensor : tensors)
    out.key(tensor.key).begin_object().member("dtype", name(tensor.type)).key("shape").list(tensor.shape).end_object();
  out.end_object();
}

// Ends a document with the list of problems, if there are any. `more`: the number of others.
void end_document(json_writer& out, const std::vector<error>& problems, std::int64_t more,
                  const global_report* globals) {
  out.key("globals");
  if (globals == nullptr)
    out.null();
  else
    write(out, *globals);
  if (!problems.empty()) {
    out.member("ok", false);
    write_problems(out, problems, more);
  }
  out.end_object().finish();
}

std::string_view file_of(const catalog& contents, const file_text& text) {
  return text.file < 0 ? std::string_view{} : contents.files[static_cast<std::size_t>(text.file)];
}

// Writes {KEY:VALUE}; if files differ, {KEY:{FILE:VALUE}} with the first file of each value.
void write_texts(json_writer& out, const catalog& contents) {
  out.key("metadata").begin_object();
  for (const auto& [key, values] : different_texts(contents)) {
    out.key(key);
    if (values.size() == 1) {
      out.value(values.front()->value);
      continue;
    }
    out.begin_object();
    for (const file_text* text : values) out.member(file_of(contents, *text), text->value);
    out.end_object();
  }
  out.end_object();
}

// Writes {FILE:{"rank":N}}; null if the file name has no rank.
void write_files(json_writer& out, const catalog& contents) {
  out.key("files").begin_object();
  for (const std::string& file : contents.files) {
    out.key(file).begin_object().key("rank");
    if (const auto rank = rank_of_file(file))
      out.value(*rank);
    else
      out.null();
    out.end_object();
  }
  out.end_object();
}

}  // namespace

result<object_value> shown_object(checkpoint_reader& reader, std::size_t index) {
  auto value = reader.read_object(index);
  if (value || value.error().code != errc::unsupported) return value;
  print_warning(value.error());
  return object_value{"opaque", value.error().found, "null"};
}

bool is_said(const checkpoint_reader& reader, const error& cause) {
  return std::any_of(reader.problems().begin(), reader.problems().end(),
                     [&](const error& known) { return known.code == cause.code && known.key == cause.key; });
}

texts_by_key different_texts(const catalog& contents) {
  texts_by_key texts;
  for (const file_text& text : contents.texts) {
    auto& values = texts[text.key];
    if (std::none_of(values.begin(), values.end(), [&](const file_text* known) { return known->value == text.value; }))
      values.push_back(&text);
  }
  return texts;
}

shown_references references_in(const catalog& contents, const shown_entries& shown) {
  shown_references found;
  std::vector<std::string> folders;  // by file; empty: in the checkpoint's own folder
  for (const std::string& file : contents.files) {
    auto sibling = parse_sibling_file(file);
    folders.push_back(sibling ? std::move(sibling->folder) : std::string());
  }
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      const std::int32_t file = contents.chunk_places[static_cast<std::size_t>(chunk)].file;
      if (file < 0 || folders[static_cast<std::size_t>(file)].empty()) continue;
      found.folders.insert(folders[static_cast<std::size_t>(file)]);
      const auto size = size_bytes(tensor.type, contents.chunk_box(tensor, chunk).volume());
      found.bytes = checked_add(found.bytes, size.value_or(0)).value_or(INT64_MAX);
    }
  }
  return found;
}

int write_document(json_writer& out, checkpoint_reader& reader, const shown_entries& shown,
                   const global_report* globals) {
  const catalog& contents = reader.contents();
  // Objects are read first: once begun, a document must be completed.
  std::map<std::size_t, object_value> values;
  std::vector<error> problems(reader.problems().begin(), reader.problems().end());
  int status = done;
  for (const std::size_t i : shown.objects) {
    auto value = shown_object(reader, i);
    if (value) {
      values[i] = std::move(*value);
    } else if (!is_said(reader, value.error()) && (problems.empty() || problems.back() != value.error())) {
      // Likewise, a limit that was reached is reported only once.
      status = std::max(status, report(value.error()));
      problems.push_back(value.error());
    }
  }
  out.begin_object().member("format", name(contents.format)).key("version");
  if (contents.version.empty())
    out.null();
  else
    out.value(contents.version);
  out.key("tensors").begin_object();
  for (const std::size_t i : shown.tensors)
    if (contents.tensors[i].opaque_type.empty()) write_tensor(out, contents, contents.tensors[i]);
  out.end_object().key("objects").begin_object();
  for (const auto& [i, value] : values) {
    out.key(contents.objects[i].key)
        .begin_object()
        .member("kind", value.kind)
        .member("type", value.type)
        .key("value")
        .raw(value.json);
    write_tensors_inside(out, value.tensors);
    out.end_object();
  }
  for (const std::size_t i : shown.tensors)
    if (!contents.tensors[i].opaque_type.empty()) write_opaque(out, contents, contents.tensors[i]);
  out.end_object();
  write_files(out, contents);
  if (const shown_references found = references_in(contents, shown); !found.folders.empty())
    out.key("referred").begin_object().member("bytes", found.bytes).key("folders").list(found.folders).end_object();
  write_texts(out, contents);
  if (globals != nullptr) problems.insert(problems.end(), globals->problems.begin(), globals->problems.end());
  end_document(out, problems, globals == nullptr ? 0 : globals->more_problems, globals);
  return status;
}

void write_document_of_nothing(json_writer& out, const error& cause, const global_report* globals) {
  out.begin_object().key("format").null().key("version").null();
  for (const char* none : {"tensors", "objects", "files", "metadata"}) out.key(none).begin_object().end_object();
  // `cause` also covers defects of the checkpoint's pickles, so those of `globals` are not repeated.
  end_document(out, {cause}, 0, globals);
}

}  // namespace tool
