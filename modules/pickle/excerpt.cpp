// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :excerpt;
import :skim;
import :skimmer;

namespace shardmesh::pickle {
namespace {

constexpr std::size_t pass_window_bytes = std::size_t{1} << 18;
constexpr int most_passes = 32;  // a definition may need others, which need others in turn
constexpr std::int64_t definition_bytes = std::int64_t{64} << 20;

bool is_put(unsigned char opcode) {
  return opcode == 0x94 || opcode == 'q' || opcode == 'r' || opcode == 'p';
}
bool is_get(unsigned char opcode) {
  return opcode == 'h' || opcode == 'j' || opcode == 'g';
}

// Copies ranges of opcodes into one new pickle. Every memo entry keeps its number.
class copier {
 public:
  explicit copier(read_at read) : read_(read) {}

  // The memo entries that ranges make, and those that they fetch.
  struct memo_use {
    std::set<std::uint64_t> puts, gets;
  };
  result<bool> look_at(const opcode_range& range, memo_use& use) {
    return each(range, [&](const token& t, std::uint64_t memo) -> result<bool> {
      if (is_put(t.opcode)) use.puts.insert(memo);
      if (is_get(t.opcode)) use.gets.insert(t.number);
      return true;
    });
  }

  // PROTO and frames belong to the whole pickle and are not copied.
  result<bool> copy(const opcode_range& range, std::vector<std::byte>& out) {
    std::int64_t run = range.begin;
    const auto flush = [&](std::int64_t end) -> result<void> {
      const std::size_t at = out.size();
      out.resize(at + static_cast<std::size_t>(end - run));
      return end > run ? read_(run, std::span(out).subspan(at)) : result<void>();
    };
    SHARDMESH_TRY(const bool is_usual, each(range, [&](const token& t, std::uint64_t memo) -> result<bool> {
                    const bool is_frame = t.opcode == 0x95 || t.opcode == 0x80;
                    if (!is_frame && t.opcode != 0x94) return true;
                    SHARDMESH_TRY(flush(t.begin));
                    run = t.end;
                    if (is_frame) return true;
                    if (memo > 0xffffffff) return false;
                    out.push_back(std::byte{'r'});
                    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(memo >> (8 * i)));
                    return true;
                  }));
    SHARDMESH_TRY(flush(range.end));
    return is_usual;
  }

 private:
  // Returns false when `act` does, or when the opcodes differ from those that an earlier pass saw.
  template <class Act>
  result<bool> each(const opcode_range& range, Act act) {
    opcode_stream in(read_, range.begin, range.end, 0, false);
    std::uint64_t memo = range.memo_begin;
    token t;
    while (in.next(t)) {
      SHARDMESH_TRY(const bool goes_on, act(t, memo));
      if (!goes_on) return false;
      memo += is_put(t.opcode) ? 1 : 0;
    }
    if (in.problem()) return *in.problem();
    return !in.failed() && memo == range.memo_end;
  }

  read_at read_;
};

// Returns the ranges between the dropped ones, up to the offset after STOP.
std::vector<opcode_range> kept_beside(const std::vector<opcode_range>& dropped, std::int64_t end,
                                      std::uint64_t memo_end) {
  std::vector<opcode_range> kept;
  opcode_range at;
  for (const opcode_range& gone : dropped) {
    kept.push_back({at.end, gone.begin, at.memo_end, gone.memo_begin});
    at = gone;
  }
  kept.push_back({at.end, end, at.memo_end, memo_end});
  return kept;
}

// Returns a pickle of the definitions, which it drops from the stack, and of the kept ranges; nothing if one of them is
// not usual.
result<std::optional<std::vector<std::byte>>> copy_of(copier& source, std::span<const opcode_range> definitions,
                                                      std::span<const opcode_range> kept) {
  const std::optional<std::vector<std::byte>> nothing;
  std::vector<std::byte> out{std::byte{0x80}, std::byte{5}};
  for (const opcode_range& range : definitions) {
    SHARDMESH_TRY(const bool copied, source.copy(range, out));
    if (!copied) return nothing;
    out.push_back(std::byte{'0'});
  }
  for (const opcode_range& range : kept) {
    SHARDMESH_TRY(const bool copied, source.copy(range, out));
    if (!copied) return nothing;
  }
  return std::optional(std::move(out));
}

}  // namespace

result<std::optional<std::vector<std::byte>>> excerpt(read_at read, std::int64_t size_bytes,
                                                      const excerpt_filter& filter) {
  const std::optional<std::vector<std::byte>> nothing;
  for (const std::string& text : filter.wanted)  // a wanted key with the name of a dict could be mistaken for that dict
    if (std::find(filter.dicts.begin(), filter.dicts.end(), text) != filter.dicts.end()) return nothing;
  opcode_stream all(read, 0, size_bytes, pass_window_bytes, true);
  skimmer choice(&filter, {});
  const bool is_usual = choice.run(all);
  if (all.problem()) return *all.problem();
  if (!is_usual || !choice.met_dict()) return nothing;
  const auto kept = kept_beside(choice.dropped(), choice.end(), choice.memo_count());

  copier source(read);
  copier::memo_use use;
  for (const opcode_range& range : kept) {
    SHARDMESH_TRY(const bool looked, source.look_at(range, use));
    if (!looked) return nothing;
  }
  // The kept parts need entries that the dropped ranges make, and these may need others. The copied definitions precede
  // the kept parts, so they cannot use entries that the kept parts make.
  std::set<std::uint64_t> needed;
  std::set_difference(use.gets.begin(), use.gets.end(), use.puts.begin(), use.puts.end(),
                      std::inserter(needed, needed.end()));
  std::map<std::uint64_t, opcode_range> definitions;
  std::int64_t bytes = 0;
  for (int pass = 0; !needed.empty(); ++pass) {
    const std::vector<std::uint64_t> numbers(needed.begin(), needed.end());
    opcode_stream again(read, 0, size_bytes, pass_window_bytes, true);
    skimmer search(nullptr, numbers);
    const bool found = search.run(again);
    if (again.problem()) return *again.problem();
    if (!found || search.definitions().size() != numbers.size() || pass == most_passes) return nothing;
    needed.clear();
    for (const auto& [number, range] : search.definitions()) {
      definitions.emplace(number, range);
      bytes += range.end - range.begin;
      if (bytes > definition_bytes) return nothing;
      copier::memo_use own;
      SHARDMESH_TRY(const bool looked, source.look_at(range, own));
      if (!looked) return nothing;
      for (const std::uint64_t get : own.gets)
        if (!own.puts.contains(get)) needed.insert(get);
    }
    for (const auto& [number, range] : definitions) needed.erase(number);
  }

  std::vector<opcode_range> in_order;
  for (const auto& [number, range] : definitions) in_order.push_back(range);
  std::sort(in_order.begin(), in_order.end(),
            [](const opcode_range& a, const opcode_range& b) { return a.begin < b.begin; });
  return copy_of(source, in_order, kept);
}

}  // namespace shardmesh::pickle
