// SPDX-License-Identifier: Apache-2.0
// carve: a checkpoint whose flat parameters are seen as the parameters in them. Not here: what lies where (flat_units).
export module shardmesh.state_checkpoint:carve;

import shardmesh.std;
import shardmesh.checkpoint;
import :flat_units;

export namespace shardmesh {

/// `inner` with named tensors in the place of the flat ones that the units describe. Nothing is read or copied: of each
/// stored piece of a flat tensor, the part that is a parameter's becomes at most 2 * rank - 1 chunks of it, views with
/// strides into the same bytes. Checksums of whole pieces do not apply to them.
/// \errors errc::missing_key (a unit of a tensor that is not there, with a key that is near; a `_flat_param` without a
///         unit), errc::shape_mismatch (another number of elements: found and expected), errc::duplicate_key (a
///         parameter has the name of another entry), those of `flat_parameter::make`; each names the flat parameter or
///         the parameter
/// Cost: O(parameters * log + chunks).
result<std::unique_ptr<checkpoint_reader>> carve_flat_parameters(std::unique_ptr<checkpoint_reader> inner,
                                                                 std::span<const flat_unit> units);

}  // namespace shardmesh
