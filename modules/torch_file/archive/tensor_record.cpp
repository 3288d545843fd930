// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :tensor_record;

namespace shardmesh::torch_file {

void write_storage_reference(pickle::writer& out, std::string_view module_name, std::string_view storage_class,
                             std::size_t number, std::int64_t count) {
  out.begin_tuple();
  out.text("storage");
  out.global(module_name, storage_class);
  out.text(std::to_string(number));
  out.text("cpu");
  out.integer(count);
  out.end_tuple();
  out.persistent();
}

void write_numbers(pickle::writer& out, const extents& numbers) {
  out.begin_tuple();
  for (const std::int64_t number : numbers) out.integer(number);
  out.end_tuple();
}

void write_no_hooks(pickle::writer& out) {
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.reduce();
}

void write_tensor_record(pickle::writer& out, dtype type, const extents& sizes, const extents& strides,
                         std::size_t number) {
  const auto class_name = storage_class(type);
  const std::int64_t count = *checked_volume(sizes);
  out.global("torch._utils", class_name ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.begin_tuple();
  if (class_name)
    write_storage_reference(out, "torch", *class_name, number, count);
  else
    write_storage_reference(out, "torch.storage", "UntypedStorage", number, *size_bytes(type, count));
  out.integer(0);
  write_numbers(out, sizes);
  write_numbers(out, strides);
  out.boolean(false);
  write_no_hooks(out);
  if (!class_name) out.global("torch", name(type));
  out.end_tuple();
  out.reduce();
}

}  // namespace shardmesh::torch_file
