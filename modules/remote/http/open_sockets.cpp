// SPDX-License-Identifier: Apache-2.0
module;
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <vector>
module shardmesh.remote;

import :open_sockets;

namespace shardmesh::remote {
namespace {

// Returns -1 for a socket without a port.
int local_port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return -1;
}

}  // namespace

void open_sockets::close(int socket) {
  std::erase(sockets_, socket);
  ::close(socket);
}

bool open_sockets::has_unread(int local_port) const {
  return std::any_of(sockets_.begin(), sockets_.end(), [&](int socket) {
    char byte = 0;
    return local_port_of(socket) == local_port && ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  });
}

}  // namespace shardmesh::remote
