// SPDX-License-Identifier: Apache-2.0
// Not exported: collects the names and problems that threads find in the pickles of a checkpoint. The search is in
// pickle_scan.
module shardmesh.checkpoint:global_collector;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.storage;
import :pickle_globals;

namespace shardmesh {

class global_collector {
 public:
  explicit global_collector(const global_options& options) : budget(options.limits), options_(options) {}

  /// Adds names found in a file, in the item of `key`. Thread-safe.
  void add(const std::string& file, const std::string& key, const std::vector<pickle::used_name>& names);
  /// Adds a problem, with `key` if it has none. Thread-safe.
  void problem(error e, const std::string& key);
  /// Adds a warning in the same way.
  void warning(error e, const std::string& key);
  /// Ends the collection. The names are in the order of `global_report`.
  global_report take();

  const read_limits& limits() const { return options_.limits; }

  /// Returns the names in a pickle. Recent small pickles are remembered: items of tensors of one shape and dtype have
  /// equal ones. Thread-safe.
  std::vector<pickle::used_name> names_of(std::span<const std::byte> bytes);

  read_budget budget;  // for data that is inflated on the way

 private:
  const global_options& options_;
  std::mutex lock_;
  global_report report_;
  std::map<std::tuple<bool, std::string, std::string, std::string>, std::size_t> index_;
  using sorted_errors = std::multimap<std::tuple<std::string, std::string, std::string>, error>;
  static std::int64_t add_to(sorted_errors& list, error e, const std::string& key);
  sorted_errors problems_, warnings_;  // by file, key, and message
  std::mutex recent_lock_;
  std::vector<std::pair<std::vector<std::byte>, std::vector<pickle::used_name>>> recent_;
  std::size_t next_recent_ = 0;
};

}  // namespace shardmesh
