// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.storage;

import :byte_sums;
import :first_problems;
import :sibling_file;

namespace shardmesh {
namespace {

constexpr std::string_view first_line = "shardmesh-checksums 1 xxh3-128\n";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

error damaged(std::string_view what) {
  return fail(errc::checksum_mismatch, fmt::format("the checksum record is damaged: {}", what))
      .with_hint(detail::restore_hint);
}

std::optional<std::int64_t> number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || value < 0 || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return value;
}

result<void> compare(const digest128& found, const checksum_range& range, const byte_source& file) {
  if (to_hex(found) == range.digits) return {};
  return fail(errc::checksum_mismatch,
              fmt::format("bytes {} to {} differ from their checksum", range.offset, range.offset + range.length))
      .with_file(file.name())
      .with_values(range.digits, to_hex(found))
      .with_hint(detail::restore_hint);
}

// A file of the record in another folder: the folder that refers to it, below the record's, and the reference. In the
// record of a folder of several checkpoints, "unet/../step-90/__0_0.distcp" belongs to the checkpoint in "unet/".
std::optional<std::pair<std::string_view, sibling_file>> reference_of(std::string_view name) {
  const std::size_t up = name.starts_with("../") ? 0 : name.find("/../") + 1;  // npos + 1 is 0
  auto sibling = parse_sibling_file(name.substr(up));
  if (!sibling) return std::nullopt;
  return std::pair(name.substr(0, up), *std::move(sibling));
}

using key_of_range = std::function<std::string(std::size_t)>;

// A range to check in an opened file. `number` orders its problem, and `index` is that of the range in the record.
struct range_in_file {
  const byte_source* file = nullptr;
  const checksum_range* range = nullptr;
  std::int64_t number = 0;
  std::size_t index = 0;
};

// Returns the end of each run of ranges that are read together: small ones, each starting where the one before it ends.
std::vector<std::size_t> ends_of_runs(std::span<const range_in_file> sorted) {
  constexpr std::int64_t small_range = 1 << 14, most_bytes = 1 << 20;
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    const checksum_range& first = *sorted[begin].range;
    for (std::int64_t at = first.offset; end < sorted.size(); ++end) {
      const checksum_range& next = *sorted[end].range;
      if (sorted[end].file != sorted[begin].file || next.offset != at || next.length > small_range ||
          at - first.offset > most_bytes)
        break;
      at += next.length;
    }
    end = std::max(end, begin + 1);
    ends.push_back(end);
  }
  return ends;
}

// Checks the ranges of a run. Reads the run in one call, or range by range when that fails.
void check_run(std::span<const range_in_file> run, const key_of_range& key_of, first_problems& found) {
  const byte_source& file = *run.front().file;
  const std::int64_t begin = run.front().range->offset;
  std::vector<std::byte> bytes;
  if (run.size() > 1)
    bytes.resize(static_cast<std::size_t>(run.back().range->offset + run.back().range->length - begin));
  const bool is_read = run.size() > 1 && file.read(begin, bytes);
  for (const auto& [source, range, number, index] : run) {
    auto done = is_read ? compare(xxh3(std::span(bytes).subspan(static_cast<std::size_t>(range->offset - begin),
                                                                static_cast<std::size_t>(range->length))),
                                  *range, file)
                        : check_checksum(file, *range);
    if (!done) found.add(number, std::move(done).error().with_key(key_of ? key_of(index) : std::string()));
  }
}

}  // namespace

result<std::unique_ptr<byte_source>> open_recorded(const std::filesystem::path& folder, const std::string& name,
                                                   file_pool& files) {
  if (const auto reference = reference_of(name)) {
    const bool is_own = reference->first.empty();  // "/" would be added to the folder
    SHARDMESH_TRY(check_sibling(is_own ? folder : folder / reference->first, reference->second));
  }
  return files.open(folder / name);
}

result<void> check_checksum(const byte_source& file, const checksum_range& range) {
  SHARDMESH_TRY(const digest128 found, xxh3_of_range(file, range.offset, range.length));
  return compare(found, range, file);
}

std::string format_checksums(std::span<const checksum_range> ranges) {
  std::string text(first_line);
  for (const checksum_range& range : ranges)
    fmt::format_to(std::back_inserter(text), "{} {} {} {}\n", range.digits, range.offset, range.length,
                   escaped(range.file));
  return text + to_hex(xxh3(bytes_of(text))) + "\n";
}

