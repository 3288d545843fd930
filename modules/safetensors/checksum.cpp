// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {

std::string checksum_placeholder(std::size_t tensors) {
  return std::string((tensors + 1) * 32, '0');
}

namespace {

struct value_place {
  std::size_t begin = 0, length = 0;
};

// Finds the value in a header's JSON from `safetensors::layout_file`. Quotes inside names and values are escaped, so
// the pattern can only match a key with its value.
std::optional<value_place> find_value(std::string_view header) {
  const std::string pattern = fmt::format("\"{}\":\"", checksum_key);
  const std::size_t at = header.find(pattern);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t begin = at + pattern.size();
  const std::size_t end = header.find('"', begin);
  if (end == std::string_view::npos) return std::nullopt;
  return value_place{begin, end - begin};
}

}  // namespace

result<void> patch_checksums(std::string& header, std::span<const digest128> tensors) {
  const auto place = find_value(header);
  if (!place || place->length != (tensors.size() + 1) * 32)
    return fail(errc::invalid_argument, fmt::format("the header has no placeholder for {} checksums", tensors.size()));
  std::string value(32, '0');
  for (const digest128& digest : tensors) value += to_hex(digest);
  std::fill_n(header.begin() + static_cast<std::ptrdiff_t>(place->begin), place->length, '0');
  value.replace(0, 32, to_hex(xxh3(std::as_bytes(std::span(header)))));
  header.replace(place->begin, place->length, value);
  return {};
}

result<std::optional<std::vector<digest128>>> read_checksums(std::span<const std::byte> header_bytes,
                                                             const safetensors::header& header) {
  const auto value = find_metadata(header, checksum_key);
  if (!value) return std::optional<std::vector<digest128>>{};
  const auto bad = [](errc code, std::string message) {
    return fail(code, std::move(message)).with_key("__metadata__");
  };
  if (value->size() != (header.entries.size() + 1) * 32)
    return bad(errc::bad_format, fmt::format("the length of {} does not match {}", checksum_key,
                                             detail::counted(header.entries.size(), "tensor")))
        .with_values(fmt::format("{} digits", (header.entries.size() + 1) * 32), fmt::format("{}", value->size()));
  std::vector<digest128> digests;
  for (std::size_t at = 0; at < value->size(); at += 32) {
    const auto digest = parse_digest(value->substr(at, 32));
    if (!digest) return bad(errc::bad_format, fmt::format("{} is not lower-case hex", checksum_key));
    digests.push_back(*digest);
  }
  std::string text(reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size());
  const auto place = find_value(text);
  if (!place || text.compare(place->begin, place->length, *value) != 0)
    return bad(errc::checksum_mismatch, "the header was rewritten after its checksum was made")
        .with_hint(detail::restore_hint);
  std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(place->begin), place->length, '0');
  const digest128 found = xxh3(std::as_bytes(std::span(text)));
  if (found != digests.front())
    return bad(errc::checksum_mismatch, "the header's checksum differs")
        .with_values(to_hex(digests.front()), to_hex(found))
        .with_hint(detail::restore_hint);
  digests.erase(digests.begin());
  return std::optional(std::move(digests));
}

}  // namespace shardmesh::safetensors
