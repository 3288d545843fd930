// SPDX-License-Identifier: Apache-2.0
// library: the NCCL of this process, loaded when it is needed, and the translation of its errors into ours.
// Communicators are in nccl_communicator.
export module shardmesh.nccl:library;

import shardmesh.std;
import shardmesh.core;
import shardmesh.cuda;
import :functions;

export namespace shardmesh::nccl {

/// A loaded NCCL. Cheap to copy; immutable.
class library {
 public:
  /// Loads NCCL.
  /// \param path  the library's path; empty: the path in SHARDMESH_NCCL, or else libnccl.so.2
  /// \errors errc::unsupported: the library cannot be loaded, lacks a function, or is older than 2.27
  static result<library> load(const std::string& path = {});

  const functions& call() const { return *functions_; }
  /// Returns NCCL's version number, such as 22703.
  int version() const { return version_; }
  /// Returns the path of the loaded file.
  std::string file() const { return library_.file(); }

  /// Turns the code of an NCCL function into a result. An error (errc::communication) names the operation and the
  /// device, and quotes NCCL's text for the code and its last error on `comm` (null: in the process).
  result<void> check(int code, std::string_view operation, device where, void* comm = nullptr) const;

 private:
  cuda::shared_library library_;
  std::shared_ptr<const functions> functions_;
  int version_ = 0;
};

/// Formats a version number: "2.27.3".
std::string version_text(int version);

}  // namespace shardmesh::nccl
