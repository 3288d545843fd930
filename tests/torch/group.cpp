// SPDX-License-Identifier: Apache-2.0
// What ranks.py calls in each of its processes, over a process group that it made: a shared library with C functions,
// as groups of gloo can be made in Python only. Each gives an empty text, or what is wrong on this rank.
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "kept.hpp"

import shardmesh.comm;
import shardmesh.conformance;
import shardmesh.torch;

using namespace shardmesh;

extern "C" {

const char* check_conformance(const char* group) {
  const conformance_report report = check_communicator([&]() -> result<any_communicator> {
    auto made = c10d_communicator::named(group);
    if (!made) return std::move(made).error();
    return any_communicator(*std::move(made));
  });
  return kept(report.ok() ? "" : to_string(report));
}

/// Exchanges of one small message with the next rank and from the one before, each with a tag of its own.
const char* exchange_tags(const char* group, int exchanges) {
  auto comm = c10d_communicator::named(group);
  if (!comm) return kept(to_string(comm.error()));
  const std::int32_t next = (comm->rank() + 1) % comm->size();
  const std::int32_t before = (comm->rank() + comm->size() - 1) % comm->size();
  for (int i = 0; i < exchanges; ++i) {
    const auto tag = static_cast<std::uint32_t>(i);
    std::uint32_t come = tag + 1;
    const outgoing send{next, std::as_bytes(std::span(&tag, 1))};
    const incoming receive{before, std::as_writable_bytes(std::span(&come, 1))};
    auto started = comm->start_exchange({&send, 1}, {&receive, 1}, {.tag = tag});
    if (!started) return kept(to_string(started.error()));
    if (auto done = started->wait(); !done) return kept(to_string(done.error()));
    if (come != tag) return kept("message " + std::to_string(tag) + " came as " + std::to_string(come));
  }
  return kept("");
}

/// What `named` says of a group that is not there, and of one without a backend for the CPU.
const char* error_of_group(const char* group) {
  const auto made = c10d_communicator::named(group);
  return kept(made ? "" : to_string(made.error()));
}
}
