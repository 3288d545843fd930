// SPDX-License-Identifier: Apache-2.0
// Reads Python's pickle streams, protocols 0 to 5, as an inert graph of values: nothing is imported, looked up, or
// called. The meaning of values is in torch_file::item and dcp metadata; writing is in pickle::writer.
//
// A checkpoint's metadata can have millions of small objects, so a value is 8 bytes: a tag and a payload. Everything is
// in one arena of 8-byte words. Strings and numbers stay in the input, and their payload is the offset of the opcode.
// Shared references and cycles are values with equal bits; code that walks a graph must expect them. Class members say
// `inline` because a module does not make them inline implicitly, and readers call them for every value.
export module shardmesh.pickle:value;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::pickle {

/// The meaning of a value's low 5 bits. For `*_at`, the payload is the offset of an opcode in the input.
enum class tag : std::uint8_t {
  absent,
  none,
  boolean,       // payload 0 or 1
  small_int,     // payload: the number itself, 59 bits
  int_at,        // INT, LONG, LONG1, or LONG4 that does not fit into `small_int`
  float_at,      // BINFLOAT or FLOAT
  text_at,       // counted strings
  text_decoded,  // payload: index into `decoded_spans`
  bytes_at,
  bytes_decoded,
  bytearray_at,
  list,  // payload: index of a header [begin, count << 32 | capacity]; the same for dict (count in words) and set
  dict,
  set,
  tuple,  // payload: count << 40 | index of the items; for the count `long_tuple`, the real count precedes the items
  frozenset,
  global_at,    // GLOBAL or INST: two lines
  global_pair,  // payload: index of [module, name]
  reduce,       // payload: index of [callable, args, state or block]
  newobj,
  newobj_ex,
  instance,
  block,       // of a record: index of [keyword args, state, list, dict]; never visible outside
  persistent,  // payload: index of [id]
  extension,   // payload: the code of EXT1, EXT2, EXT4
};

inline constexpr std::uint64_t long_tuple = (std::uint64_t{1} << 19) - 1;

/// Words that grow with realloc: the system moves a large block by remapping its pages, so growth never needs two
/// copies.
class word_array {
 public:
  word_array() = default;
  word_array(const word_array&) = delete;
  ~word_array() { std::free(data_); }
  inline std::uint64_t* data() { return data_; }
  inline const std::uint64_t* data() const { return data_; }
  inline std::size_t size() const { return size_; }
  inline std::uint64_t& operator[](std::uint64_t i) { return data_[i]; }
  inline std::uint64_t operator[](std::uint64_t i) const { return data_[i]; }
  /// Returns the index of `count` new words with unspecified values.
  inline std::uint64_t extend(std::size_t count) {
    const std::uint64_t first = size_;
    if (count > capacity_ - size_) make_room(count);
    size_ += count;
    return first;
  }
  /// Returns the index of `count` new words of zero.
  inline std::uint64_t grow(std::size_t count) {
    const std::uint64_t first = extend(count);
    std::fill_n(data_ + first, count, 0);
    return first;
  }
  void shrink_to_fit();
  std::size_t capacity() const { return capacity_; }

 private:
  void make_room(std::size_t count);

