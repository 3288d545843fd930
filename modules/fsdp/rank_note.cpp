// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :offered_state;
import :rank_note;

namespace shardmesh::detail {
namespace {

std::vector<std::byte> to_bytes(std::span<const offered_value> offers, std::span<const std::string> unexpected) {
  std::vector<std::int64_t> described;
  for (const offered_value& offer : offers) {
    const digest128 one = offer.where ? offer.where->description_digest() : digest128{};
    described.push_back(static_cast<std::int64_t>(one.low));
    described.push_back(static_cast<std::int64_t>(one.high));
  }
  wire_writer out;
  out.digest(digest_of(described));
  for (const offered_value& offer : offers) {
    const offer_kind kind = !offer.is_offered ? offer_kind::none
                            : offer.where     ? offer_kind::sharded
                                              : offer_kind::whole;
    out.number(static_cast<std::int64_t>(kind));
    out.number(static_cast<std::int64_t>(offer.type));
  }
  out.number(static_cast<std::int64_t>(unexpected.size()));
  for (const std::string& key : unexpected) out.text(key);
  return std::move(out).take();
}

result<rank_note> parse_note(std::span<const std::byte> bytes, std::size_t entries, std::int32_t rank) {
  wire_reader in(bytes);
  rank_note note{in.digest(), {}, {}, {}};
  for (std::size_t i = 0; i < entries && in.ok(); ++i) {
    note.kinds.push_back(static_cast<offer_kind>(in.in_range(0, static_cast<std::int64_t>(offer_kind::sharded))));
    note.types.push_back(static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2))));
  }
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) note.unexpected.push_back(in.text());
  if (in.finished()) return note;
  return fail(errc::communication, "a rank's note about its state dict is damaged").with_rank(rank);
}

}  // namespace

result<std::vector<rank_note>> exchange_notes(const offered_state& mine, std::span<const std::string> unexpected,
                                              const std::optional<error>& problem) {
  std::vector<agreement_record> records;
  for (const fsdp_entry& entry : mine.entries)
    records.push_back({entry.key, fmt::format("{} {}", to_string(mine.shape_of(entry)), name(mine.type_of(entry)))});
  agree_options options{.what = "entries", .ordered = true, .note = to_bytes(mine.values, unexpected)};
  if (problem) options.problem = &*problem;
  SHARDMESH_TRY(const auto bytes, agree(mine.comm, records, options, mine.options.call));
  std::vector<rank_note> notes;
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    SHARDMESH_TRY(notes.emplace_back(), parse_note(bytes[r], mine.entries.size(), static_cast<std::int32_t>(r)));
  }
  return notes;
}

}  // namespace shardmesh::detail
