// SPDX-License-Identifier: Apache-2.0
// Not exported: writes sequences, containers, and records into the words of an arena. `tag` documents their layout.
module shardmesh.pickle:arena_writer;

import shardmesh.std;
import :input;
import :value;

namespace shardmesh::pickle {

/// The parts of a record's block besides its arguments.
enum class block_part : std::uint8_t { keyword_args, state, list, dict };

inline bool is_record(std::uint64_t bits) {
  const tag kind = tag_of(bits);
  return kind == tag::reduce || kind == tag::newobj || kind == tag::newobj_ex || kind == tag::instance;
}

// Values are bits: a tag and a payload. Functions that return false have recorded the reason.
class arena_writer {
 public:
  arena_writer(pickle::arena& arena, failure& problem) : arena_(arena), words_(arena.words), problem_(problem) {}

  inline pickle::value value_of(std::uint64_t bits) const { return {&arena_, bits}; }

  /// Makes a tuple or frozenset of these items.
  inline std::uint64_t make_sequence(tag kind, std::span<const std::uint64_t> items) {
    const bool is_long = items.size() >= long_tuple;
    const std::uint64_t first = extend(items.size() + (is_long ? 1 : 0));
    if (is_long) words_[first] = items.size();
    std::copy(items.begin(), items.end(), words_.data() + first + (is_long ? 1 : 0));
    const std::uint64_t count = is_long ? long_tuple : items.size();
    return bits_of(kind, count << 40 | first);
  }
  /// Makes an empty list, dict, or set.
  inline std::uint64_t make_container(tag kind) { return bits_of(kind, make_words({0, 0})); }
  inline std::uint64_t make_record(tag kind, std::uint64_t callable, std::uint64_t args) {
    const std::uint64_t first = make_words({callable, args, 0});
    return bits_of(kind, first);
  }
  /// Appends words with these values and returns the index of the first.
  inline std::uint64_t make_words(std::initializer_list<std::uint64_t> values) {
    const std::uint64_t first = extend(values.size());
    std::copy(values.begin(), values.end(), words_.data() + first);
    return first;
  }

  /// Adds items (alternating keys and values for a dict) to a container. The arena's last container grows in place.
  inline bool append(std::uint64_t container, std::span<const std::uint64_t> items) {
    const std::uint64_t header = container >> 5;
    std::uint64_t begin = words_[header];
    const std::uint64_t count = words_[header + 1] >> 32, capacity = words_[header + 1] & 0xffffffff;
    std::uint64_t room = capacity;
    const std::uint64_t wanted = count + items.size();
    if (wanted > 0xffffffff) return problem_.bad("more than 2^32 items");
    if (wanted > capacity && begin + capacity == end_ && capacity > 0) {
      extend_end(wanted - capacity);
      room = wanted;
    } else if (wanted > capacity) {
      room = std::min<std::uint64_t>(std::max(wanted, 2 * count), 0xffffffff);
      begin = extend(room);
      std::copy_n(words_.data() + words_[header], count, words_.data() + begin);
      reuse(words_[header], capacity);
    }
    std::copy(items.begin(), items.end(), words_.data() + begin + count);
    words_[header] = begin;
    words_[header + 1] = wanted << 32 | room;
    return true;
  }
  /// Finds the container for a target's items: the target itself when it is `plain`, or a record's own list or dict.
  inline bool container_of(std::uint64_t target, tag plain, block_part part, std::uint64_t& container) {
    if (tag_of(target) == plain) return container = target, true;
    if (!is_record(target)) return problem_.bad("cannot add items to a " + std::string(name(value_of(target).kind())));
    const std::uint64_t at = block_of(target) + static_cast<std::uint64_t>(part);
    if (words_[at] == 0) {
      const std::uint64_t made = make_container(part == block_part::list ? tag::list : tag::dict);
      words_[at] = made;
    }
    container = words_[at];
    return true;
  }

  /// Sets a record's state. Returns false, without recording a problem, when the record already has one.
  inline bool set_state(std::uint64_t record, std::uint64_t state) {
    std::uint64_t& tail = words_[(record >> 5) + 2];
    const bool has_block = tag_of(tail) == tag::block;
    std::uint64_t& place = has_block ? words_[(tail >> 5) + static_cast<std::uint64_t>(block_part::state)] : tail;
    if (place != 0) return false;
    place = state;
    return true;
  }
  inline bool has_state_or_block(std::uint64_t record) const { return words_[(record >> 5) + 2] != 0; }
  inline void set_keyword_args(std::uint64_t record, std::uint64_t keywords) {
    const std::uint64_t block = block_of(record);
    words_[block + static_cast<std::uint64_t>(block_part::keyword_args)] = keywords;
  }

  /// Returns the index of the next new words, unless they reuse words that a container vacated.
  std::uint64_t end() const { return end_; }
  /// Frees the words from `begin` on. Precondition: no value refers to them.
  void give_back_from(std::uint64_t begin) { end_ = begin; }

 private:
  /// Returns the index of `count` new words with unspecified values.
  inline std::uint64_t extend(std::size_t count) {
    if (count > free_end_ - free_begin_) return extend_end(count);
    return std::exchange(free_begin_, free_begin_ + count);
  }
  inline std::uint64_t extend_end(std::size_t count) {
    const std::uint64_t first = std::exchange(end_, end_ + count);
    if (end_ > words_.size()) words_.extend(end_ - words_.size());
    return first;
  }
  /// Frees the words that a growing container vacated. Without reuse, the large dicts of checkpoint metadata would
  /// waste as much memory as they occupy.
  inline void reuse(std::uint64_t begin, std::size_t count) {
    if (count > free_end_ - free_begin_) free_begin_ = begin, free_end_ = begin + count;
  }

  /// Returns the index of the record's block, and makes the block when there is none yet.
  inline std::uint64_t block_of(std::uint64_t record) {
    const std::uint64_t tail = words_[(record >> 5) + 2];
    if (tag_of(tail) == tag::block) return tail >> 5;
    const std::uint64_t first = make_words({0, tail, 0, 0});
    words_[(record >> 5) + 2] = bits_of(tag::block, first);
    return first;
  }

  pickle::arena& arena_;
  word_array& words_;
  failure& problem_;
  std::uint64_t end_ = 0;                        // words from here on are free
  std::uint64_t free_begin_ = 0, free_end_ = 0;  // free words inside the arena
};

}  // namespace shardmesh::pickle
