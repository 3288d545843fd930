// SPDX-License-Identifier: Apache-2.0
// shardmesh.gguf reads and writes GGUF files, the single-file format of llama.cpp: metadata, plain tensors, and tensors
// of quantized blocks, which are shown as float32. Room mapping translates the names of tensors.
export module shardmesh.gguf;

export import shardmesh.safetensors;

export import :header;
export import :reader;
export import :save;
export import :tensor_type;
