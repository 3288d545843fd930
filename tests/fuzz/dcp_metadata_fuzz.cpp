// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as `.metadata`. Accepted metadata has chunks inside their tensors and files inside
// the folder; merging it with itself changes nothing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.dcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardmesh;
  const auto bytes = std::as_bytes(std::span(data, size));
  auto parsed = dcp::parse_metadata({bytes.begin(), bytes.end()}, "fuzz");
  if (!parsed) return 0;
  const catalog& contents = parsed->contents;
  for (const tensor_entry& tensor : contents.tensors) {
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
      if (!lies_within(contents.chunk_box(tensor, tensor.first_chunk + i), box::whole(tensor.shape))) std::abort();
    static_cast<void>(contents.distribution_of(tensor));
  }
  for (const std::string& file : contents.files)
    for (const auto& part : std::filesystem::path(file))
      if (part == "..") std::abort();
  const std::size_t tensors = contents.tensors.size();
  std::vector<dcp::metadata> twice;
  twice.push_back(*parsed);
  twice.push_back(*std::move(parsed));
  if (dcp::merge_metadata(std::move(twice)).contents.tensors.size() != tensors) std::abort();
  return 0;
}
