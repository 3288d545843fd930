// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.torch_file;
import :chunk_forms;
import :interruption;
import :load_planner;
import :load_share;
import :rank_share;
import :rank_side;
import :rank_state;
import :round_share;
import :staged_round;

namespace shardmesh {
namespace {

// The least memory for the messages of an exchange.
constexpr std::int64_t least_message_bytes = std::int64_t{32} << 20;

error malformed_share() {
  return fail(errc::bad_format, "the share that rank 0 plans for this rank is malformed").with_rank(0);
}

class rank_load {
 public:
  rank_load(checkpoint_reader* reader, local_state& wanted, communicator_ref comm, const rank_load_options& options)
      : reader_(reader),
        wanted_(wanted),
        comm_(comm),
        options_(options),
        loading_(options.loading()),
        round_{comm, loading_.call().named("load")} {}

  result<load_report> run(const result<void>& opened) && {
    const detail::call_scope limits(round_.call);
    SHARDMESH_TRY(guarded(comm_, [&] { return load_all(opened); }));
    return std::move(report_);
  }

 private:
  result<void> load_all(const result<void>& opened) {
    SHARDMESH_TRY(get_share(opened));
    SHARDMESH_TRY(const agreement_notes notes, read());
    if (!share_.shared.empty()) SHARDMESH_TRY(exchange());
    if (share_.has_rounds) SHARDMESH_TRY(read_in_pieces());
    if (share_.has_ties) SHARDMESH_TRY(compare_ties());
    SHARDMESH_TRY(set_objects(notes));
    for (const local_state_tensor& tensor : wanted_.tensors)
      if (tensor.written) tensor.written();
    return {};
  }

  // Rank 0 gets the requests of all ranks, compares them with the checkpoint, and plans the load. Every rank gets its
  // verdict and its own share. A rank that cannot read its share reports that in the next round, in `read`.
  result<void> get_share(const result<void>& opened) {
    std::vector<std::byte> note;
    std::vector<agreement_record> conditions{
        {"(options)",
         fmt::format("sharing {}, missing {}, unexpected {}, narrowing {}, memory {}",
                     static_cast<int>(options_.sharing), static_cast<int>(options_.missing),
                     static_cast<int>(options_.unexpected), loading_.allow_narrowing, options_.memory_bytes)}};
    const auto mine = guarded([&]() -> result<void> {
      if (!opened) return opened;
      SHARDMESH_TRY(check_held(wanted_));
      SHARDMESH_TRY(const bool has_ties, set_parts());
      std::vector<described_object> objects;
      for (const local_state_object& object : wanted_.objects) objects.push_back({object.where, {}, 0, {}});
      note = describe(wanted_, objects);
      add_flags(note, has_ties, loading_.check);
      conditions.push_back({"(checkpoint)", text_of(reader_->contents())});
      return {};
    });
    SHARDMESH_TRY(const std::vector<std::size_t> sizes, round_.announce(mine, note.size(), conditions));
    SHARDMESH_TRY(agreement_notes notes, round_.send_to_root(std::move(note), sizes));
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
  agreement_notes by_planner(function_ref<result<agreement_notes>()> planning) {
    if (comm_.rank() != 0) return {};
    agreement_notes parts;
    const auto planned = guarded([&]() -> result<void> {
      SHARDMESH_TRY(parts, planning());
      return {};
    });
    return with_verdict(planned, std::move(parts), comm_.size());
  }

  result<void> take_share(std::span<const std::byte> bytes) {
    auto share = read_load_share(bytes, reader_->contents(), comm_.size());
    if (!share) return malformed_share();
    for (const shared_tensor& tensor : share->shared)
      for (const shared_part& one : tensor.parts)
        if (!part_of(tensor.stored, one.part)) return malformed_share();
    for (const object_to_read& object : share->objects)
      if (!object_of_stored_.contains(object.stored)) return malformed_share();
    share_ = *std::move(share);
    report_ = std::move(share_.report);
    return {};
  }

  // Collects the memory of this rank's parts, and the positions of its entries in the catalog. Returns whether several
  // keys share some of the memory.
  result<bool> set_parts() {
    const catalog& contents = reader_->contents();
    for (std::size_t i = 0; i < wanted_.objects.size(); ++i)
      if (const object_entry* const found = contents.find_object(dotted(wanted_.objects[i].where)))
        object_of_stored_.emplace(static_cast<std::size_t>(found - contents.objects.data()), i);
    first_part_.reserve(wanted_.tensors.size());
    parts_.reserve(wanted_.tensors.size());
    for (const local_state_tensor& tensor : wanted_.tensors) {
      first_part_.push_back(parts_.size());
      const std::string key = dotted(tensor.where);
      // A part whose key the checkpoint lacks fills nothing.
      std::optional<tensor_view> nothing;
      const tensor_entry* const found = contents.find(key);
      if (found)
        tensor_of_stored_.emplace(static_cast<std::size_t>(found - contents.tensors.data()), first_part_.size() - 1);
      else
        nothing = tensor_view{nullptr, tensor.type, {}, {0}, {1}};
      for (const local_part& part : tensor.parts) {
        if (auto fillable = check_fillable(part.memory); !fillable)
          return std::move(fillable).error().with_key(key).with_rank(comm_.rank()).with_box(part.where);
        parts_.push_back({key, part.where, part.memory, nothing});
      }
    }
    auto shared = detail::find_shared_destinations(parts_);
    if (!shared) return std::move(shared).error().with_rank(comm_.rank());
    const bool has_ties = !shared->tied.empty();
    SHARDMESH_TRY(ties_, detail::tied_destinations::make(std::move(shared->tied), parts_));
    return has_ties;
  }

  // Compares this rank's tied weights. Every rank calls it if any rank has tied weights.
  result<void> compare_ties() {
    const auto mine = guarded([&]() -> result<void> {
      auto equal = ties_.compare(parts_, [](std::size_t) { return true; });
      if (!equal) return std::move(equal).error().with_rank(comm_.rank());
      return {};
    });
    SHARDMESH_TRY(round_.settle(mine));
    return {};
  }

  std::string text_of(const catalog& contents) const {
    detail::wire_writer all;
    for (const tensor_entry& tensor : contents.tensors) {
      all.text(tensor.key);
      all.number(static_cast<std::int64_t>(tensor.type));
      all.numbers(tensor.shape);
      // Ranks that read for each other also compare the places of the chunks, because rank 0 assigns them by number.
      if (options_.sharing == read_sharing::each_rank) continue;
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        const stored_range& place = contents.chunk_places[static_cast<std::size_t>(chunk)];
        all.where(contents.chunk_box(tensor, chunk));
        for (const std::int64_t number : {std::int64_t{place.file}, place.offset, std::int64_t{place.transform}})
          all.number(number);
      }
    }
    for (const object_entry& object : contents.objects) all.text(object.key);
    return fmt::format("{} and {}, digest {}", detail::counted(contents.tensors.size(), "tensor"),
                       detail::counted(contents.objects.size(), "object"), to_hex(xxh3(all.written())));
  }

