// SPDX-License-Identifier: Apache-2.0
// The suite: its list of checks, and its report. The checks themselves are in `messages`, `failures`, and
// `collectives`.
export module shardmesh.conformance:suite;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {
class trial;
}

export namespace shardmesh {

/// The time limits and message sizes that checks use.
struct conformance_options {
  std::chrono::milliseconds patience{20'000};        // time limit of calls that should succeed
  std::chrono::milliseconds deadline{250};           // time limit of calls that should fail because a rank is missing
  std::chrono::milliseconds grace{1'000};            // time in which an error should reach every rank
  std::int64_t large_bytes = std::int64_t{8} << 20;  // the largest message
};

/// A problem that one rank found.
struct conformance_problem {
  std::string check;      // `conformance_check::name`
  std::int32_t rank = 0;  // the rank that found it
  std::string expected, found;
  friend bool operator==(const conformance_problem&, const conformance_problem&) = default;
};

/// "rank 2: messages arrive whole: expected ..., found ..."
std::string to_string(const conformance_problem& problem);

/// One behaviour of communicators, named by a sentence. A check finds no problem if the communicator lacks the feature
/// (collectives, shared memory, tags if it `is_ordered`) or has too few ranks.
struct conformance_check {
  std::string_view name;
  bool poisons = false;  // the check makes ranks fail, and the communicator is unusable afterwards
  void (*run)(trial&) = nullptr;
};

/// All checks, the simplest first.
std::span<const conformance_check> conformance_checks();

/// Runs one check. Collective over `comm`: every rank runs the same check. A check with `poisons` needs a group of its
/// own.
/// \returns the problems that this rank found; empty if there are none
/// Cost: blocks, for at most a few times `patience` if the communicator keeps its deadlines. It takes milliseconds if
/// all is well, or `deadline` if ranks should fail.
std::vector<conformance_problem> run_check(const conformance_check& check, communicator_ref comm,
                                           const conformance_options& options = {});

/// The result of the suite.
struct conformance_report {
  std::vector<std::string> checks;  // names of the checks that ran
  // Problems of all ranks, in rank order. If gathering fails: the problems of this rank, and that failure.
  std::vector<conformance_problem> problems;
  bool ok() const { return problems.empty(); }
  /// Success, or errc::communication with the first problem and the number of problems.
  result<void> outcome() const;
};

/// One line per problem, or "all 25 checks passed".
std::string to_string(const conformance_report& report);

/// Runs all checks, each in a group of its own. Collective: every rank calls it with its part of the same groups.
/// \param make  this rank's communicator of a new group of the same ranks; called once per check and once more to
///              gather the problems, in the same order on every rank. The groups are kept until the end.
/// \errors in the report; an error of `make` ends the suite
conformance_report check_communicator(function_ref<result<any_communicator>()> make,
                                      const conformance_options& options = {});

}  // namespace shardmesh
