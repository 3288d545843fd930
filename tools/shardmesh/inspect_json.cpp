// SPDX-License-Identifier: Apache-2.0
#include "inspect_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.catalog;

namespace tool {
using namespace shardmesh;

namespace {

void print_json_tensor(out_buffer& out, const catalog& contents, const tensor_entry& tensor) {
  const std::int64_t numel = checked_volume(tensor.shape).value_or(0);
  out.print(R"({}:{{"dtype":"{}","shape":[{}],"bytes":{},"chunks":[)", json_quoted(tensor.key), name(tensor.type),
            fmt::join(tensor.shape.begin(), tensor.shape.end(), ","), size_bytes(tensor.type, numel).value_or(0));
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    const std::int32_t chunk = tensor.first_chunk + i;
    const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
    out.print("{}{{{}", i == 0 ? "" : ",", box_members(contents.chunk_box(tensor, chunk)));
    if (place.file >= 0)
      out.print(R"(,"file":{},"offset":{},"length":{}}})",
                json_quoted(contents.files[static_cast<std::size_t>(place.file)]), place.offset, place.length);
    else
      out.print(R"(,"file":null,"offset":null,"length":null}})");
  }
  out.print("]}}");
}

// The tensors inside an object, by the keys that they get where it is taken apart.
void print_tensors_inside(out_buffer& out, const std::vector<tensor_entry>& tensors) {
  if (tensors.empty()) return;
  std::string_view separator = R"(,"tensors":{)";
  for (const tensor_entry& tensor : tensors) {
    out.print(R"({}{}:{{"dtype":"{}","shape":[{}]}})", separator, json_quoted(tensor.key), name(tensor.type),
              fmt::join(tensor.shape.begin(), tensor.shape.end(), ","));
    separator = ",";
  }
  out.print("}}");
}

// A list of what is wrong ends a document, where there is something.
void end_json(out_buffer& out, std::vector<error> problems, const global_report* globals) {
  if (globals != nullptr) problems.insert(problems.end(), globals->problems.begin(), globals->problems.end());
  out.print(R"(,"globals":{})", globals == nullptr ? "null" : fmt::format("[{}]", to_json(*globals)));
  if (!problems.empty()) out.print(R"(,"ok":false,"problems":[{}])", to_json(problems));
  out.print("}}\n");
  out.flush();
}

std::string_view file_of(const catalog& contents, const file_text& text) {
  return text.file < 0 ? std::string_view{} : contents.files[static_cast<std::size_t>(text.file)];
}

// {KEY:VALUE}; where files differ {KEY:{FILE:VALUE}}, the first file of each value.
void print_json_texts(out_buffer& out, const catalog& contents) {
  out.print(R"(,"metadata":{{)");
  std::string_view separator;
  for (const auto& [key, values] : different_texts(contents)) {
    out.print("{}{}:", separator, json_quoted(key));
    separator = ",";
    if (values.size() == 1) {
      out.print("{}", json_quoted(values.front()->value));
      continue;
    }
    std::string_view inner = "{";
    for (const file_text* text : values) {
      out.print("{}{}:{}", inner, json_quoted(file_of(contents, *text)), json_quoted(text->value));
      inner = ",";
    }
    out.print("}}");
  }
  out.print("}}");
}

// {FILE:{"rank":N}}: null where the name says no rank.
void print_files(out_buffer& out, const catalog& contents) {
  out.print(R"(,"files":{{)");
  std::string_view separator;
  for (const std::string& file : contents.files) {
    const auto rank = rank_of_file(file);
    out.print(R"({}{}:{{"rank":{}}})", separator, json_quoted(file), rank ? std::to_string(*rank) : "null");
    separator = ",";
  }
  out.print("}}");
}

}  // namespace

result<object_value> shown_object(checkpoint_reader& reader, std::size_t index) {
  auto value = reader.read_object(index);
  if (value || value.error().code != errc::unsupported) return value;
  print_warning(value.error());
  return object_value{"opaque", value.error().found, "null"};
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

int write_document(out_buffer& out, checkpoint_reader& reader, const shown_entries& shown,
                   const global_report* globals) {
  const catalog& contents = reader.contents();
  // Objects are read first: a document that was begun must be whole.
  std::map<std::size_t, object_value> values;
  std::vector<error> problems(reader.problems().begin(), reader.problems().end());
  int status = done;
  for (const std::size_t i : shown.objects) {
    auto value = shown_object(reader, i);
    if (value) {
      values[i] = std::move(*value);
    } else if (problems.empty() || problems.back() != value.error()) {  // a limit that was met is said once
      status = std::max(status, report(value.error()));
      problems.push_back(value.error());
    }
  }
  out.print(R"({{"format":"{}","version":{},"tensors":{{)", name(contents.format),
            contents.version.empty() ? "null" : json_quoted(contents.version));
  std::string_view separator;
  std::vector<const tensor_entry*> opaque;
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    if (!tensor.opaque_type.empty()) {
      opaque.push_back(&tensor);
      continue;
    }
    out.print("{}", separator);
    print_json_tensor(out, contents, tensor);
    separator = ",";
  }
  out.print(R"(}},"objects":{{)");
  separator = "";
  for (const auto& [i, value] : values) {
    out.print(R"({}{}:{{"kind":{},"type":{},"value":{})", separator, json_quoted(contents.objects[i].key),
              json_quoted(value.kind), json_quoted(value.type), value.json);
    print_tensors_inside(out, value.tensors);
    out.print("}}");
    separator = ",";
  }
  for (const tensor_entry* tensor : opaque) {
    out.print(R"({}{}:{{"kind":"opaque-tensor","type":{},"value":null,"representation":{}}})", separator,
              json_quoted(tensor->key), json_quoted(tensor->opaque_type), json_quoted(tensor->opaque_kind));
    separator = ",";
  }
  out.print("}}");
  print_files(out, contents);
  print_json_texts(out, contents);
  end_json(out, problems, globals);
  return status;
}

void write_document_of_nothing(out_buffer& out, const error& cause, const global_report* globals) {
  out.print(R"({{"format":null,"version":null,"tensors":{{}},"objects":{{}})");
  end_json(out, {cause}, globals);
}

}  // namespace tool
