// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "cache_option.hpp"

#include <cstdlib>
#include <string>

#include "command.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.storage;

namespace tool {
namespace {

// The variable also sets the size of this folder.
void use_cache(const std::string& folder) {
  shardmesh::store_cache_options options{.folder = folder};
  if (const char* const limit = std::getenv("SHARDMESH_CACHE_BYTES"); limit != nullptr && *limit != '\0') {
    const auto bytes = shardmesh::parse_bytes(limit);
    if (!bytes) throw CLI::ValidationError("SHARDMESH_CACHE_BYTES", "expected a number such as 50GB");
    options.most_bytes = *bytes;
  }
  const auto done = shardmesh::use_store_cache(options);
  if (!done) throw CLI::ValidationError("--cache", shardmesh::to_string(done.error()));
}

}  // namespace

void add_cache_option(CLI::App& command) {
  command
      .add_option_function<std::string>("--cache", use_cache,
                                        "Keep what is read from URLs in this folder, and read it from there later")
      ->type_name("DIR")
      ->check(some_path());
}

}  // namespace tool