result<std::vector<checksum_range>> parse_checksums(std::string_view text) {
  if (!text.starts_with(first_line)) return damaged("its first line is unknown");
  if (text.size() < first_line.size() + 33 || text.back() != '\n') return damaged("it is cut short");
  const std::string_view body = text.substr(0, text.size() - 33);
  if (to_hex(xxh3(bytes_of(body))) != text.substr(body.size(), 32)) return damaged("its own checksum differs");
  std::vector<checksum_range> ranges;
  for (std::string_view rest = body.substr(first_line.size()); !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() < 34) return damaged("a line is too short");
    checksum_range range;
    range.digits = line.substr(0, 32);
    line.remove_prefix(33);
    const auto offset = number(line);
    const auto length = offset ? number(line) : std::nullopt;
    if (!length || line.empty()) return damaged("a line has no range");
    range.offset = *offset;
    range.length = *length;
    range.file = line;
    const bool is_own = range.file.find_first_of(std::string_view("/\0", 2)) == std::string::npos && range.file != "..";
    if (!is_own && !parse_sibling_file(range.file))
      return fail(errc::unsafe_path, "the checksum record names a file outside of the folder")
          .with_values("", range.file);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   file_pool& files, int threads) {
  std::vector<std::size_t> all(ranges.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return check_checksums(folder, ranges, all, files, threads);
}

std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   std::span<const std::size_t> chosen, file_pool& files, int threads,
                                   const key_of_range& key_of) {
  struct checked_file {
    std::int64_t length = 0;  // as the record states it
    std::unique_ptr<byte_source> source;
  };
  std::map<std::string, checked_file> by_name;
  for (const std::size_t i : chosen) by_name[ranges[i].file];
  for (const checksum_range& range : ranges)
    if (const auto file = by_name.find(range.file); file != by_name.end())
      file->second.length = std::max(file->second.length, checked_add(range.offset, range.length).value_or(INT64_MAX));
  std::vector<error> problems;
  for (auto& [name, file] : by_name) {
    auto opened = open_recorded(folder, name, files);
    // The record has only some ranges of a file in another folder.
    const bool is_part = reference_of(name).has_value();
    if (!opened) {
      error cause = std::move(opened).error();
      if (cause.sys == ENOENT)  // the record names a missing file: a defect of the data
        cause = fail(errc::bad_format, "the file is missing").with_file((folder / name).string());
      problems.push_back(std::move(cause));
    } else if (is_part ? (*opened)->size_bytes() < file.length : (*opened)->size_bytes() != file.length) {
      problems.push_back(fail(errc::checksum_mismatch, is_part
                                                           ? "is shorter than the bytes to which the checkpoint refers"
                                                           : "does not have the length that was written")
                             .with_file((folder / name).string())
                             .with_values((is_part ? "at least " : "") + detail::counted(file.length, "byte"),
                                          fmt::format("{}", (*opened)->size_bytes()))
                             .with_hint(detail::restore_hint));
    } else {
      file.source = std::move(*opened);
    }
  }
  first_problems found(std::numeric_limits<std::size_t>::max());
  std::vector<range_in_file> sorted;
  sorted.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const checksum_range& range = ranges[chosen[i]];
    const checked_file& file = by_name.find(range.file)->second;
    if (file.source) sorted.push_back({file.source.get(), &range, static_cast<std::int64_t>(i), chosen[i]});
  }
  std::sort(sorted.begin(), sorted.end(), [](const range_in_file& a, const range_in_file& b) {
    return a.file == b.file ? std::pair(a.range->offset, a.number) < std::pair(b.range->offset, b.number)
                            : std::less<>{}(a.file, b.file);
  });
  const std::vector<std::size_t> ends = ends_of_runs(sorted);
  const auto ended = parallel_for(threads, static_cast<std::int64_t>(ends.size()), [&](std::int64_t i) -> result<void> {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t begin = at == 0 ? 0 : ends[at - 1];
    check_run(std::span(sorted).subspan(begin, ends[at] - begin), key_of, found);
    return {};
  });
  for (error& problem : found.take()) problems.push_back(std::move(problem));
  if (!ended) problems.push_back(ended.error());  // the rest is unchecked
  return problems;
}

}  // namespace shardmesh
