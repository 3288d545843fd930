// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks make together, and the start of runs. The run itself is in `run.cpp`.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :collective;
import :expand;
import :concurrent_runs;
import :rank_plan;
import :route;
import :run;
import :schedule;

namespace shardmesh {
namespace {

constexpr std::uint32_t collects_reductions = 1, collects_gathers = 2, collects_in_groups = 4;

// A rank's data in the agreement of `executor::make`, in addition to the digest.
struct ability {
  std::uint32_t lends = 0;
  std::uint32_t collects = 0;  // supported collectives, as bits
  // The number of rounds that fits the memory budget, with packed messages and with lent memory; 0: no number does.
  std::int64_t rounds = 1, lending_rounds = 1;
  std::int64_t budget_bytes = 0, needed_bytes = 0;
  std::int64_t sent_bytes = 0;
};

std::vector<std::byte> encode(const ability& a, std::span<const std::byte> numbers) {
  std::vector<std::byte> bytes(sizeof a + numbers.size());
  std::memcpy(bytes.data(), &a, sizeof a);
  std::copy(numbers.begin(), numbers.end(), bytes.begin() + sizeof a);
  return bytes;
}

// Returns the offers of object numbers, which follow the abilities in the notes. Precondition: `common` has read the
// notes.
std::vector<std::span<const std::byte>> offers_in(const agreement_notes& notes) {
  std::vector<std::span<const std::byte>> offers;
  for (const std::vector<std::byte>& note : notes) offers.push_back(std::span(note).subspan(sizeof(ability)));
  return offers;
}

// Combines the abilities of all ranks: the common features, the sum of the sent bytes, and the most rounds that one
// needs.
result<ability> common(const agreement_notes& notes) {
  ability all{.lends = 1, .collects = collects_reductions | collects_gathers | collects_in_groups};
  std::vector<ability> each;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    ability one;
    if (notes[rank].size() < sizeof one)
      return fail(errc::disagreement, "a rank is in another call while the others make an executor")
          .with_rank(static_cast<std::int32_t>(rank));
    std::memcpy(&one, notes[rank].data(), sizeof one);
    all.lends &= one.lends;
    all.collects &= one.collects;
    all.sent_bytes += one.sent_bytes;
    each.push_back(one);
  }
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    const ability& one = each[rank];
    const std::int64_t rounds = all.lends != 0 ? one.lending_rounds : one.rounds;
    if (rounds == 0)
      return fail(errc::no_memory, "the exchange needs more than the memory budget, however finely it is cut")
          .with_rank(static_cast<std::int32_t>(rank))
          .with_values(fmt::format("at most {} bytes", one.budget_bytes), fmt::format("{} bytes", one.needed_bytes))
          .with_hint("pass a larger memory_bytes");
    all.rounds = std::max(all.rounds, rounds);
  }
  return all;
}

std::string text_of(const distribution& d) {
  return to_hex(d.digest());
}

std::string text_of(const plan_options& o, const run_options& run) {
  return fmt::format("memory {}, narrowing {}, deterministic {}, reduce grain {}, check {}{}", o.memory_bytes,
                     o.allow_narrowing, o.deterministic, o.reduce_grain_bytes,
                     run.check == check_policy::once ? "once" : "every run",
                     run.whole_plan ? "" : ", each rank's own part");
}

constexpr std::string_view options_key = "(options)";

std::vector<agreement_record> records_of(const transfer_plan& plan, std::span<const std::string> names,
                                         const run_options& run) {
  std::vector<agreement_record> records;
  for (std::size_t t = 0; t < names.size(); ++t) {
    const tensor_transfer& one = plan.transfers()[t];
    if (!run.whole_plan) {
      records.push_back({names[t], fmt::format("{} {} to {}", to_string(one.from.global_shape()), name(one.from_type),
                                               name(one.to_type))});
      continue;
    }
    records.push_back(
        {names[t], fmt::format("{} {} from {} to {} {}", to_string(one.from.global_shape()), name(one.from_type),
                               text_of(one.from), name(one.to_type), text_of(one.to))});
  }
  records.push_back({std::string(options_key), text_of(plan.options(), run)});
  return records;
}

// The digest of a plan without its fragments, because each rank lists different ones.
digest128 digest_of_outline(const transfer_plan& plan) {
  const plan_options& o = plan.options();
  std::vector<std::int64_t> numbers{o.memory_bytes, o.allow_narrowing, o.deterministic, o.reduce_grain_bytes};
  for (const tensor_transfer& one : plan.transfers()) {
    const extents& shape = one.from.global_shape();
    numbers.push_back(static_cast<std::int64_t>(shape.rank()));
    numbers.insert(numbers.end(), shape.begin(), shape.end());
    numbers.push_back(static_cast<std::int64_t>(one.from_type));
    numbers.push_back(static_cast<std::int64_t>(one.to_type));
  }
  return digest_of(numbers);
}

