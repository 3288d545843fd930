// SPDX-License-Identifier: Apache-2.0
// network_model: how long messages take between simulated ranks, in the manner of the LogGP model. The clocks that it
// advances are in `engine`.
export module shardmesh.simulation:network_model;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A network that connects every rank to a switch. A rank sends its messages one after the other, and receives them one
/// after the other. A message of k bytes costs its sender `overhead`, then occupies the sender's link for k bytes'
/// time. Its first byte arrives `latency` after it left. The message occupies the receiver's link for k bytes' time,
/// and costs the receiver `overhead`. A lone message thus takes latency + 2 overhead + k bytes' time. The defaults are
/// of the size of a network of 200 Gbit/s; measure your own.
/// Source: Alexandrov et al., LogGP: Incorporating Long Messages into the LogP Model (1995)
struct network_model {
  std::chrono::nanoseconds latency{2'000};         // 0 to 1 hour
  std::chrono::nanoseconds overhead{500};          // 0 to 1 hour
  std::int64_t bytes_per_second = 25'000'000'000;  // of one link, in each direction; at least 1

  /// Returns the time for which a message occupies a link, rounded up to a nanosecond. Precondition: 0 <= size_bytes.
  std::chrono::nanoseconds transfer_time(std::int64_t size_bytes) const;
  /// Returns the time from the last rank's arrival in an all_gather until a rank leaves it. As in our transports, every
  /// rank sends its bytes to each of the n = size - 1 other ranks: the larger of 2 n overhead, and
  /// latency + 2 overhead + the larger of (n - 1) overhead and the time of `received_bytes`. For one rank it is 0.
  /// \param received_bytes  the bytes of all other ranks together
  std::chrono::nanoseconds all_gather_time(std::int32_t size, std::int64_t received_bytes) const;
  /// Checks the ranges above. \errors errc::invalid_argument naming the member
  result<void> check() const;

  friend bool operator==(const network_model&, const network_model&) = default;
};

}  // namespace shardmesh
