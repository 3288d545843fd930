// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh {
namespace {

constexpr std::int64_t last_int = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::vector<std::byte> to_bytes(const error& e) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(e.code));
  out.number(e.sys);
  for (const std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint}) out.text(*text);
  out.number(static_cast<std::int64_t>(e.ranks.size()));
  for (const std::int32_t rank : e.ranks) out.number(rank);
  out.number(static_cast<std::int64_t>(e.boxes.size()));
  for (const box& b : e.boxes) out.where(b);
  return std::move(out).take();
}

std::optional<error> error_from_bytes(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  error e;
  e.code = static_cast<errc>(in.in_range(1, static_cast<std::int64_t>(errc::communication)));
  e.sys = static_cast<int>(in.in_range(-last_int, last_int));
  for (std::string* text : {&e.message, &e.key, &e.file, &e.expected, &e.found, &e.hint}) *text = in.text();
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left)
    e.ranks.push_back(static_cast<std::int32_t>(in.in_range(-last_int, last_int)));
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) e.boxes.push_back(in.where());
  return in.finished() ? std::optional(std::move(e)) : std::nullopt;
}

error detail::reported_by(error e, std::int32_t rank) {
  if (e.ranks.empty() && e.code != errc::gap) e.ranks.push_back(rank);
  return e;
}

}  // namespace shardmesh
