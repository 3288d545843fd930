// SPDX-License-Identifier: Apache-2.0
// companion: the second name of a destination that is one file. Not here: what is written there (safetensors).
export module shardmesh.storage:companion;

import shardmesh.std;

export namespace shardmesh {

/// NAME.objects.json for NAME.safetensors.
std::filesystem::path objects_beside(const std::filesystem::path& file);

}  // namespace shardmesh
