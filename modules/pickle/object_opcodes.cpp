// SPDX-License-Identifier: Apache-2.0
// Opcodes of the names that Python would look up, the calls that it would make, and the states of objects. They make
// inert records.
module;
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :machine;

namespace shardmesh::pickle {
namespace {

// Returns the pairs of OrderedDict([[key, value], ...]), as Python 2 pickled them; Python 3 fills an empty one. Returns
// nothing for other calls.
std::optional<items> given_entries(const value& callable, const value& args) {
  const items given = args.items();
  if (given.size() != 1 || given[0].kind() != kind::list || !callable.is_global("collections", "OrderedDict"))
    return std::nullopt;
  const items entries = given[0].items();
  const auto is_pair = [](const value& entry) {
    return (entry.kind() == kind::list || entry.kind() == kind::tuple) && entry.items().size() == 2;
  };
  return std::all_of(entries.begin(), entries.end(), is_pair) ? std::optional(entries) : std::nullopt;
}

}  // namespace

bool machine::stack_global() {
  if (!has(2)) return false;
  const std::uint64_t attribute = pop(), module_name = pop();
  if (!forgive() && (!value_of(attribute).text() || !value_of(module_name).text()))
    return bad("the module and name are not strings");
  push(tag::global_pair, make_.make_words({module_name, attribute}));
  return note_global(stack_.back()), true;
}

// Every chunk calls torch.Size with arguments such as ((4, 16),), and most of them occurred before. Equal arguments
// share memory. To be freed, the new ones must be the last words of the arena, and only the stack may have held them.
std::uint64_t machine::shared_args(std::uint64_t args) {
  const auto count_of = [](std::uint64_t tuple) { return tuple >> 45; };
  const auto first_of = [](std::uint64_t tuple) { return tuple >> 5 & ((std::uint64_t{1} << 40) - 1); };
  if (!memo_.knows_use() || tag_of(args) != tag::tuple || count_of(args) != 1) return args;
  const word_array& words = arena_.words;
  const std::uint64_t inner = words[first_of(args)], begin = first_of(inner), count = count_of(inner);
  if (tag_of(inner) != tag::tuple || count == 0 || count > max_rank || begin + count != first_of(args) ||
      first_of(args) + 1 != make_.end() || begin < kept_end_)
    return args;
  std::uint64_t hash = count;
  for (std::uint64_t i = begin; i < begin + count; ++i) {
    if (tag_of(words[i]) != tag::small_int) return args;
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
  }
  std::uint64_t& known = recent_args_[hash >> 56];
  if (known != 0) {
    const std::uint64_t other = words[first_of(known)];
    const auto* const data = words.data();
    if (count_of(other) == count && std::equal(data + begin, data + begin + count, data + first_of(other))) {
      make_.give_back_from(begin);
      return known;
    }
  }
  return known = args;
}

bool machine::record(tag kind) {
  if (!has(2)) return false;
  std::uint64_t args = pop();
  const std::uint64_t callable = pop();
  if (kind == tag::reduce) args = shared_args(args);
  if (tag_of(args) != tag::tuple && !forgive()) return bad("the arguments are not a tuple");
  const auto entries =
      kind == tag::reduce && !forgive() ? given_entries(value_of(callable), value_of(args)) : std::nullopt;
  push(make_.make_record(kind, callable, entries ? make_.make_sequence(tag::tuple, {}) : args));
  note_call(callable, args, stack_.back());
  if (!entries || entries->empty()) return true;
  // A pickle can pass one list many times. Python does not write more entries than the input has bytes.
  given_entries_ += entries->size();
  if (given_entries_ > in_.size()) return bad(too_large);
  std::uint64_t dict = 0;
  if (!make_.container_of(stack_.back(), tag::dict, block_part::dict, dict)) return false;
  for (const pickle::value entry : *entries) {
    const items both = entry.items();
    if (!make_.append(dict, std::array{both[0].identity(), both[1].identity()})) return false;
  }
  return true;
}

bool machine::newobj_ex() {
  if (!has(3)) return false;
  const std::uint64_t keywords = pop();
  if (tag_of(keywords) != tag::dict && !forgive()) return bad("the keyword arguments are not a dict");
  if (!record(tag::newobj_ex)) return false;
  return make_.set_keyword_args(stack_.back(), keywords), true;
}

bool machine::instance(bool is_named) {
  std::size_t begin = 0;
  if (is_named && !name_lines()) return false;
  if (!pop_mark(begin)) return false;
  if (!is_named && begin == stack_.size()) return bad("there is no class");
  const std::uint64_t callable = is_named ? bits_of(tag::global_at, start_) : stack_[begin];
  const auto given = std::span(stack_).subspan(begin + (is_named ? 0 : 1));
  const std::uint64_t args = make_.make_sequence(tag::tuple, given);
  replace(begin, make_.make_record(tag::instance, callable, args));
  if (is_named) note_global(callable);
  return note_call(callable, args, stack_.back()), true;
}

bool machine::build() {
  if (!has(2)) return false;
  const std::uint64_t state = pop(), target = stack_.back();
  if (!is_record(target) && forgive()) return note(event::what::changed, target), true;
  if (!is_record(target)) return bad(fmt::format("cannot set the state of a {}", name(value_of(target).kind())));
  if (forgive() && make_.has_state_or_block(target)) return true;
  return make_.set_state(target, state) || bad("the object's state is set twice");
}

bool machine::persistent(std::uint64_t id) {
  push(tag::persistent, make_.make_words({id}));
  return note(event::what::persistent, stack_.back()), true;
}

}  // namespace shardmesh::pickle
