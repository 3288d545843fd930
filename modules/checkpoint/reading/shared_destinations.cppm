// SPDX-License-Identifier: Apache-2.0
// shared_destinations: which requests of one load fill memory that another one fills. Not here: whether two views share
// a byte (strided_memory.hpp).
export module shardmesh.checkpoint:shared_destinations;

import shardmesh.std;
import shardmesh.core;
import :load;

export namespace shardmesh::detail {

/// Two requests of one memory. `earlier` < `later`.
struct shared_destination {
  std::size_t earlier = 0, later = 0;
  friend bool operator==(const shared_destination&, const shared_destination&) = default;
};

/// What `find_shared_destinations` allows. Both are in the order of `later`, which is listed once, with the first
/// request that it shares its memory with.
struct shared_destinations {
  std::vector<shared_destination> repeated;  // the same box of the same key, in the same memory
  std::vector<shared_destination> tied;      // the same memory under another key: their values have to be equal
};

/// Compares the memory of every two requests. Boxes of one key may overlap in memory where they overlap in the tensor.
/// Precondition: each request's memory has the sizes of its box. Views that take too long to compare count as apart.
/// \errors errc::overlap, naming both keys and boxes, when two requests fill one byte with different elements
/// Cost: O(n log n), and O(1) per pair whose extents in memory meet.
result<shared_destinations> find_shared_destinations(std::span<const load_request> requests);

/// The tied requests of one load: all but the first of each memory are filled apart, and compared at the end.
class tied_destinations {
 public:
  /// Gives requests that share memory of the host a buffer of their own: `to` is changed. \errors errc::no_memory
  static result<tied_destinations> make(std::vector<shared_destination> tied, std::span<load_request> requests);

  /// Compares those of which both sides have been filled and that were not compared before.
  /// \errors errc::disagreement, naming both keys
  result<void> compare(std::span<const load_request> requests, function_ref<bool(std::size_t request)> is_filled);

 private:
  std::vector<shared_destination> pending_;
  std::vector<host_tensor> buffers_;
};

}  // namespace shardmesh::detail
