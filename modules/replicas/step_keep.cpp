// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <host_name.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import shardmesh.collective_checkpoint;
import shardmesh.comm;
import shardmesh.digest;
import shardmesh.kernels;
import shardmesh.torch_file;
import shardmesh.tree;
import :box_cover;
import :copy_placement;
import :copy_sending;
import :described_part;
import :kept_catalog;
import :memory_step;
import :memory_survey;
import :rank_round;
import :step_keep;

namespace shardmesh {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

}  // namespace

step_keep::step_keep(std::vector<memory_step>& steps, communicator_ref comm, const replicas_options& options,
                     const keep_options& how)
    : steps_(steps),
      options_(options),
      how_(how),
      round_{comm, {.within = how.within, .cancel = how.cancel, .name = "replicas.keep"}} {}

result<void> step_keep::prepare(std::int64_t step, function_ref<result<const_local_state>()> make) {
  return guarded(round_.comm, [&]() -> result<void> {
    SHARDMESH_TRY(const merged_parts all, describe(step, make));
    SHARDMESH_TRY(choose_step_before());
    SHARDMESH_TRY(copy_own(all));
    held_ = {};
    archives_.clear();
    return {};
  });
}

result<std::vector<std::byte>> step_keep::note_of_part(std::int64_t step,
                                                       function_ref<result<const_local_state>()> make) {
  if (step < 0)
    return fail(errc::invalid_argument, "the number of a step is negative")
        .with_values("0 or more", fmt::format("{}", step));
  SHARDMESH_TRY(held_, make());
  SHARDMESH_TRY(detail::check_held(held_));
  std::vector<described_entry> entries = describe_tensors(held_);
  if (how_.skip_objects) held_.objects.clear();
  for (const local_state_object& object : held_.objects) {
    auto archive = torch_file::archive_of_object(object);
    if (!archive) return std::move(archive).error().with_key(dotted(object.where));
    const extents shape{static_cast<std::int64_t>(archive->size())};
    entries.push_back({{dotted(object.where), true, shape, dtype::uint8}, xxh3(*archive), {box::whole(shape)}});
    archives_.push_back(*std::move(archive));
  }
  std::int64_t last_number = 0;
  for (const memory_step& held : steps_) last_number = std::max(last_number, held.catalog->number);
  detail::wire_writer out;
  out.text(options_.failure_domain ? options_.failure_domain(round_.comm.rank()) : detail::host_name());
  out.number(last_number);
  out.number(static_cast<std::int64_t>(steps_.size()));
  write(out, entries);
  return std::move(out).take();
}

// Every rank gets the same list, or the same problems.
result<merged_parts> step_keep::describe(std::int64_t step, function_ref<result<const_local_state>()> make) {
  std::vector<std::byte> note;
  const auto mine = guarded([&]() -> result<void> {
    SHARDMESH_TRY(note, note_of_part(step, make));
    return {};
  });
  const std::vector<agreement_record> records{
      {"(step)", fmt::format("{}", step)},
      {"(options)", fmt::format("copies {}, skip_objects {}, lowest_rank_objects {}", options_.copies,
                                how_.skip_objects, how_.lowest_rank_objects)}};
  SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note), records));
  std::vector<std::string> names;
  std::vector<std::vector<described_entry>> by_rank;
  catalog_.step = step;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    detail::wire_reader in(notes[rank]);
    names.push_back(in.text());
    catalog_.number = std::max(catalog_.number, in.in_range(0, largest - 1) + 1);
    has_two_steps_ |= in.in_range(0, largest) > 1;
    auto entries = read_entries(in);
    if (!entries || !in.finished()) return malformed_note(rank);
    by_rank.push_back(*std::move(entries));
  }
  merged_parts all = merge_parts(by_rank, how_.lowest_rank_objects);
  // If ranks contradict each other, the other problems are consequences, and are not reported.
  if (all.problems.empty())
    for (const merged_entry& entry : all.entries) check_cover_of(entry, all.problems);
  SHARDMESH_TRY(std::move(all.problems).outcome());
  SHARDMESH_TRY(const failure_domains domains, number_domains(names, options_.copies));
  keepers_ = place_copies(all, domains, options_.copies);
  return all;
}

// An earlier keep may have ended on some ranks only. Then the ranks choose one step that stays until this keep ends.
result<void> step_keep::choose_step_before() {
  if (!has_two_steps_) return {};
  SHARDMESH_TRY(const std::vector<surveyed_step> found, survey_memory(steps_, round_));
  const auto chosen = std::find_if(found.begin(), found.end(), [](const auto& one) { return one.is_complete(); });
  if (chosen == found.end()) {
    steps_.clear();
    return {};
  }
  std::erase_if(steps_, [&](const memory_step& held) { return held.id != chosen->id; });
  return {};
}

