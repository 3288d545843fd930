// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :wrapper_form;

namespace shardmesh::torch_file {
namespace {

constexpr std::string_view description_ending = ".wrapper";

// A wrapper that replaces its components in the catalog.
struct made_wrapper {
  std::string key;
  std::shared_ptr<const torch_file::item> description;  // owns the form's values
  wrapper_form form;
  std::vector<std::size_t> components;  // the inner reader's tensors, in the form's order
  std::size_t described_by = 0;         // the inner reader's object
};

// A wrapper has no origin. Its components are checked while they are read, its description by `check_whole`.
class wrapped_reader final : public forwarding_reader, public assembled_tensors {
 public:
  wrapped_reader(checkpoint_reader& inner, to_wrap which) : forwarding_reader(inner), which_(which) {}

  // False when no object describes a wrapper.
  result<bool> wrap() {
    const catalog& stored = inner().contents();
    std::vector<std::shared_ptr<const made_wrapper>> wrapper_of(stored.tensors.size());
    clear_objects();
    for (std::size_t i = 0; i < stored.objects.size(); ++i) {
      SHARDMESH_TRY(const auto made, read_description(i));
      if (!made) {
        add_object(stored.objects[i], i);
        continue;
      }
      wrappers_.push_back(made);
      for (const std::size_t component : made->components) wrapper_of[component] = made;
    }
    if (wrappers_.empty()) return false;
    inner().identify_opaque_tensors();
    for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
      if (!wrapper_of[i])
        add_whole_tensor(i);
      else if (i == wrapper_of[i]->components.front())
        add_wrapper(wrapper_of[i]);
    }
    if (auto distinct = check_distinct_keys(contents_, "an entry has the name of a rebuilt tensor"); !distinct)
      return std::move(distinct).error().with_file(path_.string());
    return true;
  }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override {
    if (wrapper_of_chunk_.contains(chunk))
      return fail(errc::unsupported, fmt::format("a {} has no elements of its own", tensor.opaque_kind))
          .with_key(tensor.key)
          .with_file(path_.string());
    return forwarding_reader::open_chunk(tensor, chunk);
  }

  void identify_opaque_tensors() override {}  // done before any tensor was assembled

  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override {
    const auto found = wrapper_of_chunk_.find(chunk);
    return found == wrapper_of_chunk_.end() ? forwarding_reader::chunk_archive(tensor, chunk)
                                            : make_archive(*found->second);
  }

  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override {
    std::vector<whole_entry> stored;
    for (const whole_entry& entry : entries) {
      const auto there = shown(entry);
      if (there)
        stored.push_back(there->entry);
      else if (const auto found = wrapper_of_chunk_.find(contents_.tensors[entry.index].first_chunk);
               found != wrapper_of_chunk_.end())
        stored.push_back({false, found->second->described_by});
    }
    return inner().check_whole(stored, options);
  }

  std::optional<tensor_components> components_of(std::size_t tensor) const override {
    const auto found = wrapper_of_chunk_.find(contents_.tensors[tensor].first_chunk);
    if (origin_of_tensor(tensor) || found == wrapper_of_chunk_.end()) return std::nullopt;
    return tensor_components{&inner(), found->second->components, found->second->described_by};
  }

 private:
  // Null when the object does not describe a wrapper or cannot be read. Writing it reports the error.
  result<std::shared_ptr<const made_wrapper>> read_description(std::size_t index) {
    const object_entry& object = inner().contents().objects[index];
    const std::string_view key = object.key;
    if (!key.ends_with(description_ending) || object.hidden_tensors > 0) return std::shared_ptr<const made_wrapper>();
    const auto archive = inner().object_archive(index);
    if (!archive) return std::shared_ptr<const made_wrapper>();
    const memory_source source(*archive, path_.string());
    auto opened = torch_file::item::open(source);
    if (!opened || !is_wrapper_description(opened->root())) return std::shared_ptr<const made_wrapper>();
    auto made = std::make_shared<made_wrapper>();
    made->key = std::string(key.substr(0, key.size() - description_ending.size()));
    made->described_by = index;
    made->description = std::make_shared<const torch_file::item>(*std::move(opened));
    auto form = read_wrapper_form(made->description->root());
    const auto stays = [this](error why) -> result<std::shared_ptr<const made_wrapper>> {
      if (which_ == to_wrap::possible) return std::shared_ptr<const made_wrapper>();
      return why;
    };
    if (!form) return stays(located(std::move(form).error().with_hint(way_out), object.key));
    made->form = *std::move(form);
    if (which_ == to_wrap::possible && inner().contents().find(made->key) != nullptr) return stays({});
    if (auto found = find_components(*made); !found) return stays(std::move(found).error());
    return std::shared_ptr<const made_wrapper>(std::move(made));
  }

