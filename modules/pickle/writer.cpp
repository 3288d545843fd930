// SPDX-License-Identifier: Apache-2.0
// Writes pickles of protocol 4 or 2, and writes parsed values again without recursion.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/try.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.pickle;

namespace shardmesh::pickle {
namespace {

namespace op {
constexpr std::uint8_t mark = '(', stop = '.', pop = '0', pop_mark = '1', none = 'N', binint = 'J', binint1 = 'K',
                       binint2 = 'M', long1 = 0x8a, binfloat = 'G', newtrue = 0x88, newfalse = 0x89, short_text = 0x8c,
                       text = 'X', text8 = 0x8d, short_bytes = 'C', bytes = 'B', bytes8 = 0x8e, bytearray8 = 0x96,
                       empty_tuple = ')', tuple1 = 0x85, tuple = 't', empty_list = ']', appends = 'e', empty_dict = '}',
                       setitems = 'u', empty_set = 0x8f, additems = 0x90, frozenset = 0x91, reduce = 'R', newobj = 0x81,
                       newobj_ex = 0x92, build = 'b', obj = 'o', binpersid = 'Q', binget = 'h', long_binget = 'j',
                       binput = 'q', long_binput = 'r', tuple2 = 0x86, tuple3 = 0x87, global = 'c', memoize = 0x94,
                       stack_global = 0x93, proto = 0x80, ext1 = 0x82, ext2 = 0x83, ext4 = 0x84;
}  // namespace op

}  // namespace

writer::writer(int protocol) : protocol_(protocol) {
  SHARDMESH_ASSERT(protocol == 2 || protocol == 4);
  out_.reserve(512);  // enough for one or two tensors
  put(op::proto);
  put(static_cast<std::uint8_t>(protocol));
}

void writer::put_raw(const void* data, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(data);
  out_.insert(out_.end(), first, first + count);
}

void writer::put_number(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) put(static_cast<std::uint8_t>(value >> (8 * i)));
}

void writer::counted(std::uint8_t short_opcode, std::uint8_t opcode, std::uint8_t long_opcode, const void* data,
                     std::size_t count) {
  if (count <= 0xff && short_opcode != 0) {
    put(short_opcode), put_number(count, 1);
  } else if (count <= 0xffffffff && opcode != 0) {
    put(opcode), put_number(count, 4);
  } else {
    put(long_opcode), put_number(count, 8);
  }
  put_raw(data, count);
}

void writer::none() {
  put(op::none);
}
void writer::boolean(bool value) {
  put(value ? op::newtrue : op::newfalse);
}

void writer::integer(std::int64_t value) {
  if (value >= 0 && value <= 0xff) return put(op::binint1), put_number(static_cast<std::uint64_t>(value), 1);
  if (value >= 0 && value <= 0xffff) return put(op::binint2), put_number(static_cast<std::uint64_t>(value), 2);
  if (value >= INT32_MIN && value <= INT32_MAX)
    return put(op::binint), put_number(static_cast<std::uint64_t>(value), 4);
  int width = 8;  // the fewest bytes of two's complement
  while (width > 1 && value >> (8 * (width - 1) - 1) == (value < 0 ? -1 : 0)) --width;
  put(op::long1), put(static_cast<std::uint8_t>(width));
  put_number(static_cast<std::uint64_t>(value), width);
}

void writer::floating(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  put(op::binfloat);
  for (int shift = 56; shift >= 0; shift -= 8) put(static_cast<std::uint8_t>(bits >> shift));
}

void writer::text(std::string_view value) {
  if (const auto known = texts_.find(value); known != texts_.end()) return recall(known->second);
  counted(is_protocol2() ? 0 : op::short_text, op::text, op::text8, value.data(), value.size());
  texts_.emplace(value, memoize());
}

