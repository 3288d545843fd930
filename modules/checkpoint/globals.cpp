// SPDX-License-Identifier: Apache-2.0
// Finds the pickles of a checkpoint by what files and records are, not by what they are called, and collects their
// names.
module;
#include <fmt/format.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.pickle;
import shardmesh.torch_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

enum class content : std::uint8_t { zip, pickle, safetensors, either, other };

content content_of(const byte_source& source) {
  std::array<std::byte, 9> head{};
  const auto length = static_cast<std::size_t>(std::min<std::int64_t>(source.size_bytes(), 9));
  if (length < 2 || !source.read(0, std::span(head).first(length))) return content::other;
  if (looks_like_zip(source)) return content::zip;
  const bool begins_pickle = head[0] == std::byte{0x80} && head[1] <= std::byte{5};
  // A length of 640, say, begins like a pickle, and a pickle can be made to look like a length: both are tried.
  if (length == 9 && head[8] == std::byte{'{'}) return begins_pickle ? content::either : content::safetensors;
  return begins_pickle ? content::pickle : content::other;
}

// Names under which protocols 0 and 1, which begin with no mark of their own, are worth trying.
bool is_pickle_name(std::string_view name) {
  for (const std::string_view ending :
       {".metadata", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".joblib", ".dat", ".data"})
    if (name.ends_with(ending)) return true;
  return false;
}

// "archive/data/17": the bytes of a storage, which are never unpickled.
bool is_storage_record(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == name.size() || !name.substr(0, slash).ends_with("/data"))
    return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(slash) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

class collector {
 public:
  explicit collector(const global_options& options) : options_(options) {}

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
      if (report.names.size() >= options_.max_names) {
        ++report.unnamed;
        continue;
      }
      index_.emplace(where, report.names.size());
      report.names.push_back({file, key, name.text, name.harmless, name.count});
    }
  }
  void problem(error e, const std::string& key) {
    const std::scoped_lock guard(lock_);
    if (e.key.empty()) e.key = key;
    if (report.problems.size() < 100) report.problems.push_back(std::move(e));
  }
  const read_limits& limits() const { return options_.limits; }

  global_report report;

 private:
  const global_options& options_;
  std::mutex lock_;
  std::map<std::tuple<bool, std::string, std::string, std::string>, std::size_t> index_;
};

// A run of pickles whose length only parsing tells: ever longer beginnings, as far as the run goes on behind them.
void scan_stream(const byte_source& source, const std::string& file, const std::string& key, bool is_certain,
                 collector& into) {
  // As the readers: metadata is one pickle to its end, other streams have theirs near the beginning.
  const std::int64_t limit = into.limits().description_bytes;
  const std::int64_t most = std::min(source.size_bytes(), file.ends_with(".metadata") ? limit : limit / 4);
  for (std::int64_t window = 1 << 16;; window *= 8) {
    const std::int64_t length = std::min(window, most);
    std::vector<std::byte> bytes(static_cast<std::size_t>(length));
    if (auto done = source.read(0, bytes); !done) return into.problem(std::move(done).error(), key);
    const pickle::used_names found = pickle::names_in(bytes);
    if (found.is_cut && length < most) continue;
    // Something else that has a pickle's name or first byte.
    if (!is_certain && found.names.size() == 1 && found.names[0].text.starts_with("<unreadable")) return;
    return into.add(file, key, found.names);
  }
}

result<bool> is_pickle_record(const byte_source& source, const zip_record& record, std::int64_t offset) {
  if (record.name.ends_with(".pkl")) return true;
  if (record.method != 0 || record.size_bytes < 2) return false;
  std::array<std::byte, 2> head{};
  SHARDMESH_CHECK(source.read(offset, head));
  return head[0] == std::byte{0x80} && head[1] <= std::byte{5};
}

// An archive of TorchScript has its classes' code beside it; nobody looks for them, or for its own few functions that
// build lists, elsewhere.
bool is_script(const zip_directory& directory, const std::string& record) {
  return directory.find(record.substr(0, record.find('/') + 1) + "constants.pkl") != nullptr;
}

std::vector<pickle::used_name> without_own_names(std::vector<pickle::used_name> names) {
  for (pickle::used_name& name : names)
    name.harmless |= name.text.starts_with("__torch__.") || name.text.starts_with("torch.jit._pickle.");
  return names;
}

