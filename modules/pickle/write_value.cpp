// SPDX-License-Identifier: Apache-2.0
// Writes parsed values again, without recursion: a value is opened, its parts are written, and then what follows them.
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :written_opcode;

namespace shardmesh::pickle {

// One step of the walk: open a value, or write what follows its parts.
struct writer::work {
  enum class what : std::uint8_t { open, opcode, finish_tuple, remember } task;
  std::uint8_t opcode = 0;
  pickle::value value;
};

// The steps that are left. The step added last runs first, so parts are added in reverse.
class writer::agenda {
 public:
  explicit agenda(const pickle::value& first) : steps_{{work::what::open, 0, first}} {}

  std::size_t size() const { return steps_.size(); }
  work take() {
    const work next = steps_.back();
    steps_.pop_back();
    return next;
  }

  void open(const pickle::value& part) { steps_.push_back({work::what::open, 0, part}); }
  void opcode(std::uint8_t code) { steps_.push_back({work::what::opcode, code, {}}); }
  void finish_tuple(const pickle::value& parsed) { steps_.push_back({work::what::finish_tuple, 0, parsed}); }
  void remember(const pickle::value& parsed) { steps_.push_back({work::what::remember, 0, parsed}); }
  void open_items(const pickle::items& items) {
    for (std::size_t i = items.size(); i-- > 0;) open(items[i]);
  }
  void open_pairs(const pickle::pairs& pairs) {
    for (std::size_t i = pairs.size(); i-- > 0;) {
      open(pairs[i].value);
      open(pairs[i].key);
    }
  }

