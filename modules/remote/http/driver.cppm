// SPDX-License-Identifier: Apache-2.0
// driver: the thread that moves the bytes of all attempts of one client. It reports how each attempt ended; the calls
// evaluate that. Internal to `remote`.
module shardmesh.remote:driver;

import shardmesh.std;
import :attempt;
import :http_client;

namespace shardmesh::remote {

// Thread-safe.
class driver {
 public:
  // Throws std::system_error when the process cannot start another thread.
  explicit driver(const http_options& options);
  // Calls `stop`.
  ~driver();
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;

  // Starts an attempt, at once or when fewer than `options.connections` are running. The attempt arrives in its inbox
  // exactly once, even if it fails or is withdrawn. It fails if the driver's thread has no memory for it. This call
  // allocates nothing.
  void start(std::shared_ptr<attempt> next);
  // Ends an attempt soon, unless it has ended. Once the attempt is in its inbox, nothing uses its sink and body. This
  // call allocates nothing.
  void withdraw(const std::shared_ptr<attempt>& unwanted);
  // Withdraws all attempts, also those that are started later, and ends the thread.
  void stop();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh::remote