// Writes bytes in the form of protocol 2: callable(text with one letter per byte, encoding).
void writer::latin1(std::string_view callable_module, std::string_view callable, std::span<const std::byte> content,
                    std::string_view encoding) {
  std::string letters;
  for (const std::byte b : content) {
    const auto letter = static_cast<unsigned>(b);
    if (letter >= 0x80) letters += static_cast<char>(0xC0 | letter >> 6);
    letters += static_cast<char>(letter < 0x80 ? letter : 0x80 | (letter & 0x3F));
  }
  global(callable_module, callable);
  counted(0, op::text, op::text8, letters.data(), letters.size());
  text(encoding);
  put(op::tuple2);
  put(op::reduce);
}

void writer::bytes(std::span<const std::byte> value) {
  if (is_protocol2()) return latin1("_codecs", "encode", value, "latin1");
  counted(op::short_bytes, op::bytes, op::bytes8, value.data(), value.size());
}

void writer::global(std::string_view module_name, std::string_view attribute) {
  const std::pair key(module_name, attribute);
  if (const auto known = globals_.find(key); known != globals_.end()) return recall(known->second);
  if (is_protocol2()) {
    // A line break would end the name, and readers would take the rest for opcodes.
    has_broken_name_ |= (std::string(module_name) += attribute).find('\n') != std::string::npos;
    put(op::global);
    for (const std::string_view part : {module_name, attribute}) put_raw(part.data(), part.size()), put('\n');
  } else {
    text(module_name);
    text(attribute);
    put(op::stack_global);
  }
  globals_.emplace(key, memoize());
}

void writer::empty_tuple() {
  put(op::empty_tuple);
}
void writer::begin_tuple() {
  tuples_.push_back(out_.size());
  put(op::mark);
}
void writer::end_tuple() {
  // The empty tuple has its own opcode without a mark, so the mark is removed again.
  if (out_.size() == tuples_.back() + 1) {
    out_.pop_back();
    put(op::empty_tuple);
  } else {
    put(op::tuple);
  }
  tuples_.pop_back();
}
void writer::begin_list() {
  put(op::empty_list), put(op::mark);
}
void writer::end_list() {
  put(op::appends);
}
void writer::begin_dict() {
  put(op::empty_dict), put(op::mark);
}
void writer::end_dict() {
  put(op::setitems);
}
void writer::reduce() {
  put(op::reduce);
}
void writer::newobj() {
  put(op::newobj);
}
void writer::build() {
  put(op::build);
}
void writer::persistent() {
  put(op::binpersid);
}

std::uint32_t writer::memoize() {
  if (!is_protocol2())
    put(op::memoize);
  else if (memo_count_ <= 0xff)
    put(op::binput), put_number(memo_count_, 1);
  else
    put(op::long_binput), put_number(memo_count_, 4);
  return memo_count_++;
}

void writer::recall(std::uint32_t memo) {
  if (memo <= 0xff) return put(op::binget), put_number(memo, 1);
  put(op::long_binget), put_number(memo, 4);
}

// One step of the walk: open a value, or write what follows its parts.
struct writer::work {
  enum class what : std::uint8_t { open, opcode, finish_tuple, remember } task;
  std::uint8_t opcode = 0;
  pickle::value value;
};

void writer::remember(const pickle::value& parsed) {
  objects_.emplace(std::pair<const void*, std::uint64_t>(parsed.arena_, parsed.bits_), memoize());
}

bool writer::recall_value(const pickle::value& parsed) {
  const auto known = objects_.find({parsed.arena_, parsed.bits_});
  if (known == objects_.end()) return false;
  recall(known->second);
  return true;
}