  std::uint64_t* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

/// Everything a graph owns. Its address stays the same when the graph moves.
struct arena {
  std::vector<std::byte> owned;
  std::span<const std::byte> input;
  word_array words;
  std::string decoded;  // strings after their escapes were resolved
  std::vector<std::pair<std::uint64_t, std::uint64_t>> decoded_spans;
  std::uint64_t root = 0;
  std::size_t consumed = 0;
  int protocol = 0;
};

constexpr std::uint64_t bits_of(pickle::tag tag, std::uint64_t payload) {
  return payload << 5 | static_cast<std::uint64_t>(tag);
}
constexpr tag tag_of(std::uint64_t bits) {
  return static_cast<tag>(bits & 31);
}

/// Returns the bytes of the opcode at `offset` and its argument. Only for numbers and strings.
std::span<const std::byte> raw_opcode(const pickle::arena& arena, std::uint64_t offset);

}  // namespace shardmesh::pickle

export namespace shardmesh::pickle {

/// Kinds of values as a reader sees them. A `record` is any value that only Python can make: a callable with its
/// arguments, its state, and items added later. `none` is Python's None; `absent` means that there is no value.
enum class kind : std::uint8_t {
  absent,
  none,
  boolean,
  integer,
  floating,
  text,
  bytes,
  bytearray,
  list,
  tuple,
  dict,
  set,
  frozenset,
  global,
  record,
  persistent,
  extension
};
/// Returns a kind's name for messages: "none", "integer", ...
std::string_view name(pickle::kind kind);

/// The opcode that wrote a record: REDUCE, NEWOBJ, NEWOBJ_EX, or (for `instance`) INST and OBJ.
enum class form : std::uint8_t { reduce, newobj, newobj_ex, instance };

/// The value of `error::found` for a truncated pickle: more bytes could complete it.
inline constexpr std::string_view cut_short = "the end of the bytes";

class items;
class pairs;
class writer;
struct named_graph;

/// One value of a graph: a cheap handle, valid while its graph lives. Observers of the wrong kind return nothing or an
/// empty range, so readers can chain them and check once.
class value {
 public:
  /// Makes an absent value.
  value() = default;
  inline value(const pickle::arena* arena, std::uint64_t bits) : arena_(arena), bits_(bits) {}

  pickle::kind kind() const;
  /// Returns false only for an absent value.
  inline explicit operator bool() const { return bits_ != 0; }
  /// Returns a key for visited sets and caches: equal exactly for the same object or an equal small immutable value.
  inline std::uint64_t identity() const { return bits_; }

  inline bool is_none() const { return tag_of(bits_) == tag::none; }
  std::optional<bool> as_bool() const;
  /// Returns an integer that fits into 64 bits; nothing for bools.
  std::optional<std::int64_t> as_int() const;
  /// Returns the exact decimal digits of an integer; nothing when it has more than about `max_digits`.
  std::optional<std::string> decimal(std::size_t max_digits = 4300) const;
  std::optional<double> as_float() const;
  /// Returns a str's UTF-8 bytes; a lone surrogate takes three bytes. Protocol 2 byte strings that are UTF-8 count as
  /// str.
  std::optional<std::string_view> text() const;
  /// Returns the content of a bytes or bytearray.
  std::optional<std::span<const std::byte>> bytes() const;

  /// Returns the items of a list, tuple, set, or frozenset.
  pickle::items items() const;
  /// Returns the entries of a dict, in order. When a key occurs twice, its last entry counts.
  pickle::pairs pairs() const;
  /// Returns the number of items or entries.
  std::size_t size() const;
  /// Returns the value of a text key of a dict; absent when there is none. Cost: O(entries).
  value find(std::string_view key) const;

  /// Returns a global's module and name ("collections", "OrderedDict"); empty for other kinds.
  std::string_view global_module() const;
  std::string_view global_name() const;
  bool is_global(std::string_view module_name, std::string_view attribute) const;

  pickle::form form() const;
  value callable() const;
  value args() const;
  value keyword_args() const;
  /// Returns the argument of BUILD; absent without BUILD.
  value state() const;
  /// Returns the list of items that APPEND(S) or ADDITEMS added to a record; absent when there are none.
  value appended() const;
  /// Returns the dict of entries that SETITEM(S) added to a record; absent when there are none.
  value assigned() const;
  /// Finds an attribute in the state: a dict, or a pair (dict or None, dict of slots). Absent when there is none.
  value attribute(std::string_view attribute_name) const;
  /// Returns true for a record whose callable is this global.
  bool is_record_of(std::string_view module_name, std::string_view attribute) const;

  /// Returns the id of a persistent reference; protocol 0 has text ids.
  value persistent_id() const;
  /// Returns the code of an EXT opcode.
  inline std::uint64_t extension_code() const { return bits_ >> 5; }

