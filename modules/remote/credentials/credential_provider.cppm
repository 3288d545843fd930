// SPDX-License-Identifier: Apache-2.0
// credential_provider: credentials that stay valid during a long call.
export module shardmesh.remote:credential_provider;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :credential_chain;

export namespace shardmesh::remote {

/// Finds credentials once, keeps them, and finds them again five minutes before they expire. Usable by several threads
/// at once: one of them searches, and the others use the credentials that are still valid, or wait. If a search fails
/// while the old credentials are valid, the old ones are used. Two searches for a refresh are at least thirty seconds
/// apart.
class credential_provider {
 public:
  explicit credential_provider(credential_sources sources);
  credential_provider(credential_provider&&) noexcept;
  credential_provider& operator=(credential_provider&&) noexcept;
  ~credential_provider();

  /// Returns credentials that have not expired. Blocks while they are searched, within the limits of the call.
  /// \errors those of `find_credentials`
  result<aws_credentials> credentials(const call_options& call = {});

  /// Records that a server refused these credentials, for example as expired. The next call searches again, unless
  /// others have been found meanwhile.
  void discard(const aws_credentials& refused);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh::remote
