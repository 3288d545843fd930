// SPDX-License-Identifier: Apache-2.0
// Saves of several ranks that plan in C++: `dcp.save` with `plan_cache` or `map`. Saves that PyTorch's planner plans
// are in rank_folder.cpp.
#pragma once
#include <pybind11/pybind11.h>

#include <stop_token>

#include "conventions.hpp"

import shardmesh;

namespace bindings {

/// Writes a DCP folder. tensors: (path, shape, dtype, parts), and each part is (offsets, memory). objects: (path,
/// archive); the lowest rank's value of each is written. given: destination, overwrite, threads, memory_bytes, end (see
/// `to_limit`), previous, plan_cache (None, or a SavePlanCache), and report. Returns the report.
pybind11::dict save_by_ranks(shardmesh::communicator_ref comm, const pybind11::sequence& tensors,
                             const pybind11::sequence& objects, const pybind11::dict& given);

/// The same under the names of another convention. Objects must be equal on all ranks.
pybind11::dict save_mapped_by_ranks(shardmesh::communicator_ref comm, const chosen_mapping& mapping,
                                    const pybind11::sequence& tensors, const pybind11::sequence& objects,
                                    const pybind11::dict& given);

/// Takes part in a `save_by_ranks` of the other ranks, which get the error `why`. Returns it.
shardmesh::result<void> refuse_save(shardmesh::communicator_ref comm, const shardmesh::error& why,
                                    const std::stop_token& cancel);

}  // namespace bindings
