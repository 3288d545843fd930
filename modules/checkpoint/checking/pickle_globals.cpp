// SPDX-License-Identifier: Apache-2.0
// Finds the pickles of a checkpoint by the content of files and records, not by their names, and collects the globals
// that the pickles name.
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.pickle;
import shardmesh.torch_file;
import :file_content;
import :folder_survey;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// True for names of files that may be pickles of protocols 0 and 1, which have no mark at their beginning.
bool is_pickle_name(std::string_view name) {
  for (const std::string_view ending :
       {".metadata", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".joblib", ".dat", ".data"})
    if (name.ends_with(ending)) return true;
  return false;
}

constexpr std::size_t most_problems = 100;
constexpr int deepest = 8;  // levels of archives in archives

// True for names of files that are read as checkpoints: damage there is a problem, and not a sign of another kind of
// file.
bool is_checkpoint_name(std::string_view name) {
  return is_weight_name(name) || name.ends_with(".pt2");
}

// True for names of compressed data whose first bytes prove little.
bool is_packing_name(std::string_view name) {
  return name.ends_with(".z") || name.ends_with(".zz") || name.ends_with(".zlib") || name.ends_with(".lzma");
}

class collector {
 public:
  explicit collector(const global_options& options) : budget(options.limits), options_(options) {}

  void add(const std::string& file, const std::string& key, const std::vector<pickle::used_name>& names) {
    const std::scoped_lock guard(lock_);
    for (const pickle::used_name& name : names) {
      const auto where = name.harmless ? std::tuple(false, std::string(), std::string(), name.text)
                                       : std::tuple(true, file, key, name.text);
      const auto known = index_.find(where);
      if (known != index_.end()) {
        named_global& entry = report.names[known->second];
        entry.count += name.count;
        if (name.harmless && std::tie(file, key) < std::tie(entry.file, entry.key)) entry.file = file, entry.key = key;
        continue;
      }
      // Dangerous names have extra room, so that other names cannot crowd them out.
      if (report.names.size() >= options_.max_names * (name.dangerous ? 2 : 1)) {
        ++report.unnamed;
        continue;
      }
      index_.emplace(where, report.names.size());
      report.names.push_back({file, key, name.text, name.harmless, name.count, name.dangerous});
    }
  }
  void problem(error e, const std::string& key) {
    const std::scoped_lock guard(lock_);
    if (e.key.empty()) e.key = key;
    std::tuple place(e.file, e.key, e.message);
    problems_.emplace(std::move(place), std::move(e));
    if (problems_.size() <= most_problems) return;
    problems_.erase(std::prev(problems_.end()));
    ++report.more_problems;
  }
  // Ends the collection.
  global_report take() {
    for (auto& [place, problem] : problems_) report.problems.push_back(std::move(problem));
    return std::move(report);
  }
  const read_limits& limits() const { return options_.limits; }

  // The names in a pickle. Recent small pickles are remembered: items of tensors of one shape and dtype have equal
  // ones.
  std::vector<pickle::used_name> names_of(std::span<const std::byte> bytes) {
    if (bytes.size() > small_pickle) return pickle::names_in(bytes).names;
    {
      const std::scoped_lock guard(recent_lock_);
      for (const auto& [seen, names] : recent_)
        if (std::ranges::equal(seen, bytes)) return names;
    }
    std::vector<pickle::used_name> names = pickle::names_in(bytes).names;
    const std::scoped_lock guard(recent_lock_);
    if (recent_.size() < most_recent) recent_.emplace_back();
    auto& [seen, known] = recent_[next_recent_++ % most_recent];
    seen.assign(bytes.begin(), bytes.end());
    known = names;
    return names;
  }

  global_report report;
  read_budget budget;  // for data that is inflated on the way

