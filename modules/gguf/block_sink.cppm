// SPDX-License-Identifier: Apache-2.0
// Not exported: the executor's sink for a GGUF file. It quantizes the elements of some items on their way to the writer
// of the file.
module shardmesh.gguf:block_sink;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.torch_file;
import :block_encoding;
import :file_plan;

namespace shardmesh::gguf {

// Models item_sink. An item's slot is its tensor's index in the plan. Different threads may write different items at
// the same time, each front to back.
class block_sink {
 public:
  // `keys`: the name of each tensor, for messages. All arguments must outlive the sink.
  block_sink(torch_file::item_writer& writer, const file_plan& plan, std::span<const std::string> keys);

  // Writes row-major elements: float32 for a tensor that is quantized.
  // \errors errc::unsupported for a block that the type cannot hold, naming the key; those of the writer
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);

 private:
  // The elements of an incomplete block, and the place of the next block.
  struct progress {
    std::vector<float> pending;
    std::size_t pending_bytes = 0;
    std::int64_t written = 0;  // bytes of blocks
  };

  result<void> write_blocks(item_id item, const type_traits& type, progress& state, std::span<const float> values);

  torch_file::item_writer& writer_;
  const file_plan& plan_;
  std::span<const std::string> keys_;
  std::vector<progress> progress_;
};

}  // namespace shardmesh::gguf
