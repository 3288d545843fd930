// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.gguf;
import shardmesh.storage;
import :sidecar_metadata;
import :stored_readers;

namespace shardmesh {
namespace {

// Classes that describe which rank has which part, or where it was written.
bool is_layout_class(std::string_view name) {
  constexpr auto known = std::to_array<std::string_view>(
      {"SavePlan", "LoadPlan", "WriteItem", "ReadItem", "TensorWriteData", "ChunkStorageMetadata", "MetadataIndex",
       "_StorageInfo", "ShardMetadata", "ShardedTensorMetadata", "MCoreSavePlan", "DTensorSpec"});
  return std::find(known.begin(), known.end(), name) != known.end();
}

// True for the name of a plan, and for a value that contains an instance of a layout class.
bool describes_layout(std::string_view name, pickle::value value) {
  if (name.find("local_plan") != std::string_view::npos || name.find("global_plan") != std::string_view::npos ||
      name.find("central_plan") != std::string_view::npos || name.find("save_plan") != std::string_view::npos)
    return true;
  std::vector<pickle::value> pending{value};
  std::unordered_set<std::uint64_t> seen;
  while (!pending.empty()) {
    const pickle::value next = pending.back();
    pending.pop_back();
    switch (next.kind()) {
      case pickle::kind::global:
        if (is_layout_class(next.global_name())) return true;
        break;
      case pickle::kind::record:
        if (!seen.insert(next.identity()).second) break;
        for (const pickle::value part :
             {next.callable(), next.args(), next.keyword_args(), next.state(), next.appended(), next.assigned()})
          if (part) pending.push_back(part);
        break;
      case pickle::kind::dict:
        if (!seen.insert(next.identity()).second) break;
        for (const auto [key, item] : next.pairs()) {
          pending.push_back(key);
          pending.push_back(item);
        }
        break;
      case pickle::kind::list:
      case pickle::kind::tuple:
      case pickle::kind::set:
      case pickle::kind::frozenset:
        if (!seen.insert(next.identity()).second) break;
        for (const pickle::value item : next.items()) pending.push_back(item);
        break;
      default:
        break;
    }
  }
  return false;
}

// Chunks in comparable form: sorted by box, without empty ones.
std::vector<output_chunk> sorted_chunks(std::vector<output_chunk> chunks) {
  std::erase_if(chunks, [](const output_chunk& chunk) { return chunk.where.is_empty(); });
  std::sort(chunks.begin(), chunks.end(), [](const auto& a, const auto& b) { return a.where < b.where; });
  return chunks;
}

bool keeps_tensor(const catalog& stored, const tensor_entry& was, const output_tensor& is) {
  if (was.key != is.key || was.type != is.type || was.shape != is.bytes.from.global_shape()) return false;
  std::vector<output_chunk> chunks;
  for (std::int32_t c = was.first_chunk; c < was.first_chunk + was.chunk_count; ++c)
    chunks.push_back(
        {stored.chunk_box(was, c), writer_of_file(stored, stored.chunk_places[static_cast<std::size_t>(c)].file)});
  const auto before = sorted_chunks(std::move(chunks)), after = sorted_chunks(is.chunks);
  return std::equal(before.begin(), before.end(), after.begin(), after.end(),
                    [](const auto& a, const auto& b) { return a.where == b.where && a.rank == b.rank; });
}

// True when the destination has the same entries, each cut and owned as in the source.
bool keeps_layout(const catalog& stored, std::span<const output_tensor> tensors,
                  std::span<const output_object> objects) {
  return std::equal(stored.tensors.begin(), stored.tensors.end(), tensors.begin(), tensors.end(),
                    [&](const auto& was, const auto& is) { return keeps_tensor(stored, was, is); }) &&
         std::equal(stored.objects.begin(), stored.objects.end(), objects.begin(), objects.end(),
                    [&](const auto& was, const auto& is) {
                      return was.key == is.key && writer_of_file(stored, was.place.file) == is.rank;
                    });
}

void drop_stale(std::vector<std::pair<std::string, pickle::value>>& values, std::string_view of,
                std::vector<std::string>& notes) {
  std::erase_if(values, [&](const auto& named) {
    if (!describes_layout(named.first, named.second)) return false;
    notes.push_back(fmt::format("{} of the {} describes the old layout and is left out", named.first, of));
    return true;
  });
}

// The side files of a folder, if its format is in the destination's family; otherwise, a note names all of them.
result<std::vector<side_file>> carried_files(const checkpoint_reader& reader, const target& to,
                                             std::vector<std::string>& notes) {
  // gathered_parts has named the files that belong to no part.
  if (reader.contents().format == checkpoint_format::parts) return std::vector<side_file>{};
  SHARDMESH_TRY(const places::file_status there, places::checked_status(reader.path()));
  if (!places::is_directory(there)) return std::vector<side_file>{};
  SHARDMESH_TRY(side_files found, find_side_files(reader.path(), reader.stored().contents()));
  const auto family = to.side_files_of;
  if (std::find(family.begin(), family.end(), reader.contents().format) == family.end()) {
    // The entries of common.pt are among the reader's entries, so they are converted.
    if (!dcp::extras_of(reader).common_keys.empty())
      std::erase_if(found.files, [](const side_file& file) { return file.name == "common.pt"; });
    for (side_file& file : found.files) found.left.push_back(std::move(file.name));
    std::sort(found.left.begin(), found.left.end());
    found.files.clear();
  }
  if (!found.left.empty()) notes.push_back(not_copied_note(found.left));
  return std::move(found.files);
}

// Returns which file has a text, as a note says it. A .nemo file that holds a folder has the folder's format.
std::string_view place_of(const checkpoint_reader& reader, const file_text& text) {
  const catalog& contents = reader.contents();
  const auto number = static_cast<std::size_t>(text.file);
  const bool is_of_gguf = text.file >= 0 && number < contents.files.size() && contents.files[number].ends_with(".gguf");
  if (is_of_gguf || contents.format == checkpoint_format::gguf) return "of the GGUF file";
  if (contents.format == checkpoint_format::nemo || reader.path().extension() == ".nemo") return "of the .nemo file";
  return "in the __metadata__ of safetensors files";
}

// Adds the types of GGUF's metadata values that this text states, as "key (type)". Returns false when it states none.
bool add_value_types(const file_text& text, std::set<std::string>& types) {
  if (text.key != gguf::value_types_key || !check_json_depth(text.value, 8)) return false;
  const auto parsed = nlohmann::json::parse(text.value, nullptr, false);
  if (!parsed.is_object()) return false;
  bool is_any = false;
  for (const auto& [key, type] : parsed.items()) {
    if (!type.is_string()) continue;
    types.insert(fmt::format("{} ({})", key, type.get<std::string>()));
    is_any = true;
  }
  return is_any;
}

// Notes the texts of safetensors, GGUF, and .nemo files that a destination without texts cannot keep. Skips the format
// "pt", which every safetensors file gets by default.
void name_texts(const checkpoint_reader& reader, std::vector<std::string>& notes) {
  const catalog& contents = reader.contents();
  std::set<std::string> types;
  std::map<std::string_view, std::set<std::string>> names;  // by place
  for (const file_text& text : contents.texts)
    if (!add_value_types(text, types) && (text.key != "format" || text.value != "pt"))
      names[place_of(reader, text)].insert(text.key);
  const auto listed = [](const std::set<std::string>& all) {
    return name_list(std::vector<std::string>(all.begin(), all.end()));
  };
  if (!types.empty()) notes.push_back("not kept: types of GGUF metadata values: " + listed(types));
  for (const auto& [place, keys] : names) notes.push_back(fmt::format("not kept: texts {}: {}", place, listed(keys)));
}

void add_names(const dcp::extras& extras, std::set<std::string>& names) {
  for (const auto& [name, value] : extras.attributes)
    if (name != "storage_meta") names.insert(name);  // storage_meta: where PyTorch wrote it
  for (const auto& [name, value] : extras.planner_entries) names.insert("planner_data." + name);
}

// Notes the attributes of DCP metadata that a destination without them cannot keep, and always those of a folder's
// parts.
void name_attributes(const checkpoint_reader& reader, bool is_dcp, std::vector<std::string>& notes) {
  std::set<std::string> names;
  if (!is_dcp) add_names(dcp::extras_of(reader), names);
  const catalog& contents = reader.contents();
  if (contents.format == checkpoint_format::parts) {
    for (const checkpoint_reader* part : readers_of_parts(reader)) add_names(dcp::extras_of(*part), names);
  }
  if (names.empty()) return;
  const std::vector<std::string> list(names.begin(), names.end());
  notes.push_back("not kept: attributes of .metadata: " + name_list(list));
}

}  // namespace

void leave_to_side_files(const checkpoint_reader& reader, conversion& work) {
  const std::set<std::string>& keys = dcp::extras_of(reader).common_keys;
  if (keys.empty()) return;
  const catalog& contents = reader.contents();
  std::size_t at = 0, unchanged = 0;
  drop_tensors(work, [&](const output_tensor& tensor) {
    const tensor_entry& stored = contents.tensors[work.sources[at++]];
    if (!keys.contains(stored.key)) return false;
    unchanged += tensor.key == stored.key && tensor.type == stored.type;
    return true;
  });
  at = 0;
  drop_objects(work, [&](const output_object& object) {
    const object_entry& stored = contents.objects[work.object_sources[at++]];
    if (!keys.contains(stored.key)) return false;
    unchanged += object.key == stored.key;
    return true;
  });
  // An entry that cannot be written separately can still be copied with its file.
  std::erase_if(work.unsupported, [&](const error& why) {
    if (!keys.contains(why.key)) return false;
    const object_entry* const object = contents.find_object(why.key);
    work.unsupported_tensors -= object ? object->hidden_tensors : 1;
    work.unsupported_objects -= object ? 1 : 0;
    ++unchanged;
    return true;
  });
  if (unchanged < keys.size())
    work.notes.push_back(fmt::format("common.pt is copied as it is, also {} of its entries that the selection changes",
                                     keys.size() - unchanged));
}

std::vector<error> check_side_entries(checkpoint_reader& reader, int threads) {
  const std::set<std::string>& keys = dcp::extras_of(reader).common_keys;
  const catalog& contents = reader.contents();
  std::vector<error> problems;
  std::vector<whole_entry> whole;
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
    const tensor_entry& tensor = contents.tensors[i];
    if (!keys.contains(tensor.key)) continue;
    if (!tensor.opaque_type.empty()) whole.push_back({true, i});
    if (!tensor.opaque_type.empty() || tensor.chunk_count == 0) continue;
    const auto opened = reader.open_chunk(tensor, tensor.first_chunk);
    if (!opened)
      problems.push_back(opened.error());
    else if (auto sums = check_chunk_bytes(**opened); !sums)
      problems.push_back(std::move(sums).error().with_key(tensor.key));
  }
  for (std::size_t i = 0; i < contents.objects.size(); ++i)
    if (keys.contains(contents.objects[i].key)) whole.push_back({false, i});
  check_outcome outcome = reader.check_whole(whole, {.quick = false, .threads = threads});
  std::move(outcome.problems.begin(), outcome.problems.end(), std::back_inserter(problems));
  return problems;
}

