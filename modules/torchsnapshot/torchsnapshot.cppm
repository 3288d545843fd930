// SPDX-License-Identifier: Apache-2.0
// shardmesh.torchsnapshot: folders of the package torchsnapshot, read. Not here: writing them.
export module shardmesh.torchsnapshot;

export import shardmesh.torch_file;

export import :reader;
