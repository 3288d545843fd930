// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>
module shardmesh.pickle;

import :skim;
import :skimmer;

namespace shardmesh::pickle {
namespace {

// The root object and the dict of its attributes take the first two slots; above them, names and values alternate.
constexpr std::size_t first_name_slot = 2;

}  // namespace

skimmer::skimmer(const excerpt_filter* filter, std::span<const std::uint64_t> wanted_memo)
    : filter_(filter), wanted_memo_(wanted_memo.begin(), wanted_memo.end()), known_filter_(1024) {
  if (filter_ == nullptr) return;
  for (const std::string& text : filter_->wanted) {
    wanted_texts_.insert(text);
    wanted_lengths_ |= std::uint64_t{1} << (text.size() % 64);
  }
}

bool skimmer::run(opcode_stream& in) {
  token t;
  while (!stopped_ && in.next(t))
    if (!step(t) || (t.is_memoized && !put(memo_count_))) return false;
  return stopped_;
}

bool skimmer::push_text(const token& t) {
  if (filter_ == nullptr || !t.is_text) return push(t);
  if (stack_.size() >= first_name_slot && stack_.size() % 2 == 0 && floor() <= first_name_slot &&
      std::find(filter_->dicts.begin(), filter_->dicts.end(), t.text) != filter_->dicts.end())
    return push(t, kind::attribute);
  if ((wanted_lengths_ >> (t.text.size() % 64) & 1) == 0 || !wanted_texts_.contains(t.text)) return push(t);
  hits_.push_back(t.begin);
  return push(t, kind::wanted);
}

bool skimmer::get(const token& t) {
  if (t.number >= memo_count_) return false;
  if (filter_ != nullptr && (known_filter_[t.number / 64 % 1024] >> (t.number % 64) & 1) != 0 &&
      known_wanted_.contains(t.number))
    hits_.push_back(t.begin);
  return push(t, kind::alias);
}

bool skimmer::note_put(std::uint64_t number) {
  if (stack_.back().what == static_cast<std::uint64_t>(kind::wanted)) {
    known_wanted_.insert(number);
    known_filter_[number / 64 % 1024] |= std::uint64_t{1} << (number % 64);
  }
  if (wanted_memo_.contains(number)) pending_.push_back({stack_.size() - 1, number});
  return true;
}

void skimmer::define(std::size_t size, const token& t) {
  while (!pending_.empty() && pending_.back().slot >= size) {
    const auto [at, number] = pending_.back();
    const bool is_top = at + 1 == stack_.size();
    definitions_[number] = {stack_[at].begin, is_top ? t.begin : stack_[at + 1].begin, stack_[at].memo,
                            is_top ? memo_count_ : stack_[at + 1].memo};
    pending_.pop_back();
  }
  stopped_ |= is_complete();
}

bool skimmer::collapse(std::size_t count, const token& t) {
  if (!has(count)) return false;
  const slot first = stack_[stack_.size() - count];
  shrink(stack_.size() - count, t);
  stack_.push_back({first.begin, first.memo, 0});
  return true;
}

bool skimmer::collapse_to_mark(const token& t) {
  if (marks_.empty()) return false;
  const mark from = marks_.back();
  marks_.pop_back();
  shrink(from.size, t);
  stack_.push_back({from.begin, from.memo, 0});
  return true;
}

// Adds the items from `begin` on to the value below them. Changing an alias is refused: its definition would miss the
// change.
bool skimmer::add(std::size_t begin, const token& t, bool is_dict) {
  if (begin == 0 || begin - 1 < floor() || stack_[begin - 1].what == static_cast<std::uint64_t>(kind::alias))
    return false;
  if (is_dict) {
    if ((stack_.size() - begin) % 2 != 0) return false;
    if (filter_ != nullptr && begin >= 2 && stack_[begin - 2].what == static_cast<std::uint64_t>(kind::attribute))
      drop_items(begin, t);
  }
  shrink(begin, t);
  return true;
}

bool skimmer::add_from_mark(const token& t, bool is_dict) {
  if (marks_.empty()) return false;
  const std::size_t begin = marks_.back().size;
  marks_.pop_back();
  return add(begin, t, is_dict);
}

void skimmer::drop_items(std::size_t begin, const token& t) {
  met_dict_ = true;
  // SETITEM belongs to its only item; SETITEMS belongs to no item.
  const std::int64_t end = t.opcode == 's' ? t.end : t.begin;
  auto hit = hits_.begin();
  for (std::size_t i = begin; i < stack_.size(); i += 2) {
    const slot &key = stack_[i], &value = stack_[i + 1];
    hit = std::lower_bound(hit, hits_.end(), key.begin);
    if (hit != hits_.end() && *hit < value.begin) continue;
    const bool is_last = i + 2 == stack_.size();
    const opcode_range item{key.begin, is_last ? end : stack_[i + 2].begin, key.memo,
                            is_last ? memo_count_ : stack_[i + 2].memo};
    if (!dropped_.empty() && dropped_.back().end == item.begin)
      dropped_.back().end = item.end, dropped_.back().memo_end = item.memo_end;
    else
      dropped_.push_back(item);
  }
  hits_.clear();
}

bool skimmer::step(const token& t) {
  switch (t.opcode) {
    case '(':
      if (marks_.size() >= most_slots) return false;
      marks_.push_back({stack_.size(), t.begin, memo_count_});
      return true;
    case '.':
      if (stack_.size() != 1 || !marks_.empty()) return false;
      shrink(0, t);
      end_ = t.end;
      return stopped_ = true;
    case 'h':
    case 'j':
    case 'g':
      return get(t);
    case 0x94:
      return put(memo_count_);
    case 'q':
    case 'r':
    case 'p':
      return put(t.number);
    case 0x80:
    case 0x95:
      return true;
    case 'U':
    case 'T':
    case 'X':
    case 0x8c:
    case 0x8d:
      return push_text(t);
    case 0x85:
    case 'Q':
      return collapse(1, t);
    case 0x86:
    case 0x81:
    case 'R':
    case 0x93:
      return collapse(2, t);
    case 0x87:
    case 0x92:
      return collapse(3, t);
    case 't':
    case 'd':
    case 'l':
    case 'o':
    case 'i':
    case 0x91:
      return collapse_to_mark(t);
    case 'b':
    case 'a':
      return has(2) && add(stack_.size() - 1, t, false);
    case 's':
      return has(3) && add(stack_.size() - 2, t, true);
    case 'u':
      return add_from_mark(t, true);
    case 'e':
    case 0x90:
      return add_from_mark(t, false);
    default:  // every other opcode of the stream is a value
      return push(t);
  }
}

}  // namespace shardmesh::pickle
