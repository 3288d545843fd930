// SPDX-License-Identifier: Apache-2.0
// excerpt: a small pickle out of a large one: a few items of its large dicts. Memory and time for values are spent on
// what is wanted alone. Not here: what the items mean (dcp).
export module shardmesh.pickle:excerpt;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::pickle {

/// Which items of which dicts.
struct excerpt_filter {
  /// Attributes of the root object that are dicts; all other parts of the pickle are kept.
  std::span<const std::string_view> dicts;
  /// An item is kept when its key is one of these texts, or an object that holds one. Each at most 4,096 bytes.
  std::span<const std::string> wanted;
};

/// A pickle that gives the value that the source's `size_bytes` bytes give, without the other items of these dicts.
/// `read` fills its second argument with the bytes from the first on. Nothing when the pickle is not what picklers
/// write of an object with such attributes: who asked reads it whole then, and learns what is wrong with it, if
/// anything is.
/// \errors those of `read`
/// Cost: one pass over the opcodes, and in part a second; memory of the result, and 64 KiB. Nothing is built.
result<std::optional<std::vector<std::byte>>> excerpt(
    function_ref<result<void>(std::int64_t offset, std::span<std::byte> out)> read, std::int64_t size_bytes,
    const excerpt_filter& filter);

}  // namespace shardmesh::pickle
