// SPDX-License-Identifier: Apache-2.0
// The members of a .nemo file. Headers of tar are parsed in storage's `tar`; the weights are opened in reader.
export module shardmesh.nemo:archive;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::nemo {

/// An opened .nemo file: a tar archive, plain or compressed with gzip.
class archive {
 public:
  /// \errors errc::bad_format when it is neither; those of `read_tar` and `open_decoding_source`
  /// Cost: one read per member. A compressed file is decoded twice.
  static result<archive> open(const std::filesystem::path& file, file_pool pool, read_budget& budget);

  std::span<const tar_member> members() const { return members_; }
  /// Returns the member with this name; null when there is none.
  const tar_member* find(std::string_view name) const;
  /// Returns whether the members' bytes are compressed in the file.
  bool is_compressed() const { return is_compressed_; }
  /// Returns the bytes of a member. They keep the file alive.
  std::shared_ptr<const byte_source> bytes_of(const tar_member& member) const;

 private:
  archive() = default;
  std::shared_ptr<const byte_source> bytes_;  // of the tar archive
  std::vector<tar_member> members_;
  bool is_compressed_ = false;
};

/// Returns true for the name of a .nemo file.
bool is_nemo_name(std::string_view name);

}  // namespace shardmesh::nemo
