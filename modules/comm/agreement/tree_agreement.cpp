// SPDX-License-Identifier: Apache-2.0
// The agreement of many ranks, along a tree. Each rank combines its ballot with those of its children and sends one
// ballot of fixed size to its parent; rank 0 decides, and its verdict goes down the tree. Further messages follow only
// if the verdict is no plain agreement.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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

constexpr std::int64_t ballot_mark = 0x6565'7274'6d73;  // "smtree"; other bytes are of another call
constexpr std::size_t ballot_bytes = 64, verdict_bytes = 16;
constexpr std::int32_t no_rank = std::numeric_limits<std::int32_t>::max();

// The combination of the ranks of a subtree. The digests are those of any rank in it.
struct tree_ballot {
  digest128 records, call;
  bool same_records = true, same_calls = true;
  bool has_notes = false;                   // of a rank other than 0
  bool combines = false, same_ways = true;  // whether the ranks combine their notes, and whether all do the same
  std::int32_t in_trouble = no_rank;        // the lowest rank that cannot continue

  void add(const tree_ballot& child) {
    same_records = same_records && child.same_records && child.records == records;
    same_calls = same_calls && child.same_calls && child.call == call;
    has_notes = has_notes || child.has_notes;
    same_ways = same_ways && child.same_ways && child.combines == combines;
    in_trouble = std::min(in_trouble, child.in_trouble);
  }
};

// Numbers on the wire: keep their order.
enum class verdict_kind : std::uint8_t {
  agreed,
  root_note,  // agreed, and rank 0 has a note
  all_notes,  // agreed, and other ranks have notes
  different_calls,
  problem,
  different_records,
  different_ways,  // some ranks combine their notes, and others do not
};

struct tree_verdict {
  verdict_kind kind = verdict_kind::agreed;
  std::int32_t in_trouble = no_rank;
};

std::vector<std::byte> padded(detail::wire_writer&& out, std::size_t size_bytes) {
  std::vector<std::byte> bytes = std::move(out).take();
  bytes.resize(size_bytes);
  return bytes;
}

// Messages are filled with zeros. Anything else is of another call.
bool is_padding(std::span<const std::byte> rest) {
  return std::ranges::all_of(rest, [](std::byte one) { return one == std::byte{0}; });
}

std::vector<std::byte> encode(const tree_ballot& ballot) {
  detail::wire_writer out;
  out.number(ballot_mark);
  out.digest(ballot.records);
  out.digest(ballot.call);
  for (const bool one : {ballot.same_records, ballot.same_calls, ballot.has_notes, ballot.combines, ballot.same_ways})
    out.flag(one);
  out.number(ballot.in_trouble);
  return padded(std::move(out), ballot_bytes);
}

// Returns whether the rank is `top`, or below it in the tree.
bool is_below(std::int32_t rank, std::int32_t top) {
  while (rank > top) rank = (rank - 1) / detail::rank_tree::fan_out;
  return rank == top;
}

// Nothing for a ballot that `child` cannot have sent. Rank 0 would wait in vain for the problem of another rank.
std::optional<tree_ballot> decode_ballot(std::span<const std::byte> bytes, std::int32_t child, std::int32_t ranks) {
  detail::wire_reader in(bytes);
  if (in.number() != ballot_mark) return std::nullopt;
  tree_ballot said{in.digest(), in.digest(), in.flag(), in.flag(), in.flag(), in.flag(), in.flag(), no_rank};
  said.in_trouble = static_cast<std::int32_t>(in.in_range(0, no_rank));
  if (said.in_trouble != no_rank && (said.in_trouble >= ranks || !is_below(said.in_trouble, child)))
    return std::nullopt;
  return in.ok() && is_padding(in.rest()) ? std::optional(said) : std::nullopt;
}

std::vector<std::byte> encode(const tree_verdict& verdict) {
  detail::wire_writer out;
  out.number(ballot_mark);
  out.number(static_cast<std::int64_t>(verdict.kind));
  out.number(verdict.in_trouble);
  return padded(std::move(out), verdict_bytes);
}

std::optional<tree_verdict> decode_verdict(std::span<const std::byte> bytes, std::int32_t ranks) {
  detail::wire_reader in(bytes);
  if (in.number() != ballot_mark) return std::nullopt;
  tree_verdict told;
  told.kind = static_cast<verdict_kind>(in.in_range(0, static_cast<std::int64_t>(verdict_kind::different_ways)));
  told.in_trouble = static_cast<std::int32_t>(in.in_range(0, no_rank));
  if ((told.kind == verdict_kind::problem) != (told.in_trouble < ranks)) return std::nullopt;
  return in.ok() && is_padding(in.rest()) ? std::optional(told) : std::nullopt;
}

// The rule of `agree`: the names of the calls come first, then problems, the records, and the use of notes.
tree_verdict decide(const tree_ballot& all, bool has_root_note) {
  if (!all.same_calls) return {verdict_kind::different_calls, no_rank};
  if (all.in_trouble != no_rank) return {verdict_kind::problem, all.in_trouble};
  if (!all.same_records) return {verdict_kind::different_records, no_rank};
  if (!all.same_ways) return {verdict_kind::different_ways, no_rank};
  if (all.has_notes) return {verdict_kind::all_notes, no_rank};
  return {has_root_note ? verdict_kind::root_note : verdict_kind::agreed, no_rank};
}

// A rank whose message is none would not answer the others, so they must not wait for it.
error abort_for(const detail::tree_messages& tree, std::int32_t rank, const std::string& what, const char* expected,
                std::span<const std::byte> bytes) {
  std::string first;
  for (const std::byte one : bytes.first(std::min<std::size_t>(bytes.size(), 8)))
    first += fmt::format("{:02x}", std::to_integer<unsigned>(one));
  error found = in_another_call(rank, fmt::format("{} (tag {})", what, detail::tree_tag))
                    .with_values(expected, fmt::format("{} bytes that begin with {}", bytes.size(), first))
                    .with_hint("make the same calls on all ranks, in the same order");
  tree.abort(found);
  return found;
}

