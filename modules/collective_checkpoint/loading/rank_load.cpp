// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.torch_file;
import :interruption;
import :load_conditions;
import :load_exchange;
import :load_planner;
import :load_share;
import :rank_load;
import :rank_requests;
import :rank_share;
import :rank_state;
import :said_state;

namespace shardmesh {

rank_load::rank_load(checkpoint_reader* reader, local_state& wanted, communicator_ref comm,
                     const rank_load_options& options)
    : reader_(reader),
      wanted_(wanted),
      comm_(comm),
      options_(options),
      loading_(options.loading()),
      round_{comm, loading_.call().named("load")},
      requests_(wanted, comm.rank()) {}

error rank_load::malformed_share() {
  return fail(errc::bad_format, "the share that rank 0 plans for this rank is malformed").with_rank(0);
}

result<load_report> rank_load::run(const result<void>& opened) && {
  const detail::call_scope limits(round_.call);
  SHARDMESH_TRY(guarded(comm_, [&] { return load_all(opened); }));
  return std::move(report_);
}

result<void> rank_load::load_all(const result<void>& opened) {
  SHARDMESH_TRY(get_share(opened));
  SHARDMESH_TRY(const std::vector<std::byte> objects, read());
  if (!share_.shared.empty()) SHARDMESH_TRY(exchange());
  if (share_.has_rounds) SHARDMESH_TRY(read_in_pieces());
  if (share_.has_ties) SHARDMESH_TRY(compare_ties());
  SHARDMESH_TRY(requests_.set_objects(objects));
  for (const local_state_tensor& tensor : wanted_.tensors)
    if (tensor.written) tensor.written();
  return {};
}

// Rank 0 gets the requests of all ranks, compares them with the checkpoint, and plans the load. Every rank gets its
// verdict and its own share. A rank that cannot read its share reports that in the next round, in `read`.
result<void> rank_load::get_share(const result<void>& opened) {
  std::vector<std::byte> note;
  std::vector<agreement_record> conditions{condition_of(options_)};
  const auto mine = guarded([&]() -> result<void> {
    if (!opened) return opened;
    SHARDMESH_TRY(check_held(wanted_));
    SHARDMESH_TRY(const bool has_ties, requests_.collect(reader_->contents()));
    std::vector<described_object> objects;
    for (const local_state_object& object : wanted_.objects) objects.push_back({object.where, {}, 0, {}});
    note = describe(wanted_, objects);
    add_flags(note, has_ties, loading_.check);
    conditions.push_back(condition_of(reader_->contents(), options_.sharing));
    return {};
  });
  SHARDMESH_TRY(agreement_notes notes, round_.collect(mine, std::move(note), conditions));
  if (comm_.rank() == 0) planner_.emplace(*reader_, options_, comm_.size());
  SHARDMESH_TRY(const std::vector<std::byte> told,
                round_.hand_out(by_planner([&] { return planner_->shares(std::move(notes)); })));
  detail::wire_reader in(told);
  SHARDMESH_TRY(read_verdict(in));
  share_taken_ = guarded([&] { return take_share(in.rest()); });
  if (!share_.has_rounds) planner_.reset();
  return {};
}

// On rank 0: the verdict and the part of each rank. On the others: nothing.
agreement_notes rank_load::by_planner(function_ref<result<agreement_notes>()> planning) {
  if (comm_.rank() != 0) return {};
  agreement_notes parts;
  const auto planned = guarded([&]() -> result<void> {
    SHARDMESH_TRY(parts, planning());
    return {};
  });
  return with_verdict(planned, std::move(parts), comm_.size());
}

result<void> rank_load::take_share(std::span<const std::byte> bytes) {
  auto share = read_load_share(bytes, reader_->contents(), comm_.size());
  if (!share) return malformed_share();
  for (const shared_tensor& tensor : share->shared)
    for (const shared_part& one : tensor.parts)
      if (!requests_.part_of(tensor.stored, one.part)) return malformed_share();
  for (const object_to_read& object : share->objects)
    if (!requests_.has_object(object.stored)) return malformed_share();
  share_ = *std::move(share);
  report_ = std::move(share_.report);
  return {};
}

// Compares this rank's tied weights. Every rank calls it if any rank has tied weights.
result<void> rank_load::compare_ties() {
  const auto mine = guarded([&] { return requests_.compare_ties(); });
  SHARDMESH_TRY(round_.settle(mine));
  return {};
}

// Does this rank's reads, and reads the objects that it sends to the others. Returns those of all ranks, one after
// the other.
result<std::vector<std::byte>> rank_load::read() {
  detail::wire_writer note;
  interruption stop(loading_.call(), "load");
  const auto mine = guarded([&]() -> result<void> {
    SHARDMESH_TRY(share_taken_);
    SHARDMESH_TRY(load(*reader_, own_reads(), local_options()));
    for (const object_to_read& object : share_.objects) {
      SHARDMESH_TRY(stop.check());
      SHARDMESH_TRY(std::vector<std::byte> archive, reader_->object_archive(object.stored));
      if (object.for_others) {
        note.number(static_cast<std::int64_t>(object.stored));
        note.bytes(archive);
      }
      SHARDMESH_TRY(requests_.keep_object(object.stored, archive));
    }
    return {};
  });
  const auto append = [](std::vector<std::byte>& all, std::span<const std::byte> one) {
    all.insert(all.end(), one.begin(), one.end());
  };
  return round_.settle_combined(mine, std::move(note).take(), append);
}

// A key that this rank gets partly from other ranks is reported as arrived after the exchange.
load_options rank_load::local_options() {
  load_options local = loading_;
  local.check |= share_.check && options_.sharing != read_sharing::each_rank;
  if (!local.on_arrival) return local;
  std::unordered_set<std::string> exchanged;
  for (const shared_tensor& tensor : share_.shared) {
    const std::string& key = reader_->contents().tensors[tensor.stored].key;
    for (const shared_part& one : tensor.parts)
      if (!one.reads && exchanged.insert(key).second) exchanged_.push_back(key);
  }
  local.on_arrival = [this, exchanged = std::move(exchanged)](const std::string& key) {
    if (!exchanged.contains(key)) loading_.on_arrival(key);
  };
  return local;
}

// The parts that this rank reads straight into its memory.
std::vector<load_request> rank_load::own_reads() {
  std::unordered_set<const load_request*> from_others;
  for (const shared_tensor& tensor : share_.shared)
    for (const shared_part& one : tensor.parts)
      if (!one.reads) from_others.insert(requests_.part_of(tensor.stored, one.part));
  const std::unordered_set<std::size_t> in_pieces(share_.in_pieces.begin(), share_.in_pieces.end());
  std::vector<load_request> wanted;
  for (const std::size_t stored : requests_.tensors()) {
    if (in_pieces.contains(stored)) continue;
    for (const load_request& part : requests_.parts_of(stored)) {
      if (part.where.is_empty() || from_others.contains(&part)) continue;
      report_.bytes_read += bytes_of(part);
      wanted.push_back(part);
    }
  }
  return wanted;
}

}  // namespace shardmesh
