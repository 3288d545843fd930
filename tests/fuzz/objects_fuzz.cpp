// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as the objects of an objects.json and as a record of checksums. Each gets a correct
// checksum, so that the checksum does not refuse it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

import shardmesh.checkpoint;
import shardmesh.digest;
import shardmesh.safetensors;
import shardmesh.storage;

namespace {

std::string digits(std::string_view text) {
  return shardmesh::to_hex(shardmesh::xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string opening = "{\"format\":\"shardmesh objects 1\",\n\"xxh3\":\"";
  std::string text = opening + std::string(32, '0') + "\",\n\"objects\":" + std::string(input) + "}\n";
  text.replace(opening.size(), 32, digits(text));
  static_cast<void>(shardmesh::safetensors::parse_objects(text));
  std::string record = "shardmesh-checksums 1 xxh3-128\n" + std::string(input);
  record += digits(record) + "\n";
  static_cast<void>(shardmesh::parse_checksums(record));
  return 0;
}
