// SPDX-License-Identifier: Apache-2.0
// Folders of torch.distributed.checkpoint: `.metadata` and items, read and written. Saves and loads by several ranks
// together are in `collective_checkpoint`.
export module shardmesh.dcp;

export import shardmesh.torch_file;

export import :files;
export import :metadata;
export import :previous;
export import :reader;
export import :save;
