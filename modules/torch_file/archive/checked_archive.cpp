// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import shardmesh.checkpoint_core;
import :checked_archive;

namespace shardmesh::torch_file {
namespace {

// Whether the record is a storage ("archive/data/17"), whose bytes are never unpickled.
bool is_storage_record(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash + 1 == name.size() || !name.substr(0, slash).ends_with("/data"))
    return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(slash) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_pickle(const zip_record& record) {
  if (record.offset < 0 || is_storage_record(record.name)) return false;
  if (record.name.ends_with(".pkl")) return true;
  return record.method == 0 && record.size_bytes >= 2 && record.beginning[0] == std::byte{0x80} &&
         record.beginning[1] <= std::byte{5};
}

std::int64_t most_bytes(const zip_record& record, const read_limits& limits) {
  return std::min(limits.description_bytes,
                  std::max<std::int64_t>(record.compressed_bytes * 64, std::int64_t{1} << 26));
}

// PyTorch finds records by their names without regard to case.
bool is_named(const zip_record& record, std::string_view prefix, std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; };
  const std::string_view whole = record.name;
  return whole.size() == prefix.size() + name.size() &&
         std::ranges::equal(whole.substr(0, prefix.size()), prefix, {}, lower, lower) &&
         std::ranges::equal(whole.substr(prefix.size()), name, {}, lower, lower);
}

// Null when there is none.
const zip_record* find_record(const zip_directory& directory, std::string_view prefix, std::string_view name) {
  for (const zip_record& record : directory.records())
    if (is_named(record, prefix, name)) return &record;
  return nullptr;
}

// Returns the record with the version: ".data/version" has precedence. Null when there is none.
const zip_record* version_record(const zip_directory& directory, std::string_view prefix) {
  const zip_record* const first = find_record(directory, prefix, ".data/version");
  return first != nullptr ? first : find_record(directory, prefix, "version");
}

// Returns the text of a small record. A folder of DCP has an archive per item, so the usual texts allocate nothing.
result<std::string> text_of(const byte_source& archive, const zip_record& record) {
  constexpr std::int64_t most_bytes = 8192, usual_bytes = 15;
  if (record.method == 0 && record.offset >= 0 && record.size_bytes <= usual_bytes &&
      record.compressed_bytes == record.size_bytes) {
    std::string text(static_cast<std::size_t>(record.size_bytes), '\0');
    SHARDMESH_TRY(archive.read(record.offset, std::as_writable_bytes(std::span(text))));
    if (record.crc32 == 0 || crc32_of(std::as_bytes(std::span(text))) == record.crc32) return text;
  }
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_record(archive, record, most_bytes));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Whether Python's int() takes the text: white space around it, a sign, and digits with single underscores between.
bool is_python_integer(std::string_view text) {
  constexpr std::string_view space = " \t\n\v\f\r";
  constexpr std::size_t most_digits = 4300;  // sys.get_int_max_str_digits()
  text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
  text = text.substr(0, text.find_last_not_of(space) + 1);  // npos + 1 is 0
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  std::size_t digits = 0;
  bool was_digit = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c != '_' || !was_digit)) return false;
    digits += is_digit ? 1 : 0;
    was_digit = is_digit;
  }
  return was_digit && digits <= most_digits;
}

// PyTorch parses the version as std::stoull does: white space, a sign, and digits. It ignores what follows.
bool is_known_version(std::string_view text) {
  constexpr std::uint64_t least = 1, most = 10;  // kMinSupportedFileFormatVersion, kMaxSupportedFileFormatVersion
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
  if (text.starts_with('+')) text.remove_prefix(1);
  std::uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && number >= least && number <= most;
}

}  // namespace

