// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import shardmesh.comm;
import shardmesh.layout;
import shardmesh.torch_file;
import shardmesh.transfer;
import shardmesh.tree;
import :box_layers;
import :described_part;
import :kept_catalog;
import :kept_match;
import :memory_step;
import :memory_survey;
import :rank_round;
import :step_resume;

namespace shardmesh {
namespace {

// The least memory for messages, as for loads from files.
constexpr std::int64_t least_message_bytes = std::int64_t{32} << 20;

// Collects fragments, and numbers the slots of each rank in the order in which they are added.
class numbered_side {
 public:
  numbered_side(const extents& shape, std::int32_t ranks)
      : made_(shape, owner_space::ranks), slots_(static_cast<std::size_t>(ranks), 0) {}
  void add(std::int32_t rank, const box& where) {
    made_.add(rank, slots_[static_cast<std::size_t>(rank)]++, where.offsets, where.sizes);
  }
  result<distribution> finish(std::string_view key) {
    auto made = made_.finish();
    if (!made) return std::move(made).error().with_key(key);
    return made;
  }

 private:
  distribution_builder made_;
  std::vector<std::int32_t> slots_;
};

}  // namespace

step_resume::step_resume(std::span<const memory_step> steps, communicator_ref comm, const rank_load_options& options)
    : steps_(steps),
      options_(options),
      round_{comm, {.within = options.within, .cancel = options.cancel, .name = "replicas.resume"}} {}

result<resumed_step> step_resume::run(const detail::replica_target& state) && {
  const auto loaded = guarded(round_.comm, [&]() -> result<void> {
    SHARDMESH_TRY(choose());
    SHARDMESH_TRY(compare(state));
    SHARDMESH_TRY(move());
    return {};
  });
  if (!loaded) return loaded.error();
  // The communicator is free again: an error from here on keeps no rank waiting.
  const auto taken = guarded([&]() -> result<void> {
    for (const local_state_tensor& tensor : wanted_.tensors)
      if (tensor.written) tensor.written();
    return state.take_objects(wanted_.objects);
  });
  if (!taken) {
    error why = taken.error();
    // For errc::gap, the caller loads from a run. It must not do so on this rank alone.
    if (why.code == errc::gap) why.code = errc::invalid_argument;
    return why;
  }
  if (options_.on_arrival)
    for (const std::string& key : report_.loaded.loaded) options_.on_arrival(key);
  return std::move(report_);
}

// Every rank chooses the same step.
result<void> step_resume::choose() {
  SHARDMESH_TRY(std::vector<surveyed_step> found, survey_memory(steps_, round_));
  const auto complete = std::find_if(found.begin(), found.end(), [](const auto& one) { return one.is_complete(); });
  for (auto lost = found.begin(); lost != complete; ++lost) report_.skipped.push_back(lost_chunks(*lost).value());
  if (complete == found.end()) {
    if (!report_.skipped.empty()) return fail_all(std::move(report_.skipped));
    return fail(errc::gap, "no rank holds a step in memory").with_hint("load a step from the store");
  }
  chosen_ = std::move(*complete);
  report_.step = chosen_.catalog->step;
  report_.is_from_memory = true;
  report_.damaged_copies = chosen_.damaged_copies;
  std::size_t chunks = 0;
  for (const kept_tensor& tensor : chosen_.catalog->tensors) {
    tensors_.emplace(tensor.key, first_chunks_.size());
    first_chunks_.push_back(chunks);
    chunks += tensor.chunks.size();
  }
  own_copies_.resize(chunks, nullptr);
  for (const memory_step& step : steps_)
    if (step.id == chosen_.id)
      for (const chunk_copy& copy : step.copies) own_copies_[copy.chunk] = step.bytes_of(copy).data();
  return {};
}

// This rank's part, described for the others.
result<std::vector<std::byte>> step_resume::note_of_wanted(const detail::replica_target& state) {
  const auto has = [this](std::string_view key) {
    const auto found = tensors_.find(key);
    return found != tensors_.end() && !chosen_.catalog->tensors[found->second].is_object;
  };
  SHARDMESH_TRY(wanted_, state.make_part(has));
  const const_local_state readable = wanted_;
  SHARDMESH_TRY(detail::check_held(readable));
  for (const local_state_tensor& tensor : wanted_.tensors) {
    first_parts_.push_back(parts_.size());
    const std::string key = dotted(tensor.where);
    // A part whose key the step lacks fills nothing.
    std::optional<tensor_view> nothing;
    if (!has(key)) nothing = tensor_view{nullptr, tensor.type, {}, {0}, {1}};
    for (const local_part& part : tensor.parts) {
      if (auto fillable = check_fillable(part.memory); !fillable)
        return std::move(fillable).error().with_key(key).with_box(part.where);
      parts_.push_back({key, part.where, part.memory, nothing});
    }
  }
  SHARDMESH_TRY(auto shared, detail::find_shared_destinations(parts_));
  SHARDMESH_TRY(ties_, detail::tied_destinations::make(std::move(shared.tied), parts_));
  std::vector<described_entry> entries = describe_tensors(readable);
  for (const local_state_object& object : wanted_.objects)
    entries.push_back({{dotted(object.where), true, {}, dtype::uint8}, {}, {}});
  detail::wire_writer out;
  write(out, entries);
  return std::move(out).take();
}

// Compares the wanted entries with the kept ones. Every rank finds the same problems.
result<void> step_resume::compare(const detail::replica_target& state) {
  std::vector<std::byte> note;
  const auto mine = guarded([&]() -> result<void> {
    SHARDMESH_TRY(note, note_of_wanted(state));
    return {};
  });
  const std::vector<agreement_record> records{
      {"(options)",
       fmt::format("missing {}, unexpected {}, narrowing {}, memory {}", static_cast<int>(options_.missing),
                   static_cast<int>(options_.unexpected), options_.allow_narrowing, options_.memory_bytes)}};
  SHARDMESH_TRY(const agreement_notes notes, round_.settle(mine, std::move(note), records));
  std::vector<std::vector<described_entry>> by_rank;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    detail::wire_reader in(notes[rank]);
    auto entries = read_entries(in);
    if (!entries || !in.finished()) return malformed_note(rank);
    by_rank.push_back(*std::move(entries));
  }
  all_ = merge_parts(by_rank, false);
  match_entries(all_, *chosen_.catalog, tensors_, options_, report_.loaded);
  return std::move(all_.problems).outcome();
}