  result<void> find_components(made_wrapper& made) const {
    const catalog& stored = inner().contents();
    for (const component_form& component : made.form.components) {
      const std::string key = made.key + "." + component.name;
      const tensor_entry* const found = stored.find(key);
      const auto say = [&](errc code, std::string_view what) {
        return fail(code, fmt::format("a component of the {} {} {}", made.form.kind(), escaped(made.key), what))
            .with_key(key)
            .with_file(path_.string())
            .with_hint(way_out);
      };
      if (found == nullptr) return say(errc::missing_key, "is missing");
      if (found->type != component.type)
        return say(errc::dtype_mismatch, "has a different dtype than when it was written")
            .with_values(std::string(name(component.type)), std::string(name(found->type)));
      if (found->shape != component.shape)
        return say(errc::shape_mismatch, "has a different shape than when it was written")
            .with_values(to_string(component.shape), to_string(found->shape));
      if (!found->opaque_type.empty()) return say(errc::unsupported, "is not a plain tensor");
      auto held = stored.distribution_of(*found);
      if (!held) return located(std::move(held).error(), key);
      if (const cover_report cover = check_cover(*held); !cover.ok())
        return to_error(cover.problems.front()).with_key(key).with_file(path_.string());
      made.components.push_back(static_cast<std::size_t>(found - stored.tensors.data()));
    }
    return {};
  }

  void add_wrapper(const std::shared_ptr<const made_wrapper>& made) {
    const tensor_entry& first = inner().contents().tensors[made->components.front()];
    const wrapper_form& form = made->form;
    tensor_entry entry;
    entry.key = made->key;
    // A flat name stays flat.
    if (first.where.size() > 1)
      for (std::size_t i = 0; i + 1 < first.where.size(); ++i) entry.where.push_back(first.where[i]);
    else
      entry.where.push_back(made->key);
    entry.type = form.element_type;
    if (form.quantized != nullptr) entry.properties.foreign_dtype = std::string(form.quantized->name);
    entry.shape = form.size;
    const auto count = checked_volume(form.size);
    if (form.family == wrapper_family::coo || form.family == wrapper_family::compressed) {
      entry.properties.layout = form.type;
      // A sparse tensor's size may exceed any memory.
      if (!count || !size_bytes(form.element_type, *count)) entry.shape = form.find("values")->shape;
    } else if (form.family == wrapper_family::nested || form.family == wrapper_family::jagged) {
      entry.properties.layout = form.type;
    }
    entry.properties.requires_grad = form.parameter.value_or(form.requires_grad);
    entry.opaque_type = form.subclass != nullptr || form.family == wrapper_family::jagged ? form.type : "torch.Tensor";
    entry.opaque_kind = form.kind();
    const std::int32_t place = first.chunk_count == 0
                                   ? (inner().contents().files.empty() ? -1 : 0)
                                   : inner().contents().chunk_places[static_cast<std::size_t>(first.first_chunk)].file;
    const box whole = box::whole(entry.shape);
    add_tensor(std::move(entry), std::nullopt);
    wrapper_of_chunk_.emplace(static_cast<std::int32_t>(contents_.chunk_places.size()), made);
    // The wrapper has no bytes of its own in a file. Its components are checked separately.
    add_chunk(whole, {place, 0, 0, 0}, {});
  }

  result<std::vector<std::byte>> make_archive(const made_wrapper& made) {
    std::vector<std::vector<std::byte>> bytes;
    for (std::size_t i = 0; i < made.components.size(); ++i) {
      auto read = read_component(made.components[i], made.form.components[i].strides);
      if (!read) return located(std::move(read).error(), made.key);
      bytes.push_back(*std::move(read));
    }
    auto archive = archive_of_wrapper(made.form, bytes);
    if (!archive) return located(std::move(archive).error().with_hint(way_out), made.key);
    return archive;
  }

  // Reads a whole tensor into memory with these strides. Opens all chunks first, so a false size fails before
  // allocation.
  result<std::vector<std::byte>> read_component(std::size_t index, const extents& strides) {
    const catalog& stored = inner().contents();
    const tensor_entry& tensor = stored.tensors[index];
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      SHARDMESH_TRY(const auto opened, inner().open_chunk(tensor, tensor.first_chunk + i));
      const stored_tensor& stored_as = opened->tensor;
      SHARDMESH_TRY(check_readable(*opened->source, stored_as.begin, stored_as.size_bytes,
                                   std::max(stored_as.size_bytes, std::int64_t{1} << 36)));
    }
    const std::int64_t count = *size_bytes(tensor.type, *checked_volume(tensor.shape));
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    chunk_source source = chunk_source::checking(inner());
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
      const box where = stored.chunk_box(tensor, tensor.first_chunk + i);
      if (where.is_empty()) continue;
      tensor_view to{bytes.data(), tensor.type, {}, where.sizes, strides};
      for (std::size_t d = 0; d < where.rank(); ++d)
        to.data += where.offsets[d] * strides[d] * shardmesh::item_bytes(tensor.type);
      SHARDMESH_TRY(source.read({0, tensor.first_chunk + i}, box::whole(where.sizes), to));
    }
    return bytes;
  }

  to_wrap which_;
  static constexpr std::string_view way_out = "pass components to keep them as components";
  std::vector<std::shared_ptr<const made_wrapper>> wrappers_;
  std::unordered_map<std::int32_t, std::shared_ptr<const made_wrapper>> wrapper_of_chunk_;
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> wrap_components(checkpoint_reader& inner, to_wrap which) {
  const auto& objects = inner.contents().objects;
  if (std::none_of(objects.begin(), objects.end(),
                   [](const object_entry& object) { return object.key.ends_with(description_ending); }))
    return std::unique_ptr<checkpoint_reader>();
  auto made = std::make_unique<wrapped_reader>(inner, which);
  SHARDMESH_TRY(const bool is_wrapped, made->wrap());
  if (!is_wrapped) made.reset();
  return std::unique_ptr<checkpoint_reader>(std::move(made));
}

}  // namespace shardmesh::torch_file
