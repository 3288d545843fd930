// SPDX-License-Identifier: Apache-2.0
// Shows a checkpoint under another convention.
export module shardmesh.mapping:mapped;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

export namespace shardmesh {

struct mapped_options {
  /// Compares the data with its checksums where there are any, and tied tensors with their partners. The command line
  /// and C set it.
  bool check_sums = false;
};

/// Shows `inner` with the tensors that the mapping makes, in place of its own. Objects are unchanged. Tensors that are
/// only renamed keep their chunks. Each other tensor has one chunk, which is computed while it is read: any box can be
/// read, in bounded memory, and only the elements that it needs are read from `inner`.
/// \pre `bound` was made from the tensors of `inner`
/// \errors if checksums are compared: errc::checksum_mismatch and errc::bad_format for a damaged record of checksums.
///         Later, a read returns errc::disagreement if repetitions differ. If checksums are compared, a load, a
///         conversion, and `verify` return errc::disagreement at their end if a tied tensor differs from its partner,
///         and errc::unsupported if the values of the two cannot be compared
result<std::unique_ptr<checkpoint_reader>> mapped(std::unique_ptr<checkpoint_reader> inner, bound_mapping bound,
                                                  const mapped_options& options = {});

}  // namespace shardmesh
