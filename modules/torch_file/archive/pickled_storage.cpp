// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

import :numpy_value;
import :pickled_storage;

namespace shardmesh::torch_file {
namespace {

constexpr std::string_view magic_number = "119547037146038801333356";

error damaged() {
  return fail(errc::bad_format, "a tensor of a pickle is not a stream of torch.save with one storage");
}

struct code_type {
  std::string_view code;
  dtype type;
};
constexpr code_type number_codes[] = {{"<f2", dtype::float16},   {"<f4", dtype::float32},     {"<f8", dtype::float64},
                                      {"<c8", dtype::complex64}, {"<c16", dtype::complex128}, {"|b1", dtype::boolean},
                                      {"|i1", dtype::int8},      {"|u1", dtype::uint8},       {"<i2", dtype::int16},
                                      {"<i4", dtype::int32},     {"<i8", dtype::int64},       {"<u2", dtype::uint16},
                                      {"<u4", dtype::uint32},    {"<u8", dtype::uint64}};

}  // namespace

result<pickled_storage> find_pickled_storage(const pickle::value& record, std::span<const std::byte> file) {
  const pickle::items args = record.args().items();
  if (args.size() != 1) return damaged();
  const auto bytes = args[0].bytes();
  if (!bytes)
    return fail(errc::unsupported, "its tensors are written as text, as protocols 0 to 2 of pickle.dump do")
        .with_hint("load it in Python and write it with torch.save");
  // magic number, protocol version, system information, storage reference, storage keys
  std::optional<pickle::graph> reference;
  std::optional<std::endian> order;
  std::span<const std::byte> rest = *bytes;
  for (int i = 0; i < 5; ++i) {
    SHARDMESH_TRY(auto part, pickle::graph::parse(rest));
    rest = rest.subspan(part.consumed_bytes());
    if (i == 0 && part.root().decimal() != magic_number) return damaged();
    if (i == 1 && part.root().as_int() != 1001) return damaged();
    if (i == 2)
      order = part.root().find("little_endian").as_bool().value_or(true) ? std::endian::little : std::endian::big;
    if (i == 4) {
      const pickle::items id = reference->root().persistent_id().items();
      const pickle::items keys = part.root().items();
      if (id.size() < 5 || keys.size() != 1 || !id[2].text() || keys[0].text() != id[2].text()) return damaged();
    }
    if (i == 3) reference = std::move(part);
  }
  std::array<std::byte, 8> count_bytes;
  if (rest.size() < count_bytes.size()) return damaged();
  for (std::size_t i = 0; i < count_bytes.size(); ++i)
    count_bytes[i] = rest[*order == std::endian::native ? i : count_bytes.size() - 1 - i];
  rest = rest.subspan(count_bytes.size());
  return pickled_storage{*std::move(reference), std::bit_cast<std::int64_t>(count_bytes), rest.data() - file.data(),
                         static_cast<std::int64_t>(rest.size()), *order};
}

std::optional<pickled_array> find_pickled_array(const pickle::value& record, std::span<const std::byte> file) {
  const auto array = numpy_array_of(record);
  if (!array || array->shape.size() > max_rank) return std::nullopt;
  pickled_array made;
  for (const code_type& known : number_codes)
    if (known.code == array->dtype) made.type = known.type;
  if (made.type == dtype::undefined) return std::nullopt;
  for (const std::int64_t size : array->shape) made.sizes.push_back(size);
  for (const std::int64_t stride : array->strides) made.strides.push_back(stride);
  made.begin = array->data.empty() ? 0 : array->data.data() - file.data();
  made.length = static_cast<std::int64_t>(array->data.size());
  return made;
}

}  // namespace shardmesh::torch_file
