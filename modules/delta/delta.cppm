// SPDX-License-Identifier: Apache-2.0
// The primary interface of room delta: a file that turns one checkpoint, the base, into another.
//
// `save_delta` compares two checkpoints of any formats, and writes the differences of their elements in blocks.
// `open_delta` shows the new checkpoint over the base and the file: any box of any tensor can be read, converted, and
// compared. docs/rooms/delta.md describes the file.
export module shardmesh.delta;

export import shardmesh.checkpoint;

export import :open_delta;
export import :save_delta;
