// SPDX-License-Identifier: Apache-2.0
// The names of error codes, as Python and C programs see them. The Python package and the C interface use them.
#pragma once
#include <array>
#include <cstddef>

import shardmesh;

namespace bindings {

/// The enumerators' names, in order.
inline constexpr std::array code_names{
    "ok",
    "invalid_argument",
    "overflow",
    "rank_too_large",
    "shape_mismatch",
    "dtype_mismatch",
    "out_of_bounds",
    "overlap",
    "gap",
    "mixed_partial",
    "unaligned",
    "narrowing",
    "no_memory",
    "missing_key",
    "duplicate_key",
    "bad_format",
    "bad_pickle",
    "unsupported",
    "checksum_mismatch",
    "incomplete_save",
    "unsafe_path",
    "destination_exists",
    "io",
    "no_space",
    "cancelled",
    "deadline_exceeded",
    "disagreement",
    "communication",
};
static_assert(code_names.size() == static_cast<std::size_t>(shardmesh::errc::communication) + 1);

}  // namespace bindings
