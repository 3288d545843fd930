// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the local headers of a ZIP archive's records with its directory.
module shardmesh.storage:local_headers;

import shardmesh.std;
import shardmesh.core;
import :source;
import :zip;

namespace shardmesh::zip_reading {

// Completes the records of a directory at `directory_offset`: sets their limits, offsets, and beginnings.
// \param contradictions  if not null, collects the errors of local headers; their records keep a negative offset
// \errors errc::bad_format for records that overlap, and for a local header that does not match the directory
// Cost: one read per local header, or per run of adjacent small records.
result<void> read_local_headers(const byte_source& source, std::vector<zip_record>& records,
                                std::int64_t directory_offset, std::vector<error>* contradictions);

}  // namespace shardmesh::zip_reading
