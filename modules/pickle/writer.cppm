// SPDX-License-Identifier: Apache-2.0
// pickle::writer emits pickles that Python loads, value by value. It also rewrites parsed values unchanged. dcp
// metadata and torch_file::archive decide what a pickle contains.
export module shardmesh.pickle:writer;

import shardmesh.std;
import shardmesh.core;
import :value;

export namespace shardmesh::pickle {

/// Emits values in post-order, as the pickle machine reads them: the parts of a composite value precede it.
///
///     pickle::writer w;
///     w.begin_dict();                          // {"size": torch.Size((2, 3))}
///     w.text("size");
///     w.global("torch", "Size"); w.begin_tuple(); w.begin_tuple(); w.integer(2); w.integer(3); w.end_tuple();
///     w.end_tuple(); w.reduce();
///     w.end_dict();
///     auto bytes = std::move(w).finish();
///
/// Strings and globals are memoized; other objects are memoized on request (`memoize`, `recall`). Wrong nesting
/// violates a precondition.
class writer {
 public:
  /// \param protocol  4 (the default of Python 3.8 to 3.13), or 2 (what torch.save writes, and the only one that the
  ///                  restricted unpickler of `torch.load(weights_only=True)` reads)
  explicit writer(int protocol = 4);

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void floating(double value);
  /// Writes UTF-8 text. A lone surrogate takes three bytes, as with Python's "surrogatepass".
  void text(std::string_view value);
  void bytes(std::span<const std::byte> value);
  /// Writes a module's attribute, `module_name.attribute`. Precondition in protocol 2: the names have no line breaks
  /// (`value` checks its names).
  void global(std::string_view module_name, std::string_view attribute);

  void empty_tuple();
  void begin_tuple();
  void end_tuple();
  void begin_list();
  void end_list();
  /// Begins a dict whose keys and values alternate.
  void begin_dict();
  void end_dict();

  /// Calls a callable with a tuple of arguments; both precede it.
  void reduce();
  /// Instantiates a class with a tuple of arguments; both precede it.
  void newobj();
  /// Sets an object's state; both precede it, and the object remains.
  void build();
  /// Makes a persistent reference from the id that precedes it; the reader's persistent_load resolves it.
  void persistent();

  /// Memoizes the last written value; `recall` writes the same object again.
  std::uint32_t memoize();
  void recall(std::uint32_t memo);

  /// Writes a parsed value and everything below it. Shared references stay shared and cycles stay cycles, also across
  /// calls with values of one graph, which must outlive the writer. Records keep their form, arguments, items, and
  /// state.
  /// \errors errc::unsupported when the output would exceed `limit_bytes`, or protocol 2 cannot hold a name
  /// Cost: O(size of the subtree).
  result<void> value(const pickle::value& parsed, std::size_t limit_bytes = std::size_t{1} << 32);
  /// Does the same, but the caller writes the ids of persistent references: `write_id` writes one value as the new id.
  using id_writer = function_ref<void(const pickle::value& id)>;
  result<void> value(const pickle::value& parsed, std::size_t limit_bytes, id_writer write_id);

  /// Returns the number of bytes written.
  std::size_t size_bytes() const { return out_.size(); }
  /// Ends the pickle. Precondition: exactly one value was written.
  std::vector<std::byte> finish() &&;

 private:
  void put(std::uint8_t byte) { out_.push_back(static_cast<std::byte>(byte)); }
  bool is_protocol2() const { return protocol_ == 2; }
  void put_raw(const void* data, std::size_t count);
  void put_number(std::uint64_t value, int width);
  void counted(std::uint8_t short_opcode, std::uint8_t opcode, std::uint8_t long_opcode, const void* data,
               std::size_t count);
  struct work;
  class agenda;
  result<void> walk(const pickle::value& parsed, std::size_t limit_bytes);
  void latin1(std::string_view callable_module, std::string_view callable, std::span<const std::byte> content,
              std::string_view encoding);
  void open(const pickle::value& parsed, agenda& later);
  bool open_plain(const pickle::value& parsed);
  void open_set(std::string_view name, const pickle::value& parsed, agenda& later);
  void open_container(const pickle::value& parsed, agenda& later);
  void open_persistent(const pickle::value& parsed, agenda& later);
  void open_record(const pickle::value& parsed, agenda& later);
  void close(const work& done);
  void remember(const pickle::value& parsed);
  bool recall_value(const pickle::value& parsed);

  struct object_hash {
    std::size_t operator()(const std::pair<const void*, std::uint64_t>& object) const {
      return (reinterpret_cast<std::uintptr_t>(object.first) ^ object.second) * 0x9e3779b97f4a7c15 >> 8;
    }
  };
  // Transparent lookup: both tables are searched by views, for every name and text of checkpoint metadata.
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct name_order {
    using is_transparent = void;
    using views = std::pair<std::string_view, std::string_view>;
    bool operator()(const views& a, const views& b) const { return a < b; }
  };
  int protocol_ = 4;
  bool has_broken_name_ = false;
  const id_writer* write_id_ = nullptr;
  std::vector<std::byte> out_;
  std::uint32_t memo_count_ = 0;
  std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>> texts_;
  std::map<std::pair<std::string, std::string>, std::uint32_t, name_order> globals_;
  std::unordered_map<std::pair<const void*, std::uint64_t>, std::uint32_t, object_hash> objects_;
  std::vector<std::size_t> tuples_;  // where each open tuple began
};

}  // namespace shardmesh::pickle
