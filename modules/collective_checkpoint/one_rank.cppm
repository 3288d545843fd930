// SPDX-License-Identifier: Apache-2.0
// Not exported: helpers of calls that make this rank's part themselves. A rank that cannot make it tells the others. In
// a process without other ranks, errors name no rank.
module shardmesh.collective_checkpoint:one_rank;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {

// Takes part in the first round of the call that the other ranks are in (`call.name`), with this rank's error. Returns
// the error that every rank gets. Precondition: `mine` is an error.
error tell_others(communicator_ref comm, const call_options& call, const result<void>& mine);

// Removes the rank's number from an error of a process that is the only rank.
template <class Report>
result<Report> without_rank(result<Report> done) {
  if (done) return done;
  error why = std::move(done).error();
  why.ranks.clear();
  for (error& other : why.others) other.ranks.clear();
  return why;
}

}  // namespace shardmesh
