// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

import :wire;

namespace shardmesh {
namespace {

void write(byte_writer& out, const extents& values) {
  out.number(static_cast<std::uint64_t>(values.rank()));
  for (const std::int64_t value : values) out.number(value);
}

bool read(byte_reader& in, extents& values) {
  const auto rank = in.count(sizeof(std::int64_t));
  if (!rank || *rank > max_rank) return false;
  for (std::size_t d = 0; d < *rank; ++d) values.push_back(*in.number<std::int64_t>());
  return true;
}

bool read(byte_reader& in, std::string& text) {
  auto found = in.text();
  if (found) text = *std::move(found);
  return found.has_value();
}

}  // namespace

std::vector<std::byte> to_bytes(const error& e) {
  byte_writer out;
  out.number(static_cast<std::int32_t>(e.code));
  out.number(static_cast<std::int32_t>(e.sys));
  for (const std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint}) out.text(*text);
  out.number(static_cast<std::uint64_t>(e.ranks.size()));
  for (const std::int32_t rank : e.ranks) out.number(rank);
  out.number(static_cast<std::uint64_t>(e.boxes.size()));
  for (const box& b : e.boxes) {
    write(out, b.offsets);
    write(out, b.sizes);
  }
  return std::move(out).take();
}

std::optional<error> error_from_bytes(std::span<const std::byte> bytes) {
  byte_reader in(bytes);
  error e;
  const auto code = in.number<std::int32_t>(), sys = in.number<std::int32_t>();
  if (!code || !sys || *code <= 0 || *code > static_cast<std::int32_t>(errc::communication)) return std::nullopt;
  e.code = static_cast<errc>(*code);
  e.sys = *sys;
  for (std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint})
    if (!read(in, *text)) return std::nullopt;
  const auto ranks = in.count(sizeof(std::int32_t));
  if (!ranks) return std::nullopt;
  for (std::size_t i = 0; i < *ranks; ++i) e.ranks.push_back(*in.number<std::int32_t>());
  const auto boxes = in.count(2 * sizeof(std::uint64_t));
  if (!boxes) return std::nullopt;
  for (std::size_t i = 0; i < *boxes; ++i) {
    box b;
    if (!read(in, b.offsets) || !read(in, b.sizes)) return std::nullopt;
    e.boxes.push_back(b);
  }
  if (!in.rest().empty()) return std::nullopt;
  return e;
}

}  // namespace shardmesh
