// SPDX-License-Identifier: Apache-2.0
// Suggests the key that was likely meant when a checkpoint lacks a key, for all messages about missing keys.
export module shardmesh.checkpoint_core:nearest_key;

import shardmesh.std;
import shardmesh.core;
import :entries;
import :reader;

export namespace shardmesh {

/// The kind of entry that is requested under a key.
enum class entry_kind : std::uint8_t { tensor, object };
std::string_view name(entry_kind kind);  // "tensor", "object"

/// Returns the key that is most similar to `wanted`: the first one of the first rule below that finds any, or nothing.
/// 1. The key with the fewest edits (a byte inserted, removed, or replaced, or two neighbours swapped): at most a
///    quarter of the length of `wanted`, and at most 8.
/// 2. The shortest key that is `wanted` behind a dotted prefix ("model." is often forgotten).
/// 3. The longest key that is `wanted` without a dotted prefix.
///
/// Cost: at most O(17 * length) for each key whose length differs by at most 8 bytes. Distant keys are abandoned early,
/// so that 200,000 keys take some 10 ms.
std::optional<std::string_view> nearest_key(std::span<const std::string_view> keys, std::string_view wanted);
/// Searches a checkpoint's tensors and objects in the same way.
std::optional<std::string_view> nearest_key(const catalog& contents, std::string_view wanted);

/// Returns the hint "did you mean KEY?"; empty without a key.
std::string did_you_mean(const std::optional<std::string_view>& nearest);

/// Returns the error for a key under which the checkpoint has no tensor (or no object). It is errc::dtype_mismatch when
/// the key belongs to the other kind of entry. Otherwise it is errc::missing_key, with the nearest key in the hint if
/// `suggests`. It names file and key.
error no_such_entry(const checkpoint_reader& reader, std::string_view key, entry_kind wanted, bool suggests = true);

/// The number of missing keys, counted from the first, for which a nearest key is searched.
inline constexpr std::size_t most_suggestions = 10;

}  // namespace shardmesh
