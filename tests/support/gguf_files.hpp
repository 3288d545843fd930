// SPDX-License-Identifier: Apache-2.0
// Makes GGUF bytes by hand, valid or not.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gguf_files {

/// A number as the file holds it: little-endian.
template <class Number>
std::string number(Number value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(value);
  return {bytes.data(), bytes.size()};
}

/// A string as the file holds it: its length, and its bytes.
inline std::string text(std::string_view value) {
  return number(static_cast<std::uint64_t>(value.size())) + std::string(value);
}

/// The head of an array's value: the type of its elements, and their number.
inline std::string array(std::uint32_t type, std::uint64_t count) {
  return number(type) + number(count);
}

/// The numbers of some types, as the specification has them.
inline constexpr std::uint32_t uint8 = 0, uint32 = 4, int32 = 5, float32 = 6, boolean = 7, string = 8, array_type = 9,
                               uint64 = 10;
inline constexpr std::uint32_t f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, iq2_xxs = 16, i8 = 24;

/// A file that is described value by value and tensor by tensor.
struct file {
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // of the padding behind the description
  std::string values, tensors, data;
  std::uint64_t value_count = 0, tensor_count = 0;

  file& value(std::string_view key, std::uint32_t type, std::string_view bytes) {
    values += text(key) + number(type) + std::string(bytes);
    ++value_count;
    return *this;
  }
  /// `sizes` is in the order of the file: the sizes of rows come first.
  file& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
               std::uint64_t offset) {
    tensors += text(name) + number(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) tensors += number(size);
    tensors += number(type) + number(offset);
    ++tensor_count;
    return *this;
  }
  std::string bytes() const {
    std::string made = "GGUF" + number(version) + number(tensor_count) + number(value_count) + values + tensors;
    made.resize((made.size() + alignment - 1) / alignment * alignment, '\0');
    return made + data;
  }
};

}  // namespace gguf_files
