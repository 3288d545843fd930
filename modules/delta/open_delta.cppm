// SPDX-License-Identifier: Apache-2.0
// Shows the new checkpoint of a delta over its base.
export module shardmesh.delta:open_delta;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Opens a file that `save_delta` wrote, and shows the new checkpoint. The base may have any format and any chunks that
/// hold the same elements. Each tensor has one chunk, which is made while it is read: any box can be read, in bounded
/// memory, and only the blocks that it meets are read from the base and from the file. Every block that is read is
/// compared with its digests.
/// \param base  the checkpoint from which the delta was made; the result owns it
/// \returns a reader that `load`, `convert`, `reshard`, `diff`, and the constructor of `checkpoint` take
/// \errors errc::bad_format for another file, and for one that was cut; errc::unsupported for another version or an
///         unknown dtype; errc::checksum_mismatch for a damaged description; errc::missing_key, errc::dtype_mismatch,
///         and errc::shape_mismatch for a base that lacks a tensor, all of them together; errc::io. A later read of a
///         block that differs in the base or is damaged is errc::checksum_mismatch, naming the key, the box, and both
///         digests.
/// Cost: reads the description, some 60 bytes for each MiB of elements. No element is read.
result<std::unique_ptr<checkpoint_reader>> open_delta(std::unique_ptr<checkpoint_reader> base,
                                                      const std::filesystem::path& file,
                                                      const open_options& options = {});

}  // namespace shardmesh
