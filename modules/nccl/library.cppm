// SPDX-License-Identifier: Apache-2.0
// library: the NCCL of this process, found when it is needed, and its errors as ours. Not here: communicators.
export module shardmesh.nccl:library;

import shardmesh.std;
import shardmesh.core;
import shardmesh.cuda;
import :functions;

export namespace shardmesh::nccl {

/// A loaded NCCL. Cheap to copy; immutable.
class library {
 public:
  /// \param path  of the library; empty: what SHARDMESH_NCCL names, else libnccl.so.2
  /// \errors errc::unsupported: it cannot be loaded, lacks a function, or is older than 2.27
  static result<library> load(const std::string& path = {});

  const functions& call() const { return *functions_; }
  /// Such as 22703.
  int version() const { return version_; }

  /// What a function gave, as a result. An error (errc::communication) names the operation, the device and the
  /// library's texts: what the code means, and the details that it keeps for `comm` (null: for the process).
  result<void> check(int code, std::string_view operation, device where, void* comm = nullptr) const;

 private:
  cuda::shared_library library_;
  std::shared_ptr<const functions> functions_;
  int version_ = 0;
};

/// "2.27.3"
std::string version_text(int version);

}  // namespace shardmesh::nccl
