// SPDX-License-Identifier: Apache-2.0
// shardmesh.state_checkpoint: reads checkpoints as state dicts, whole or as one rank's part of a layout. Can show
// FSDP's flat parameters as the parameters inside them. Loading boxes of tensors into memory is in checkpoint; ranks
// that load together are in collective_checkpoint.
export module shardmesh.state_checkpoint;

export import shardmesh.fsdp;
export import shardmesh.checkpoint;

export import :carve;
export import :checkpoint;
export import :flat_units;
export import :load_sharded;
export import :outline;
export import :read_state_dict;
