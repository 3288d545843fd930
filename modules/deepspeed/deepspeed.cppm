// SPDX-License-Identifier: Apache-2.0
// shardmesh.deepspeed reads folders that DeepSpeed saved, ZeRO 0 to 3, and universal checkpoints. The result is the
// state dict of DeepSpeed's own zero_to_fp32.py, without merging anything in memory. It does not write such
// folders. The format of a path is determined in checkpoint.
export module shardmesh.deepspeed;

export import shardmesh.torch_file;

export import :folder;
export import :reader;
