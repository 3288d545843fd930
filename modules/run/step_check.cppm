// SPDX-License-Identifier: Apache-2.0
// step_check: whether a step is good: by its description and the sizes of its files, or by every checksum.
export module shardmesh.run:step_check;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// How thoroughly steps are checked.
struct step_check_options {
  bool deep = false;         // read every byte and compare checksums, as `verify` does
  int threads = 0;           // of a deep check; 0: all cores
  time_limit within{};       // a duration or a time point (errc::deadline_exceeded)
  std::stop_token cancel{};  // errc::cancelled
};

/// The outcome of a check.
struct step_check {
  std::optional<error> problem;         // the first one, with the others; nothing: the step is good
  std::vector<std::string> references;  // names of the folders beside the step to whose files it refers; ascending
  bool are_references_known = false;    // false: the description could not be read

  /// Returns whether the step is good.
  bool ok() const { return !problem; }
};

/// Checks one step. The cheap check reads the description, and compares the size of each file with the places of the
/// items that it holds. Flipped bits are found by a deep check only.
/// \returns problems of the step, also those of the system: a file that cannot be opened. A check that reached a limit
///          returns errc::cancelled or errc::deadline_exceeded, and the step may be good.
/// Cost: as `open_checkpoint`, and one stat per file; `deep`: also reads every byte.
step_check check_step(const std::filesystem::path& step, const step_check_options& options = {});

}  // namespace shardmesh
