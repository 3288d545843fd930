// SPDX-License-Identifier: Apache-2.0
// The suite: what is checked, and what came of it. Not here: the checks themselves (messages, failures, collectives).
export module shardmesh.conformance:suite;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {
class trial;
}

export namespace shardmesh {

/// How long checks wait, and how much they send.
struct conformance_options {
  std::chrono::milliseconds patience{20'000};        // the most that a call may take which is to succeed
  std::chrono::milliseconds deadline{250};           // of calls that are to fail because a rank does not come
  std::chrono::milliseconds grace{1'000};            // in which an error is to reach every rank
  std::int64_t large_bytes = std::int64_t{8} << 20;  // the largest message
};

/// What one rank found wrong.
struct conformance_problem {
  std::string check;      // `conformance_check::name`
  std::int32_t rank = 0;  // who found it
  std::string expected, found;
  friend bool operator==(const conformance_problem&, const conformance_problem&) = default;
};

/// "rank 2: messages arrive whole: expected ..., found ..."
std::string to_string(const conformance_problem& problem);

/// One behaviour of communicators, named by a sentence. Checks of what a communicator does not have (collectives,
/// shared memory, tags: of one that `is_ordered`), or that need more ranks than there are, find nothing wrong.
struct conformance_check {
  std::string_view name;
  bool poisons = false;  // it makes ranks fail: the communicator is of no use afterwards
  void (*run)(trial&) = nullptr;
};

/// All checks, the simplest first.
std::span<const conformance_check> conformance_checks();

/// Runs one check. Collective over `comm`, a group of its own when the check `poisons`: every rank runs the same check.
/// \returns what this rank found wrong; nothing when all was well
/// Cost: blocks, but when the communicator keeps its deadlines at most a few times `patience`; milliseconds when all is
/// well, or `deadline` where ranks are to fail.
std::vector<conformance_problem> run_check(const conformance_check& check, communicator_ref comm,
                                           const conformance_options& options = {});

/// What the suite found.
struct conformance_report {
  std::vector<std::string> checks;            // names of those that were run
  std::vector<conformance_problem> problems;  // of all ranks, in the order of ranks; of this one alone if they could
                                              // not be gathered, which is a problem too
  bool ok() const { return problems.empty(); }
  /// Success, or errc::communication with the first problem and how many there are.
  result<void> outcome() const;
};

/// A line per problem, or "all of 20 checks hold".
std::string to_string(const conformance_report& report);

/// Runs all checks, each in a group of its own. Collective: every rank calls it with its part of the same groups.
/// \param make  this rank's communicator of a new group of the same ranks; called once for each check and once more for
///              gathering what was found, in the same order on every rank. The groups are kept until the end.
/// \errors in the report; an error of `make` ends it
conformance_report check_communicator(function_ref<result<any_communicator>()> make,
                                      const conformance_options& options = {});

}  // namespace shardmesh
