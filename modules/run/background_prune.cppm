// SPDX-License-Identifier: Apache-2.0
// Not exported: prunes a run in a thread of rank 0, one prune at a time. The decision is in `prune`.
module shardmesh.run:background_prune;

import shardmesh.std;
import shardmesh.core;
import :prune;

namespace shardmesh {

class background_prune {
 public:
  background_prune();
  background_prune(background_prune&&) noexcept;
  background_prune& operator=(background_prune&& other) noexcept;
  // Waits for the prune.
  ~background_prune();

  // Starts a prune. If one is running, the new one follows it, in place of one that already waits.
  void start(const std::filesystem::path& run, const prune_options& options);
  // Waits for the prune, if one runs, and for the one that follows it.
  void wait();

  // Adds a line for the user. Thread-safe.
  void add_note(std::string line);
  // Returns the lines since the last call. Thread-safe.
  std::vector<std::string> take_notes();

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
