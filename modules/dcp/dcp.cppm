// SPDX-License-Identifier: Apache-2.0
// shardmesh.dcp: folders of torch.distributed.checkpoint: .metadata and items, read and written. Not here: which ranks
// save (collective_checkpoint).
export module shardmesh.dcp;

export import shardmesh.torch_file;

export import :files;
export import :metadata;
export import :reader;
export import :save;
