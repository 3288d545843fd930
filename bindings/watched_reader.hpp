// SPDX-License-Identifier: Apache-2.0
// A reader that forwards to another, counts the bytes of tensors that are read, and stops reading once a stop was
// requested. It gives `verify` and `diff`, whose options have neither, progress and Ctrl-C.
#pragma once
#include <memory>

#include "watch.hpp"

import shardmesh;

namespace bindings {

/// `inner` and `watching` must outlive the returned reader.
std::unique_ptr<shardmesh::checkpoint_reader> watched(shardmesh::checkpoint_reader& inner, watch& watching);

}  // namespace bindings
