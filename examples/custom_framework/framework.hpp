// SPDX-License-Identifier: Apache-2.0
// tiny: a pretend framework with its own tensor, parameter store, and network. It knows nothing of shardmesh;
// adaptation.hpp connects the two.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tiny {

// A matrix of floats.
struct matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;

  matrix() = default;
  matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  float& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  float at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

// The contents of a model: matrices and counters, by name, in groups.
struct parameter_store {
  using group = std::map<std::string, parameter_store>;
  std::variant<matrix, std::int64_t, group> is;

  parameter_store& operator[](const std::string& name) {
    if (!std::holds_alternative<group>(is)) is = group{};
    return std::get<group>(is)[name];
  }
  matrix& tensor() { return std::get<matrix>(is); }
  std::int64_t& counter() { return std::get<std::int64_t>(is); }
};

// The ports on which every rank of a job listens. They are opened before the ranks start, so that all ranks know them.
struct meeting_point {
  std::vector<int> listeners;
  std::vector<std::uint16_t> ports;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

inline sockaddr_in local_address(std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  made.sin_port = htons(port);
  return made;
}

inline meeting_point listen_for(std::int32_t ranks) {
  meeting_point made;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = local_address(0);
    socklen_t size = sizeof address;
    require(listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                listen(listener, 2 * ranks) == 0 &&
                getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
            "a rank cannot listen");
    made.listeners.push_back(listener);
    made.ports.push_back(ntohs(address.sin_port));
  }
  return made;
}

// The caller's rank, and which of the two lines of the pair it opens.
struct greeting {
  std::int32_t rank = 0, line = 0;
};

// The two TCP connections to every other rank: [rank][line]. Higher ranks call lower ones.
inline std::vector<std::pair<int, int>> connect_ranks(const meeting_point& meeting, std::int32_t rank) {
  const auto size = static_cast<std::int32_t>(meeting.ports.size());
  std::vector<std::pair<int, int>> lines(meeting.ports.size(), {-1, -1});
  const auto keep = [&](const greeting& who, int line) {
    const int on = 1;
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto& pair = lines.at(static_cast<std::size_t>(who.rank));
    (who.line == 0 ? pair.first : pair.second) = line;
  };
  for (std::int32_t peer = 0; peer < rank; ++peer)
    for (std::int32_t line = 0; line < 2; ++line) {
      const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = local_address(meeting.ports[static_cast<std::size_t>(peer)]);
      const greeting me{rank, line};
      require(made >= 0 && connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                  send(made, &me, sizeof me, MSG_NOSIGNAL) == sizeof me,
              "a rank cannot be reached");
      keep({peer, line}, made);
    }
  for (std::int32_t calls = 0; calls < 2 * (size - rank - 1); ++calls) {
    const int made = accept(meeting.listeners[static_cast<std::size_t>(rank)], nullptr, nullptr);
    greeting who;
    require(made >= 0 && recv(made, &who, sizeof who, MSG_WAITALL) == sizeof who && who.rank > rank && who.rank < size,
            "a caller does not say who it is");
    keep(who, made);
  }
  return lines;
}

}  // namespace tiny
