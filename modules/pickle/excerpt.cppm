// SPDX-License-Identifier: Apache-2.0
// `excerpt` cuts a small pickle out of a large one: it keeps a few items of the large dicts. Only the wanted items cost
// time and memory for values. The meaning of the items is in dcp.
export module shardmesh.pickle:excerpt;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::pickle {

/// The dicts to filter and the items to keep.
struct excerpt_filter {
  /// Names of the root object's attributes to filter; each is a dict. All other parts of the pickle are kept.
  std::span<const std::string_view> dicts;
  /// An item is kept when its key is one of these texts, or an object that holds one. Each has at most 4,096 bytes.
  std::span<const std::string> wanted;
};

/// Builds a pickle of the same value as the source, but without the items that the filter leaves out.
/// \param read        fills `out` with the source's bytes from `offset` on
/// \param size_bytes  size of the source
/// \returns nothing when the pickle does not look like a pickler's output for an object with such attributes. The
///   caller then reads the whole pickle, which reports any defect.
/// \errors those of `read`
/// Cost: one pass over the opcodes, and a second over part of them. Memory: the result and 256 KiB. No values are
/// built.
result<std::optional<std::vector<std::byte>>> excerpt(
    function_ref<result<void>(std::int64_t offset, std::span<std::byte> out)> read, std::int64_t size_bytes,
    const excerpt_filter& filter);

}  // namespace shardmesh::pickle
