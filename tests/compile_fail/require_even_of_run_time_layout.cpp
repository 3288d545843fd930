// SPDX-License-Identifier: Apache-2.0
// `require_even` is for static layouts; a run-time layout is checked at run time.
// expect: error: .*(constraints not satisfied.*compile_time_layout)
import shardmesh.layout;

using namespace shardmesh;
using rows = require_even<layout>;
static_assert(rows::size() == 4);
