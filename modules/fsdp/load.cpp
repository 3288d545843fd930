// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {

std::vector<std::string> load_state_report::keys(load_status status) const {
  std::vector<std::string> found;
  for (const load_entry& entry : entries)
    if (entry.status == status) found.push_back(entry.key);
  return found;
}

namespace detail {
namespace {

constexpr std::size_t named_keys = 100;  // at most this many wrong keys are named; the rest are counted

// The kind of value that a rank has for an entry, as it reports it to the others.
enum class offer_kind : std::uint8_t { none, whole, sharded };

struct rank_note {
  digest128 described;  // digest of the distributions of all sharded values, as this rank describes them
  std::vector<offer_kind> kinds;
  std::vector<dtype> types;
  std::vector<std::string> unexpected;
};

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

// The destination of an entry's elements: its distribution, and this rank's memory.
struct load_target {
  distribution to;
  tensor_binding memory;
};

result<distribution> whole_on(const extents& shape, std::span<const std::int32_t> ranks, std::int32_t size) {
  distribution_builder builder(shape, owner_space::ranks);
  builder.at_least_owners(size);
  const extents origin = extents::filled(shape.rank(), 0);
  for (const std::int32_t r : ranks) builder.add(r, 0, origin, shape);
  return builder.finish();
}

class loader {
 public:
  loader(const fsdp_model& model, communicator_ref comm, std::vector<fsdp_entry> entries,
         std::vector<offered_value> offers, const load_state_options& options)
      : model_(model), comm_(comm), entries_(std::move(entries)), offers_(std::move(offers)), options_(options) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].kind == fsdp_entry_kind::flat && offers_[i].is_offered) offers_flat_.insert(entries_[i].unit);
  }

  extents shape_of(const fsdp_entry& entry) const {
    if (entry.kind == fsdp_entry_kind::tensor) return model_.tensors[entry.index].value.sizes;
    const fsdp_unit& unit = model_.units[entry.unit];
    return entry.kind == fsdp_entry_kind::flat ? flat_shape(unit) : parameter_shape(unit, entry.index);
  }
  dtype type_of(const fsdp_entry& entry) const {
    return entry.kind == fsdp_entry_kind::tensor ? model_.tensors[entry.index].value.type
                                                 : model_.units[entry.unit].parameters.type();
  }

  // Turns sharded tensors with the shape of this rank's column into shards of the whole parameter.
  result<void> widen_columns() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      offered_value& offer = offers_[i];
      const fsdp_entry& entry = entries_[i];
      if (!offer.where || entry.kind == fsdp_entry_kind::flat || entry.kind == fsdp_entry_kind::tensor) continue;
      const parallel_parameters& parallel = model_.units[entry.unit].parallel;
      if (parallel.is_none() || !parallel.column_of(comm_.rank()) || offer.shape == shape_of(entry) ||
          offer.shape != parallel.placed(entry.index).local_shape(comm_.rank()))
        continue;
      auto whole = within_column(parallel, entry.index, comm_.rank(), *offer.where);
      if (!whole) return std::move(whole).error().with_key(entry.key).with_rank(comm_.rank());
      offer.where = *std::move(whole);
      offer.shape = shape_of(entry);
    }
    return {};
  }

  // Checks that backends reach the memory to fill.
  result<void> check_targets() const {
    const auto check = [&](const tensor_view& view, const std::string& key) -> result<void> {
      if (auto held = check_reachable(view); !held)
        return std::move(held).error().with_key(key).with_rank(comm_.rank());
      return {};
    };
    for (const fsdp_entry& entry : entries_)
      SHARDMESH_TRY(check(
          entry.kind == fsdp_entry_kind::tensor ? model_.tensors[entry.index].value : model_.units[entry.unit].shard,
          entry.key));
    return {};
  }

  // Checks that this rank's values can be loaded at all.
  result<void> check_offers() const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const offered_value& offer = offers_[i];
      const fsdp_entry& entry = entries_[i];
      // A local state dict of PyTorch with use_orig_params has flat pieces under the names of parameters.
      const bool is_superseded = entry.kind != fsdp_entry_kind::flat && entry.kind != fsdp_entry_kind::tensor &&
                                 offers_flat_.contains(entry.unit);
      if (!offer.is_offered || is_superseded) continue;
      for (const const_tensor_view& view : offer.memory.slots)
        if (auto held = check_reachable(view); !held)
          return std::move(held).error().with_key(entry.key).with_rank(comm_.rank());
      if (offer.shape == shape_of(entry)) continue;
      error e = fail(errc::shape_mismatch, "the state dict has a different shape than the model")
                    .with_key(entry.key)
                    .with_rank(comm_.rank())
                    .with_values(to_string(shape_of(entry)), to_string(offer.shape));
      if (entry.kind == fsdp_entry_kind::flat && model_.units[entry.unit].parameters.alignment() > 0)
        e = std::move(e).with_hint("an aligned flat parameter's padding depends on the number of ranks; save by name");
      return e;
    }
    return {};
  }

  result<load_state_report> run(std::vector<std::string> unexpected, std::optional<error> problem) {
    for (const fsdp_entry& entry : entries_) known_.insert(entry.key);
    std::erase_if(unexpected, [&](const std::string& key) { return known_.contains(key); });
    SHARDMESH_TRY(const auto notes, exchange(unexpected, problem));
    decide(notes);
    SHARDMESH_TRY(check_agreement(notes));
    if (options_.mode == load_mode::strict) SHARDMESH_TRY(check_complete());
    SHARDMESH_TRY(locate(notes));
    SHARDMESH_TRY(move(notes));
    if (options_.mode == load_mode::ignore)
      std::erase_if(report_.entries, [](const load_entry& e) { return e.status >= load_status::missing; });
    report_.profile.entries = static_cast<std::int64_t>(report_.entries.size());
    return std::move(report_);
  }

 private:
  result<std::vector<rank_note>> exchange(std::span<const std::string> unexpected,
                                          const std::optional<error>& problem) {
    std::vector<agreement_record> records;
    for (const fsdp_entry& entry : entries_)
      records.push_back({entry.key, fmt::format("{} {}", to_string(shape_of(entry)), name(type_of(entry)))});
    agree_options options{.what = "entries", .ordered = true, .note = to_bytes(offers_, unexpected)};
    if (problem) options.problem = &*problem;
    SHARDMESH_TRY(const auto bytes, agree(comm_, records, options, options_.call));
    std::vector<rank_note> notes;
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      SHARDMESH_TRY(notes.emplace_back(), parse_note(bytes[r], entries_.size(), static_cast<std::int32_t>(r)));
    }
    return notes;
  }

  // Finds the status of every key. `sources_` gets the entries that are read.
  void decide(std::span<const rank_note> notes) {
    const auto is_offered = [&](std::size_t i) {
      return std::any_of(notes.begin(), notes.end(),
                         [&](const rank_note& n) { return n.kinds[i] != offer_kind::none; });
    };
    std::set<std::size_t> flat_units;
    std::set<std::pair<std::size_t, std::size_t>> taken;  // unit, parameter
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].kind == fsdp_entry_kind::flat && is_offered(i)) flat_units.insert(entries_[i].unit);
    // A parameter's own name takes precedence over shared ones.
    for (const bool shared : {false, true})
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        const fsdp_entry& entry = entries_[i];
        if ((entry.kind == fsdp_entry_kind::shared_parameter) != shared || !is_offered(i)) continue;
        if (entry.kind == fsdp_entry_kind::flat || entry.kind == fsdp_entry_kind::tensor ||
            (!flat_units.contains(entry.unit) && taken.emplace(entry.unit, entry.index).second))
          sources_.push_back(i);
      }
    std::sort(sources_.begin(), sources_.end());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const fsdp_entry& entry = entries_[i];
      if (std::binary_search(sources_.begin(), sources_.end(), i))
        report_.entries.push_back({entry.key, load_status::loaded});
      else if (entry.kind == fsdp_entry_kind::flat)
        continue;  // only an alternative to the names of its parameters, which are listed
      else if (entry.kind != fsdp_entry_kind::tensor && flat_units.contains(entry.unit))
        report_.entries.push_back({entry.key, load_status::superseded});
      else
        report_.entries.push_back({entry.key, is_offered(i) ? load_status::shared : load_status::missing});
    }
    std::set<std::string> unexpected;
    for (const rank_note& note : notes) unexpected.insert(note.unexpected.begin(), note.unexpected.end());
    for (const std::string& key : unexpected) report_.entries.push_back({key, load_status::unexpected});
  }

  // Checks that all ranks with a key have it whole, or all have it sharded, and in one dtype.
  result<void> check_agreement(std::span<const rank_note> notes) const {
    const auto text = [](const rank_note& note, std::size_t i) {
      return fmt::format("{} {}", note.kinds[i] == offer_kind::whole ? "whole" : "sharded", name(note.types[i]));
    };
    for (const std::size_t i : sources_) {
      std::optional<std::size_t> first;
      for (std::size_t r = 0; r < notes.size(); ++r) {
        if (notes[r].kinds[i] == offer_kind::none) continue;
        // A rank that holds nothing of a dtensor does not know its dtype.
        const bool is_unknown =
            notes[r].types[i] == dtype::undefined || (first && notes[*first].types[i] == dtype::undefined);
        if (first && (notes[*first].kinds[i] != notes[r].kinds[i] ||
                      (!is_unknown && notes[*first].types[i] != notes[r].types[i])))
          return fail(errc::disagreement, "ranks disagree on a value of their state dicts")
              .with_key(entries_[i].key)
              .with_rank(static_cast<std::int32_t>(*first))
              .with_rank(static_cast<std::int32_t>(r))
              .with_values(text(notes[*first], i), text(notes[r], i));
        if (!first || notes[*first].types[i] == dtype::undefined) first = r;
      }
    }
    return {};
  }

  // Finds the distributions of sharded values. Usually every rank describes them alike. Otherwise (replicas that each
  // describe their own shards, or ranks that lack the key) every rank reports its own fragments, and their union is
  // used.
  result<void> locate(std::span<const rank_note> notes) {
    const bool is_alike =
        std::all_of(notes.begin(), notes.end(), [&](const rank_note& n) { return n.described == notes[0].described; });
    for (const std::size_t i : sources_)
      if (is_alike && offers_[i].where) located_.emplace(i, *offers_[i].where);
    if (is_alike) return {};
    wire_writer own;
    std::optional<error> problem;
    for (const std::size_t i : sources_) {
      if (!offers_[i].where) continue;
      if (offers_[i].where->reduction() != reduce_op::none)
        problem = fail(errc::unsupported, "terms of a value that ranks describe differently cannot be loaded")
                      .with_key(entries_[i].key)
                      .with_rank(comm_.rank());
      std::vector<fragment> held;
      offers_[i].where->fragments_of(comm_.rank(), [&](const fragment& f) { return held.push_back(f), true; });
      own.number(static_cast<std::int64_t>(i));
      own.number(static_cast<std::int64_t>(held.size()));
      for (const fragment& f : held) {
        own.number(f.slot);
        own.where(f.where);
        own.numbers(f.local_offsets);
      }
    }
    agree_options options{.what = "state dicts", .note = std::move(own).take()};
    if (problem) options.problem = &*problem;
    SHARDMESH_TRY(const auto parts, agree(comm_, std::span<const agreement_record>{}, options, options_.call));
    return unite(parts);
  }

  result<void> unite(std::span<const std::vector<std::byte>> parts) {
    std::map<std::size_t, distribution_builder> builders;
    for (const std::size_t i : sources_) {
      builders.emplace(i, distribution_builder(shape_of(entries_[i]), owner_space::ranks))
          .first->second.at_least_owners(comm_.size());
    }
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const auto damaged = [&] {
        return fail(errc::communication, "a rank's description of its shards is damaged")
            .with_rank(static_cast<std::int32_t>(r));
      };
      wire_reader in(parts[r]);
      while (!in.finished()) {
        const auto entry = static_cast<std::size_t>(in.number());
        const auto builder = builders.find(entry);
        if (!in.ok() || builder == builders.end()) return damaged();
        const std::size_t rank = shape_of(entries_[entry]).rank();
        for (std::size_t left = in.count(); left > 0; --left) {
          const auto slot = static_cast<std::int32_t>(in.in_range(0, std::numeric_limits<std::int32_t>::max()));
          const box where = in.where();
          const extents local = in.numbers();
          if (!in.ok() || where.offsets.rank() != rank || where.sizes.rank() != rank || local.rank() != rank)
            return damaged();
          builder->second.add(static_cast<owner_id>(r), slot, where.offsets, where.sizes, local);
        }
        located_.try_emplace(entry);
      }
    }
    for (auto& [entry, where] : located_) {
      auto made = builders.at(entry).finish();
      if (!made) return std::move(made).error().with_key(entries_[entry].key);
      where = *std::move(made);
    }
    return {};
  }

  result<void> check_complete() const {
    const auto missing = report_.keys(load_status::missing), unexpected = report_.keys(load_status::unexpected);
    if (missing.empty() && unexpected.empty()) return {};
    const auto listed = [](const std::vector<std::string>& keys) {
      const std::size_t shown = std::min(keys.size(), named_keys);
      return fmt::format("{}{}", fmt::join(std::span(keys).first(shown), ", "),
                         shown < keys.size() ? fmt::format(" and {} more", keys.size() - shown) : "");
    };
    std::string text = "the state dict does not fit the model:";
    if (!missing.empty()) text += fmt::format(" missing {}", listed(missing));
    if (!unexpected.empty()) text += fmt::format("{} unexpected {}", missing.empty() ? "" : ";", listed(unexpected));
    return fail(errc::missing_key, text).with_hint("use load_mode::report to load the entries that fit");
  }

  result<load_target> target_of(const fsdp_entry& entry) const {
    load_target made;
    if (entry.kind == fsdp_entry_kind::tensor) {
      std::vector<std::int32_t> everyone;
      for (std::int32_t r = 0; r < comm_.size(); ++r) everyone.push_back(r);
      const tensor_view& value = model_.tensors[entry.index].value;
      SHARDMESH_TRY(made.to, whole_on(value.sizes, everyone, comm_.size()));
      made.memory.slots = {value};
      return made;
    }
    const fsdp_unit& unit = model_.units[entry.unit];
    const bool is_flat = entry.kind == fsdp_entry_kind::flat;
    SHARDMESH_TRY(made.to, is_flat ? flat_distribution(unit) : distribution_of(unit, entry.index));
    const auto position = unit.group.position(comm_.rank());
    if (!position) return made;
    SHARDMESH_TRY(made.memory.slots, is_flat ? flat_slots(unit.parameters, *position, unit.shard)
                                             : slots_of(unit.parameters, entry.index, *position, unit.shard));
    return made;
  }

  result<void> move(std::span<const rank_note> notes) {
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    std::vector<const_tensor_binding> from;
    std::vector<tensor_binding> to;
    for (const std::size_t i : sources_) {
      const fsdp_entry& entry = entries_[i];
      if (box::whole(shape_of(entry)).is_empty()) continue;
      SHARDMESH_TRY(load_target target, target_of(entry));
      tensor_transfer transfer{{}, std::move(target.to), dtype::undefined, type_of(entry)};
      std::vector<std::int32_t> holders;
      for (std::size_t r = 0; r < notes.size(); ++r) {
        if (notes[r].kinds[i] == offer_kind::none) continue;
        holders.push_back(static_cast<std::int32_t>(r));
        if (notes[r].types[i] != dtype::undefined) transfer.from_type = notes[r].types[i];
      }
      if (const auto located = located_.find(i); located != located_.end()) {
        transfer.from = located->second;
      } else {
        SHARDMESH_TRY(transfer.from, whole_on(shape_of(entry), holders, comm_.size()));
      }
      transfers.push_back(std::move(transfer));
      keys.push_back(entry.key);
      from.push_back(std::move(offers_[i].memory));
      to.push_back(std::move(target.memory));
    }
    if (transfers.empty()) return {};
    return run_transfers({}, std::move(transfers), std::move(keys), from, to, comm_,
                         {.memory_bytes = options_.memory_bytes, .allow_narrowing = options_.allow_narrowing},
                         options_.call, report_.profile);
  }

  const fsdp_model& model_;
  communicator_ref comm_;
  std::vector<fsdp_entry> entries_;
  std::vector<offered_value> offers_;
  const load_state_options& options_;
  std::set<std::size_t> offers_flat_;  // units whose flat parameter is in this rank's state dict
  std::set<std::string_view> known_;
  std::vector<std::size_t> sources_;             // entries that are read
  std::map<std::size_t, distribution> located_;  // distributions of the sharded ones
  load_state_report report_;
};

}  // namespace