result<dcp::extras> carried_to_dcp(const checkpoint_reader& reader, std::span<const output_tensor> tensors,
                                   std::span<const output_object> objects, std::vector<std::string>& notes) {
  dcp::extras extras = dcp::extras_of(reader);
  if (!keeps_layout(reader.stored().contents(), tensors, objects)) {
    drop_stale(extras.attributes, "metadata", notes);
    drop_stale(extras.planner_entries, "planner data", notes);
  }
  text_merge texts(reader.contents());
  extras.texts = texts.of_all();
  for (std::string& note : texts.notes()) notes.push_back(std::move(note));
  name_attributes(reader, true, notes);
  SHARDMESH_TRY(extras.side_files, carried_files(reader, target_of(target_format::dcp), notes));
  return extras;
}

// The config.json of a model that is cast still names the old dtype.
static void note_casts(const safetensors::file_options& options, std::span<const output_tensor> tensors,
                       std::vector<std::string>& notes) {
  const bool has_config = std::any_of(options.side_files.begin(), options.side_files.end(),
                                      [](const side_file& file) { return file.name == "config.json"; });
  const bool is_cast = std::any_of(tensors.begin(), tensors.end(),
                                   [](const output_tensor& tensor) { return tensor.type != tensor.bytes.from_type; });
  if (has_config && is_cast)
    notes.push_back("config.json is copied as it is: a dtype that it names is the one from before the cast");
}

result<target_settings> carried_to(const target& to, const checkpoint_reader& reader, const conversion& work,
                                   std::vector<std::string>& notes) {
  target_settings made;
  if (to.format == target_format::dcp) {
    SHARDMESH_TRY(made.metadata, carried_to_dcp(reader, work.tensors, work.objects, notes));
    return made;
  }
  SHARDMESH_TRY(made.files.side_files, carried_files(reader, to, notes));
  name_attributes(reader, false, notes);
  if (!to.has_texts) {
    name_texts(reader, notes);
    return made;
  }
  made.files.carried = &reader.contents();
  if (!reader.contents().stem.empty()) made.files.stem = reader.contents().stem;
  note_casts(made.files, work.tensors, notes);
  return made;
}

}  // namespace shardmesh
