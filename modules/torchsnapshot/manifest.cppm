// SPDX-License-Identifier: Apache-2.0
// The manifest of a snapshot, `.snapshot_metadata`: its entries and their places. Nothing beyond its syntax is trusted.
// `reader` makes a checkpoint of it. Not exported.
module shardmesh.torchsnapshot:manifest;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.tree;

namespace shardmesh::torchsnapshot {

enum class entry_kind : std::uint8_t { tensor, sharded_tensor, chunked_tensor, object, value, empty_container };

// The stored bytes of a tensor or object: a file, or a range of one.
struct payload {
  std::string location;
  std::string serializer;  // "buffer_protocol", "torch_save", ...
  std::string dtype;       // PyTorch's name, "torch.float32"; empty for objects
  extents shape;
  std::optional<std::pair<std::int64_t, std::int64_t>> byte_range;  // begin and end
};

struct part {
  box where;
  payload stored;
};

// An entry of one rank.
struct entry {
  entry_kind kind = entry_kind::value;
  std::int64_t rank = 0;
  bool is_replicated = false;
  path where;  // without the rank
  std::string dtype;
  extents shape;                   // of tensors that are not sharded
  std::vector<part> parts;         // one box for a tensor; one part without a box for an object
  std::vector<std::byte> archive;  // of a value in the manifest itself, as torch.save writes it
};

struct manifest {
  std::int64_t world_size = 0;
  std::vector<entry> entries;
  std::vector<error> problems;  // one per omitted entry, naming its key
};

// Returns the entries in the manifest's order. Containers are entries only when they are empty.
// \errors errc::bad_format: not JSON, or not a manifest; errc::unsupported: YAML that is not JSON
// Cost: O(text); memory is charged to the budget.
result<manifest> parse_manifest(std::string_view text, read_budget& budget);

}  // namespace shardmesh::torchsnapshot
