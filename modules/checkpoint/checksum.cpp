// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

constexpr std::string_view first_line = "shardmesh-checksums 1 xxh3-128\n";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

error damaged(std::string_view what) {
  return fail(errc::checksum_mismatch, fmt::format("the checksum record is damaged: {}", what));
}

std::optional<std::int64_t> number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || value < 0 || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return value;
}

result<void> check_range(const byte_source& file, const checksum_range& range) {
  xxh3_stream sum;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::int64_t>(range.length, 1 << 20)));
  for (std::int64_t at = 0; at < range.length;) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min<std::int64_t>(range.length - at, 1 << 20)));
    SHARDMESH_CHECK(file.read(range.offset + at, piece));
    sum.update(piece);
    at += static_cast<std::int64_t>(piece.size());
  }
  if (to_hex(sum.digest()) == range.digits) return {};
  return fail(errc::checksum_mismatch,
              fmt::format("bytes {} to {} are not what was written", range.offset, range.offset + range.length))
      .with_file(file.name())
      .with_values(range.digits, to_hex(sum.digest()));
}

}  // namespace

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
    if (range.file.find_first_of(std::string_view("/\0", 2)) != std::string::npos || range.file == "..")
      return fail(errc::unsafe_path, "the checksum record names a file outside of the folder")
          .with_values("", range.file);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

std::vector<error> check_checksums(const std::filesystem::path& folder, std::span<const checksum_range> ranges,
                                   file_pool& files, int threads) {
  std::map<std::string, std::int64_t> lengths;
  for (const checksum_range& range : ranges)
    lengths[range.file] = std::max(lengths[range.file], checked_add(range.offset, range.length).value_or(INT64_MAX));
  std::vector<error> problems;
  std::map<std::string, std::unique_ptr<byte_source>> sources;
  for (const auto& [name, length] : lengths) {
    auto opened = files.open(folder / name);
    if (!opened) {
      problems.push_back(std::move(opened).take_error());
    } else if ((*opened)->size_bytes() != length) {
      problems.push_back(fail(errc::checksum_mismatch, "has another length than was written")
                             .with_file((folder / name).string())
                             .with_values(fmt::format("{} bytes", length), fmt::format("{}", (*opened)->size_bytes())));
    } else {
      sources[name] = std::move(*opened);
    }
  }
  std::mutex lock;
  std::vector<std::pair<std::size_t, error>> found;
  static_cast<void>(
      parallel_for(threads, static_cast<std::int64_t>(ranges.size()), [&](std::int64_t i) -> result<void> {
        const checksum_range& range = ranges[static_cast<std::size_t>(i)];
        const auto source = sources.find(range.file);
        if (source == sources.end()) return {};
        auto checked = check_range(*source->second, range);
        if (checked) return {};
        const std::scoped_lock guard(lock);
        found.emplace_back(static_cast<std::size_t>(i), std::move(checked).take_error());
        return {};
      }));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [index, problem] : found) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace shardmesh