digest128 digest_of_all(const transfer_plan& plan, std::span<const std::string> keys, const run_options& run) {
  std::vector<agreement_record> names;
  for (const std::string& key : keys) names.push_back({key, {}});
  const digest128 moves = run.whole_plan ? plan.digest() : digest_of_outline(plan), called = digest_of(names, true);
  const std::int64_t numbers[] = {static_cast<std::int64_t>(moves.low),  static_cast<std::int64_t>(moves.high),
                                  static_cast<std::int64_t>(called.low), static_cast<std::int64_t>(called.high),
                                  static_cast<std::int64_t>(run.check),  std::int64_t{run.whole_plan}};
  return digest_of(numbers);
}

// Checks that the group has every rank that holds something.
result<void> check_owners(const distribution& d, std::int32_t size, const char* side) {
  if (d.space() != owner_space::ranks)
    return fail(errc::unsupported, fmt::format("the {} is held by items, not by ranks", side));
  if (d.owners() <= size) return {};
  std::optional<std::pair<owner_id, box>> outside;
  d.for_each_owner([&](owner_id owner) {
    if (owner < size || outside) return;
    d.fragments_of(owner, [&](const fragment& f) {
      if (!f.where.is_empty()) outside.emplace(owner, f.where);
      return !outside;
    });
  });
  if (!outside) return {};
  return fail(errc::invalid_argument, fmt::format("the {} is held by a rank that is not in the group", side))
      .with_rank(outside->first)
      .with_box(outside->second)
      .with_values(fmt::format("ranks 0 to {}", size - 1), fmt::format("rank {}", outside->first));
}

// Finds reductions that the kernels lack, before anything moves.
result<void> check_reductions(const tensor_transfer& t) {
  const auto undefined = [](dtype type, reduce_op op) {
    return fail(errc::unsupported, fmt::format("{} of {} is not defined", to_string(op), name(type)));
  };
  if (t.from.reduction() != reduce_op::none && !is_combinable(accumulation_type(t.from_type), t.from.reduction()))
    return undefined(t.from_type, t.from.reduction());
  if (t.to.reduction() != reduce_op::none && !is_combinable(t.to_type, t.to.reduction()))
    return undefined(t.to_type, t.to.reduction());
  return {};
}

result<void> check_transfers(const transfer_plan& plan, std::int32_t size, std::span<const std::string> names) {
  for (std::size_t t = 0; t < names.size(); ++t) {
    const tensor_transfer& one = plan.transfers()[t];
    auto done = check_owners(one.from, size, "source");
    if (done) done = check_owners(one.to, size, "destination");
    if (done) done = check_reductions(one);
    if (!done) return std::move(done).error().with_key(names[t]);
  }
  return {};
}

void choose(const rank_plan& mine, ability& own) {
  own.budget_bytes = mine.budget_bytes();
  if (own.lends != 0) own.lending_rounds = choose_rounds(mine, false).rounds.value_or(0);
  const round_choice packed = choose_rounds(mine, true);
  own.rounds = packed.rounds.value_or(0);
  own.needed_bytes = packed.needed_bytes;
  own.sent_bytes = mine.sent_bytes();
}

std::vector<std::string> names_of(const transfer_plan& plan, std::span<const std::string> keys) {
  std::vector<std::string> names(keys.begin(), keys.end());
  if (names.empty())
    for (std::size_t t = 0; t < plan.transfers().size(); ++t) names.push_back(fmt::format("transfer {}", t));
  return names;
}

}  // namespace

