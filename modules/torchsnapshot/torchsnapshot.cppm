// SPDX-License-Identifier: Apache-2.0
// shardmesh.torchsnapshot: reads folders of the package torchsnapshot. Writing them is not supported.
export module shardmesh.torchsnapshot;

export import shardmesh.torch_file;

export import :reader;
