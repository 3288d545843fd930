// SPDX-License-Identifier: Apache-2.0
// Not exported: the description of the new checkpoint (tensors, objects, texts) and of the delta's blocks, as values
// and as bytes. The elements are in block_codec.
module shardmesh.delta:description;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :block_entry;
import :block_grid;
import :file_header;

namespace shardmesh::delta {

// A torch.save archive that the delta holds whole.
struct stored_archive {
  std::int64_t offset = 0, length = 0;  // in the file
  digest128 digest;                     // XXH3-128
};

// A tensor of the new checkpoint: blocks of elements, or the archive of an opaque tensor. The entry has no chunks.
struct described_tensor {
  tensor_entry entry;
  std::optional<stored_archive> archive;
  bool has_base = false;  // the base has a tensor of this key, dtype, and shape
  block_grid grid;
  std::size_t first_block = 0;  // index into description::blocks
};

struct described_object {
  std::string key;
  path where;
  stored_archive archive;
};

// The stored bytes follow the header without gaps, in this order: those of each tensor, then those of each object.
struct description {
  std::int64_t block_bytes = 0;
  std::vector<described_tensor> tensors;
  std::vector<described_object> objects;
  std::vector<file_text> texts;
  std::vector<block_entry> blocks;
};

// Returns the blocks of a tensor of this dtype and shape. \pre `has_block_elements(type)`
block_grid grid_of(dtype type, const extents& shape, std::int64_t block_bytes);

std::vector<std::byte> format_description(const description& described);

// Parses the bytes of a description, which are not trusted, and computes the places of the stored bytes.
// \errors errc::bad_format, naming the key if there is one; errc::rank_too_large; errc::overflow; errc::unsupported for
//         a dtype that this release lacks; those of `read_budget`
result<description> parse_description(std::span<const std::byte> bytes, const file_header& header, read_budget& budget);

}  // namespace shardmesh::delta