// This rank's memory of a box; without data if it has none.
const_tensor_view step_keep::own_box(const merged_box& where) const {
  for (const part_holder& holder : where.holders) {
    if (holder.rank != round_.comm.rank()) continue;
    if (holder.entry < held_.tensors.size()) return held_.tensors[holder.entry].parts[holder.part].memory;
    const std::vector<std::byte>& archive = archives_[holder.entry - held_.tensors.size()];
    return {archive.data(), dtype::uint8, {}, where.where.sizes, {1}};
  }
  return {};
}

// Copies the boxes that this rank trains with and keeps. Returns the digests of these copies, in order.
result<std::vector<std::byte>> step_keep::copy_and_digest(const merged_parts& all) {
  const std::int32_t rank = round_.comm.rank();
  std::vector<chunk_to_keep> kept;
  std::vector<const merged_box*> boxes;
  std::vector<dtype> types;
  for (const merged_entry& entry : all.entries)
    for (const merged_box& one : entry.boxes) {
      const auto size = part_bytes(entry.head.shape, entry.head.type, one.where);
      if (is_among(rank, keepers_[boxes.size()].ranks)) kept.push_back({boxes.size(), size.value_or(0)});
      boxes.push_back(&one);
      types.push_back(entry.head.type);
    }
  SHARDMESH_TRY(made_, allocate_step(kept, bytes_in(steps_), options_.memory_bytes));
  detail::wire_writer out;
  for (const chunk_copy& copy : made_.copies) {
    const box_keepers& keepers = keepers_[copy.chunk];
    const auto own = std::span(keepers.ranks).first(keepers.own_copies);
    if (!is_among(rank, own)) continue;
    SHARDMESH_TRY(detail::check_limits(round_.call, "copy of a step into memory"));
    const extents& sizes = boxes[copy.chunk]->where.sizes;
    const std::span<std::byte> bytes = made_.bytes_of(copy);
    const tensor_view to{bytes.data(), types[copy.chunk], {}, sizes, contiguous_strides(sizes)};
    SHARDMESH_TRY(copy_between(to, own_box(*boxes[copy.chunk])));
    out.digest(xxh3(bytes));
  }
  return std::move(out).take();
}

result<void> step_keep::copy_own(const merged_parts& all) {
  std::vector<std::byte> note;
  const auto mine = guarded([&]() -> result<void> {
    SHARDMESH_TRY(note, copy_and_digest(all));
    return {};
  });
  SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note)));
  SHARDMESH_TRY(set_digests(all, notes));
  made_.encoded = encode(catalog_);
  made_.id = xxh3(made_.encoded);
  made_.catalog = std::make_shared<const kept_catalog>(std::move(catalog_));
  return {};
}

// The first keeper's bytes count. Keepers that train with equal bytes need no message, and send them to the others.
result<void> step_keep::set_digests(const merged_parts& all, const agreement_notes& notes) {
  std::vector<detail::wire_reader> readers(notes.begin(), notes.end());
  std::size_t number = 0;
  for (const merged_entry& entry : all.entries) {
    kept_tensor tensor{entry.head.key, entry.head.is_object, entry.head.shape, entry.head.type, {}};
    for (const merged_box& one : entry.boxes) {
      const box_keepers& keepers = keepers_[number++];
      kept_chunk chunk{one.where, part_bytes(tensor.shape, tensor.type, one.where).value_or(0), {}};
      chunk_route route;
      for (std::size_t k = 0; k < keepers.ranks.size(); ++k) {
        const std::int32_t rank = keepers.ranks[k];
        const bool is_own = k < keepers.own_copies;
        const digest128 digest = is_own ? readers[static_cast<std::size_t>(rank)].digest() : digest128();
        if (k == 0) chunk.digest = digest;
        (is_own && digest == chunk.digest ? route.senders : route.receivers).push_back(rank);
      }
      report_.differing_boxes += route.senders.size() < keepers.own_copies ? 1 : 0;
      routes_.push_back(std::move(route));
      tensor.chunks.push_back(chunk);
    }
    catalog_.tensors.push_back(std::move(tensor));
  }
  for (std::size_t rank = 0; rank < readers.size(); ++rank)
    if (!readers[rank].finished()) return malformed_note(rank);
  return {};
}

result<keep_report> step_keep::finish() {
  report_.step = made_.catalog->step;
  report_.kept_bytes = static_cast<std::int64_t>(made_.memory.bytes().size());
  const auto done = guarded(round_.comm, [&]() -> result<void> {
    SHARDMESH_TRY(const sent_copies sent, send_copies(made_, routes_, round_, how_.progress));
    report_.sent_bytes = sent.sent_bytes;
    report_.received_bytes = sent.received_bytes;
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(check_received(made_, routes_, round_.comm.rank()));
      steps_.push_back(std::move(made_));
      return {};
    });
    // Until this rank knows that every rank has the new step, it keeps both: a rank that knows may drop the old one.
    SHARDMESH_TRY(round_.settle(mine));
    steps_.erase(steps_.begin(), steps_.end() - 1);
    return {};
  });
  if (!done) return done.error();
  return report_;
}

}  // namespace shardmesh
