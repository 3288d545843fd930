// SPDX-License-Identifier: Apache-2.0
// What ranks.py calls in each of its processes, over a process group that it made: a shared library with C functions,
// as groups of gloo can be made in Python only. Each gives an empty text, or what is wrong on this rank.
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

/// What `named` says of a group that is not there, and of one without a backend for the CPU.
const char* error_of_group(const char* group) {
  const auto made = c10d_communicator::named(group);
  return kept(made ? "" : to_string(made.error()));
}
}
