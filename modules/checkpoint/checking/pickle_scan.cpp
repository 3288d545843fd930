// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.nemo;
import shardmesh.pickle;
import shardmesh.torch_file;
import :file_content;
import :folder_survey;
import :global_collector;
import :pickle_scan;

namespace shardmesh {
namespace {

constexpr int deepest = 8;  // levels of archives in archives

// True for names of files that may be pickles of protocols 0 and 1, which have no mark at their beginning.
bool is_pickle_name(std::string_view name) {
  for (const std::string_view ending :
       {".metadata", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".joblib", ".dat", ".data"})
    if (name.ends_with(ending)) return true;
  return false;
}

// True for names of compressed data whose first bytes prove little.
bool is_packing_name(std::string_view name) {
  return name.ends_with(".z") || name.ends_with(".zz") || name.ends_with(".zlib") || name.ends_with(".lzma");
}

// True for TorchScript. Its archives contain the code of their classes, and loaders look nowhere else for these classes
// or for TorchScript's few functions that build lists.
bool is_script(const zip_directory& directory, const std::string& record) {
  return directory.find(record.substr(0, record.find('/') + 1) + "constants.pkl") != nullptr;
}

bool is_own_name(std::string_view name) {
  constexpr std::string_view functions = "torch.jit._pickle.";
  if (name.starts_with("__torch__.")) return true;
  if (!name.starts_with(functions)) return false;
  name.remove_prefix(functions.size());  // the rest must be a function of that module, not one of its imports
  return name == "restore_type_tag" || (name.starts_with("build_") && name.find('.') == name.npos);
}

std::vector<pickle::used_name> without_own_names(std::vector<pickle::used_name> names) {
  for (pickle::used_name& name : names)
    if (is_own_name(name.text)) name.harmless = true, name.dangerous = false;
  return names;
}

// Scans a run of pickles whose length only parsing reveals. Reads ever longer prefixes until the run ends within one.
void scan_stream(const byte_source& source, const scanned_place& place, bool is_certain, global_collector& into) {
  // The readers have the same limits: metadata is one pickle up to its end, and other streams have their pickles near
  // the beginning.
  const std::int64_t limit = into.limits().description_bytes;
  const std::int64_t most = std::min(source.size_bytes(), place.file.ends_with(".metadata") ? limit : limit / 4);
  for (std::int64_t window = 1 << 16;; window *= 8) {
    const std::int64_t length = std::min(window, most);
    auto read = read_range(source, 0, length, limit);
    if (!read) {
      into.add(place.file, place.key, {{"<unreadable file>", false, 1}});
      return into.problem(std::move(read).error(), place.key);
    }
    const std::vector<std::byte> bytes = *std::move(read);
    const pickle::used_names found = pickle::names_in(bytes);
    if (found.is_cut && length < most) continue;
    // This is other data with a pickle's name or first byte.
    if (!is_certain && found.names.size() == 1 && found.names[0].text.starts_with("<unreadable")) return;
    return into.add(place.file, place.key, place.is_of_script ? without_own_names(found.names) : found.names);
  }
}

// "archive/data/17" beside "archive/data.pkl" is the bytes of a storage, which torch.load does not unpickle.
bool is_storage(const zip_directory& directory, std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == name.npos || !name.substr(slash).starts_with("/data/")) return false;
  const std::string_view number = name.substr(slash + 6);
  if (number.empty() || number.find_first_not_of("0123456789") != number.npos) return false;
  const std::string_view folder = name.substr(0, slash), main = "/data.pkl";
  const std::string_view first = directory.records().front().name;  // torch.save writes the main pickle first
  if (first.size() == folder.size() + main.size() && first.starts_with(folder) && first.ends_with(main)) return true;
  return directory.find(std::string(folder) + std::string(main)) != nullptr;
}

// Searches a record that `torch_file::for_each_pickle` skips: an archive, an array, or a deflated pickle.
void scan_record(const byte_source& source, const zip_directory& directory, const zip_record& record,
                 const scanned_place& outer, global_collector& into) {
  const bool may_be_pickle = is_pickle_name(record.name);
  if (record.method == 0 && !may_be_pickle) {  // most records: only their first bytes are read
    const section_source bytes(source, record.offset, record.compressed_bytes);
    if (content_of(bytes, is_packing_name(record.name)).kind == content::other) return;
  }
  const std::string file = outer.file + "!" + record.name;
  auto opened = record_content::open(source, record, may_be_pickle, into.budget);
  if (opened)
    return scan_bytes(
        opened->source(),
        {.file = file, .key = outer.key, .depth = outer.depth + 1, .is_of_script = is_script(directory, record.name)},
        into);
  const bool is_too_large = is_beyond_limit(opened.error());
  into.add(file, outer.key,
           {{is_too_large ? "<archived data too large to examine>" : "<unreadable record>", false, 1, is_too_large}});
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  return is_weight_name(name) || name.ends_with(".pt2");
}

result<void> scan_archive(const byte_source& source, const scanned_place& place, global_collector& into) {
  std::vector<error> contradictions;
  SHARDMESH_TRY(const zip_directory directory, zip_directory::read(source, &contradictions));
  // Writers must refuse every problem, but they open only the outer archive. Damage in an inner archive is therefore
  // reported as a name.
  if (place.depth > 0 && !contradictions.empty())
    into.add(place.file, place.key, {{"<archive that contradicts itself>", false, 1, true}});
  if (place.depth == 0)
    for (error& problem : contradictions) into.problem(std::move(problem), place.key);
  if (place.is_item && place.depth == 0)  // readers of whole files warn themselves
    for (error& refusal : torch_file::refusals_of_torch_load(source, directory))
      into.warning(std::move(refusal), place.key);
  const zip_record* main = nullptr;     // most archives have one pickle: no allocation for an item of DCP
  std::set<const zip_record*> scanned;  // the other pickles
  SHARDMESH_TRY(torch_file::for_each_pickle(
      source, directory, into.limits(), {}, [&](torch_file::archived_pickle found) -> result<void> {
        const std::string& name = found.record.name;
        if (main == nullptr)
          main = &found.record;
        else
          scanned.insert(&found.record);
        const std::string file = name.ends_with("/data.pkl") ? place.file : place.file + "!" + name;
        if (found.bytes) {
          std::vector<pickle::used_name> names = into.names_of(*found.bytes);
          into.add(file, place.key, is_script(directory, name) ? without_own_names(std::move(names)) : names);
        } else {
          into.add(file, place.key, {{"<unreadable record>", false, 1, place.depth > 0}});
        }
        if (found.problem && place.depth == 0) into.problem(*std::move(found.problem), place.key);
        return {};
      }));
  for (const zip_record& record : directory.records())
    if (record.offset >= 0 && &record != main && !scanned.contains(&record) && !is_storage(directory, record.name))
      scan_record(source, directory, record, place, into);
  return {};
}

void scan_bytes(const byte_source& whole, const scanned_place& place, global_collector& into) {
  const std::string &file = place.file, &key = place.key;
  // A file without a suffix may be anything. A record without one is not taken for compressed data: raw weights have
  // none.
  const bool may_be_packed = is_pickle_name(file) || is_packing_name(file) ||
                             (place.depth == 0 && !place.is_item && !std::filesystem::path(file).has_extension());
  const auto windows = windowed_source::open(whole);
  const found_content found = windows ? content_of(*windows, may_be_packed) : found_content{};
  switch (found.kind) {
    case content::zip:
      if (place.depth > deepest) return into.add(file, key, {{"<archives too deep in archives>", false, 1, true}});
      if (auto done = scan_archive(*windows, place, into); !done) {
        // A file of another kind may begin like an archive. Inside an archive, such bytes can hide a pickle that Python
        // still reads.
        if (place.depth == 0 && (place.is_item || is_checkpoint_name(file))) into.problem(std::move(done).error(), key);
        into.add(file, key, {{"<unreadable archive>", false, 1, place.depth > 0}});
      }
      return;
    case content::array: {
      const std::int64_t length = whole.size_bytes() - found.pickle_at;
      if (length > 0) scan_stream(section_source(whole, found.pickle_at, length), place, false, into);
      return;
    }
    case content::packed:
      into.add(file, key, {{fmt::format("<{}>", found.packed), false, 1}});
      [[fallthrough]];  // a pickle of protocol 0 can be made to look like packed data
    case content::safetensors:
    case content::other:
    case content::pickle:
    case content::either: {
      const bool is_pickle = found.kind == content::pickle || found.kind == content::either;
      if (!is_pickle && !place.is_item && !is_pickle_name(file)) return;
      if (place.known != nullptr)
        into.add(file, key, place.known->names);
      else
        scan_stream(whole, place, found.kind == content::pickle, into);
    }
  }
}

void scan_inner_archives(const byte_source& source, const std::string& name, global_collector& into) {
  const std::string no_key;
  std::vector<error> contradictions;  // the reader refused them
  const auto directory = zip_directory::read(source, &contradictions);
  if (!directory) return;
  for (const zip_record& record : directory->records()) {
    const bool may_be_archive =
        record.method != 0 || (record.beginning[0] == std::byte{'P'} && record.beginning[1] == std::byte{'K'});
    if (record.offset >= 0 && may_be_archive && !record.name.ends_with(".pkl") && !is_storage(*directory, record.name))
      scan_record(source, *directory, record, {.file = name, .key = no_key}, into);
  }
}

bool scan_nemo(const std::filesystem::path& path, const std::string& name, global_collector& into) {
  if (!nemo::is_nemo_name(name)) return false;
  const auto opened = nemo::archive::open(path, file_pool(1), into.budget);
  if (!opened) return false;
  const std::string no_key;
  for (const tar_member& member : opened->members()) {
    if (member.name.ends_with(".distcp")) continue;  // items, which are searched one by one
    const std::string place = name + "!" + member.name;
    scan_bytes(*opened->bytes_of(member), {.file = place, .key = no_key, .depth = 1}, into);
  }
  return true;
}

}  // namespace shardmesh
