// SPDX-License-Identifier: Apache-2.0
// Sets the key of an error about an entry, also when the key is empty.
// Shared by all rooms; only .cpp files include it. A template, because headers cannot import the error's module.
#pragma once
#include <string>
#include <string_view>

namespace shardmesh::detail {

/// Sets the error's key. An error whose key is empty prints as one about the whole checkpoint, so the message of an
/// error about the entry "" begins with that key. `key` stays empty, because callers look entries up by it.
template <class Error>
Error at_entry(Error problem, std::string_view key) {
  constexpr std::string_view shown = "\"\": ";
  if (key.empty() && !problem.message.starts_with(shown)) problem.message.insert(0, shown);
  problem.key = key;
  return problem;
}

}  // namespace shardmesh::detail
