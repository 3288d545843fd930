// SPDX-License-Identifier: Apache-2.0
// carve: shows the flat parameters of a checkpoint as the parameters inside them. flat_units describes their contents.
export module shardmesh.state_checkpoint:carve;

import shardmesh.std;
import shardmesh.checkpoint;
import :flat_units;

export namespace shardmesh {

/// Shows `inner` with named tensors instead of the flat ones that the units describe. Nothing is read or copied. Each
/// parameter's part of a stored piece becomes at most 2 * rank - 1 chunks, which are strided views of the same bytes.
/// Checksums of whole pieces do not apply to them.
/// \errors errc::missing_key (a unit for a tensor that does not exist, with a similar key; a `_flat_param` without a
///         unit), errc::shape_mismatch (another number of elements: found and expected), errc::duplicate_key (a
///         parameter has the name of another entry), those of `flat_parameter::make`; each names the flat parameter or
///         the parameter
/// Cost: O(parameters * log + chunks).
result<std::unique_ptr<checkpoint_reader>> carve_flat_parameters(std::unique_ptr<checkpoint_reader> inner,
                                                                 std::span<const flat_unit> units);

}  // namespace shardmesh