std::vector<error> refusals_of_torch_load(const byte_source& archive, const zip_directory& directory) {
  constexpr std::string_view remedy = "convert it to a new .pt file";
  const std::string prefix = archive_prefix(directory);
  const auto refused = [&](std::string message) {
    return fail(errc::bad_format, std::move(message)).with_file(archive.name()).with_hint(remedy);
  };
  if (prefix.empty())
    return {refused(fmt::format("torch.load refuses the archive: record \"{}\" is in no folder",
                                directory.records().empty() ? "" : escaped(directory.records().front().name)))};
  std::vector<error> made;
  if (const zip_record* const record = version_record(directory, prefix); record == nullptr) {
    made.push_back(
        refused(fmt::format("torch.load refuses the archive: it has no record \"{}version\"", escaped(prefix))));
  } else if (auto text = text_of(archive, *record); !text) {
    made.push_back(std::move(text).error());
  } else if (!is_known_version(*text)) {
    made.push_back(refused(fmt::format("torch.load refuses the version in record \"{}\"", escaped(record->name)))
                       .with_values("a number from 1 to 10", text->empty() ? "nothing" : escaped(text->substr(0, 32))));
  }
  if (const zip_record* const record = find_record(directory, prefix, ".storage_alignment"); record != nullptr) {
    if (auto text = text_of(archive, *record); !text)
      made.push_back(std::move(text).error());
    else if (!is_python_integer(*text))
      made.push_back(refused(fmt::format("torch.load refuses the alignment in record \"{}\"", escaped(record->name)))
                         .with_values("a number", text->empty() ? "nothing" : escaped(text->substr(0, 32))));
  }
  std::vector<std::string> outside;
  for (const zip_record& record : directory.records())
    if (!record.name.starts_with(prefix)) outside.push_back(escaped(record.name));
  if (!outside.empty())
    made.push_back(refused(fmt::format("torch.load refuses the archive: {} outside of its folder \"{}\": {}",
                                       detail::counted(outside.size(), "record is", "records are"), escaped(prefix),
                                       name_list(outside))));
  return made;
}

result<void> for_each_pickle(const byte_source& archive, const zip_directory& directory, const read_limits& limits,
                             std::string_view except, function_ref<result<void>(archived_pickle)> visit) {
  for (const zip_record& record : directory.records()) {
    if (record.name == except || !is_pickle(record)) continue;
    archived_pickle found{record, {}, {}};
    auto bytes = read_record(archive, record, most_bytes(record, limits), false);
    if (!bytes) {
      found.problem = std::move(bytes).error();
    } else {
      if (record.crc32 != 0 && crc32_of(*bytes) != record.crc32)
        found.problem =
            fail(errc::checksum_mismatch, fmt::format("record \"{}\" differs from its CRC-32", escaped(record.name)))
                .with_file(archive.name())
                .with_values(fmt::format("{:08x}", record.crc32), fmt::format("{:08x}", crc32_of(*bytes)))
                .with_hint(detail::restore_hint);
      found.bytes = *std::move(bytes);
    }
    SHARDMESH_TRY(visit(std::move(found)));
  }
  return {};
}

result<zip_directory> open_archive(const byte_source& archive, read_budget& budget) {
  SHARDMESH_TRY(zip_directory directory, zip_directory::read(archive));
  const std::string main = archive_prefix(directory) + "data.pkl";
  if (const zip_record* const record = directory.find(main); record != nullptr) {
    const std::int64_t most = most_bytes(*record, budget.limits());
    if (record->size_bytes > most) {
      std::string message = fmt::format("record \"{}\" is too large", escaped(main));
      const bool can_be_raised = most == budget.limits().description_bytes;
      error refused =
          can_be_raised ? beyond_limit(std::move(message), most) : fail(errc::bad_format, std::move(message));
      return std::move(refused)
          .with_file(archive.name())
          .with_values(fmt::format("at most {} bytes", most), fmt::format("{}", record->size_bytes));
    }
  }
  SHARDMESH_TRY(
      for_each_pickle(archive, directory, budget.limits(), main, [&](const archived_pickle& pickle) -> result<void> {
        if (pickle.problem) return *pickle.problem;
        const zip_record& record = pickle.record;
        if (record.method == 0) return {};
        auto done = budget.decode(fmt::format("{}:{}:{}", archive.name(), record.name, record.crc32),
                                  record.compressed_bytes, record.size_bytes);
        if (done) return done;
        return std::move(done).error().with_file(archive.name());
      }));
  return directory;
}

std::string archive_prefix(const zip_directory& directory) {
  if (directory.records().empty()) return {};
  const std::string& first = directory.records().front().name;
  return first.substr(0, first.find('/') + 1);
}

std::vector<std::string> extra_files(const zip_directory& directory) {
  std::vector<std::string> names;
  // The second folder is that of torch.export.save up to PyTorch 2.6.
  for (const std::string& folder : {archive_prefix(directory) + "extra/", std::string("extra_files/")})
    for (const zip_record& record : directory.records())
      if (record.name.starts_with(folder) && record.name.size() > folder.size())
        names.push_back(escaped(std::string_view(record.name).substr(folder.size())));
  return names;
}

}  // namespace shardmesh::torch_file