result<executor> executor::make(transfer_plan plan, communicator_ref comm, std::vector<std::string> keys,
                                const run_options& options, const call_options& given) {
  const call_options call = given.named("executor::make");
  result<void> sound;
  if (!keys.empty() && keys.size() != plan.transfers().size())
    sound = fail(errc::invalid_argument, "an executor needs one key per transfer, or none")
                .with_values(fmt::to_string(plan.transfers().size()), fmt::to_string(keys.size()));
  if (!sound) keys.clear();
  const std::vector<std::string> names = names_of(plan, keys);
  if (sound) sound = check_transfers(plan, comm.size(), names);

  // The host's own kernels work piece by piece, and on peers' memory if the ranks share it. Other backends work on
  // tables.
  std::shared_ptr<kernel_backend> backend;
  if (auto found = backend_for(comm.memory()); !found) {
    if (sound) sound = std::move(found).error().with_rank(comm.rank());
  } else if (*found != host_backend()) {
    backend = *std::move(found);
  }

  agree_options agreement{.what = "transfers", .ordered = true};
  const bool lends = options.in_place && comm.shares_memory() && !backend;
  ability own{.lends = lends ? 1U : 0U};
  if (options.whole_plan && comm.has_collectives())
    own.collects = (plan.options().deterministic ? 0U : collects_reductions) |
                   (comm.is_ordered() ? collects_gathers : 0U) | (comm.has_groups() ? collects_in_groups : 0U);
  rank_plan mine = plan.for_owner(comm.rank());
  if (sound) choose(mine, own);
  object_numbers numbers = comm.numbers();
  agreement.note = encode(own, numbers.offer(numbered_object::executor));
  if (!sound) agreement.problem = &sound.error();
  SHARDMESH_TRY(const agreement_notes notes, agree(
                                                 comm, digest_of_all(plan, keys, options),
                                                 [&] { return records_of(plan, names, options); }, agreement, call));
  SHARDMESH_TRY(const ability all, common(notes));
  SHARDMESH_TRY(const std::uint32_t number, numbers.choose(numbered_object::executor, offers_in(notes)));
  const auto may_use = [&](std::uint32_t what) { return (all.collects & what) != 0; };
  collective_plan collectives;
  if (may_use(collects_reductions | collects_gathers))
    collectives = collectives_in(plan, comm.rank(), comm.size(),
                                 {.reductions = may_use(collects_reductions),
                                  .gathers = may_use(collects_gathers),
                                  .groups = may_use(collects_in_groups)});
  for (const collective_use& use : collectives.uses) mine.leave_out(use.transfer);
  std::vector<communicator_ref> groups;
  for (const std::vector<std::int32_t>& group_of : collectives.groups) {
    SHARDMESH_TRY(const communicator_ref group, comm.groups(group_of, call));
    groups.push_back(group);
  }
  auto made = std::make_shared<state>(std::move(plan), mine, comm, names, options, all.lends != 0,
                                      numbers.hold(numbered_object::executor, number), all.rounds,
                                      std::move(collectives.uses), std::move(groups), std::move(backend));
  made->moved_bytes = all.sent_bytes;
  return executor(std::move(made));
}

result<executor> executor::make(result<transfer_plan> plan, communicator_ref comm, std::vector<std::string> keys,
                                const run_options& options, const call_options& given) {
  const call_options call = given.named("executor::make");
  if (plan) return make(*std::move(plan), comm, std::move(keys), options, call);
  // The other ranks may have plans, so they must be notified.
  agree_options agreement{.what = "transfers", .ordered = true, .problem = &plan.error()};
  agreement.note = encode({}, {});
  SHARDMESH_TRY(const agreement_notes notes,
                agree(comm, {}, [] { return std::vector<agreement_record>(); }, agreement, call));
  return plan.error();
}

const transfer_plan& executor::plan() const {
  return state_->plan;
}

std::int64_t executor::rounds() const {
  return state_->rounds;
}
std::int64_t executor::moved_bytes() const {
  return state_->moved_bytes;
}
std::int64_t executor::sent_bytes() const {
  return state_->steps().sent_bytes();
}
std::int64_t executor::received_bytes() const {
  return state_->steps().received_bytes();
}
std::int64_t executor::peak_bytes() const {
  return state_->peak_bytes();
}
std::int64_t executor::scratch_bytes() const {
  return state_->scratch_bytes();
}

result<pending> executor::start(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                                const call_options& call) {
  struct running final : pending::operation {
    explicit running(std::shared_ptr<started_run> r) : run(std::move(r)) {}
    bool done() override { return run->advance(false); }
    result<void> wait() override {
      advance_together(run->work->communicator(), run.get(), [&](bool may_block) { return run->advance(may_block); });
      return *std::move(run->over);
    }
    std::shared_ptr<started_run> run;
  };
  SHARDMESH_TRY(state_->begin(from, to, call));
  auto started = std::make_shared<started_run>(state_);
  remember(started);
  return pending(std::make_unique<running>(std::move(started)));
}

result<void> executor::run(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                           const call_options& call) {
  SHARDMESH_TRY(state_->begin(from, to, call));
  std::optional<result<void>> over;
  advance_together(state_->communicator(), nullptr, [&](bool may_block) {
    over = state_->advance_safely(may_block);
    return over.has_value();
  });
  return *std::move(over);
}

}  // namespace shardmesh
