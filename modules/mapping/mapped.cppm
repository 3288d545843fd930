// SPDX-License-Identifier: Apache-2.0
// Shows a checkpoint under another convention.
export module shardmesh.mapping:mapped;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

export namespace shardmesh {

struct mapped_options {
  /// Compares the data with its checksums where there are any, and tied tensors with their partners, as `convert` does.
  /// `load` does neither.
  bool check_sums = false;
};

/// Shows `inner` with the tensors that the mapping makes, in place of its own. Objects are unchanged. Tensors that are
/// only renamed keep their chunks. Each other tensor has one chunk, which is computed while it is read: any box can be
/// read, in bounded memory, and only the elements that it needs are read from `inner`.
/// \pre `bound` was made of the tensors of `inner`
/// \errors errc::checksum_mismatch and errc::bad_format when checksums are compared and their record is damaged. Reading
///         an element that is repeated on the source's side, with different values, is errc::disagreement; so is, at the
///         end of a checked call, a tied tensor that differs from its partner
result<std::unique_ptr<checkpoint_reader>> mapped(std::unique_ptr<checkpoint_reader> inner, bound_mapping bound,
                                                  const mapped_options& options = {});

}  // namespace shardmesh