result<tree_verdict> vote(const detail::tree_messages& tree, tree_ballot mine, const agree_options& options) {
  SHARDMESH_TRY(const agreement_notes below, tree.receive_from_children(ballot_bytes));
  for (std::size_t i = 0; i < below.size(); ++i) {
    const std::optional<tree_ballot> said = decode_ballot(below[i], tree.children()[i], tree.place().size);
    if (!said) return abort_for(tree, tree.children()[i], options.what, "a ballot", below[i]);
    mine.add(*said);
  }
  std::vector<std::byte> bytes;
  if (tree.place().is_root()) {
    bytes = encode(decide(mine, !options.note.empty()));
  } else {
    SHARDMESH_TRY(bytes, tree.ask_parent(encode(mine), verdict_bytes));
  }
  const std::optional<tree_verdict> told = decode_verdict(bytes, tree.place().size);
  if (!told) return abort_for(tree, tree.place().parent(), options.what, "a verdict", bytes);
  SHARDMESH_TRY(tree.send_to_children(bytes));
  return *told;
}

// Every rank gets the error of this rank.
error problem_of(const detail::tree_messages& tree, std::int32_t rank, const error* mine) {
  std::vector<std::byte> bytes;
  if (tree.place().rank == rank && mine != nullptr) bytes = to_bytes(*mine);
  auto brought = tree.bring_to_root(rank, std::move(bytes));
  if (!brought) return std::move(brought).error();
  const auto told = tree.broadcast(*std::move(brought));
  if (!told) return told.error();
  return detail::reported_by(error_from_bytes(*told).value_or(
                                 fail(errc::communication, "a rank cannot continue, and its reason cannot be read")),
                             rank);
}

// Combines the notes of this rank and of all ranks below it, and sends them up the tree.
result<void> combine_below(const detail::tree_messages& tree, std::vector<std::byte>& note,
                           const note_combiner& combine) {
  SHARDMESH_TRY(const agreement_notes below, tree.receive_any_from_children());
  for (const std::vector<std::byte>& one : below) detail::add_note(note, one, combine);
  return tree.send_any_to_parent(note);
}

// Brings the different descriptions to rank 0, together on the way, and tells every rank the error that rank 0 finds.
error tell_difference(const detail::tree_messages& tree, std::vector<std::byte> mine, const std::string& what,
                      function_ref<error(const contributions&)> find) {
  contributions all;
  all.add({std::move(mine), {tree.place().rank}});
  const auto below = tree.receive_any_from_children();
  if (!below) return below.error();
  for (std::size_t i = 0; i < below->size(); ++i) {
    auto said = contributions::decode((*below)[i], tree.place().size);
    if (!said) return abort_for(tree, tree.children()[i], what, "descriptions", (*below)[i]);
    for (contribution& one : said->kept) all.add(std::move(one));
    all.dropped += said->dropped;
  }
  all.keep_first();
  if (auto sent = tree.send_any_to_parent(all.encode()); !sent) return std::move(sent).error();
  std::optional<error> found;
  if (tree.place().is_root()) found = find(all);
  const auto told = tree.broadcast(found ? to_bytes(*found) : std::vector<std::byte>());
  if (!told) return told.error();
  if (found) return *std::move(found);
  return error_from_bytes(*told).value_or(
      fail(errc::communication, "ranks disagree, and rank 0's report of the difference cannot be read"));
}

}  // namespace

result<agreement_notes> detail::agree_along_tree(communicator_ref comm, const digest128& digest,
                                                 function_ref<std::vector<agreement_record>()> records,
                                                 const agree_options& options, const call_options& given) {
  const call_options call = given.named("agree");
  const tree_messages tree(comm, call);
  const auto name = std::as_bytes(std::span(std::string_view(call.name)));
  tree_ballot mine{.records = digest, .call = xxh3(name)};
  mine.combines = static_cast<bool>(options.combine);
  mine.has_notes = comm.rank() != 0 && !options.note.empty();
  if (options.problem != nullptr) mine.in_trouble = comm.rank();
  SHARDMESH_TRY(const tree_verdict told, vote(tree, mine, options));
  agreement_notes notes(options.combine ? 1 : static_cast<std::size_t>(comm.size()));
  switch (told.kind) {
    case verdict_kind::different_calls:
      return tell_difference(tree, {name.begin(), name.end()}, options.what, different_calls);
    case verdict_kind::different_ways: {
      const std::string with_notes = call_with_notes(call.name, mine.combines);
      const auto text = std::as_bytes(std::span(with_notes));
      return tell_difference(tree, {text.begin(), text.end()}, options.what, different_calls);
    }
    case verdict_kind::problem:
      return problem_of(tree, told.in_trouble, options.problem);
    case verdict_kind::different_records:
      return tell_difference(tree, encode_records(records()), options.what,
                             [&](const contributions& all) { return different_records(all, options.what); });
    case verdict_kind::agreed:
      return notes;
    case verdict_kind::root_note:
    case verdict_kind::all_notes:
      break;
  }
  std::vector<std::byte> note = options.note;
  if (told.kind == verdict_kind::all_notes) {
    if (!options.combine) return comm.all_gather(note, call);
    SHARDMESH_TRY(combine_below(tree, note, options.combine));
  }
  SHARDMESH_TRY(notes.front(), tree.broadcast(std::move(note)));
  return notes;
}

}  // namespace shardmesh
