// SPDX-License-Identifier: Apache-2.0
// The golden FSDP models: their JSON, and the tensors of their safetensors files. Include before imports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp_golden {

inline const nlohmann::json& cases() {
  return golden::file("seeds/fsdp_flat.json").at("cases");
}

/// A tensor of a safetensors file, as row-major bytes.
struct stored {
  std::string type;  // the safetensors name: "F32"
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  std::size_t item_bytes() const {
    static const std::map<std::string, std::size_t> sizes{{"BF16", 2}, {"F32", 4}, {"F64", 8}, {"I64", 8}};
    return sizes.at(type);  // throws for a type that is new to these tests
  }
};

/// The tensors of a case by name: "full.<key>", "flat.<unit>.<rank>".
inline std::map<std::string, stored> values(const nlohmann::json& c) {
  std::ifstream file(golden::folder() / "seeds" / c.at("values").get<std::string>(), std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  const auto header = nlohmann::json::parse(text.substr(8, length));
  std::map<std::string, stored> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<std::size_t>(), end = entry["data_offsets"][1].get<std::size_t>();
    stored tensor{entry["dtype"].get<std::string>(), entry["shape"].get<std::vector<std::int64_t>>(), {}};
    tensor.bytes.resize(end - begin);
    if (begin != end) std::memcpy(tensor.bytes.data(), text.data() + 8 + length + begin, end - begin);
    found[name] = std::move(tensor);
  }
  return found;
}

}  // namespace fsdp_golden