// The ranks with intact copies, and this rank's memory of them.
result<distribution> step_resume::source_of(std::size_t tensor, const_tensor_binding& memory) const {
  const kept_tensor& kept = chosen_.catalog->tensors[tensor];
  numbered_side side(kept.shape, round_.comm.size());
  for (std::size_t k = 0; k < kept.chunks.size(); ++k) {
    const std::size_t chunk = first_chunks_[tensor] + k;
    const extents& sizes = kept.chunks[k].where.sizes;
    for (const std::int32_t rank : chosen_.holders[chunk]) {
      side.add(rank, kept.chunks[k].where);
      if (rank == round_.comm.rank())
        memory.slots.push_back({own_copies_[chunk], kept.type, {}, sizes, contiguous_strides(sizes)});
    }
  }
  return side.finish(kept.key);
}

tensor_view step_resume::memory_of(const part_holder& holder) const {
  return parts_[first_parts_[holder.entry] + holder.part].to;
}

result<void> step_resume::add_moves(const merged_entry& wanted, moves& to) {
  const auto found = tensors_.find(wanted.head.key);
  if (found == tensors_.end() || (!wanted.head.is_object && wanted.boxes.empty())) return {};
  const kept_tensor& kept = chosen_.catalog->tensors[found->second];
  const std::int32_t me = round_.comm.rank();
  const_tensor_binding memory;
  SHARDMESH_TRY(const distribution source, source_of(found->second, memory));
  const auto add = [&](numbered_side& side, tensor_binding destination) -> result<void> {
    SHARDMESH_TRY(distribution made, side.finish(kept.key));
    to.transfers.push_back({source, std::move(made), kept.type, kept.is_object ? kept.type : wanted.head.type});
    to.keys.push_back(kept.key);
    to.from.push_back(memory);
    to.to.push_back(std::move(destination));
    return {};
  };
  if (kept.is_object) {
    numbered_side side(kept.shape, round_.comm.size());
    tensor_binding destination;
    for (const part_holder& holder : wanted.ranks) {
      side.add(holder.rank, box::whole(kept.shape));
      if (holder.rank != me) continue;
      SHARDMESH_TRY(host_tensor archive, host_tensor::make(kept.type, kept.shape));
      host_tensor& held = archives_[holder.entry - wanted_.tensors.size()] = std::move(archive);
      destination.slots.push_back(view_of(held));
    }
    return add(side, std::move(destination));
  }
  // Boxes that overlap without being equal cannot be on one side of a transfer.
  for (const std::vector<std::size_t>& layer : box_layers(kept.shape.rank(), wanted.boxes)) {
    numbered_side side(kept.shape, round_.comm.size());
    tensor_binding destination;
    for (const std::size_t i : layer)
      for (const part_holder& holder : wanted.boxes[i].holders) {
        side.add(holder.rank, wanted.boxes[i].where);
        if (holder.rank == me) destination.slots.push_back(memory_of(holder));
      }
    SHARDMESH_TRY(add(side, std::move(destination)));
  }
  return {};
}

result<void> step_resume::move() {
  moves all;
  const auto mine = guarded([&]() -> result<void> {
    for (const merged_entry& wanted : all_.entries) SHARDMESH_TRY(add_moves(wanted, all));
    return {};
  });
  SHARDMESH_TRY(round_.settle(mine));
  if (!all.transfers.empty()) {
    const plan_options how{.memory_bytes = std::max(options_.memory_bytes, least_message_bytes),
                           .allow_narrowing = options_.allow_narrowing};
    SHARDMESH_TRY(executor runs, executor::make(plan(std::move(all.transfers), how), round_.comm, std::move(all.keys),
                                                {.progress = options_.progress}, round_.call));
    SHARDMESH_TRY(runs.run(all.from, all.to, round_.call));
    report_.loaded.bytes_received = runs.received_bytes();
  }
  // A rank that has all its bytes does not know whether the others have theirs.
  SHARDMESH_TRY(round_.settle(guarded([&]() -> result<void> { return finish_objects(); })));
  return {};
}

// Sets the objects, and compares tied tensors.
result<void> step_resume::finish_objects() {
  SHARDMESH_TRY(ties_.compare(parts_, [](std::size_t) { return true; }));
  std::vector<std::pair<std::size_t, local_state_object>> read;
  for (const auto& [index, archive] : archives_) {
    auto object = torch_file::object_of_archive(archive.bytes());
    if (!object) return std::move(object).error().with_key(dotted(wanted_.objects[index].where));
    read.emplace_back(index, *std::move(object));
  }
  for (auto& [index, object] : read) {
    wanted_.objects[index].form = std::move(object.form);
    wanted_.objects[index].leaves = std::move(object.leaves);
  }
  return {};
}

}  // namespace shardmesh