  // Returns the request for a part of a tensor, which is numbered as in the catalog; null if this rank has none.
  const load_request* part_of(std::size_t stored, std::int64_t part) const {
    const auto found = tensor_of_stored_.find(stored);
    if (found == tensor_of_stored_.end()) return nullptr;
    const std::size_t tensor = found->second;
    if (part < 0 || part >= std::ssize(wanted_.tensors[tensor].parts)) return nullptr;
    return &parts_[first_part_[tensor] + static_cast<std::size_t>(part)];
  }

  // Does this rank's reads, and reads the objects that it sends to the others.
  result<agreement_notes> read() {
    detail::wire_writer note;
    interruption stop(loading_.call(), "load");
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(share_taken_);
      SHARDMESH_TRY(load(*reader_, requests(), local_options()));
      for (const object_to_read& object : share_.objects) {
        SHARDMESH_TRY(stop.check());
        SHARDMESH_TRY(std::vector<std::byte> archive, reader_->object_archive(object.stored));
        if (object.for_others) {
          note.number(static_cast<std::int64_t>(object.stored));
          note.bytes(archive);
        }
        SHARDMESH_TRY(found_object(object_of_stored_.at(object.stored), archive));
      }
      return {};
    });
    return round_.settle(mine, std::move(note).take());
  }

