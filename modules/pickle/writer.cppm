// SPDX-License-Identifier: Apache-2.0
// pickle::writer: emits pickles that Python loads, value by value, and parsed values again as they were.
// Not here: what is written (dcp metadata, torch_file::archive).
export module shardmesh.pickle:writer;

import shardmesh.std;
import shardmesh.core;
import :value;

export namespace shardmesh::pickle {

/// Emits values in post-order, as the pickle machine reads them: what a composite takes is written before it.
///
///     pickle::writer w;
///     w.begin_dict();                          // {"size": torch.Size((2, 3))}
///     w.text("size");
///     w.global("torch", "Size"); w.begin_tuple(); w.begin_tuple(); w.integer(2); w.integer(3); w.end_tuple();
///     w.end_tuple(); w.reduce();
///     w.end_dict();
///     auto bytes = std::move(w).finish();
///
/// Strings, globals and `()` are memoized; so are objects when asked (`memoize`, `recall`). Wrong nesting is a broken
/// precondition.
class writer {
 public:
  /// \param protocol  4 (the default of Python 3.8 to 3.13), or 2 (what torch.save writes, and all that the restricted
  ///                  unpickler of `torch.load(weights_only=True)` reads)
  explicit writer(int protocol = 4);

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void floating(double value);
  /// `value` is UTF-8 (lone surrogates as three bytes each, as Python's "surrogatepass").
  void text(std::string_view value);
  void bytes(std::span<const std::byte> value);
  /// A module's attribute: `module_name.attribute`. Precondition in protocol 2: no line breaks; `value` looks for them.
  void global(std::string_view module_name, std::string_view attribute);

  void empty_tuple();
  void begin_tuple();
  void end_tuple();
  void begin_list();
  void end_list();
  /// Keys and values alternate.
  void begin_dict();
  void end_dict();

  /// Takes a callable and a tuple of arguments.
  void reduce();
  /// Takes a class and a tuple of arguments.
  void newobj();
  /// Takes an object and its state; leaves the object.
  void build();
  /// Takes an id; leaves what the reader's persistent_load makes of it.
  void persistent();

  /// Remembers the value written last; `recall` writes it again as the same object.
  std::uint32_t memoize();
  void recall(std::uint32_t memo);

  /// A parsed value and all below it: shared references stay shared, cycles stay cycles, also between several calls
  /// with values of one graph, which must outlive the writer. Records keep their form, arguments, items and state.
  /// \errors errc::unsupported when the output would exceed `limit_bytes`, or protocol 2 cannot hold a name
  /// Cost: O(size of the subtree).
  result<void> value(const pickle::value& parsed, std::size_t limit_bytes = std::size_t{1} << 32);
  /// The same, but the ids of persistent references are written by the caller: `write_id` writes one value, another id.
  using id_writer = function_ref<void(const pickle::value& id)>;
  result<void> value(const pickle::value& parsed, std::size_t limit_bytes, id_writer write_id);

  /// Bytes so far.
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
  result<void> walk(const pickle::value& parsed, std::size_t limit_bytes);
  void latin1(std::string_view callable_module, std::string_view callable, std::span<const std::byte> content,
              std::string_view encoding);
  void open(const pickle::value& parsed, std::vector<work>& pending);
  void close(const work& done);
  void remember(const pickle::value& parsed);
  bool recall_value(const pickle::value& parsed);

  struct object_hash {
    std::size_t operator()(const std::pair<const void*, std::uint64_t>& object) const {
      return (reinterpret_cast<std::uintptr_t>(object.first) ^ object.second) * 0x9e3779b97f4a7c15 >> 8;
    }
  };
  // Both tables are asked by views, for every name and text of a description.
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
