// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import shardmesh.comm;
import shardmesh.digest;
import :described_part;
import :kept_catalog;
import :memory_step;
import :memory_survey;
import :rank_round;

namespace shardmesh {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

// One rank's copies of one step, as it reports them.
struct reported_copies {
  std::int32_t rank = 0;
  std::vector<std::size_t> intact;  // numbers of chunks, ascending
  std::int64_t damaged = 0;
};

// By id: the same order on every rank.
using reported_steps = std::map<digest128, std::vector<reported_copies>>;

std::vector<std::byte> report(std::span<const memory_step> steps) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(steps.size()));
  for (const memory_step& step : steps) {
    const std::vector<numbered_chunk> chunks = chunks_of(*step.catalog);
    std::vector<std::size_t> intact;
    for (const chunk_copy& copy : step.copies)
      if (xxh3(step.bytes_of(copy)) == chunks[copy.chunk].chunk->digest) intact.push_back(copy.chunk);
    out.digest(step.id);
    out.number(static_cast<std::int64_t>(step.copies.size() - intact.size()));
    out.number(static_cast<std::int64_t>(intact.size()));
    std::size_t last = 0;
    for (const std::size_t chunk : intact) {
      out.number(static_cast<std::int64_t>(chunk - last));
      last = chunk;
    }
  }
  return std::move(out).take();
}

// Adds a rank's report. Returns false for a malformed one.
bool add_report(std::int32_t rank, std::span<const std::byte> note, reported_steps& to) {
  detail::wire_reader in(note);
  const std::size_t steps = in.count();
  for (std::size_t i = 0; i < steps && in.ok(); ++i) {
    reported_copies said{rank, {}, 0};
    const digest128 id = in.digest();
    said.damaged = in.in_range(0, largest);
    const std::size_t intact = in.count();
    std::int64_t last = 0;
    for (std::size_t k = 0; k < intact && in.ok(); ++k) {
      const auto next = checked_add(last, in.in_range(k == 0 ? 0 : 1, largest));
      if (!next) return false;
      last = *next;
      said.intact.push_back(static_cast<std::size_t>(last));
    }
    std::vector<reported_copies>& all = to[id];
    if (!all.empty() && all.back().rank == rank) return false;
    all.push_back(std::move(said));
  }
  return in.finished();
}

const memory_step* find_step(std::span<const memory_step> steps, const digest128& id) {
  for (const memory_step& step : steps)
    if (step.id == id) return &step;
  return nullptr;
}

using catalogs = std::map<digest128, std::shared_ptr<const kept_catalog>>;

// The lowest rank that holds a step sends its catalog to the others. Collective.
result<catalogs> send_catalogs(std::span<const memory_step> steps, const reported_steps& said,
                               const rank_round& round) {
  detail::wire_writer out;
  const auto mine = guarded([&]() -> result<void> {
    for (const auto& [id, reports] : said)
      if (reports.front().rank == round.comm.rank()) out.bytes(find_step(steps, id)->encoded);
    return {};
  });
  SHARDMESH_TRY(const agreement_notes notes, round.settle(mine, std::move(out).take()));
  std::vector<detail::wire_reader> readers(notes.begin(), notes.end());
  catalogs made;
  for (const auto& [id, reports] : said) {
    const auto rank = static_cast<std::size_t>(reports.front().rank);
    const std::vector<std::byte> encoded = readers[rank].bytes();
    auto catalog = decode_catalog(encoded);
    if (xxh3(encoded) != id || !catalog) return malformed_note(rank);
    made.emplace(id, std::make_shared<const kept_catalog>(*std::move(catalog)));
  }
  for (std::size_t rank = 0; rank < readers.size(); ++rank)
    if (!readers[rank].finished()) return malformed_note(rank);
  return made;
}

result<surveyed_step> combine(const digest128& id, const std::vector<reported_copies>& reports,
                              std::shared_ptr<const kept_catalog> catalog) {
  surveyed_step made{id, std::move(catalog), {}, 0};
  made.holders.resize(chunks_of(*made.catalog).size());
  for (const reported_copies& said : reports) {
    for (const std::size_t chunk : said.intact) {
      if (chunk >= made.holders.size()) return malformed_note(static_cast<std::size_t>(said.rank));
      made.holders[chunk].push_back(said.rank);
    }
    made.damaged_copies = checked_add(made.damaged_copies, said.damaged).value_or(largest);
  }
  return made;
}

}  // namespace

bool surveyed_step::is_complete() const {
  return std::none_of(holders.begin(), holders.end(), [](const auto& ranks) { return ranks.empty(); });
}

result<std::vector<surveyed_step>> survey_memory(std::span<const memory_step> steps, const rank_round& round) {
  std::vector<std::byte> note;
  const auto mine = guarded([&]() -> result<void> {
    note = report(steps);
    return {};
  });
  SHARDMESH_TRY(const agreement_notes notes, round.settle(mine, std::move(note)));
  reported_steps said;
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    if (!add_report(static_cast<std::int32_t>(rank), notes[rank], said)) return malformed_note(rank);
  catalogs known;
  const bool all_know =
      std::all_of(said.begin(), said.end(), [&](const auto& one) { return one.second.size() == notes.size(); });
  if (all_know) {
    for (const memory_step& step : steps) known.emplace(step.id, step.catalog);
  } else {
    SHARDMESH_TRY(known, send_catalogs(steps, said, round));
  }
  std::vector<surveyed_step> made;
  for (const auto& [id, reports] : said) {
    SHARDMESH_TRY(surveyed_step one, combine(id, reports, known.at(id)));
    made.push_back(std::move(one));
  }
  std::sort(made.begin(), made.end(), [](const surveyed_step& a, const surveyed_step& b) {
    return a.catalog->number != b.catalog->number ? a.catalog->number > b.catalog->number : a.id < b.id;
  });
  return made;
}

std::optional<error> lost_chunks(const surveyed_step& step) {
  detail::problem_list lost;
  const std::vector<numbered_chunk> chunks = chunks_of(*step.catalog);
  for (std::size_t i = 0; i < chunks.size(); ++i)
    if (step.holders[i].empty())
      lost.add(fail(errc::gap, fmt::format("no rank has a copy of this part of step {}", step.catalog->step))
                   .with_key(chunks[i].tensor->key)
                   .with_box(chunks[i].chunk->where)
                   .with_hint("load the step from the store"));
  const auto outcome = std::move(lost).outcome();
  if (outcome) return std::nullopt;
  return outcome.error();
}

}  // namespace shardmesh
