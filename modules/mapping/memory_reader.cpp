// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint;
import shardmesh.torch_file;
import :memory_reader;

namespace shardmesh {
namespace {

// The number of elements from the first to the last one of a view.
result<std::int64_t> reach_of(const const_tensor_view& view) {
  std::int64_t reach = 1;
  for (std::size_t d = 0; d < view.sizes.rank(); ++d) {
    if (view.strides[d] < 0) return fail(errc::unsupported, "a tensor in memory has a negative stride");
    const auto moved = checked_multiply(view.sizes[d] - 1, view.strides[d]);
    const auto sum = moved ? checked_add(reach, *moved) : std::nullopt;
    if (!sum) return fail(errc::overflow, "the elements of a tensor in memory are too far apart");
    reach = *sum;
  }
  return reach;
}

class memory_reader final : public checkpoint_reader, public torch_file::archived_objects {
 public:
  memory_reader(std::span<const save_tensor> tensors, std::span<const output_object> objects)
      : tensors_(tensors), objects_(objects) {
    contents_.format = checkpoint_format::dcp;  // any entry may be nested, and objects may hold tensors
  }

  result<void> fill() {
    std::vector<error> problems;
    for (const save_tensor& tensor : tensors_)
      if (auto done = add(tensor); !done) problems.push_back(std::move(done).error().with_key(tensor.key));
    if (!problems.empty()) return fail_all(std::move(problems));
    for (const output_object& object : objects_)
      contents_.objects.push_back(
          {object.key, object.where.empty() ? shardmesh::path{object.key} : object.where, {}, 0});
    return check_distinct_keys(contents_, "two entries of the state have the same name");
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    const memory& part = parts_[static_cast<std::size_t>(chunk)];
    auto opened = std::make_shared<opened_chunk>();
    opened->source =
        std::make_shared<memory_source>(std::span(part.view.data, static_cast<std::size_t>(part.bytes)), tensor.key);
    opened->tensor.size_bytes = part.bytes;
    opened->tensor.type = part.view.type;
    opened->tensor.sizes = part.view.sizes;
    opened->tensor.strides = part.view.strides;
    return std::shared_ptr<const opened_chunk>(std::move(opened));
  }

  result<object_value> read_object(std::size_t index) override {
    SHARDMESH_TRY(const torch_file::opened_object opened, open_object(index));
    auto value = torch_file::describe_object(*opened.item, opened.item->root(), *opened.source, *opened.budget);
    if (!value) return std::move(value).error().with_key(contents_.objects[index].key);
    return value;
  }

  result<std::vector<std::byte>> object_archive(std::size_t index) override {
    auto archive = objects_[index].archive();
    if (!archive) return std::move(archive).error().with_key(contents_.objects[index].key);
    return archive;
  }

  result<torch_file::opened_object> open_object(std::size_t index) override {
    SHARDMESH_TRY(std::vector<std::byte> archive, object_archive(index));
    torch_file::opened_object made;
    made.place = contents_.objects[index].key;
    made.source = std::make_shared<owned_source>(std::move(archive), made.place);
    made.budget = std::make_shared<read_budget>();
    auto item = torch_file::item::open(*made.source, {.budget = made.budget.get()});
    if (!item) return std::move(item).error().with_key(made.place);
    made.item = std::make_shared<const torch_file::item>(*std::move(item));
    return made;
  }

 private:
  struct memory {
    const_tensor_view view;
    std::int64_t bytes = 0;  // from its first element to the end of its last one
  };

  result<void> add(const save_tensor& tensor) {
    if (tensor.parts.empty()) return fail(errc::gap, "a tensor of the state has no parts");
    tensor_entry entry;
    entry.key = tensor.key;
    entry.where = tensor.where.empty() ? shardmesh::path{tensor.key} : tensor.where;
    entry.type = tensor.parts[0].from.type;
    entry.shape = tensor.shape;
    contents_.tensors.push_back(std::move(entry));
    for (const save_part& part : tensor.parts) {
      SHARDMESH_TRY(const memory held, memory_of(part, tensor));
      parts_.push_back(held);
      contents_.add_chunk(part.where, {});
    }
    SHARDMESH_TRY(const distribution held, contents_.distribution_of(contents_.tensors.back()));
    const cover_report cover = check_cover(held);
    if (!cover.problems.empty()) return to_error(cover.problems.front());
    return {};
  }

  static result<memory> memory_of(const save_part& part, const save_tensor& tensor) {
    const const_tensor_view& view = part.from;
    if (part.where.rank() != tensor.shape.rank() || !is_well_formed(part.where) ||
        !lies_within(part.where, box::whole(tensor.shape)))
      return fail(errc::out_of_bounds, "a part of a tensor exceeds the tensor")
          .with_box(part.where)
          .with_values(to_string(tensor.shape), to_string(part.where));
    if (view.sizes != part.where.sizes || view.strides.rank() != view.sizes.rank())
      return fail(errc::shape_mismatch, "the memory of a part has other sizes than its box")
          .with_box(part.where)
          .with_values(to_string(part.where.sizes), to_string(view.sizes));
    if (view.type != tensor.parts[0].from.type)
      return fail(errc::dtype_mismatch, "the parts of a tensor have several dtypes")
          .with_box(part.where)
          .with_values(std::string(shardmesh::name(tensor.parts[0].from.type)),
                       std::string(shardmesh::name(view.type)));
    if (part.where.is_empty()) return memory{view, 0};
    SHARDMESH_TRY(check_host_memory(view));
    SHARDMESH_TRY(const std::int64_t reach, reach_of(view));
    const auto bytes = size_bytes(view.type, reach);
    if (!bytes) return fail(errc::overflow, "a part of a tensor has too many bytes").with_box(part.where);
    return memory{view, *bytes};
  }

  std::span<const save_tensor> tensors_;
  std::span<const output_object> objects_;
  std::vector<memory> parts_;  // one per chunk
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> make_memory_reader(std::span<const save_tensor> tensors,
                                                              std::span<const output_object> objects) {
  auto made = std::make_unique<memory_reader>(tensors, objects);
  SHARDMESH_TRY(made->fill());
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh
