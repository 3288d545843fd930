// SPDX-License-Identifier: Apache-2.0
module;
#include <string>
#include <utility>
module shardmesh.storage;

import :zip_error;

namespace shardmesh::zip_reading {

error bad(const byte_source& source, std::string message) {
  return fail(errc::bad_format, "malformed ZIP archive: " + std::move(message)).with_file(source.name());
}

error several_disks(const byte_source& source, const std::string& why) {
  return bad(source, "it is not on a single disk: " + why)
      .with_hint("join the parts first: zip -s 0 PARTS.zip --out WHOLE.zip");
}

}  // namespace shardmesh::zip_reading