 private:
  std::vector<work> steps_;
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

void writer::open(const pickle::value& parsed, agenda& later) {
  if (open_plain(parsed) || recall_value(parsed)) return;
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
    case kind::persistent:
      return open_persistent(parsed, later);
    case kind::record:
      return open_record(parsed, later);
    default:
      return open_container(parsed, later);
  }
}

// Writes values that are written each time, or recalled by their content. Returns false for all others.
bool writer::open_plain(const pickle::value& parsed) {
  switch (parsed.kind()) {
    case kind::absent:
    case kind::none:
      none();
      return true;
    case kind::boolean:
      boolean(*parsed.as_bool());
      return true;
    case kind::integer:
      if (tag_of(parsed.bits_) == tag::small_int) {
        integer(*parsed.as_int());
        return true;
      }
      [[fallthrough]];  // numbers in the input are valid in every protocol, so they are copied
    case kind::floating: {
      const auto raw = raw_opcode(*parsed.arena_, parsed.payload());
      // A long number is written once and then recalled: the input holds it once, but may refer to it many times.
      const bool is_long = raw.size() > 16;
      if (is_long && recall_value(parsed)) return true;
      put_raw(raw.data(), raw.size());
      if (is_long) remember(parsed);
      return true;
    }
    case kind::text:
      text(*parsed.text());
      return true;
    case kind::extension: {
      const std::uint64_t code = parsed.extension_code();
      const int width = code <= 0xff ? 1 : code <= 0xffff ? 2 : 4;
      put(width == 1 ? op::ext1 : width == 2 ? op::ext2 : op::ext4), put_number(code, width);
      return true;
    }
    case kind::global: {
      const auto [module_name, attribute] = python3_name(parsed);
      global(module_name, attribute);
      return true;
    }
    default:
      return false;
  }
}

// Protocol 2 writes sets as set([...]).
void writer::open_set(std::string_view name, const pickle::value& parsed, agenda& later) {
  global("builtins", name);
  put(op::empty_list), put(op::mark);
  later.remember(parsed);
  later.opcode(op::reduce);
  later.opcode(op::tuple1);
  later.opcode(op::appends);
  later.open_items(parsed.items());
}

void writer::open_container(const pickle::value& parsed, agenda& later) {
  switch (parsed.kind()) {
    case kind::list:
    case kind::set: {
      const bool is_list = parsed.kind() == kind::list;
      if (!is_list && is_protocol2()) return open_set("set", parsed, later);
      put(is_list ? op::empty_list : op::empty_set);
      remember(parsed);
      if (parsed.size() == 0) return;
      put(op::mark);
      later.opcode(is_list ? op::appends : op::additems);
      return later.open_items(parsed.items());
    }
    case kind::dict:
      put(op::empty_dict);
      remember(parsed);
      if (parsed.size() == 0) return;
      put(op::mark);
      later.opcode(op::setitems);
      return later.open_pairs(parsed.pairs());
    case kind::tuple:
    case kind::frozenset:
      if (parsed.kind() == kind::frozenset && is_protocol2()) return open_set("frozenset", parsed, later);
      if (parsed.kind() == kind::tuple && parsed.size() == 0) return empty_tuple();
      if (parsed.kind() == kind::frozenset || parsed.size() > 3) put(op::mark);
      later.finish_tuple(parsed);
      return later.open_items(parsed.items());
    default:
      return;
  }
}

void writer::open_persistent(const pickle::value& parsed, agenda& later) {
  if (write_id_ != nullptr) {
    const id_writer* const write_id = std::exchange(write_id_, nullptr);
    (*write_id)(parsed.persistent_id());
    write_id_ = write_id;
    persistent();
    return remember(parsed);
  }
  later.remember(parsed);
  later.opcode(op::binpersid);
  later.open(parsed.persistent_id());
}

void writer::open_record(const pickle::value& parsed, agenda& later) {
  const bool is_changed = parsed.assigned() || parsed.appended() || parsed.state();  // Python refuses these on bytes
  const bool makes_bytes = !is_changed && (parsed.is_record_of("_codecs", "encode") || is_builtin(parsed, "bytes"));
  // Protocols 0 to 2 write bytes as text.
  if (const auto plain = makes_bytes && !is_protocol2() ? bytes_of(parsed) : std::nullopt) {
    bytes(std::as_bytes(std::span(*plain)));
    return remember(parsed);
  }
  // Python's order: the object, memoized at once because its parts may refer to it, then items, then state.
  if (parsed.state()) {
    later.opcode(op::build);
    later.open(parsed.state());
  }
  if (const pickle::value assigned = parsed.assigned(); assigned.size() > 0) {
    later.opcode(op::setitems);
    later.open_pairs(assigned.pairs());
    later.opcode(op::mark);
  }
  if (const pickle::value appended = parsed.appended(); appended.size() > 0) {
    later.opcode(op::appends);
    later.open_items(appended.items());
    later.opcode(op::mark);
  }
  later.remember(parsed);
  switch (parsed.form()) {
    case form::instance:
      later.opcode(op::obj);
      later.open_items(parsed.args().items());
      later.open(parsed.callable());
      return later.opcode(op::mark);
    case form::newobj_ex:
      if (is_protocol2()) {
        global("copyreg", "__newobj_ex__");
        later.opcode(op::reduce);
        later.opcode(op::tuple3);
      } else {
        later.opcode(op::newobj_ex);
      }
      later.open(parsed.keyword_args());
      break;
    case form::newobj:
      later.opcode(op::newobj);
      break;
    case form::reduce:
      later.opcode(op::reduce);
      break;
  }
  later.open(parsed.args());
  later.open(parsed.callable());
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
  agenda later(parsed);
  // Each part of the graph is pending at most once, except in tuples that contain themselves.
  const std::size_t most_pending = parsed.arena_ == nullptr ? 16 : 2 * parsed.arena_->words.size() + 16;
  while (later.size() > 0) {
    const work next = later.take();
    if (next.task == work::what::open)
      open(next.value, later);
    else
      close(next);
    if (has_broken_name_)
      return fail(errc::unsupported, "the name of a class or function has a line break, which protocol 2 cannot hold");
    if (out_.size() - begin > limit_bytes || later.size() > most_pending)
      return fail(errc::unsupported, "a value is too large to write again")
          .with_values("at most " + std::to_string(limit_bytes) + " bytes", "more");
  }
  return {};
}

}  // namespace shardmesh::pickle
