// SPDX-License-Identifier: Apache-2.0
// shardmesh.safetensors reads and writes safetensors files and Hugging Face folders, with the objects beside them. The
// format of a path is determined in checkpoint.
export module shardmesh.safetensors;

export import shardmesh.torch_file;

export import :checksum;
export import :files;
export import :header;
export import :hf;
export import :objects_copy;
export import :objects_file;
export import :reader;
export import :save;
export import :torch_model_name;
export import :writer;