  friend bool operator==(const value&, const value&) = default;

 private:
  friend class writer;
  value at(std::uint64_t word) const;
  inline std::uint64_t payload() const { return bits_ >> 5; }
  const arena* arena_ = nullptr;
  std::uint64_t bits_ = 0;
};

/// A run of values with random access.
class items {
 public:
  items() = default;
  inline items(const pickle::arena* arena, std::uint64_t first, std::size_t count)
      : arena_(arena), first_(first), count_(count) {}
  inline std::size_t size() const { return count_; }
  inline bool empty() const { return count_ == 0; }
  inline value operator[](std::size_t i) const { return {arena_, arena_->words[first_ + i]}; }

  class iterator {
   public:
    using value_type = value;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    inline iterator(const items* run, std::size_t i) : run_(run), i_(i) {}
    inline value operator*() const { return (*run_)[i_]; }
    inline iterator& operator++() { return ++i_, *this; }
    inline iterator operator++(int) { return {run_, i_++}; }
    friend bool operator==(const iterator&, const iterator&) = default;

   private:
    const items* run_ = nullptr;
    std::size_t i_ = 0;
  };
  inline iterator begin() const { return {this, 0}; }
  inline iterator end() const { return {this, count_}; }

 private:
  const arena* arena_ = nullptr;
  std::uint64_t first_ = 0;
  std::size_t count_ = 0;
};

struct pair {
  pickle::value key, value;
};

/// The entries of a dict with random access.
class pairs {
 public:
  pairs() = default;
  inline explicit pairs(items flat) : flat_(flat) {}
  inline std::size_t size() const { return flat_.size() / 2; }
  inline bool empty() const { return flat_.empty(); }
  inline pair operator[](std::size_t i) const { return {flat_[2 * i], flat_[2 * i + 1]}; }

  class iterator {
   public:
    using value_type = pair;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    inline iterator(const pairs* run, std::size_t i) : run_(run), i_(i) {}
    inline pair operator*() const { return (*run_)[i_]; }
    inline iterator& operator++() { return ++i_, *this; }
    inline iterator operator++(int) { return {run_, i_++}; }
    friend bool operator==(const iterator&, const iterator&) = default;

   private:
    const pairs* run_ = nullptr;
    std::size_t i_ = 0;
  };
  inline iterator begin() const { return {this, 0}; }
  inline iterator end() const { return {this, size()}; }

 private:
  items flat_;
};

/// A parsed stream. Moving it keeps its values valid.
class graph {
 public:
  /// Parses one pickle at the start of `bytes`, which must outlive the graph. Bytes after its STOP are ignored: see
  /// `consumed_bytes`.
  /// \errors errc::bad_pickle with the opcode and its byte offset: malformed or truncated input, a protocol above 5,
  ///   out-of-band buffers, or a value that BUILD or APPEND cannot change
  /// Cost: O(bytes) time and memory. Real metadata takes about 3 bytes of memory per input byte; the limit is 256 MiB
  /// plus 8 per input byte.
  /// Source: Lib/pickletools.py, Lib/pickle.py of CPython.
  static result<graph> parse(std::span<const std::byte> bytes);
  /// Parses in the same way, but the graph owns the bytes.
  static result<graph> parse(std::vector<std::byte> bytes);

  inline value root() const { return {arena_.get(), arena_->root}; }
  /// Returns the highest PROTO number, or 0 without PROTO (protocols 0 and 1).
  int protocol() const { return arena_->protocol; }
  /// Returns the size of the pickle, including its STOP.
  std::size_t consumed_bytes() const { return arena_->consumed; }
  /// Returns the graph's memory without the input.
  std::size_t memory_bytes() const;

 private:
  friend named_graph;
  explicit graph(std::unique_ptr<pickle::arena> arena) : arena_(std::move(arena)) {}
  static result<graph> run(std::unique_ptr<pickle::arena> arena);
  std::unique_ptr<arena> arena_;
};

}  // namespace shardmesh::pickle
