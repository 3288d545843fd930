// SPDX-License-Identifier: Apache-2.0
// request_costs: a client's measurements of each server: the time until an answer, the rate of its bytes, and the
// number of requests at a time. Internal to `remote`.
module shardmesh.remote:request_costs;

import shardmesh.std;

namespace shardmesh::remote {

// Thread-safe. A server is named by the origin of an object's URL, as the store spells it.
class request_costs {
 public:
  using seconds = std::chrono::duration<double>;

  // Counts one answer: the time from the request to the answer's headers, and the time of its bytes.
  void add(const std::string& server, seconds until_answer, std::int64_t bytes, seconds of_bytes);
  // Returns how many bytes one connection brings in the time that a server takes to answer: 64 KiB to 8 MiB. A guess
  // before the first answer.
  std::int64_t bytes_per_request(const std::string& server) const;

  // The number of requests at a time with which the last call ended; nothing before the first call.
  std::optional<int> window(const std::string& server) const;
  void set_window(const std::string& server, int size);

 private:
  struct costs {
    std::optional<double> until_answer, bytes_per_second;
    std::optional<int> window;
  };
  costs& of(const std::string& server);

  mutable std::mutex lock_;
  std::map<std::string, costs> servers_;
};

}  // namespace shardmesh::remote
