// SPDX-License-Identifier: Apache-2.0
// open_sockets: the sockets of a driver's connections. libcurl 7.88 uses a connection again although bytes wait on it,
// and takes the rest of an earlier answer for the answer to the next request. Internal to `remote`.
module shardmesh.remote:open_sockets;

import shardmesh.std;

namespace shardmesh::remote {

// Not thread-safe: libcurl calls it from the driver's thread, and from the driver's destructor.
class open_sockets {
 public:
  void add(int socket) { sockets_.push_back(socket); }
  // Closes a socket, and forgets it.
  void close(int socket);
  // Returns whether bytes wait to be read from the socket with this local port. Reads none.
  bool has_unread(int local_port) const;

 private:
  std::vector<int> sockets_;
};

}  // namespace shardmesh::remote
