// SPDX-License-Identifier: Apache-2.0
// Moves of several ranks from one naming convention to another: the C++ half of `redistribute`. Saves are in
// rank_saving.
#pragma once
#include <pybind11/pybind11.h>

#include "conventions.hpp"

import shardmesh;
import shardmesh.transfer;

namespace bindings {

/// Fills the tensors `to` from the tensors `from`. Each is (key, distribution, dtype, memories of this rank's slots).
/// given: seconds (None, or a number), memory_bytes, allow_narrowing, and report.
/// Returns (bytes sent, bytes received, rounds, bytes of scratch memory).
pybind11::tuple move_mapped(shardmesh::communicator_ref comm, shardmesh::plan_cache& plans,
                            const chosen_mapping& mapping, const pybind11::sequence& from, const pybind11::sequence& to,
                            const pybind11::dict& given);

}  // namespace bindings
