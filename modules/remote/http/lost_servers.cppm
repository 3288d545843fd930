// SPDX-License-Identifier: Apache-2.0
// lost_servers: the servers that do not answer a call. Without this memory, a call that continues after an error, such
// as a verification, would wait for each of its files as long as for the first one. Internal to `remote`.
module shardmesh.remote:lost_servers;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::remote {

// Counts the requests that had no usable answer in all of their attempts. After the first one, later requests of the
// same call to that server have one attempt each. After the fourth, none is sent. An answer ends this, and so does the
// next call. Thread-safe. A server is named by the origin of an object's URL.
class lost_servers {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // Returns the number of attempts of a request, which is `usual` for a server that answers; 0: it is not sent.
  // `call_began` is the beginning of the call that the request belongs to.
  int attempts(const std::string& server, time_point call_began, int usual) const;
  // Counts a request that failed in its last attempt.
  void add_failure(const std::string& server, time_point call_began, time_point now, const error& why);
  void add_answer(const std::string& server);
  // Returns the error of a request that is not sent.
  error not_sent(const std::string& server, const std::string& url) const;

 private:
  struct loss {
    time_point since;
    int failures = 0;
    std::string last;  // the text of the last failure
  };
  mutable std::mutex lock_;
  std::map<std::string, loss> lost_;
  std::atomic<bool> has_any_ = false;
};

}  // namespace shardmesh::remote
