// SPDX-License-Identifier: Apache-2.0
// A checkpoint as it is, whose tensors' bytes are counted as they are read, and no longer read once a stop was asked
// for: what gives verify and diff their progress and their Ctrl-C, whose options have neither.
#pragma once
#include <memory>

#include "watch.hpp"

import shardmesh;

namespace bindings {

/// `inner` and `watching` outlive it.
std::unique_ptr<shardmesh::checkpoint_reader> watched(shardmesh::checkpoint_reader& inner, watch& watching);

}  // namespace bindings