// Every record's two descriptions are held against each other: a reader that believes the other one sees other bytes.
result<void> scan_archive(const byte_source& whole, const std::string& file, const std::string& key, collector& into) {
  SHARDMESH_TRY(const auto source, windowed_source::open(whole));
  SHARDMESH_TRY(const zip_directory directory, zip_directory::read(source));
  for (const zip_record& record : directory.records()) {
    const bool is_main = record.name.ends_with("/data.pkl");
    const std::string place = is_main ? file : file + "!" + record.name;
    SHARDMESH_TRY(const std::int64_t offset, data_offset(source, record));
    if (is_storage_record(record.name)) continue;
    SHARDMESH_TRY(const bool is_pickle, is_pickle_record(source, record, offset));
    if (!is_pickle) continue;
    // A small record may inflate to a large one: what is plausible for the whole file is the most that is decoded.
    const std::int64_t most = std::min(into.limits().description_bytes,
                                       std::max<std::int64_t>(record.compressed_bytes * 64, std::int64_t{1} << 26));
    auto bytes = read_record(source, record, most, false);
    if (!bytes) {
      into.add(place, key, {{"<unreadable record>", false, 1}});
      into.problem(std::move(bytes).error(), key);
      continue;
    }
    std::vector<pickle::used_name> names = pickle::names_in(*bytes).names;
    into.add(place, key, is_script(directory, record.name) ? without_own_names(std::move(names)) : names);
    if (record.crc32 != 0 && crc32_of(*bytes) != record.crc32)
      into.problem(fail(errc::checksum_mismatch, fmt::format("record \"{}\" differs from its CRC-32", record.name))
                       .with_file(source.name()),
                   key);
  }
  return {};
}

void scan(const byte_source& source, const std::string& file, const std::string& key, bool is_item, collector& into) {
  const content kind = content_of(source);
  if (kind == content::zip) {
    if (auto done = scan_archive(source, file, key, into); !done) {
      into.problem(std::move(done).error(), key);
      into.add(file, key, {{"<unreadable archive>", false, 1}});
    }
  } else if (kind == content::pickle || kind == content::either ||
             (kind == content::other && (is_item || is_pickle_name(file)))) {
    scan_stream(source, file, key, kind == content::pickle, into);
  }
}

void scan_file(const fs::path& path, collector& into) {
  file_pool pool(1);
  const auto source = pool.open(path);
  if (source) scan(**source, path.filename().string(), {}, false, into);
}

// The items of a DCP folder, the archives of a snapshot, each once.
void scan_items(checkpoint_reader& reader, int threads, collector& into) {
  const catalog& contents = reader.contents();
  std::vector<std::pair<stored_range, const std::string*>> items;
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
  static_cast<void>(parallel_for(threads, static_cast<std::int64_t>(items.size()), [&](std::int64_t i) -> result<void> {
    const auto& [place, key] = items[static_cast<std::size_t>(i)];
    const auto source = reader.item_bytes(place);
    // What cannot be read is for verify to say; here it is enough that it names nothing.
    if (source) scan(**source, contents.files[static_cast<std::size_t>(place.file)], *key, true, into);
    return {};
  }));
}

}  // namespace

global_report find_globals(const fs::path& path, checkpoint_reader* reader, const global_options& options) {
  collector found(options);
  std::error_code code;
  const bool is_metadata = path.filename() == ".metadata";
  const fs::path folder = is_metadata ? path.parent_path() : path;
  if (!is_metadata && !fs::is_directory(path, code)) {
    scan_file(path, found);
  } else {
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
      if (at->is_regular_file(code) && !at->path().filename().string().ends_with(".distcp"))
        files.push_back(at->path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) scan_file(file, found);
  }
  if (reader != nullptr && (reader->contents().format == checkpoint_format::dcp ||
                            reader->contents().format == checkpoint_format::torchsnapshot))
    scan_items(*reader, options.threads, found);
  std::ranges::sort(found.report.names, {},
                    [](const named_global& g) { return std::tie(g.harmless, g.file, g.key, g.name); });
  std::ranges::sort(found.report.problems, {}, [](const error& e) { return std::tie(e.file, e.key, e.message); });
  return std::move(found.report);
}

std::vector<error> warnings_of(const global_report& report, const fs::path& path, std::size_t max_lines) {
  std::error_code code;
  const fs::path folder = fs::is_directory(path, code) ? path : path.parent_path();
  std::vector<error> lines;
  std::int64_t more = report.unnamed;
  for (const named_global& name : report.names) {
    if (name.harmless) continue;
    if (lines.size() >= max_lines) {
      ++more;
      continue;
    }
    lines.push_back(fail(errc::unsupported, fmt::format("its pickle names {}, which is not plain data", name.name))
                        .with_file((folder / name.file).string())
                        .with_key(name.key)
                        .with_hint("Python would look it up, and may call it, when the file is loaded"));
  }
  if (more > 0)
    lines.push_back(
        fail(errc::unsupported, fmt::format("{} more names are not plain data", more)).with_file(path.string()));
  return lines;
}

}  // namespace shardmesh