  // A key that this rank gets partly from other ranks is reported as arrived after the exchange.
  load_options local_options() {
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
  std::vector<load_request> requests() {
    std::unordered_set<const load_request*> from_others;
    for (const shared_tensor& tensor : share_.shared)
      for (const shared_part& one : tensor.parts)
        if (!one.reads) from_others.insert(part_of(tensor.stored, one.part));
    const std::unordered_set<std::size_t> in_pieces(share_.in_pieces.begin(), share_.in_pieces.end());
    std::vector<load_request> wanted;
    for (const auto& [stored, tensor] : tensor_of_stored_) {
      if (in_pieces.contains(stored)) continue;
      for (std::int64_t k = 0; k < std::ssize(wanted_.tensors[tensor].parts); ++k) {
        const load_request& part = *part_of(stored, k);
        if (part.where.is_empty() || from_others.contains(&part)) continue;
        report_.bytes_read += bytes_of(part);
        wanted.push_back(part);
      }
    }
    return wanted;
  }

  static std::int64_t bytes_of(const load_request& part) {
    return size_bytes(part.to.type, part.where.volume()).value_or(0);
  }

  // Moves data from the readers' memory to that of the other holders. This rank lists its own boxes and those of its
  // peers in them; a peer has an equal box.
  result<void> exchange() {
    std::vector<std::string> keys;
    std::vector<const_tensor_binding> from;
    std::vector<tensor_binding> to;
    const auto planned = [&]() -> result<transfer_plan> {
      std::vector<tensor_transfer> transfers;
      for (const shared_tensor& tensor : share_.shared) {
        const tensor_entry& stored = reader_->contents().tensors[tensor.stored];
        rank_side readers(stored.shape), receivers(stored.shape);
        const_tensor_binding source;
        tensor_binding destination;
        for (const shared_part& one : tensor.parts) {
          const load_request& mine = *part_of(tensor.stored, one.part);
          readers.add(one.reads ? comm_.rank() : one.peers.front(), mine.where);
          if (one.reads) {
            source.slots.push_back(mine.to);
            for (const std::int32_t peer : one.peers) receivers.add(peer, mine.where);
          } else {
            destination.slots.push_back(mine.to);
            receivers.add(comm_.rank(), mine.where);
            report_.bytes_received += bytes_of(mine);
          }
        }
        SHARDMESH_TRY(distribution held, readers.finish(stored.key));
        SHARDMESH_TRY(distribution wanted, receivers.finish(stored.key));
        transfers.push_back({std::move(held), std::move(wanted), tensor.type, tensor.type});
        keys.push_back(stored.key);
        from.push_back(std::move(source));
        to.push_back(std::move(destination));
      }
      return plan(std::move(transfers));
    };
    auto moves = planned();  // the other ranks get this rank's error from the next line
    SHARDMESH_TRY(executor runs, executor::make(std::move(moves), comm_, std::move(keys),
                                                {.progress = loading_.progress, .whole_plan = false}, round_.call));
    SHARDMESH_TRY(runs.run(from, to, round_.call));
    // A rank that has all its bytes does not know whether the others have theirs.
    SHARDMESH_TRY(round_.settle({}));
    for (const std::string& key : exchanged_) loading_.on_arrival(key);
    return {};
  }

  // Reads pieces for other ranks, in rounds that fit the staging memory.
  result<void> read_in_pieces() {
    SHARDMESH_TRY(const std::vector<round_share> rounds, get_rounds());
    staged_rounds staged({.reader = *reader_,
                          .ranks = round_,
                          .options = loading_,
                          .check = share_.check,
                          .message_bytes = std::max(options_.memory_bytes / 2, least_message_bytes),
                          .memory_of = [this](std::size_t stored, const wanted_part& part) {
                            const load_request& whole = *part_of(stored, part.part);
                            return subview(whole.to, relative_to(part.where, whole.where));
                          }});
    for (const round_share& round : rounds) {
      SHARDMESH_TRY(const round_bytes moved, staged.run(round));
      report_.bytes_read += moved.read;
      report_.bytes_received += moved.received;
      for (const round_tensor_share& done : round)
        if (done.is_last && loading_.on_arrival && wants(done.stored))
          loading_.on_arrival(reader_->contents().tensors[done.stored].key);
    }
    // A rank that has all its bytes does not know whether the others have theirs.
    SHARDMESH_TRY(round_.settle({}));
    return {};
  }

  // Returns this rank's part of the rounds, which rank 0 plans when it knows the forms of all chunks.
  result<std::vector<round_share>> get_rounds() {
    agreement_notes forms;
    if (share_.opens_chunks) {
      std::vector<std::byte> note;
      const auto mine = guarded([&]() -> result<void> {
        SHARDMESH_TRY(note, look_at_chunks(*reader_, share_.chunks));
        return {};
      });
      SHARDMESH_TRY(forms, round_.collect(mine, std::move(note)));
    }
    SHARDMESH_TRY(const std::vector<std::byte> told,
                  round_.hand_out(by_planner([&] { return planner_->round_shares(forms); })));
    planner_.reset();
    detail::wire_reader in(told);
    SHARDMESH_TRY(read_verdict(in));
    std::vector<round_share> rounds;
    const auto taken = guarded([&]() -> result<void> {
      auto share = read_round_shares(in.rest(), reader_->contents(), comm_.rank(), comm_.size());
      if (!share || !std::all_of(share->begin(), share->end(), [&](const auto& round) { return fits(round); }))
        return malformed_share();
      rounds = *std::move(share);
      return {};
    });
    // The other ranks get this error in the round that follows their reads.
    if (!taken) SHARDMESH_TRY(round_.settle(taken));
    return rounds;
  }

  // Returns whether all parts of this rank lie within its memory.
  bool fits(const round_share& round) const {
    for (const round_tensor_share& tensor : round)
      for (const piece_share& piece : tensor.pieces)
        for (const wanted_part& part : piece.wanted) {
          if (part.rank != comm_.rank()) continue;
          const load_request* const whole = part_of(tensor.stored, part.part);
          if (!whole || !lies_within(part.where, whole->where)) return false;
        }
    return true;
  }

  // Returns whether this rank wants elements of the tensor.
  bool wants(std::size_t stored) const {
    const auto found = tensor_of_stored_.find(stored);
    if (found == tensor_of_stored_.end()) return false;
    const auto& parts = wanted_.tensors[found->second].parts;
    return std::any_of(parts.begin(), parts.end(), [](const local_part& part) { return !part.where.is_empty(); });
  }

  result<void> found_object(std::size_t i, std::span<const std::byte> archive) {
    auto object = torch_file::object_of_archive(archive);
    if (!object) return std::move(object).error().with_key(dotted(wanted_.objects[i].where));
    found_.insert_or_assign(i, *std::move(object));
    return {};
  }

  // Called at the very end, so that an error leaves objects unchanged.
  result<void> set_objects(const agreement_notes& notes) {
    for (const std::vector<std::byte>& note : notes) {
      detail::wire_reader in(note);
      while (in.ok() && !in.finished()) {
        const auto stored = static_cast<std::size_t>(in.in_range(0, INT64_MAX));
        const std::vector<std::byte> archive = in.bytes();
        const auto mine = object_of_stored_.find(stored);
        if (!in.ok() || mine == object_of_stored_.end() || found_.contains(mine->second)) continue;
        SHARDMESH_TRY(found_object(mine->second, archive));
      }
    }
    for (auto& [i, object] : found_) {
      local_state_object& to = wanted_.objects[i];
      to.form = std::move(object.form);
      to.leaves = std::move(object.leaves);
    }
    return {};
  }

  checkpoint_reader* reader_;
  local_state& wanted_;
  communicator_ref comm_;
  const rank_load_options& options_;
  load_options loading_;  // of this rank
  round_of_ranks round_;
  load_report report_;
  std::vector<load_request> parts_;      // of this rank, tensor by tensor; see `first_part_`
  std::vector<std::size_t> first_part_;  // per tensor
  detail::tied_destinations ties_;
  std::map<std::size_t, std::size_t> tensor_of_stored_, object_of_stored_;  // this rank's, by place in the catalog
  std::optional<load_planner> planner_;                                     // on rank 0
  load_share share_;
  result<void> share_taken_;  // whether the share could be read
  // Keys that this rank gets partly from another rank, if `on_arrival` is set.
  std::vector<std::string> exchanged_;
  std::map<std::size_t, local_state_object> found_;  // this rank's objects, with the stored values
};

}  // namespace

result<load_report> load(checkpoint_reader& reader, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options) {
  return rank_load(&reader, wanted, comm, options).run({});
}

result<load_report> load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                         const rank_load_options& options) {
  const detail::call_scope limits(options.loading().call().named("load"));
  std::unique_ptr<checkpoint_reader> reader;
  const auto opened = guarded([&]() -> result<void> {
    SHARDMESH_TRY(reader, open_checkpoint(checkpoint));
    return {};
  });
  return rank_load(reader.get(), wanted, comm, options).run(opened);
}

result<load_in_progress> start_load(const std::filesystem::path& checkpoint, local_state& wanted, communicator_ref comm,
                                    const rank_load_options& options) {
  auto started =
      load_in_progress::start([checkpoint, &wanted, comm, options] { return load(checkpoint, wanted, comm, options); });
  if (!started) comm.abort(started.error());  // the others are already running
  return started;
}

}  // namespace shardmesh