 private:
  static constexpr std::size_t small_pickle = 4096, most_recent = 16;
  const global_options& options_;
  std::mutex lock_;
  std::map<std::tuple<bool, std::string, std::string, std::string>, std::size_t> index_;
  std::mutex recent_lock_;
  std::vector<std::pair<std::vector<std::byte>, std::vector<pickle::used_name>>> recent_;
  std::size_t next_recent_ = 0;
  std::multimap<std::tuple<std::string, std::string, std::string>, error> problems_;  // by file, key and message
};

std::vector<pickle::used_name> without_own_names(std::vector<pickle::used_name> names);

// Scans a run of pickles whose length only parsing reveals. Reads ever longer prefixes until the run ends within one.
void scan_stream(const byte_source& source, const std::string& file, const std::string& key, bool is_certain,
                 bool is_of_script, collector& into) {
  // The readers have the same limits: metadata is one pickle up to its end, and other streams have their pickles near
  // the beginning.
  const std::int64_t limit = into.limits().description_bytes;
  const std::int64_t most = std::min(source.size_bytes(), file.ends_with(".metadata") ? limit : limit / 4);
  for (std::int64_t window = 1 << 16;; window *= 8) {
    const std::int64_t length = std::min(window, most);
    auto read = read_range(source, 0, length, limit);
    if (!read) {
      into.add(file, key, {{"<unreadable file>", false, 1}});
      return into.problem(std::move(read).error(), key);
    }
    const std::vector<std::byte> bytes = *std::move(read);
    const pickle::used_names found = pickle::names_in(bytes);
    if (found.is_cut && length < most) continue;
    // This is other data with a pickle's name or first byte.
    if (!is_certain && found.names.size() == 1 && found.names[0].text.starts_with("<unreadable")) return;
    return into.add(file, key, is_of_script ? without_own_names(found.names) : found.names);
  }
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

void scan(const byte_source& whole, const std::string& file, const std::string& key, bool is_item, int depth,
          bool is_of_script, const pickle::used_names* known, collector& into);

// Searches a record that `torch_file::for_each_pickle` skips: an archive, an array, or a deflated pickle.
void scan_record(const byte_source& source, const zip_directory& directory, const zip_record& record,
                 const std::string& file, const std::string& key, int depth, collector& into) {
  const bool may_be_pickle = is_pickle_name(record.name);
  if (record.method == 0 && !may_be_pickle) {  // most records: only their first bytes are read
    const section_source bytes(source, record.offset, record.compressed_bytes);
    if (content_of(bytes, is_packing_name(record.name)).kind == content::other) return;
  }
  const std::string place = file + "!" + record.name;
  auto opened = record_content::open(source, record, may_be_pickle, into.budget);
  if (opened)
    return scan(opened->source(), place, key, false, depth + 1, is_script(directory, record.name), nullptr, into);
  const bool is_too_large = opened.error().code == errc::invalid_argument;
  into.add(place, key,
           {{is_too_large ? "<archived data too large to look into>" : "<unreadable record>", false, 1, is_too_large}});
}

// Scans an archive. Where local headers and the directory differ, two readers may see different bytes, so the archive
// is a problem. Records on which both agree are scanned. The source is read in small pieces.
result<void> scan_archive(const byte_source& source, const std::string& file, const std::string& key, int depth,
                          collector& into) {
  std::vector<error> contradictions;
  SHARDMESH_TRY(const zip_directory directory, zip_directory::read(source, &contradictions));
  // Writers must refuse every problem, but they open only the outer archive. Damage in an inner archive is therefore
  // reported as a name.
  if (depth > 0 && !contradictions.empty())
    into.add(file, key, {{"<archive that contradicts itself>", false, 1, true}});
  if (depth == 0)
    for (error& problem : contradictions) into.problem(std::move(problem), key);
  const zip_record* main = nullptr;     // most archives have one pickle: no allocation for an item of DCP
  std::set<const zip_record*> scanned;  // the other pickles
  SHARDMESH_TRY(torch_file::for_each_pickle(
      source, directory, into.limits(), {}, [&](torch_file::archived_pickle found) -> result<void> {
        const std::string& name = found.record.name;
        if (main == nullptr)
          main = &found.record;
        else
          scanned.insert(&found.record);
        const std::string place = name.ends_with("/data.pkl") ? file : file + "!" + name;
        if (found.bytes) {
          std::vector<pickle::used_name> names = into.names_of(*found.bytes);
          into.add(place, key, is_script(directory, name) ? without_own_names(std::move(names)) : names);
        } else {
          into.add(place, key, {{"<unreadable record>", false, 1, depth > 0}});
        }
        if (found.problem && depth == 0) into.problem(*std::move(found.problem), key);
        return {};
      }));
  for (const zip_record& record : directory.records())
    if (record.offset >= 0 && &record != main && !scanned.contains(&record) && !is_storage(directory, record.name))
      scan_record(source, directory, record, file, key, depth, into);
  return {};
}

// `known`: the names in the stream, if they were found before; else null.
void scan(const byte_source& whole, const std::string& file, const std::string& key, bool is_item, int depth,
          bool is_of_script, const pickle::used_names* known, collector& into) {
  // A file without a suffix may be anything. A record without one is not taken for compressed data: raw weights have
  // none.
  const bool may_be_packed =
      is_pickle_name(file) || is_packing_name(file) || (depth == 0 && !is_item && !fs::path(file).has_extension());
  const auto windows = windowed_source::open(whole);
  const found_content found = windows ? content_of(*windows, may_be_packed) : found_content{};
  switch (found.kind) {
    case content::zip:
      if (depth > deepest) return into.add(file, key, {{"<archives too deep in archives>", false, 1, true}});
      if (auto done = scan_archive(*windows, file, key, depth, into); !done) {
        // A file of another kind may begin like an archive. Inside an archive, such bytes can hide a pickle that Python
        // still reads.
        if (depth == 0 && (is_item || is_checkpoint_name(file))) into.problem(std::move(done).error(), key);
        into.add(file, key, {{"<unreadable archive>", false, 1, depth > 0}});
      }
      return;
    case content::array: {
      const std::int64_t length = whole.size_bytes() - found.pickle_at;
      if (length > 0) scan_stream(section_source(whole, found.pickle_at, length), file, key, false, is_of_script, into);
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
      if (!is_pickle && !is_item && !is_pickle_name(file)) return;
      if (known != nullptr)
        into.add(file, key, known->names);
      else
        scan_stream(whole, file, key, found.kind == content::pickle, is_of_script, into);
    }
  }
}

// `name` is relative to the checkpoint's folder.
void scan_file(const fs::path& path, const std::string& name, const checkpoint_reader* reader, collector& into) {
  file_pool pool(1);
  const auto source = pool.open(path);
  if (source) scan(**source, name, {}, false, 0, false, reader ? dcp::names_of_metadata(*reader, path) : nullptr, into);
}

// For a folder of parts: every file below it, and the files of its entries, which may lie behind links.
std::vector<fs::path> files_below(const fs::path& folder, const catalog& contents) {
  std::vector<fs::path> files;
  std::error_code code, ignored;
  for (const std::string& file : contents.files)
    if (fs::is_regular_file(folder / file, ignored)) files.push_back(folder / file);
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, code);
  for (; !code && at != fs::recursive_directory_iterator(); at.increment(code))
    if (!at->is_symlink(ignored) && at->is_regular_file(ignored)) files.push_back(at->path());
  std::erase_if(files, [](const fs::path& file) { return file.extension() == ".distcp"; });
  files |= ranges::actions::sort | ranges::actions::unique;
  return files;
}

