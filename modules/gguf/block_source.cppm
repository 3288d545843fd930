// SPDX-License-Identifier: Apache-2.0
// Not exported: the float32 elements of a tensor of quantized blocks, decoded while they are read.
module shardmesh.gguf:block_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :tensor_type;

namespace shardmesh::gguf {

// Rows consist of whole blocks, so a tensor is one run of blocks. A read decodes only the blocks of its bytes.
// Thread-safe. Precondition: the type `is_decoded`.
class block_source final : public byte_source {
 public:
  // The `count` blocks from `begin` on. They lie within the file.
  block_source(std::shared_ptr<const byte_source> file, std::int64_t begin, const type_traits& type, std::int64_t count)
      : file_(std::move(file)), begin_(begin), type_(type), count_(count) {}
  std::int64_t size_bytes() const override { return count_ * decoded_bytes(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  std::string name() const override { return file_->name(); }

 private:
  // Of one block.
  std::int64_t decoded_bytes() const { return type_.block_elements * static_cast<std::int64_t>(sizeof(float)); }

  std::shared_ptr<const byte_source> file_;
  std::int64_t begin_;
  const type_traits& type_;
  std::int64_t count_;
};

}  // namespace shardmesh::gguf
