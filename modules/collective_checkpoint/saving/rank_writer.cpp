// SPDX-License-Identifier: Apache-2.0
module;
#include <memory>
module shardmesh.collective_checkpoint;

import :rank_writer;

namespace shardmesh {

std::unique_ptr<rank_writer> make_rank_writer(target_format to, const rank_write_request& request) {
  switch (to) {
    case target_format::dcp:
      return dcp_rank_writer(request);
    case target_format::safetensors:
      return safetensors_rank_writer(request, false);
    case target_format::hf:
      return safetensors_rank_writer(request, true);
    case target_format::pt:
    case target_format::torch_checkpointing:
    case target_format::gguf:
    case target_format::npz:
      break;
  }
  return nullptr;
}

}  // namespace shardmesh
