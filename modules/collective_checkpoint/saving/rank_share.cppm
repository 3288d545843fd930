// SPDX-License-Identifier: Apache-2.0
// Not exported: the answers of rank 0 to the other ranks of a save that it alone plans, as bytes: its verdict, each
// rank's share, and the report of the whole. A share names entries and parts by their positions in the rank's own
// state, so it has no boxes. save_assignment chooses the writers; the messages are in root_rounds.cpp.
module shardmesh.collective_checkpoint:rank_share;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;

namespace shardmesh {

// A tensor of which the rank writes parts. No part: the rank writes the empty chunk of a tensor without elements.
struct tensor_share {
  std::int64_t index = 0;            // in the rank's state
  std::optional<std::string> key{};  // in the checkpoint, if it is not the tensor's own
  dtype type = dtype::undefined;     // in the checkpoint
  std::vector<std::int64_t> parts;   // positions in the rank's parts, in the order of the chunks
};

// An object that the rank writes.
struct object_share {
  std::int64_t index = 0;
  std::optional<std::string> key{};
};

// The entries that one rank writes, in the order of the checkpoint.
struct rank_share {
  std::vector<tensor_share> tensors;
  std::vector<object_share> objects;
};

// These append one entry to a share, which is empty at first.
void write_share(detail::wire_writer& out, const tensor_share& share);
void write_share(detail::wire_writer& out, const object_share& share);
// Returns nothing for malformed bytes. Positions are not compared with the rank's state.
std::optional<rank_share> read_share(std::span<const std::byte> bytes);

// The verdict of rank 0 about the whole save, before a rank's share: an error, or none. `in` is at the share
// afterwards.
void write_verdict(detail::wire_writer& out, const result<void>& verdict);
result<void> read_verdict(detail::wire_reader& in);

std::vector<std::byte> encode_report(const save_report& report);
std::optional<save_report> decode_report(std::span<const std::byte> bytes);

}  // namespace shardmesh