bool holds_items(checkpoint_format format) {
  return format == checkpoint_format::dcp || format == checkpoint_format::torchsnapshot ||
         format == checkpoint_format::parts;
}

// The files of a folder that may be, or hold, pickles, sorted. The other files hold items.
std::vector<fs::path> files_beside(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->is_regular_file(code) && !at->path().filename().string().ends_with(".distcp")) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

// An item, and the key of one entry in it.
using keyed_item = std::pair<stored_range, const std::string*>;

// The ends of the runs of items that one read fetches: small items, close to each other in a file, and not transformed.
// A folder has as many items as chunks. Read one by one, each costs a read and a check of the file's version.
std::vector<std::size_t> ends_of_runs(std::span<const keyed_item> items) {
  constexpr std::int64_t small_item = 1 << 14, most_bytes = 1 << 20;
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    const stored_range& first = items[begin].first;
    for (std::int64_t reached = first.offset; end < items.size(); ++end) {
      const stored_range& next = items[end].first;
      const bool fits = next.length <= small_item && next.transform == 0 && next.file == first.file &&
                        next.offset - reached <= small_item && next.offset - first.offset <= most_bytes;
      if (!fits) break;
      reached = std::max(reached, next.offset + next.length);
    }
    end = std::max(end, begin + 1);
    ends.push_back(end);
  }
  return ends;
}

