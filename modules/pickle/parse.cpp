// SPDX-License-Identifier: Apache-2.0
// The pickle machine: one pass over the opcodes, a stack, a memo, no recursion. Every allocation is paid for by input
// bytes; stated lengths are checked against what is left before anything is done with them. Long, because every
// opcode works on the one stack: taking them apart would only hide that.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :opcode;
import :text;
import :trace;

namespace shardmesh {
namespace {

using tag = pickle_tag;

// Memory that a graph may take: metadata of real checkpoints takes about four bytes for each of its own.
constexpr std::size_t graph_bytes = std::size_t{1} << 28, graph_bytes_per_byte = 8;

class machine {
 public:
  /// With `trace`, what is met is noted there, and what Python's unpickler does not mind is forgiven.
  explicit machine(pickle_arena& arena, std::vector<pickle_event>* trace = nullptr)
      : arena_(arena), words_(arena.words), input_(arena.input), trace_(trace) {}
  result<void> run();
  std::size_t position() const { return start_; }

 private:
  // Problems are recorded where they occur and end the loop: the hot path has no result objects.
  [[gnu::cold, gnu::noinline]] bool bad(std::string message) {
    if (problem_.empty()) problem_ = std::move(message);
    return false;
  }
  [[gnu::cold, gnu::noinline]] bool cut(std::string message) {
    is_cut_ = true;
    return bad(std::move(message));
  }
  // For what is an error to us but not to Python, so that a trace goes on behind it.
  bool forgive() const { return trace_ != nullptr; }
  [[gnu::cold, gnu::noinline]] bool too_long(std::uint64_t count) {
    return cut(fmt::format("{} bytes are stated, {} are left", count, left()));
  }
  bool is_too_large() {
    const std::size_t used = (words_.capacity() + stack_.capacity() + marks_.capacity() + memo_.capacity()) * 8 +
                             sparse_memo_.size() * 64 + arena_.decoded.capacity() +
                             arena_.decoded_spans.capacity() * 16;
    return used > graph_bytes && (used - graph_bytes) / graph_bytes_per_byte > input_.size();
  }
  [[gnu::cold, gnu::noinline]] bool too_few(std::size_t count) {
    return bad(fmt::format("{} values are needed, the stack has {}", count, stack_.size() - floor()));
  }
  std::size_t left() const { return input_.size() - at_; }
  bool need(std::uint64_t count) { return count <= left() || too_long(count); }
  template <class Unsigned>
  bool number(Unsigned& out) {
    if (!need(sizeof(Unsigned))) return false;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
      value |= std::to_integer<std::uint64_t>(input_[at_ + i]) << (8 * i);
    out = static_cast<Unsigned>(value);
    at_ += sizeof(Unsigned);
    return true;
  }
  bool line(std::string_view& out) {
    const auto* begin = reinterpret_cast<const char*>(input_.data()) + at_;
    const void* end = left() == 0 ? nullptr : std::memchr(begin, '\n', left());
    if (end == nullptr) return cut("the line does not end");
    out = {begin, static_cast<std::size_t>(static_cast<const char*>(end) - begin)};
    at_ += out.size() + 1;
    return true;
  }
  // A name or number: lines are looked at again whenever the value is, so long ones would add up.
  bool short_line(std::string_view& out) {
    if (!line(out)) return false;
    return out.size() <= 4300 || forgive() || bad(fmt::format("a line of {} bytes is no name or number", out.size()));
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool has(std::size_t count) { return stack_.size() - floor() >= count || too_few(count); }
  void push(tag kind, std::uint64_t payload = 0) { stack_.push_back(pickle_bits(kind, payload)); }
  std::uint64_t pop() {
    const std::uint64_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  bool pop_mark(std::size_t& begin) {
    if (marks_.empty()) return bad("there is no mark");
    begin = marks_.back();
    marks_.pop_back();
    return true;
  }
  std::uint64_t push_int(std::int64_t value) {
    stack_.push_back(pickle_bits(tag::small_int, static_cast<std::uint64_t>(value)));
    return stack_.back();
  }
  static bool fits_small(std::int64_t value) { return value >= -(1LL << 58) && value < (1LL << 58); }

  /// A counted string or number whose opcode is at start_.
  template <class Count>
  bool counted(tag kind, std::span<const std::byte>* content = nullptr) {
    Count count = 0;
    if (!number(count) || !need(count)) return false;
    if (content != nullptr) *content = input_.subspan(at_, count);
    at_ += count;
    push(kind, start_);
    return true;
  }
  template <class Count>
  bool byte_string() {
    std::span<const std::byte> content;
    if (!counted<Count>(tag::bytes_at, &content)) return false;
    if (is_utf8({reinterpret_cast<const char*>(content.data()), content.size()}))
      stack_.back() = pickle_bits(tag::text_at, start_);
    return true;
  }
  template <class Count>
  bool long_binary() {
    if (!counted<Count>(tag::int_at)) return false;
    const auto value = pickle_value(&arena_, stack_.back()).as_int();
    if (value && fits_small(*value)) pop(), push_int(*value);
    return true;
  }
  bool int_line();
  bool long_line();
  bool integer_text(std::string_view digits);
  bool float_line();
  bool text_line(bool raw_unicode);

  std::uint64_t make_sequence(tag kind, std::span<const std::uint64_t> items) {
    const bool is_long = items.size() >= pickle_long_tuple;
    const std::uint64_t first = words_.grow(items.size() + (is_long ? 1 : 0));
    if (is_long) words_[first] = items.size();
    std::copy(items.begin(), items.end(), words_.data() + first + (is_long ? 1 : 0));
    const std::uint64_t count = is_long ? pickle_long_tuple : items.size();
    return pickle_bits(kind, count << 40 | first);
  }
  bool tuple(std::size_t count) {
    if (!has(count)) return false;
    const std::uint64_t made = make_sequence(tag::tuple, std::span(stack_).last(count));
    stack_.resize(stack_.size() - count);
    stack_.push_back(made);
    return true;
  }
  bool tuple_from_mark(tag kind) {
    std::size_t begin = 0;
    if (!pop_mark(begin)) return false;
    const std::uint64_t made = make_sequence(kind, std::span(stack_).subspan(begin));
    stack_.resize(begin);
    stack_.push_back(made);
    return true;
  }

  bool append(std::uint64_t header, std::span<const std::uint64_t> items) {
    std::uint64_t begin = words_[header];
    const std::uint64_t count = words_[header + 1] >> 32, capacity = words_[header + 1] & 0xffffffff;
    std::uint64_t room = capacity;
    const std::uint64_t wanted = count + items.size();
    if (wanted > 0xffffffff) return bad("more than 2^32 items");
    if (wanted > capacity && begin + capacity == words_.size() && capacity > 0) {
      words_.grow(wanted - capacity);
      room = wanted;
    } else if (wanted > capacity) {
      room = std::min<std::uint64_t>(std::max(wanted, 2 * count), 0xffffffff);
      begin = words_.grow(room);
      std::copy_n(words_.data() + words_[header], count, words_.data() + begin);
    }
    std::copy(items.begin(), items.end(), words_.data() + begin + count);
    words_[header] = begin;
    words_[header + 1] = wanted << 32 | room;
    return true;
  }
  std::uint64_t make_container(tag kind) { return pickle_bits(kind, words_.grow(2)); }

  std::uint64_t make_record(tag kind, std::uint64_t callable, std::uint64_t args) {
    const std::uint64_t first = words_.grow(3);
    words_[first] = callable;
    words_[first + 1] = args;
    return pickle_bits(kind, first);
  }
  static bool is_record(std::uint64_t bits) {
    const tag kind = pickle_tag_of(bits);
    return kind == tag::reduce || kind == tag::newobj || kind == tag::newobj_ex || kind == tag::instance;
  }
  /// Index of the record's block, made when it has none yet.
  std::uint64_t block_of(std::uint64_t record) {
    const std::uint64_t tail = words_[(record >> 5) + 2];
    if (pickle_tag_of(tail) == tag::block) return tail >> 5;
    const std::uint64_t first = words_.grow(4);
    words_[first + 1] = tail;
    words_[(record >> 5) + 2] = pickle_bits(tag::block, first);
    return first;
  }
  /// Header of the container that takes items: the target itself, or a record's own list (part 2) or dict (part 3).
  bool container_of(std::uint64_t target, tag plain, std::uint64_t part, std::uint64_t& header) {
    if (pickle_tag_of(target) == plain) return header = target >> 5, true;
    if (!is_record(target))
      return bad(fmt::format("cannot add items to a {}", name(pickle_value(&arena_, target).kind())));
    const std::uint64_t block = block_of(target);
    if (words_[block + part] == 0) {
      const std::uint64_t made = make_container(part == 2 ? tag::list : tag::dict);
      words_[block + part] = made;
    }
    header = words_[block + part] >> 5;
    return true;
  }
  bool add_items(std::size_t begin, tag plain, std::uint64_t part) {
    if (begin == 0 || begin - 1 < floor()) return bad("there is nothing to add items to");
    const auto items = std::span(stack_).subspan(begin);
    if (part == 3 && items.size() % 2 != 0) return bad("a key has no value");
    const std::uint64_t target = stack_[begin - 1];
    std::uint64_t header = 0;
    if (forgive() && pickle_tag_of(target) != plain && !is_record(target))
      note(pickle_event::what::changed, target);
    else if (!items.empty() && (!container_of(target, plain, part, header) || !append(header, items)))
      return false;
    stack_.resize(begin);
    return true;
  }
  bool add_items_from_mark(tag plain, std::uint64_t part) {
    std::size_t begin = 0;
    return pop_mark(begin) && add_items(begin, plain, part);
  }
  bool container_from_mark(tag kind) {
    std::size_t begin = 0;
    if (!pop_mark(begin)) return false;
    const auto items = std::span(stack_).subspan(begin);
    if (kind == tag::dict && items.size() % 2 != 0) return bad("a key has no value");
    const std::uint64_t made = make_container(kind);
    if (!items.empty() && !append(made >> 5, items)) return false;
    stack_.resize(begin);
    stack_.push_back(made);
    return true;
  }

  bool build() {
    if (!has(2)) return false;
    const std::uint64_t state = pop(), target = stack_.back();
    if (forgive() && !is_record(target)) return note(pickle_event::what::changed, target), true;
    if (!is_record(target))
      return bad(fmt::format("cannot set the state of a {}", name(pickle_value(&arena_, target).kind())));
    const std::uint64_t tail = words_[(target >> 5) + 2];
    if (forgive() && tail != 0) return true;
    if (pickle_tag_of(tail) == tag::block) {
      if (words_[(tail >> 5) + 1] != 0) return bad("the object's state is set twice");
      words_[(tail >> 5) + 1] = state;
    } else if (tail != 0) {
      return bad("the object's state is set twice");
    } else {
      words_[(target >> 5) + 2] = state;
    }
    return true;
  }
  bool record(tag kind) {
    if (!has(2)) return false;
    const std::uint64_t args = pop(), callable = pop();
    if (pickle_tag_of(args) != tag::tuple && !forgive()) return bad("the arguments are not a tuple");
    stack_.push_back(make_record(kind, callable, args));
    if (trace_ != nullptr) note_call(callable, args, stack_.back());
    return true;
  }
  bool newobj_ex() {
    if (!has(3)) return false;
    const std::uint64_t keywords = pop();
    if (pickle_tag_of(keywords) != tag::dict && !forgive()) return bad("the keyword arguments are not a dict");
    if (!record(tag::newobj_ex)) return false;
    const std::uint64_t block = block_of(stack_.back());
    words_[block] = keywords;
    return true;
  }
  bool instance(bool named) {
    std::size_t begin = 0;
    std::string_view ignored;
    if (named && (!short_line(ignored) || !short_line(ignored))) return false;
    if (!pop_mark(begin)) return false;
    if (!named && begin == stack_.size()) return bad("there is no class");
    const std::uint64_t callable = named ? pickle_bits(tag::global_at, start_) : stack_[begin];
    const std::uint64_t args = make_sequence(tag::tuple, std::span(stack_).subspan(begin + (named ? 0 : 1)));
    stack_.resize(begin);
    stack_.push_back(make_record(tag::instance, callable, args));
    if (named) note_global(callable);
    if (trace_ != nullptr) note_call(callable, args, stack_.back());
    return true;
  }
  bool stack_global() {
    if (!has(2)) return false;
    const std::uint64_t attribute = pop(), module_name = pop();
    if (!forgive() && (!pickle_value(&arena_, attribute).text() || !pickle_value(&arena_, module_name).text()))
      return bad("the module and name are not strings");
    const std::uint64_t first = words_.grow(2);
    words_[first] = module_name;
    words_[first + 1] = attribute;
    push(tag::global_pair, first);
    note_global(stack_.back());
    return true;
  }
  bool persistent(std::uint64_t id) {
    const std::uint64_t first = words_.grow(1);
    words_[first] = id;
    push(tag::persistent, first);
    note(pickle_event::what::persistent, stack_.back());
    return true;
  }

  bool put(std::uint64_t index) {
    if (!has(1)) return false;
    // A writer numbers its memo in order, so indices stay below the byte offset; others are kept in a map, so that an
    // absurd index costs no more than a small one.
    if (index <= at_) {
      if (index >= memo_.size()) memo_.grow(index + 1 - memo_.size());
      memo_count_ += memo_[index] == 0;
      memo_[index] = stack_.back();
    } else {
      memo_count_ += sparse_memo_.insert_or_assign(index, stack_.back()).second;
    }
    return true;
  }
  bool get(std::uint64_t index) {
    std::uint64_t found = index < memo_.size() ? memo_[index] : 0;
    if (found == 0 && !sparse_memo_.empty())
      if (const auto entry = sparse_memo_.find(index); entry != sparse_memo_.end()) found = entry->second;
    if (memo_is_unknown_) found = pickle_bits(tag::none, 0);  // a name that is made of it is unknown
    if (found == 0) return bad(fmt::format("the memo has no entry {}", index));
    stack_.push_back(found);
    return true;
  }
  template <class Unsigned>
  bool put_binary() {
    Unsigned index = 0;
    return number(index) && put(index);
  }
  template <class Unsigned>
  bool get_binary() {
    Unsigned index = 0;
    return number(index) && get(index);
  }
  bool memo_line(bool is_put) {
    std::string_view digits;
    std::uint64_t index = 0;
    if (!line(digits)) return false;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    // Python reads "1_0" and " 7" as well: from then on we no longer know what the memo holds.
    if (forgive() && (status != std::errc{} || end != digits.data() + digits.size())) {
      memo_is_unknown_ = true;
      return is_put || (push(tag::none), true);
    }
    if (status != std::errc{} || end != digits.data() + digits.size()) return bad("the memo index is not a number");
    return is_put ? put(index) : get(index);
  }
  template <class Unsigned>
  bool extension() {
    Unsigned code = 0;
    if (!number(code)) return false;
    if (code == 0 || static_cast<std::uint64_t>(code) > 0x7fffffff) return bad("the extension code is not positive");
    push(tag::extension, code);
    note(pickle_event::what::extension, stack_.back());
    return true;
  }
  template <class Unsigned>
  bool small_number() {
    Unsigned value = 0;
    if (!number(value)) return false;
    push_int(static_cast<std::int64_t>(value));
    return true;
  }

  void note(pickle_event::what kind, std::uint64_t bits) {
    if (trace_ != nullptr) trace_->push_back({kind, pickle_value(&arena_, bits)});
  }
  // The first of each name; names alone decide what is reported.
  void note_global(std::uint64_t bits) {
    if (trace_ == nullptr) return;
    const pickle_value value(&arena_, bits);
    if (value.global_name() == "getattr") getters_.insert(bits);
    std::string full = std::string(value.global_module()) + '\n' + std::string(value.global_name());
    if (noted_.insert(std::move(full)).second) note(pickle_event::what::global, bits);
  }
  // Calls of what is no global, of getattr, and with getattr among the arguments.
  void note_call(std::uint64_t callable, std::uint64_t args, std::uint64_t call) {
    const bool is_global = pickle_tag_of(callable) == tag::global_at || pickle_tag_of(callable) == tag::global_pair;
    bool is_odd = !is_global || getters_.contains(callable);
    if (!getters_.empty() && !is_odd) {
      const pickle_items items = pickle_value(&arena_, args).items();
      for (std::size_t i = 0; i < std::min<std::size_t>(items.size(), 16); ++i)
        is_odd |= getters_.contains(items[i].identity());
    }
    // What calls its first argument is as odd as that one.
    if (!is_odd && pickle_value(&arena_, callable).global_name() == "_rebuild_from_type_v2") {
      const pickle_items items = pickle_value(&arena_, args).items();
      is_odd = !items.empty() && items[0].kind() != pickle_kind::global;
    }
    if (is_odd && calls_++ < 10'000) note(pickle_event::what::call, call);
  }

  bool step(unsigned char opcode);

  pickle_arena& arena_;
  pickle_words& words_;
  std::span<const std::byte> input_;
  std::size_t at_ = 0, start_ = 0;
  bool stopped_ = false;
  std::vector<std::uint64_t> stack_;
  std::vector<std::size_t> marks_;
  pickle_words memo_;
  std::unordered_map<std::uint64_t, std::uint64_t> sparse_memo_;
  std::uint64_t memo_count_ = 0;
  std::string problem_;
  bool is_cut_ = false;
  bool memo_is_unknown_ = false;
  std::vector<pickle_event>* trace_;
  std::unordered_set<std::string> noted_;
  std::unordered_set<std::uint64_t> getters_;
  std::size_t calls_ = 0;
};

bool machine::int_line() {
  std::string_view digits;
  if (!short_line(digits)) return false;
  if (digits == "00" || digits == "01") return push(tag::boolean, digits == "01"), true;
  return integer_text(digits);
}

bool machine::long_line() {
  std::string_view digits;
  if (!short_line(digits)) return false;
  if (digits.ends_with('L')) digits.remove_suffix(1);
  return integer_text(digits);
}

bool machine::integer_text(std::string_view digits) {
  if (!is_integer_text(digits) && forgive()) return push_int(0), true;
  if (!is_integer_text(digits)) return bad("not an integer");
  push(tag::int_at, start_);
  const auto value = pickle_value(&arena_, stack_.back()).as_int();
  if (value && fits_small(*value)) pop(), push_int(*value);
  return true;
}

bool machine::float_line() {
  std::string_view text;
  if (!short_line(text)) return false;
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc::invalid_argument || end != text.data() + text.size())
    return forgive() ? (push_int(0), true) : bad("not a number");
  push(tag::float_at, start_);
  return true;
}

bool machine::text_line(bool raw_unicode) {
  std::string_view text;
  if (!line(text)) return false;
  const std::size_t begin = arena_.decoded.size();
  const bool fine = raw_unicode ? decode_raw_unicode(text, arena_.decoded) : decode_string_repr(text, arena_.decoded);
  if (!fine && forgive()) return push(tag::none), true;  // a name made of it is unknown
  if (!fine) return bad("the string's quotes or escapes are malformed");
  const std::string_view made = std::string_view(arena_.decoded).substr(begin);
  push(raw_unicode || is_utf8(made) ? tag::text_decoded : tag::bytes_decoded, arena_.decoded_spans.size());
  arena_.decoded_spans.emplace_back(begin, made.size());
  return true;
}

bool machine::step(unsigned char opcode) {
  switch (opcode) {
    case '(':
      return marks_.push_back(stack_.size()), true;
    case '.':
      if (!has(1)) return false;
      stopped_ = true;
      return true;
    case '0':
      if (stack_.size() > floor()) return pop(), true;
      return marks_.empty() ? bad("the stack is empty") : (marks_.pop_back(), true);
    case '1': {
      std::size_t begin = 0;
      if (!pop_mark(begin)) return false;
      return stack_.resize(begin), true;
    }
    case '2':
      return has(1) && (stack_.push_back(stack_.back()), true);
    case 'F':
      return float_line();
    case 'I':
      return int_line();
    case 'J':
      return small_number<std::int32_t>();
    case 'K':
      return small_number<std::uint8_t>();
    case 'L':
      return long_line();
    case 'M':
      return small_number<std::uint16_t>();
    case 'N':
      return push(tag::none), true;
    case 'P': {
      std::string_view id;
      if (!line(id)) return false;
      const std::size_t begin = arena_.decoded.size();
      arena_.decoded += id;
      arena_.decoded_spans.emplace_back(begin, id.size());
      return persistent(pickle_bits(tag::text_decoded, arena_.decoded_spans.size() - 1));
    }
    case 'Q':
      return has(1) && persistent(pop());
    case 'R':
      return record(tag::reduce);
    case 'S':
      return text_line(false);
    case 'T':
      return byte_string<std::uint32_t>();
    case 'U':
      return byte_string<std::uint8_t>();
    case 'V':
      return text_line(true);
    case 'X':
      return counted<std::uint32_t>(tag::text_at);
    case 'a':
      return has(2) && add_items(stack_.size() - 1, tag::list, 2);
    case 'b':
      return build();
    case 'c': {
      std::string_view ignored;
      if (!short_line(ignored) || !short_line(ignored)) return false;
      push(tag::global_at, start_);
      return note_global(stack_.back()), true;
    }
    case 'd':
      return container_from_mark(tag::dict);
    case '}':
      return stack_.push_back(make_container(tag::dict)), true;
    case 'e':
      return add_items_from_mark(tag::list, 2);
    case 'g':
      return memo_line(false);
    case 'h':
      return get_binary<std::uint8_t>();
    case 'i':
      return instance(true);
    case 'j':
      return get_binary<std::uint32_t>();
    case 'l':
      return container_from_mark(tag::list);
    case ']':
      return stack_.push_back(make_container(tag::list)), true;
    case 'o':
      return instance(false);
    case 'p':
      return memo_line(true);
    case 'q':
      return put_binary<std::uint8_t>();
    case 'r':
      return put_binary<std::uint32_t>();
    case 's':
      return has(3) && add_items(stack_.size() - 2, tag::dict, 3);
    case 't':
      return tuple_from_mark(tag::tuple);
    case ')':
      return stack_.push_back(make_sequence(tag::tuple, {})), true;
    case 'u':
      return add_items_from_mark(tag::dict, 3);
    case 'G':
      if (!need(8)) return false;
      at_ += 8;
      return push(tag::float_at, start_), true;
    case 'B':
      return counted<std::uint32_t>(tag::bytes_at);
    case 'C':
      return counted<std::uint8_t>(tag::bytes_at);
    case 0x80: {
      std::uint8_t protocol = 0;
      if (!number(protocol)) return false;
      if (protocol > 5) return bad(fmt::format("protocol {} is not supported", protocol));
      arena_.protocol = std::max<int>(arena_.protocol, protocol);
      return true;
    }
    case 0x81:
      return record(tag::newobj);
    case 0x82:
      return extension<std::uint8_t>();
    case 0x83:
      return extension<std::uint16_t>();
    case 0x84:
      return extension<std::uint32_t>();
    case 0x85:
      return tuple(1);
    case 0x86:
      return tuple(2);
    case 0x87:
      return tuple(3);
    case 0x88:
      return push(tag::boolean, 1), true;
    case 0x89:
      return push(tag::boolean, 0), true;
    case 0x8a:
      return long_binary<std::uint8_t>();
    case 0x8b:
      return long_binary<std::uint32_t>();
    case 0x8c:
      return counted<std::uint8_t>(tag::text_at);
    case 0x8d:
      return counted<std::uint64_t>(tag::text_at);
    case 0x8e:
      return counted<std::uint64_t>(tag::bytes_at);
    case 0x8f:
      return stack_.push_back(make_container(tag::set)), true;
    case 0x90:
      return add_items_from_mark(tag::set, 2);
    case 0x91:
      return tuple_from_mark(tag::frozenset);
    case 0x92:
      return newobj_ex();
    case 0x93:
      return stack_global();
    case 0x94:
      return put(memo_count_);
    case 0x95: {
      // Frames only help readers of streams; one that reaches past the end means that the file was cut.
      std::uint64_t length = 0;
      return number(length) && need(length);
    }
    case 0x96:
      return counted<std::uint64_t>(tag::bytearray_at);
    case 0x98:
      if (forgive()) return has(1);  // Python makes read-only whatever is a buffer: bytes are one
      [[fallthrough]];
    case 0x97:
      return bad("out-of-band buffers are not supported");
    default:
      return bad(fmt::format("0x{:02x} is not an opcode", opcode));
  }
}

result<void> machine::run() {
  const auto fine = [this] {
    for (std::size_t steps = 0; !stopped_; ++steps) {
      start_ = at_;
      if (at_ == input_.size()) return cut("the stream ends without STOP");
      if (steps % 4096 == 0 && is_too_large()) return bad("its values take more memory than its bytes explain");
      if (!step(std::to_integer<unsigned char>(input_[at_++]))) return false;
    }
    return true;
  }();
  if (!fine) {
    const std::string_view opcode = start_ < input_.size() ? opcode_name(std::to_integer<unsigned char>(input_[start_]))
                                                           : std::string_view("end of input");
    auto problem =
        fail(errc::bad_pickle, fmt::format("malformed pickle at byte {} ({}): {}", start_, opcode, problem_));
    return is_cut_ ? std::move(problem).with_values("", std::string(pickle_is_cut)) : problem;
  }
  arena_.root = stack_.back();
  arena_.consumed = at_;
  words_.shrink_to_fit();
  return {};
}

}  // namespace

pickle_trace trace_pickle(std::span<const std::byte> bytes) {
  pickle_trace made;
  made.arena = std::make_unique<pickle_arena>();
  made.arena->input = bytes;
  machine runs(*made.arena, &made.events);
  if (auto done = runs.run(); !done) made.problem = std::move(done).error();
  made.ended_at = made.problem ? runs.position() : made.arena->consumed;
  return made;
}

result<pickle_graph> pickle_graph::run(std::unique_ptr<pickle_arena> arena) {
  SHARDMESH_CHECK(machine(*arena).run());
  return pickle_graph(std::move(arena));
}

result<pickle_graph> pickle_graph::parse(std::span<const std::byte> bytes) {
  auto arena = std::make_unique<pickle_arena>();
  arena->input = bytes;
  return run(std::move(arena));
}

result<pickle_graph> pickle_graph::parse(std::vector<std::byte> bytes) {
  auto arena = std::make_unique<pickle_arena>();
  arena->owned = std::move(bytes);
  arena->input = arena->owned;
  return run(std::move(arena));
}

}  // namespace shardmesh
