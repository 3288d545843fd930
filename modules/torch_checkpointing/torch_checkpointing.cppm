// SPDX-License-Identifier: Apache-2.0
// shardmesh.torch_checkpointing reads and writes folders of the package torch_checkpointing, DCP's successor:
// metadata.pkl and the ranks' files. The format of a path is determined in checkpoint.
export module shardmesh.torch_checkpointing;

export import shardmesh.torch_file;

export import :metadata;
export import :reader;
export import :save;
