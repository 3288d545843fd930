// SPDX-License-Identifier: Apache-2.0
// shardmesh.checkpoint: checkpoint formats, read and written without Python: PyTorch DCP and .pt, safetensors, Hugging
// Face folders. Not here: the command line (tools), layouts (layout).
export module shardmesh.checkpoint;

export import shardmesh.tree;
export import shardmesh.transfer;

export import :storage;
