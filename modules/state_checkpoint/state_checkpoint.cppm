// SPDX-License-Identifier: Apache-2.0
// shardmesh.state_checkpoint: checkpoints as state dicts: read whole, read as one rank's part of a layout, and with
// FSDP's flat parameters seen as the parameters in them. Not here: boxes of tensors into memory (checkpoint), ranks
// that load together (collective_checkpoint).
export module shardmesh.state_checkpoint;

export import shardmesh.fsdp;
export import shardmesh.checkpoint;

export import :carve;
export import :flat_units;
export import :load_sharded;
export import :outline;
export import :read_state_dict;