void writer::open(const pickle::value& parsed, std::vector<work>& pending) {
  using what = work::what;
  const auto later = [&pending](what task, std::uint8_t opcode, const pickle::value& value = {}) {
    pending.push_back({task, opcode, value});
  };
  // The step pushed last runs first, so parts are pushed in reverse.
  const auto open_items = [&](const pickle::items& items) {
    for (std::size_t i = items.size(); i-- > 0;) later(what::open, 0, items[i]);
  };
  const auto open_pairs = [&](const pickle::pairs& pairs) {
    for (std::size_t i = pairs.size(); i-- > 0;) {
      later(what::open, 0, pairs[i].value);
      later(what::open, 0, pairs[i].key);
    }
  };
  // Protocol 2 writes sets as set([...]).
  const auto open_set = [&](std::string_view name) {
    global("builtins", name);
    put(op::empty_list), put(op::mark);
    later(what::remember, 0, parsed);
    later(what::opcode, op::reduce);
    later(what::opcode, op::tuple1);
    later(what::opcode, op::appends);
    open_items(parsed.items());
  };
  switch (parsed.kind()) {
    case kind::absent:
    case kind::none:
      return none();
    case kind::boolean:
      return boolean(*parsed.as_bool());
    case kind::integer:
      if (tag_of(parsed.bits_) == tag::small_int) return integer(*parsed.as_int());
      [[fallthrough]];  // numbers in the input are valid in every protocol, so they are copied
    case kind::floating: {
      const auto raw = raw_opcode(*parsed.arena_, parsed.payload());
      // A long number is written once and then recalled: the input holds it once, but may refer to it many times.
      const bool is_long = raw.size() > 16;
      if (is_long && recall_value(parsed)) return;
      put_raw(raw.data(), raw.size());
      if (is_long) remember(parsed);
      return;
    }
    case kind::text:
      return text(*parsed.text());
    case kind::extension: {
      const std::uint64_t code = parsed.extension_code();
      const int width = code <= 0xff ? 1 : code <= 0xffff ? 2 : 4;
      return put(width == 1 ? op::ext1 : width == 2 ? op::ext2 : op::ext4), put_number(code, width);
    }
    case kind::global: {
      const auto [module_name, attribute] = python3_name(parsed);
      return global(module_name, attribute);
    }
    default:
      break;
  }
  if (recall_value(parsed)) return;
  switch (parsed.kind()) {
    case kind::bytes:
      bytes(*parsed.bytes());
      return remember(parsed);
    case kind::bytearray: {
      // BYTEARRAY8 is protocol 5, but every Python since 3.8 reads it in any protocol.
      const auto content = *parsed.bytes();
      if (is_protocol2())
        latin1("builtins", "bytearray", content, "latin-1");
      else
        counted(0, 0, op::bytearray8, content.data(), content.size());
      return remember(parsed);
    }
    case kind::list:
    case kind::set: {
      const bool is_list = parsed.kind() == kind::list;
      if (!is_list && is_protocol2()) return open_set("set");
      put(is_list ? op::empty_list : op::empty_set);
      remember(parsed);
      if (parsed.size() == 0) return;
      put(op::mark);
      later(what::opcode, is_list ? op::appends : op::additems);
      return open_items(parsed.items());
    }
    case kind::dict:
      put(op::empty_dict);
      remember(parsed);
      if (parsed.size() == 0) return;
      put(op::mark);
      later(what::opcode, op::setitems);
      return open_pairs(parsed.pairs());
    case kind::tuple:
    case kind::frozenset:
      if (parsed.kind() == kind::frozenset && is_protocol2()) return open_set("frozenset");
      if (parsed.kind() == kind::tuple && parsed.size() == 0) return empty_tuple();
      if (parsed.kind() == kind::frozenset || parsed.size() > 3) put(op::mark);
      later(what::finish_tuple, 0, parsed);
      return open_items(parsed.items());
    case kind::persistent:
      if (write_id_ != nullptr) {
        const id_writer* const write_id = std::exchange(write_id_, nullptr);
        (*write_id)(parsed.persistent_id());
        write_id_ = write_id;
        persistent();
        return remember(parsed);
      }
      later(what::remember, 0, parsed);
      later(what::opcode, op::binpersid);
      return later(what::open, 0, parsed.persistent_id());
    case kind::record: {
      const bool is_changed =
          parsed.assigned() || parsed.appended() || parsed.state();  // Python refuses these on bytes
      const bool makes_bytes = !is_changed && (parsed.is_record_of("_codecs", "encode") || is_builtin(parsed, "bytes"));
      // Protocols 0 to 2 spell bytes as text.
      if (const auto plain = makes_bytes && !is_protocol2() ? bytes_of(parsed) : std::nullopt) {
        bytes(std::as_bytes(std::span(*plain)));
        return remember(parsed);
      }
      // Python's order: the object, memoized at once because its parts may refer to it, then items, then state.
      if (parsed.state()) {
        later(what::opcode, op::build);
        later(what::open, 0, parsed.state());
      }
      if (const pickle::value assigned = parsed.assigned(); assigned.size() > 0) {
        later(what::opcode, op::setitems);
        open_pairs(assigned.pairs());
        later(what::opcode, op::mark);
      }
      if (const pickle::value appended = parsed.appended(); appended.size() > 0) {
        later(what::opcode, op::appends);
        open_items(appended.items());
        later(what::opcode, op::mark);
      }
      later(what::remember, 0, parsed);
      switch (parsed.form()) {
        case form::instance:
          later(what::opcode, op::obj);
          open_items(parsed.args().items());
          later(what::open, 0, parsed.callable());
          return later(what::opcode, op::mark);
        case form::newobj_ex:
          if (is_protocol2()) {
            global("copyreg", "__newobj_ex__");
            later(what::opcode, op::reduce);
            later(what::opcode, op::tuple3);
          } else {
            later(what::opcode, op::newobj_ex);
          }
          later(what::open, 0, parsed.keyword_args());
          break;
        case form::newobj:
          later(what::opcode, op::newobj);
          break;
        case form::reduce:
          later(what::opcode, op::reduce);
          break;
      }
      later(what::open, 0, parsed.args());
      return later(what::open, 0, parsed.callable());
    }
    default:
      return;
  }
}

