// SPDX-License-Identifier: Apache-2.0
// Not exported: one rank's file as a part of the checkpoint, and access to its small values.
module shardmesh.deepspeed:saved_values;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::deepspeed {

// A torch.save file that is a part of a composed reader.
struct saved_file {
  std::size_t part = 0;
  checkpoint_reader* reader = nullptr;
  std::string file() const { return reader->path().string(); }
};

// Returns the number in a path step, such as a group's number.
std::optional<std::size_t> number_of(const path_key& step);
// Returns true when the path begins with these names.
bool begins_with(const shardmesh::path& where, std::initializer_list<std::string_view> names);

// These read the values of objects (indices into the file's catalog). errc::bad_format naming key and file when a value
// has the wrong kind.
result<extents> read_shape(const saved_file& from, std::size_t object);
result<std::string> read_text(const saved_file& from, std::size_t object);
result<std::vector<std::string>> read_texts(const saved_file& from, std::size_t object);
// Reads an integer, or the largest in a list of integers.
result<std::int64_t> read_largest(const saved_file& from, std::size_t object);
// Reads a ZeRO stage: an integer, or a member of DeepSpeed's enumeration, by its value or (Python 3.11) by its name.
result<std::int64_t> read_stage(const saved_file& from, std::size_t object);
// Reads a list of lists of integers.
result<std::vector<std::vector<std::int64_t>>> read_lists(const saved_file& from, std::size_t object);
// Returns true when the object is None.
result<bool> is_none(const saved_file& from, std::size_t object);
// Reads the bytes of a tensor of rank 0, as they are stored.
result<std::vector<std::byte>> read_scalar(const saved_file& from, std::size_t tensor);

}  // namespace shardmesh::deepspeed
