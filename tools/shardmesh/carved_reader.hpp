// SPDX-License-Identifier: Apache-2.0
// A checkpoint whose flat parameters are seen as the parameters in them. Not here: what lies where (flat_spec).
#pragma once
#include <memory>
#include <span>

#include "flat_spec.hpp"

import shardmesh;

namespace tool {

/// `inner` with named tensors in the place of the flat ones that the units describe. Nothing is read or copied: of each
/// stored piece of a flat tensor, the part that is a parameter's becomes at most 2 * rank - 1 chunks of it, views with
/// strides into the same bytes. Checksums of whole pieces do not apply to them.
/// \errors errc::missing_key (a unit of a tensor that is not there; a `_flat_param` without a unit),
/// errc::shape_mismatch
///         (another number of elements: found and expected), errc::duplicate_key (a parameter has the name of another
///         entry), those of `flat_parameter::make`; each names the flat parameter or the parameter
/// Cost: O(parameters * log + chunks).
shardmesh::result<std::unique_ptr<shardmesh::checkpoint_reader>> carve(
    std::unique_ptr<shardmesh::checkpoint_reader> inner, std::span<const flat_spec_unit> units);

}  // namespace tool