void writer::close(const work& done) {
  const pickle::value& parsed = done.value;
  if (done.task == work::what::opcode) return put(done.opcode);
  const bool is_tuple = done.task == work::what::finish_tuple;
  const std::size_t count = is_tuple ? parsed.size() : 0;
  const bool by_mark = parsed.kind() == kind::frozenset || count > 3;
  // A part that refers back to this value has already written it. The parts are dropped and that copy is recalled, as
  // Python does.
  if (objects_.contains({parsed.arena_, parsed.bits_})) {
    if (is_tuple && by_mark) put(op::pop_mark);
    for (std::size_t i = 0; is_tuple && !by_mark && i < count; ++i) put(op::pop);
    if (!is_tuple) put(op::pop);
    recall_value(parsed);
    return;
  }
  if (is_tuple && parsed.kind() == kind::frozenset)
    put(op::frozenset);
  else if (is_tuple && by_mark)
    put(op::tuple);
  else if (is_tuple)
    put(static_cast<std::uint8_t>(op::tuple1 + count - 1));
  remember(parsed);
}

result<void> writer::value(const pickle::value& parsed, std::size_t limit_bytes) {
  return walk(parsed, limit_bytes);
}

result<void> writer::value(const pickle::value& parsed, std::size_t limit_bytes, id_writer write_id) {
  write_id_ = &write_id;
  auto done = walk(parsed, limit_bytes);
  write_id_ = nullptr;
  return done;
}

result<void> writer::walk(const pickle::value& parsed, std::size_t limit_bytes) {
  const std::size_t begin = out_.size();
  std::vector<work> pending{{work::what::open, 0, parsed}};
  // Each part of the graph is pending at most once, except in tuples that contain themselves.
  const std::size_t most_pending = parsed.arena_ == nullptr ? 16 : 2 * parsed.arena_->words.size() + 16;
  while (!pending.empty()) {
    const work next = pending.back();
    pending.pop_back();
    if (next.task == work::what::open)
      open(next.value, pending);
    else
      close(next);
    if (has_broken_name_)
      return fail(errc::unsupported, "the name of a class or function has a line break, which protocol 2 cannot hold");
    if (out_.size() - begin > limit_bytes || pending.size() > most_pending)
      return fail(errc::unsupported, "a value is too large to write again")
          .with_values("at most " + std::to_string(limit_bytes) + " bytes", "more");
  }
  return {};
}

std::vector<std::byte> writer::finish() && {
  put(op::stop);
  return std::move(out_);
}

}  // namespace shardmesh::pickle
