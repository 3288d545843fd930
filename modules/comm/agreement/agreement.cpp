// SPDX-License-Identifier: Apache-2.0
// Compares digests first. Records are exchanged and searched for differences only when the digests differ. The
// agreement of many ranks is in tree_agreement.cpp, and the search in disagreement.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.comm;

import shardmesh.digest;
import :disagreement;

namespace shardmesh {
namespace {

constexpr std::int64_t ballot_mark = 0x6565726761'6d73;  // "smagree"; a rank that sends no mark is in another call

digest128 hash(std::string_view bytes) {
  return xxh3(std::as_bytes(std::span(bytes)));
}

// A rank's contribution to the first round.
struct ballot {
  digest128 digest;
  bool has_problem = false, combines = false;
  std::string call;
  std::vector<std::byte> note;
};

std::vector<std::byte> encode(const digest128& digest, const agree_options& options, std::string_view call) {
  detail::wire_writer out;
  out.number(ballot_mark);
  out.digest(digest);
  out.number((options.problem != nullptr ? 1 : 0) + (options.combine ? 2 : 0));
  out.text(call);
  out.raw(options.note);
  return std::move(out).take();
}

std::optional<ballot> decode_ballot(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  if (in.number() != ballot_mark) return std::nullopt;
  ballot said;
  said.digest = in.digest();
  const std::int64_t flags = in.in_range(0, 3);
  said.has_problem = (flags & 1) != 0;
  said.combines = (flags & 2) != 0;
  said.call = in.text();
  said.note.assign(in.rest().begin(), in.rest().end());
  return in.ok() ? std::optional(std::move(said)) : std::nullopt;
}

contributions named_calls(std::span<const std::vector<std::byte>> ballots, bool with_notes) {
  contributions all;
  for (std::size_t rank = 0; rank < ballots.size(); ++rank) {
    const ballot one = decode_ballot(ballots[rank]).value_or(ballot());
    const std::string call = with_notes ? call_with_notes(one.call, one.combines) : one.call;
    const auto bytes = std::as_bytes(std::span(call));
    all.add({{bytes.begin(), bytes.end()}, {static_cast<std::int32_t>(rank)}});
  }
  all.keep_first();
  return all;
}

contributions lists_of(agreement_notes described) {
  contributions all;
  for (std::size_t rank = 0; rank < described.size(); ++rank)
    all.add({std::move(described[rank]), {static_cast<std::int32_t>(rank)}});
  all.keep_first();
  return all;
}

// The lowest rank that cannot continue tells the others why.
error gather_problems(communicator_ref comm, const error* mine, const call_options& call) {
  const auto causes = comm.all_gather(mine != nullptr ? to_bytes(*mine) : std::vector<std::byte>(), call);
  if (!causes) return causes.error();
  for (std::size_t rank = 0; rank < causes->size(); ++rank) {
    if ((*causes)[rank].empty()) continue;
    return detail::reported_by(
        error_from_bytes((*causes)[rank])
            .value_or(fail(errc::communication, "a rank cannot continue, and its reason cannot be read")),
        static_cast<std::int32_t>(rank));
  }
  return fail(errc::communication, "a rank cannot continue, and gives no reason");
}

// In rank order.
agreement_notes combined(agreement_notes notes, const note_combiner& combine) {
  for (std::size_t rank = 1; rank < notes.size(); ++rank) detail::add_note(notes.front(), notes[rank], combine);
  notes.resize(1);
  return notes;
}

}  // namespace

digest128 digest_of(std::span<const agreement_record> records, bool ordered) {
  std::vector<digest128> each;
  for (const agreement_record& r : records) {
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    each.push_back(hash(fmt::format("{}:{}{}", r.key.size(), r.key, r.text)));
  }
  if (!ordered) std::sort(each.begin(), each.end());
  std::vector<std::int64_t> numbers;
  for (const digest128& d : each) {
    numbers.push_back(static_cast<std::int64_t>(d.low));
    numbers.push_back(static_cast<std::int64_t>(d.high));
  }
  return digest_of(numbers);
}

void detail::add_note(std::vector<std::byte>& all, std::span<const std::byte> one, const note_combiner& combine) {
  if (one.empty()) return;
  if (all.empty())
    all.assign(one.begin(), one.end());
  else
    combine(all, one);
}

result<agreement_notes> detail::agree_by_gather(communicator_ref comm, const digest128& digest,
                                                function_ref<std::vector<agreement_record>()> records,
                                                const agree_options& options, const call_options& given) {
  const call_options call = given.named("agree");
  SHARDMESH_TRY(const agreement_notes said, comm.all_gather(encode(digest, options, call.name), call));
  agreement_notes notes;
  bool equal = true, same_calls = true, same_ways = true, problems = false;
  std::optional<digest128> first;
  std::string first_call;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    auto one = decode_ballot(said[rank]);
    if (!one) return in_another_call(static_cast<std::int32_t>(rank), options.what);
    if (!first) {
      first = one->digest;
      first_call = one->call;
    }
    equal &= one->digest == *first;
    same_calls &= one->call == first_call;
    same_ways &= one->combines == static_cast<bool>(options.combine);
    problems |= one->has_problem;
    notes.push_back(std::move(one->note));
  }
  if (!same_calls) return different_calls(named_calls(said, false));
  if (problems) return gather_problems(comm, options.problem, call);
  if (equal && !same_ways) return different_calls(named_calls(said, true));
  if (equal && options.combine) return combined(std::move(notes), options.combine);
  if (equal) return notes;
  SHARDMESH_TRY(agreement_notes described, comm.all_gather(encode_records(records()), call));
  return different_records(lists_of(std::move(described)), options.what);
}

result<agreement_notes> agree(communicator_ref comm, const digest128& digest,
                              function_ref<std::vector<agreement_record>()> records, const agree_options& options,
                              const call_options& call) {
  // A few ranks know with one all_gather which rank does not arrive, or is in another call.
  if (comm.size() > detail::most_gathered_ranks && detail::has_host_messages(comm))
    return detail::agree_along_tree(comm, digest, records, options, call);
  return detail::agree_by_gather(comm, digest, records, options, call);
}

result<agreement_notes> agree(communicator_ref comm, std::span<const agreement_record> records,
                              const agree_options& options, const call_options& call) {
  return agree(
      comm, digest_of(records, options.ordered),
      [&] { return std::vector<agreement_record>(records.begin(), records.end()); }, options, call);
}

}  // namespace shardmesh
