// SPDX-License-Identifier: Apache-2.0
// shardmesh.collective_checkpoint: several ranks save and load one checkpoint together. The transport of bytes is in
// comm.
export module shardmesh.collective_checkpoint;

export import shardmesh.checkpoint;

export import :has_local_view;
export import :held_parts;
export import :load;
export import :load_state;
export import :save;
export import :save_plan_cache;
export import :save_state;
export import :staging_pool;
