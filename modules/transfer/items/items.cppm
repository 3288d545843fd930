// SPDX-License-Identifier: Apache-2.0
// Items: owners that are files or parts of files, as the executor sees them through `item_source` and `item_sink`.
export module shardmesh.transfer:items;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// One stored piece: a fragment's owner (a file) and slot (a piece of the file).
struct item_id {
  owner_id owner = 0;
  std::int32_t slot = 0;
  friend auto operator<=>(const item_id&, const item_id&) = default;
};

/// Reads any box of an item's own index space. Called from several threads at once. A source may also have
/// `bool prefers_large_reads(item_id)`: true for an item whose elements cost less in large boxes, such as a transposed
/// tensor, or one on a server. Callers then read up to 64 MiB of it at a time, within their memory.
template <class S>
concept item_source = requires(S& s, item_id item, const box& part, const tensor_view& to) {
  /// Fills `to`, whose sizes equal those of `part`. It may have any strides, and the transfer's from_type or a type to
  /// which the source converts.
  { s.read(item, part, to) } -> std::same_as<result<void>>;
  /// Returns whether reads should ascend in row-major order, for example in a compressed item, where a backward seek
  /// costs a whole pass.
  { s.reads_in_order(item) } -> std::same_as<bool>;
};

/// Writes an item's elements, given as row-major bytes. One thread at a time writes each item, front to back.
template <class S>
concept item_sink = requires(S& s, item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
  { s.write(item, first_byte, bytes) } -> std::same_as<result<void>>;
};

/// A reference to any item_source, which must outlive it. Code that takes it need not be a template.
class any_item_source {
 public:
  template <item_source S>
    requires(!std::same_as<S, any_item_source>)
  any_item_source(S& source)  // NOLINT: implicit, as a parameter type
      : object_(&source),
        read_([](void* object, item_id item, const box& part, const tensor_view& to) {
          return static_cast<S*>(object)->read(item, part, to);
        }),
        reads_in_order_([](void* object, item_id item) { return static_cast<S*>(object)->reads_in_order(item); }) {
    if constexpr (requires(S& s, item_id item) {
                    { s.prefers_large_reads(item) } -> std::same_as<bool>;
                  })
      prefers_large_reads_ = [](void* object, item_id item) {
        return static_cast<S*>(object)->prefers_large_reads(item);
      };
  }

  result<void> read(item_id item, const box& part, const tensor_view& to) const {
    return read_(object_, item, part, to);
  }
  bool reads_in_order(item_id item) const { return reads_in_order_(object_, item); }
  bool prefers_large_reads(item_id item) const {
    return prefers_large_reads_ != nullptr && prefers_large_reads_(object_, item);
  }

 private:
  void* object_;
  result<void> (*read_)(void*, item_id, const box&, const tensor_view&);
  bool (*reads_in_order_)(void*, item_id);
  bool (*prefers_large_reads_)(void*, item_id) = nullptr;  // null: no item does
};

/// A reference to any item_sink, which must outlive it.
class any_item_sink {
 public:
  template <item_sink S>
    requires(!std::same_as<S, any_item_sink>)
  any_item_sink(S& sink)  // NOLINT: implicit, as a parameter type
      : object_(&sink),
        write_([](void* object, item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
          return static_cast<S*>(object)->write(item, first_byte, bytes);
        }) {}

  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) const {
    return write_(object_, item, first_byte, bytes);
  }

 private:
  void* object_;
  result<void> (*write_)(void*, item_id, std::int64_t, std::span<const std::byte>);
};

}  // namespace shardmesh
