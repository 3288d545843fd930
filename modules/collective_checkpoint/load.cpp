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
import :load_assignment;
import :rank_state;
import :reading_rounds;
import :staged_round;

namespace shardmesh {
namespace {

// The least memory for the pieces that reads are cut into, and for the messages of an exchange.
constexpr std::int64_t least_staging_bytes = 4096, least_message_bytes = std::int64_t{32} << 20;

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
    SHARDMESH_TRY(compare(opened));
    reads_ = assign_reads(all_, is_there_, reader_->contents(),
                          {.sharing = options_.sharing, .ranks = comm_.size(), .staging_bytes = staging_bytes()});
    for (const std::size_t t : reads_.in_pieces) is_in_pieces_.insert(t);
    SHARDMESH_TRY(const agreement_notes notes, read());
    if (!reads_.shared.empty()) SHARDMESH_TRY(exchange());
    if (!reads_.in_pieces.empty()) SHARDMESH_TRY(read_in_pieces());
    if (has_ties_) SHARDMESH_TRY(compare_ties());
    SHARDMESH_TRY(set_objects(notes));
    for (const local_state_tensor& tensor : wanted_.tensors)
      if (tensor.written) tensor.written();
    return {};
  }

  std::int64_t staging_bytes() const { return std::max(options_.memory_bytes / 2, least_staging_bytes); }

