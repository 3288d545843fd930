// SPDX-License-Identifier: Apache-2.0
// shardmesh.deepspeed: folders that DeepSpeed saved, ZeRO 0 to 3, read as the state dict that its own zero_to_fp32.py
// gives, without merging anything in memory; universal checkpoints. Not here: writing them, which format a path is
// (checkpoint).
export module shardmesh.deepspeed;

export import shardmesh.torch_file;

export import :folder;
export import :reader;
