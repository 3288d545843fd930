// SPDX-License-Identifier: Apache-2.0
// nearest_key: what a key that a checkpoint lacks was likely meant to be, for every message about one.
export module shardmesh.catalog:nearest_key;

import shardmesh.std;
import shardmesh.core;
import :entries;
import :reader;

export namespace shardmesh {

/// What somebody looks for under a key.
enum class entry_kind : std::uint8_t { tensor, object };
std::string_view name(entry_kind kind);  // "tensor", "object"

/// The one of `keys` that `wanted` is likely meant to be: that with the fewest edits (a byte more, less or another), at
/// most a quarter of its length and 8; where there is none, the shortest that is `wanted` behind a dotted prefix
/// ("model." is forgotten often), else the longest that is `wanted` without one. Of equals the first; nothing when none
/// is near.
/// Cost: O(17 * length) at most for each key that is not more than 8 bytes longer or shorter; far keys are given up
/// early, so that 200,000 keys take some 10 ms.
std::optional<std::string_view> nearest_key(std::span<const std::string_view> keys, std::string_view wanted);
/// The same among a checkpoint's tensors and objects.
std::optional<std::string_view> nearest_key(const catalog& contents, std::string_view wanted);

/// "did you mean KEY?", for a hint; empty when no key is near.
std::string did_you_mean(const std::optional<std::string_view>& nearest);

/// The error of a key under which the checkpoint has no tensor (no object): errc::dtype_mismatch when it has the other
/// kind there, else errc::missing_key, with the nearest key in the hint if `suggests`. Names file and key.
error no_such_entry(const checkpoint_reader& reader, std::string_view key, entry_kind wanted, bool suggests = true);

/// Of many keys that are missing the first so many are worth a search for what was meant.
inline constexpr std::size_t most_suggestions = 10;

}  // namespace shardmesh