result<load_state_report> load_offers(const fsdp_model& model, communicator_ref comm,
                                      result<std::vector<offered_value>> offers, std::vector<std::string> unexpected,
                                      const load_state_options& given) {
  load_state_options options = given;
  options.call = given.call.named("load_state_dict");
  auto entries = entries_of(model, fsdp_entries::all);
  std::optional<error> problem;
  if (!entries)
    problem = entries.error();
  else if (!offers)
    problem = offers.error();
  std::vector<fsdp_entry> known = entries ? *std::move(entries) : std::vector<fsdp_entry>{};
  std::vector<offered_value> held = offers ? *std::move(offers) : std::vector<offered_value>(known.size());
  loader l(model, comm, std::move(known), std::move(held), options);
  if (!problem)
    if (auto widened = l.widen_columns(); !widened) problem = widened.error();
  if (!problem)
    if (auto valid = l.check_offers(); !valid) problem = valid.error();
  if (!problem)
    if (auto valid = l.check_targets(); !valid) problem = valid.error();
  if (!problem)
    for (std::size_t u = 0; u < model.units.size() && !problem; ++u)
      if (auto valid = check_unit_of(model.units[u], comm); !valid) problem = valid.error();
  return l.run(std::move(unexpected), std::move(problem));
}

}  // namespace detail
}  // namespace shardmesh
