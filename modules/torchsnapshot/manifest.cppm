// SPDX-License-Identifier: Apache-2.0
// Not exported: the manifest of a snapshot, `.snapshot_metadata`: what entries it has and where each lies. Nothing in
// it is trusted but its syntax. Not here: the checkpoint that it describes (reader).
module shardmesh.torchsnapshot:manifest;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.tree;

namespace shardmesh::torchsnapshot {

enum class entry_kind : std::uint8_t { tensor, sharded_tensor, chunked_tensor, object, value, empty_container };

// A tensor's payload, or an object's: a file, or a range of one.
struct payload {
  std::string location;
  std::string serializer;  // "buffer_protocol", "torch_save", ...
  std::string dtype;       // PyTorch's name, "torch.float32"; of objects empty
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
  std::vector<part> parts;         // a tensor: one box; an object: one, without a box
  std::vector<std::byte> archive;  // of a value that the manifest itself holds, as torch.save writes it
};

struct manifest {
  std::int64_t world_size = 0;
  std::vector<entry> entries;
  std::vector<error> problems;  // of entries that are left out; each names its key
};

// The entries in the manifest's order. Containers are none, except for those without items.
// \errors errc::bad_format: no JSON, no manifest; errc::unsupported: YAML that is no JSON
// Cost: O(text); memory counts against the budget.
result<manifest> parse_manifest(std::string_view text, read_budget& budget);

}  // namespace shardmesh::torchsnapshot
