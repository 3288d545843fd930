// SPDX-License-Identifier: Apache-2.0
// shared_destinations: finds the requests of one load that fill the same memory. strided_memory.hpp decides whether two
// views share a byte.
export module shardmesh.checkpoint:shared_destinations;

import shardmesh.std;
import shardmesh.core;
import :load;

export namespace shardmesh::detail {

/// Two requests that fill the same memory. `earlier` < `later`.
struct shared_destination {
  std::size_t earlier = 0, later = 0;
  friend bool operator==(const shared_destination&, const shared_destination&) = default;
};

/// The allowed pairs that `find_shared_destinations` found. Both lists are in the order of `later`. Each `later` is
/// listed once, with the first request that shares its memory.
struct shared_destinations {
  std::vector<shared_destination> repeated;  // the same box of the same key, in the same memory
  std::vector<shared_destination> tied;      // the same memory under another key: the values must be equal
};

/// Compares the memory of every two requests. Boxes of one key may overlap in memory where they overlap in the tensor.
/// Precondition: each request's memory has the sizes of its box. Views that take too long to compare count as disjoint.
/// \errors errc::overlap, naming both keys and boxes, when two requests fill one byte with different elements
/// Cost: O(n log n), and O(1) for each pair whose address ranges meet.
result<shared_destinations> find_shared_destinations(std::span<const load_request> requests);

/// The tied requests of one load. For each memory, all but the first are loaded into buffers, and compared at the end.
class tied_destinations {
 public:
  /// Redirects tied requests to buffers of their own in host memory, by changing `to`.
  /// \errors errc::no_memory
  static result<tied_destinations> make(std::vector<shared_destination> tied, std::span<load_request> requests);

  /// Compares the pairs whose two requests have been filled and that were not compared before.
  /// \errors errc::disagreement, naming both keys
  result<void> compare(std::span<const load_request> requests, function_ref<bool(std::size_t request)> is_filled);

 private:
  std::vector<shared_destination> pending_;
  std::vector<host_tensor> buffers_;
};

}  // namespace shardmesh::detail
