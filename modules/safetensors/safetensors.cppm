// SPDX-License-Identifier: Apache-2.0
// shardmesh.safetensors: safetensors files and Hugging Face folders, read and written, with the objects that lie beside
// them. Not here: which format a path is (checkpoint).
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
