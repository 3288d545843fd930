// SPDX-License-Identifier: Apache-2.0
// path_key: one step of a path, an index or a name, in 16 bytes. Trees hold one key per node and paths one per level,
// so the size determines the cost of flattening. `inline` is explicit, since a body in a class of a module does not
// imply it. Paths and their text are in `path`.
export module shardmesh.tree:key;

import shardmesh.std;

namespace shardmesh {

/// A mapping's key or a sequence's index. Indices order before names. Names of up to 15 bytes are stored in the key;
/// copies of a key share longer ones. A key never changes, so several threads may use its copies.
/// In a path without a tree, an index does not tell a sequence from a mapping. `of_integer` therefore makes the integer
/// keys of mappings; they read as names unless a caller checks `is_integer`. `of_python` makes keys of types that only
/// Python has (None, True, 1.5, a tuple, an enum member), which also read as names.
export class path_key {
 public:
  inline path_key(std::int64_t index) noexcept : size_(is_an_index) { store(index); }  // NOLINT: implicit
  inline path_key(int index) noexcept : path_key(std::int64_t{index}) {}               // NOLINT: implicit
  inline path_key(std::string_view name) {                                             // NOLINT: implicit
    if (name.size() > longest_inside) {
      size_ = is_shared;
      store(share(name));
    } else if (!name.empty()) {
      size_ = static_cast<unsigned char>(name.size());
      std::memcpy(bytes_, name.data(), name.size());
    }
  }
  inline path_key(const std::string& name) : path_key(std::string_view(name)) {}  // NOLINT: implicit
  inline path_key(const char* name) : path_key(std::string_view(name)) {}         // NOLINT: implicit

  /// Makes an integer key of a mapping, such as 0 in {"state": {0: ..}}. Its name is "0", but it differs from the key
  /// "0". An integer of more than 15 characters becomes an ordinary name.
  static path_key of_integer(std::int64_t value);
  /// Makes a mapping's key that is neither text nor an integer. `text` is its name: Python's str() of it, when that is
  /// known. `pickled` is the key as a pickle of protocol 2. Two such keys are equal when the bytes of both are.
  static path_key of_python(std::string_view text, std::string_view pickled);

  inline path_key(const path_key& other) noexcept { copy_bytes(other), hold(); }
  inline path_key(path_key&& other) noexcept { take(other); }
  inline path_key& operator=(const path_key& other) noexcept { return *this = path_key(other); }
  inline path_key& operator=(path_key&& other) noexcept {
    if (this != &other) release(), take(other);
    return *this;
  }
  inline ~path_key() { release(); }

  inline bool is_index() const noexcept { return size_ == is_an_index; }
  /// Precondition: is_index().
  inline std::int64_t index() const noexcept { return load<std::int64_t>(); }
  /// Valid as long as the key. Precondition: !is_index().
  inline std::string_view name() const noexcept {
    if (size_ == is_shared) return shared_name(load<const shared_text*>());
    return size_ == is_pickled ? python_name() : std::string_view(bytes_, size_ & longest_inside);
  }
  /// Returns whether `of_integer` made this key.
  inline bool is_integer() const noexcept { return size_ > is_a_number; }
  /// Precondition: is_integer().
  std::int64_t integer() const noexcept;
  /// Returns whether `of_python` made this key.
  inline bool is_python() const noexcept { return size_ == is_pickled; }
  /// Valid as long as the key. Precondition: is_python().
  std::string_view pickled() const noexcept;

  friend inline bool operator==(const path_key& a, const path_key& b) noexcept {
    if (a.size_ != b.size_) return false;
    if (std::memcmp(a.bytes_, b.bytes_, sizeof a.bytes_) == 0) return true;
    return (a.size_ == is_shared && a.name() == b.name()) ||
           (a.size_ == is_pickled && a.whole_text() == b.whole_text());
  }
  friend inline std::strong_ordering operator<=>(const path_key& a, const path_key& b) noexcept {
    if (a.is_index() != b.is_index()) return a.is_index() ? std::strong_ordering::less : std::strong_ordering::greater;
    if (a.is_index()) return a.index() <=> b.index();
    const std::strong_ordering names = a.name() <=> b.name();
    if (names != 0) return names;
    if (a.is_python() && b.is_python()) return a.pickled() <=> b.pickled();
    return a.is_python() != b.is_python() ? a.is_python() <=> b.is_python() : b.is_integer() <=> a.is_integer();
  }
  /// Hashes the kind and the value; for names of more than 15 bytes and Python keys, only the name.
  friend inline std::size_t hash_value(const path_key& key) noexcept {
    if (key.size_ == is_shared || key.size_ == is_pickled) return hash_text(key.name());
    std::uint64_t halves[2];
    std::memcpy(halves, key.bytes_, sizeof key.bytes_);
    std::memcpy(reinterpret_cast<char*>(halves) + sizeof key.bytes_, &key.size_, 1);
    const std::uint64_t mixed = (halves[0] ^ (halves[1] * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
    return static_cast<std::size_t>(mixed ^ (mixed >> 32));
  }

 private:
  struct shared_text {
    std::atomic<std::size_t> holders;
    std::size_t size;
    // followed by `size` characters
  };
  static constexpr unsigned char longest_inside = 15, is_an_index = 16, is_shared = 17, is_pickled = 18,
                                 is_a_number = 32;

  static shared_text* share(std::string_view name);
  static std::string_view shared_name(const shared_text* text) noexcept;
  static void free(shared_text* text) noexcept;
  static std::size_t hash_text(std::string_view text) noexcept;
  std::string_view python_name() const noexcept;
  // The shared text; for `of_python`: the name's size, the name, and the pickle.
  std::string_view whole_text() const noexcept;

  template <class T>
  void store(T value) noexcept {
    std::memcpy(bytes_, &value, sizeof value);
  }
  template <class T>
  T load() const noexcept {
    T value;
    std::memcpy(&value, bytes_, sizeof value);
    return value;
  }
  inline void copy_bytes(const path_key& other) noexcept {
    std::memcpy(bytes_, other.bytes_, sizeof bytes_);
    size_ = other.size_;
  }
  inline void take(path_key& other) noexcept {  // leaves an empty name in `other`
    copy_bytes(other);
    if (size_ == is_shared || size_ == is_pickled) std::memset(other.bytes_, 0, sizeof bytes_), other.size_ = 0;
  }
  inline void hold() const noexcept {
    if (size_ == is_shared || size_ == is_pickled)
      load<shared_text*>()->holders.fetch_add(1, std::memory_order_relaxed);
  }
  inline void release() noexcept {
    if (size_ != is_shared && size_ != is_pickled) return;
    if (auto* text = load<shared_text*>(); text->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) free(text);
  }

  // A short name padded with zeros, an index, or a pointer to a shared_text. `size_` says which: it is the length of a
  // short name (plus is_a_number for an integer's digits), or one of the constants above.
  alignas(8) char bytes_[15] = {};
  unsigned char size_ = 0;
};
static_assert(sizeof(path_key) == 16);

/// Returns the key's part of a dotted name: its name, or the digits of its index.
export std::string key_text(const path_key& key);

}  // namespace shardmesh