  // Compares the wanted entries with the stored ones. Every rank finds the same problems.
  result<void> compare(const result<void>& opened) {
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
      note.push_back(std::byte{has_ties});
      note.push_back(std::byte{loading_.check});
      conditions.push_back({"(checkpoint)", text_of(reader_->contents())});
      return {};
    });
    SHARDMESH_TRY(agreement_notes notes, round_.settle(mine, std::move(note), conditions));
    // If one rank wants checksums compared, the ranks that read for it compare them.
    for (std::vector<std::byte>& said : notes) {
      if (said.size() < 2) continue;
      for (bool* const flag : {&check_, &has_ties_}) {
        *flag |= said.back() != std::byte{0};
        said.pop_back();
      }
    }
    SHARDMESH_TRY(all_, merge_states(notes));
    problems_ = std::move(all_.problems);
    match_keys();
    return std::move(problems_).outcome();
  }

  // Collects the memory of this rank's parts. Returns whether several keys share some of it.
  result<bool> set_parts() {
    first_part_.reserve(wanted_.tensors.size());
    parts_.reserve(wanted_.tensors.size());
    for (const local_state_tensor& tensor : wanted_.tensors) {
      first_part_.push_back(parts_.size());
      const std::string key = dotted(tensor.where);
      // A part whose key the checkpoint lacks fills nothing.
      std::optional<tensor_view> nothing;
      if (!reader_->contents().find(key)) nothing = tensor_view{nullptr, tensor.type, {}, {0}, {1}};
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
      // Ranks that read for each other also compare the places of the chunks, because they must assign them
      // identically.
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

  void complain(error e) { problems_.add(std::move(e)); }

  void match_keys() {
    const catalog& contents = reader_->contents();
    std::unordered_set<std::string_view> asked;
    is_there_.resize(all_.tensors.size());
    for (std::size_t t = 0; t < all_.tensors.size(); ++t) {
      const merged_tensor& wanted = all_.tensors[t];
      asked.insert(wanted.key);
      const tensor_entry* const found = contents.find(wanted.key);
      is_there_[t] = found != nullptr;
      if (found)
        match_tensor(wanted, *found);
      else
        miss(wanted.key, wanted.ranks.front(), entry_kind::tensor);
    }
    for (const merged_object& wanted : all_.objects) {
      asked.insert(wanted.key);
      const object_entry* const found = contents.find_object(wanted.key);
      stored_objects_.push_back(found ? found - contents.objects.data() : -1);
      if (!found)
        miss(wanted.key, wanted.ranks.front(), entry_kind::object);
      else
        report_.loaded.push_back(wanted.key);
    }
    const auto surplus = [&](const std::string& key) {
      if (asked.contains(key)) return;
      report_.unexpected.push_back(key);
      if (options_.unexpected == key_check::strict)
        complain(fail(errc::missing_key, "the checkpoint has this entry, but no rank requests it")
                     .with_file(reader_->path().string())
                     .with_key(key));
    };
    for (const tensor_entry& tensor : contents.tensors) surplus(tensor.key);
    for (const object_entry& object : contents.objects) surplus(object.key);
  }

  void match_tensor(const merged_tensor& wanted, const tensor_entry& stored) {
    if (stored.shape != wanted.shape)
      return complain(fail(errc::shape_mismatch, "the requested tensor has a different shape than the stored one")
                          .with_key(wanted.key)
                          .with_rank(wanted.ranks.front())
                          .with_values(to_string(stored.shape), to_string(wanted.shape)));
    if (auto cast = check_cast(stored.type, wanted.type, loading_.allow_narrowing); !cast)
      return complain(std::move(cast).error().with_key(wanted.key).with_rank(wanted.ranks.front()));
    if (stored.type != wanted.type) report_.casts.push_back({wanted.key, stored.type, wanted.type});
    report_.loaded.push_back(wanted.key);
  }

  void miss(const std::string& key, std::int32_t rank, entry_kind wanted) {
    const bool is_other_kind = reader_->contents().find(key) || reader_->contents().find_object(key);
    if (!is_other_kind) report_.missing.push_back(key);
    if (is_other_kind || options_.missing == key_check::strict)
      complain(no_such_entry(*reader_, key, wanted, problems_.named.size() < most_suggestions).with_rank(rank));
  }

  tensor_view view_of(const merged_tensor& tensor, const rank_box& mine) const {
    const auto index = static_cast<std::size_t>(tensor.index_on(comm_.rank()));
    return parts_[first_part_[index] + static_cast<std::size_t>(mine.part)].to;
  }

  // Does this rank's reads, and reads the objects that it sends to the others.
  result<agreement_notes> read() {
    detail::wire_writer note;
    interruption stop(loading_.call(), "load");
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(load(*reader_, requests(), local_options()));
      for (std::size_t i = 0; i < all_.objects.size(); ++i) {
        SHARDMESH_TRY(stop.check());
        const merged_object& object = all_.objects[i];
        const bool for_all = options_.sharing != read_sharing::each_rank;
        const bool reads = for_all ? object.ranks.front() == comm_.rank() : object.index_on(comm_.rank()) >= 0;
        if (stored_objects_[i] < 0 || !reads) continue;
        SHARDMESH_TRY(std::vector<std::byte> archive,
                      reader_->object_archive(static_cast<std::size_t>(stored_objects_[i])));
        if (for_all && object.ranks.size() > 1) {
          note.number(static_cast<std::int64_t>(i));
          note.bytes(archive);
        }
        SHARDMESH_TRY(found_object(i, archive));
      }
      return {};
    });
    return round_.settle(mine, std::move(note).take());
  }

  // A key that this rank gets partly from other ranks is reported as arrived after the exchange.
  load_options local_options() {
    load_options local = loading_;
    local.check |= check_ && options_.sharing != read_sharing::each_rank;
    if (!local.on_arrival) return local;
    std::unordered_set<std::string> exchanged;
    for (const shared_box& one : reads_.shared) {
      const merged_tensor& tensor = all_.tensors[one.tensor];
      for (std::size_t i = one.holders.first; i < one.holders.last; ++i)
        if (i != one.reader && tensor.boxes[i].rank == comm_.rank() && exchanged.insert(tensor.key).second)
          exchanged_.push_back(tensor.key);
    }
    local.on_arrival = [this, exchanged = std::move(exchanged)](const std::string& key) {
      if (!exchanged.contains(key)) loading_.on_arrival(key);
    };
    return local;
  }

  std::vector<load_request> requests() {
    std::vector<std::vector<bool>> from_others(all_.tensors.size());
    for (const shared_box& one : reads_.shared) {
      std::vector<bool>& skipped = from_others[one.tensor];
      skipped.resize(all_.tensors[one.tensor].boxes.size());
      for (std::size_t i = one.holders.first; i < one.holders.last; ++i) skipped[i] = i != one.reader;
    }
    std::vector<load_request> wanted;
    for (std::size_t t = 0; t < all_.tensors.size(); ++t) {
      const merged_tensor& tensor = all_.tensors[t];
      if (!is_there_[t] || is_in_pieces_.contains(t)) continue;
      for (std::size_t i = 0; i < tensor.boxes.size(); ++i) {
        if (tensor.boxes[i].rank != comm_.rank() || (!from_others[t].empty() && from_others[t][i])) continue;
        const tensor_view to = view_of(tensor, tensor.boxes[i]);
        report_.bytes_read += size_bytes(to.type, tensor.boxes[i].where.volume()).value_or(0);
        wanted.push_back({tensor.key, tensor.boxes[i].where, to});
      }
    }
    return wanted;
  }

  // Moves data from the readers' memory to that of the other holders. A slot is the index of a rank's part.
  result<void> exchange() {
    struct sides {
      std::optional<distribution_builder> from, to;
      const_tensor_binding source;
      tensor_binding destination;
    };
    std::map<std::size_t, sides> by_tensor;
    const auto bind = [&](auto& binding, const merged_tensor& tensor, const rank_box& one) {
      if (one.rank != comm_.rank()) return;
      const auto slot = static_cast<std::size_t>(one.part);
      if (binding.slots.size() <= slot) binding.slots.resize(slot + 1);
      binding.slots[slot] = view_of(tensor, one);
    };
    for (const shared_box& one : reads_.shared) {
      const merged_tensor& tensor = all_.tensors[one.tensor];
      sides& made = by_tensor[one.tensor];
      if (!made.from) {
        made.from.emplace(tensor.shape, owner_space::ranks);
        made.to.emplace(tensor.shape, owner_space::ranks);
      }
      for (std::size_t i = one.holders.first; i < one.holders.last; ++i) {
        const rank_box& holder = tensor.boxes[i];
        distribution_builder& side = i == one.reader ? *made.from : *made.to;
        side.add(holder.rank, holder.part, holder.where.offsets, holder.where.sizes);
        i == one.reader ? bind(made.source, tensor, holder) : bind(made.destination, tensor, holder);
        if (i != one.reader && holder.rank == comm_.rank()) report_.bytes_received += one.bytes;
      }
    }
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    std::vector<const_tensor_binding> from;
    std::vector<tensor_binding> to;
    for (auto& [t, made] : by_tensor) {
      const merged_tensor& tensor = all_.tensors[t];
      auto source = made.from->finish();
      if (!source) return std::move(source).error().with_key(tensor.key);
      auto destination = made.to->finish();
      if (!destination) return std::move(destination).error().with_key(tensor.key);
      transfers.push_back({*std::move(source), *std::move(destination), tensor.type, tensor.type});
      keys.push_back(tensor.key);
      from.push_back(std::move(made.source));
      to.push_back(std::move(made.destination));
    }
    SHARDMESH_TRY(transfer_plan moves, plan(std::move(transfers)));
    SHARDMESH_TRY(executor runs, executor::make(std::move(moves), comm_, std::move(keys),
                                                {.progress = loading_.progress}, round_.call));
    SHARDMESH_TRY(runs.run(from, to, round_.call));
    // A rank that has all its bytes does not know whether the others have theirs.
    SHARDMESH_TRY(round_.settle({}));
    for (const std::string& key : exchanged_) loading_.on_arrival(key);
    return {};
  }

  // Reads pieces for other ranks, in rounds that fit the staging memory.
  result<void> read_in_pieces() {
    SHARDMESH_TRY(const auto forms, look_at_chunks(all_, *reader_, reads_.unclear, round_));
    const std::vector<reading_round> rounds =
        plan_rounds(all_, reader_->contents(), reads_, forms,
                    {.ranks = comm_.size(), .staging_bytes = staging_bytes(), .one_reader_for_a_chunk = check_});
    staged_rounds staged(
        {.all = all_,
         .reader = *reader_,
         .ranks = round_,
         .options = loading_,
         .check = check_,
         .message_bytes = std::max(options_.memory_bytes / 2, least_message_bytes),
         .memory_of = [this](const merged_tensor& tensor, const rank_box& mine) { return view_of(tensor, mine); }});
    for (const reading_round& round : rounds) {
      SHARDMESH_TRY(const round_bytes moved, staged.run(round));
      report_.bytes_read += moved.read;
      report_.bytes_received += moved.received;
      for (const round_tensor& done : round) {
        const merged_tensor& tensor = all_.tensors[done.tensor];
        const auto is_mine = [&](const rank_box& one) { return one.rank == comm_.rank(); };
        if (done.is_last && loading_.on_arrival && std::any_of(tensor.boxes.begin(), tensor.boxes.end(), is_mine))
          loading_.on_arrival(tensor.key);
      }
    }
    // A rank that has all its bytes does not know whether the others have theirs.
    SHARDMESH_TRY(round_.settle({}));
    return {};
  }

  result<void> found_object(std::size_t i, std::span<const std::byte> archive) {
    auto object = torch_file::object_of_archive(archive);
    if (!object) return std::move(object).error().with_key(all_.objects[i].key);
    found_.insert_or_assign(i, *std::move(object));
    return {};
  }

  // Called at the very end, so that an error leaves objects unchanged.
  result<void> set_objects(const agreement_notes& notes) {
    for (const std::vector<std::byte>& note : notes) {
      detail::wire_reader in(note);
      while (in.ok() && !in.finished()) {
        const auto i = static_cast<std::size_t>(in.in_range(0, static_cast<std::int64_t>(all_.objects.size()) - 1));
        const std::vector<std::byte> archive = in.bytes();
        if (!in.ok() || all_.objects[i].index_on(comm_.rank()) < 0 || found_.contains(i)) continue;
        SHARDMESH_TRY(found_object(i, archive));
      }
    }
    for (auto& [i, object] : found_) {
      local_state_object& to = wanted_.objects[static_cast<std::size_t>(all_.objects[i].index_on(comm_.rank()))];
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
  bool has_ties_ = false;  // on any rank
  merged_state all_;
  problem_list problems_;                       // of the wanted entries
  std::vector<bool> is_there_;                  // per tensor, in the checkpoint
  std::vector<std::ptrdiff_t> stored_objects_;  // per object, its index in the catalog; -1: missing
  bool check_ = false;                          // a rank wants its data compared with checksums
  load_assignment reads_;
  std::unordered_set<std::size_t> is_in_pieces_;  // tensors
  // Keys that this rank gets partly from another rank, if `on_arrival` is set.
  std::vector<std::string> exchanged_;
  std::map<std::size_t, local_state_object> found_;
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
