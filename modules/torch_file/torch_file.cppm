// SPDX-License-Identifier: Apache-2.0
// shardmesh.torch_file reads and writes files of torch.save: archives, the tensors and objects in them, and `.pt` files
// as checkpoints. Folders of such files are in dcp.
export module shardmesh.torch_file;

export import shardmesh.checkpoint_core;
export import shardmesh.pickle;

export import :archive;
export import :archive_from_json;
export import :archived_objects;
export import :checked_archive;
export import :chunk;
export import :component_reader;
export import :flatten;
export import :integer_keys;
export import :item;
export import :item_records;
export import :item_writer;
export import :object;
export import :object_json;
export import :payload_reader;
export import :plain_object;
export import :python_keys;
export import :rank_part;
export import :reader;
export import :save;
export import :split_reader;
export import :state_file;
export import :tensor_components;
export import :wrapped_reader;
