// SPDX-License-Identifier: Apache-2.0
// Names the companion file beside a destination that is a single file. `safetensors` writes it.
export module shardmesh.storage:companion;

import shardmesh.std;

export namespace shardmesh {

/// Returns NAME.objects.json for NAME.safetensors.
std::filesystem::path objects_beside(const std::filesystem::path& file);

}  // namespace shardmesh
