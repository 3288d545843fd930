// SPDX-License-Identifier: Apache-2.0
// kernel_cache: compiled kernels in a private folder of the user, so that only the first use on a machine compiles
// them. kernel_compiler decides the names of its files.
export module shardmesh.cuda:kernel_cache;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::cuda {

/// A folder of compiled kernels. Its files are executed on a GPU, so it must belong to the user, and no other user may
/// have write access to it. Otherwise it is not used. Every file begins with the SHA-256 of the rest, which `read`
/// checks. Thread-safe; processes may share a folder.
class kernel_cache {
 public:
  /// \param folder  an absolute path; empty: there is no cache
  explicit kernel_cache(std::string folder = default_folder()) : folder_(std::move(folder)) {}
  /// Returns `shardmesh/kernels` in $XDG_CACHE_HOME, or in .cache of $HOME; empty if neither is an absolute path.
  static std::string default_folder();
  const std::string& folder() const { return folder_; }

  /// Returns the content of a file; empty if it is missing, damaged, or not the user's own.
  std::vector<char> read(const std::string& name) const;
  /// Writes a file under a temporary name, and then renames it. Makes the folder, with access for the user alone.
  /// \errors errc::io, errc::no_space; errc::unsupported: the folder is not the user's own
  result<void> write(const std::string& name, std::span<const char> content) const;
  /// Checks that the folder can be used, or does not exist yet.
  /// \errors those of `write`
  result<void> check() const;

 private:
  std::string folder_;
};

}  // namespace shardmesh::cuda
