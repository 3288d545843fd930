// SPDX-License-Identifier: Apache-2.0
// problem_list: the problems that a call collects before it fails with all of them. The error itself is made by
// `fail_all`. Problems that many threads find are in `first_problems` of room storage.
export module shardmesh.core:problem_list;

import shardmesh.std;
import :error;
import :result;

export namespace shardmesh::detail {

/// The first problems, as many as an error names, and the number of further ones.
struct problem_list {
  std::vector<error> named;
  std::int64_t more = 0;

  bool empty() const { return named.empty(); }
  void add(error e);
  /// Returns success, or one error with all problems. Ends the collection.
  result<void> outcome() &&;
};

}  // namespace shardmesh::detail