// Scans one item. Returns false if its file cannot be opened. `verify` reports items that cannot be read; here, they
// just name nothing.
bool scan_item(checkpoint_reader& reader, const keyed_item& item, collector& into) {
  const auto source = reader.item_bytes(item.first);
  if (!source) return source.error().code == errc::out_of_bounds;
  scan(**source, reader.contents().files[static_cast<std::size_t>(item.first.file)], *item.second, true, 0, false,
       nullptr, into);
  return true;
}

// Scans a run of items with one read; returns false if that fails.
bool scan_run(checkpoint_reader& reader, std::span<const keyed_item> items, collector& into) {
  const stored_range& first = items.front().first;
  std::int64_t end = first.offset;
  for (const auto& [place, key] : items) end = std::max(end, place.offset + place.length);
  const auto source = reader.item_bytes({first.file, 0, first.offset, end - first.offset});
  if (!source) return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - first.offset));
  if (!(*source)->read(0, bytes)) return false;
  for (const auto& [place, key] : items) {
    const auto part = std::span(bytes).subspan(static_cast<std::size_t>(place.offset - first.offset),
                                               static_cast<std::size_t>(place.length));
    scan(memory_source(part, (*source)->name()), reader.contents().files[static_cast<std::size_t>(place.file)], *key,
         true, 0, false, nullptr, into);
  }
  return true;
}

// Scans the items of a DCP folder, or the archives of a snapshot, each once.
void scan_items(checkpoint_reader& reader, int threads, collector& into) {
  const catalog& contents = reader.contents();
  std::vector<keyed_item> items;
  items.reserve(contents.chunk_places.size() + contents.objects.size());
  for (const tensor_entry& tensor : contents.tensors)
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
      items.emplace_back(contents.chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)], &tensor.key);
  for (const object_entry& object : contents.objects) items.emplace_back(object.place, &object.key);
  const auto place_of = [](const auto& item) {
    return std::tuple(item.first.file, item.first.offset, item.first.length, item.first.transform);
  };
  std::erase_if(items, [](const auto& item) { return item.first.file < 0; });
  const auto with_key = [&](const auto& item) { return std::tuple(place_of(item), item.second); };
  items |= ranges::actions::sort(ranges::less{}, with_key) |  // the first key of a shared item
           ranges::actions::unique(ranges::equal_to{}, place_of);
  const std::vector<std::size_t> ends = ends_of_runs(items);
  const auto ended = parallel_for(threads, static_cast<std::int64_t>(ends.size()), [&](std::int64_t i) -> result<void> {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t begin = at == 0 ? 0 : ends[at - 1];
    const auto run = std::span(items).subspan(begin, ends[at] - begin);
    if (run.size() > 1 && scan_run(reader, run, into)) return {};
    for (const keyed_item& item : run)
      if (!scan_item(reader, item, into)) break;  // the other items are in the same file
    return {};
  });
  if (!ended) into.problem(ended.error(), "");  // the rest is not searched
}

}  // namespace

