// SPDX-License-Identifier: Apache-2.0
// shardmesh.collective_checkpoint: ranks that save and load one checkpoint together. Not here: how bytes travel (comm).
export module shardmesh.collective_checkpoint;

export import shardmesh.checkpoint;

export import :load;
export import :save;
export import :staging_pool;
