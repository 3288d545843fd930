// SPDX-License-Identifier: Apache-2.0
// A layout at run time is asked, not required.
// expect: error: .*(constraints not satisfied.*compile_time_layout)
import shardmesh.layout;

using namespace shardmesh;
using rows = require_even<layout>;
static_assert(rows::size() == 4);