global_report find_globals(const fs::path& path, checkpoint_reader* reader, const global_options& options) {
  collector found(options);
  std::error_code code;
  const bool is_metadata = path.filename() == ".metadata";
  const fs::path folder = is_metadata ? path.parent_path() : path;
  if (!is_metadata && !fs::is_directory(path, code)) {
    scan_file(path, path.filename().string(), reader, found);
  } else {
    const bool is_parts = reader != nullptr && reader->contents().format == checkpoint_format::parts;
    for (const fs::path& file : is_parts ? files_below(folder, reader->contents()) : files_beside(folder))
      scan_file(file, file.lexically_relative(folder).string(), reader, found);
  }
  if (reader != nullptr && holds_items(reader->contents().format)) scan_items(*reader, options.threads, found);
  std::ranges::sort(found.report.names, {},
                    [](const named_global& g) { return std::tuple(!g.dangerous, g.harmless, g.file, g.key, g.name); });
  return found.take();
}

namespace {

// Calls `visit` with the file, when it is an archive. What cannot be opened is the reader's problem.
void with_archive(const fs::path& path, function_ref<void(const byte_source&)> visit) {
  file_pool pool(1);
  const auto source = pool.open(path);
  if (!source || !looks_like_zip(**source)) return;
  if (const auto windows = windowed_source::open(**source)) visit(*windows);
}

// Scans the archives that lie in an archive. Of other records no more than the first bytes are read.
void scan_nested(const byte_source& source, const std::string& name, collector& into) {
  std::vector<error> contradictions;  // the reader refused them
  const auto directory = zip_directory::read(source, &contradictions);
  if (!directory) return;
  for (const zip_record& record : directory->records()) {
    const bool may_be_archive =
        record.method != 0 || (record.beginning[0] == std::byte{'P'} && record.beginning[1] == std::byte{'K'});
    if (record.offset >= 0 && may_be_archive && !record.name.ends_with(".pkl") && !is_storage(*directory, record.name))
      scan_record(source, *directory, record, name, {}, 0, into);
  }
}

// Files of items and of safetensors are no archives: they are not opened.
bool may_hold_archives(checkpoint_format format, std::string_view file) {
  return format != checkpoint_format::dcp && format != checkpoint_format::torchsnapshot &&
         format != checkpoint_format::torch_checkpointing && !file.ends_with(".safetensors") &&
         !file.ends_with(".distcp");
}

void scan_beside(const fs::path& folder, const std::vector<std::string>& own, collector& into) {
  const std::set<std::string_view> opened(own.begin(), own.end());
  for (const fs::path& file : files_beside(folder)) {
    const std::string name = file.filename().string();
    if (opened.contains(name)) continue;
    with_archive(file, [&](const byte_source& source) {
      auto done = scan_archive(source, name, {}, 0, into);
      if (!done && is_checkpoint_name(name)) into.problem(std::move(done).error(), {});
    });
  }
}

}  // namespace

std::vector<error> damaged_archives(const checkpoint_reader& reader, const read_limits& limits) {
  std::error_code code;
  const fs::path& path = reader.path();
  const fs::path folder = path.filename() == ".metadata" ? path.parent_path() : path;
  const bool is_folder = fs::is_directory(folder, code);
  const catalog& contents = reader.contents();
  const global_options options{.threads = 1, .limits = limits};
  collector found(options);
  if (!is_folder) {
    with_archive(path, [&](const auto& source) { scan_nested(source, path.filename().string(), found); });
  } else {
    scan_beside(folder, contents.files, found);
    for (const std::string& file : contents.files)
      if (may_hold_archives(contents.format, file))
        with_archive(folder / file, [&](const auto& source) { scan_nested(source, file, found); });
  }
  global_report report = found.take();
  // Names in angle brackets stand for what could not be read.
  std::erase_if(report.names, [](const named_global& name) { return !name.dangerous || !name.name.starts_with('<'); });
  for (error& problem : dangers_of(report, path)) report.problems.push_back(std::move(problem));
  if (report.more_problems > 0 && !report.problems.empty()) report.problems.back().more += report.more_problems;
  return std::move(report.problems);
}

}  // namespace shardmesh
