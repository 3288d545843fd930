// SPDX-License-Identifier: Apache-2.0
// Reading. The writing half is in dcp_metadata_writer.cpp.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

// The class of a record, whatever the protocol: protocols 0 and 1 go through copyreg._reconstructor(cls, object, None).
pickle_value class_of(pickle_value value) {
  if (value.kind() != pickle_kind::record) return {};
  const pickle_value callable = value.callable();
  if (callable.is_global("copyreg", "_reconstructor") || callable.is_global("copy_reg", "_reconstructor"))
    return value.args().items().empty() ? pickle_value{} : value.args().items()[0];
  return callable;
}

// "module.Name" of a record's class, for messages.
std::string class_text(pickle_value value) {
  const pickle_value type = class_of(value);
  if (!type) return std::string(name(value.kind()));
  return fmt::format("{}.{}", type.global_module(), type.global_name());
}

// A class of PyTorch's checkpoint metadata: the package moved with 2.0.
bool is_metadata_class(pickle_value value, std::string_view type) {
  const pickle_value found = class_of(value);
  return found.is_global("torch.distributed.checkpoint.metadata", type) ||
         found.is_global("torch.distributed._shard.checkpoint.metadata", type);
}

// torch.Size((..)), or a plain tuple or list, of integers that are not negative.
result<extents> read_sizes(pickle_value value, std::string_view what) {
  if (value.is_record_of("torch", "Size")) {
    const pickle_items arguments = value.args().items();
    if (arguments.empty()) return extents{};
    value = arguments[0];
  }
  if (value.kind() != pickle_kind::tuple && value.kind() != pickle_kind::list)
    return fail(errc::bad_format, fmt::format("its {} is not a torch.Size", what))
        .with_values("", std::string(name(value.kind())));
  if (value.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("its {} has too many dimensions", what))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", value.size()));
  extents sizes;
  for (const pickle_value item : value.items()) {
    const auto number = item.as_int();
    if (!number || *number < 0)
      return fail(errc::bad_format, fmt::format("its {} holds something that is not a size", what))
          .with_values("integers of 0 or more", item.decimal().value_or(std::string(name(item.kind()))));
    sizes.push_back(*number);
  }
  return sizes;
}

// One field of TensorProperties: its state is a tuple in this order, or a dict in foreign files.
pickle_value property(pickle_value properties, std::size_t index, std::string_view field) {
  const pickle_value state = properties.state();
  if (state.kind() == pickle_kind::tuple) return index < state.size() ? state.items()[index] : pickle_value{};
  return properties.attribute(field);
}

// The enum _MEM_FORMAT_ENCODING(n), also written through builtins.getattr(class, "NAME").
std::int32_t read_memory_format(pickle_value value) {
  const pickle_items arguments = value.args().items();
  if (!arguments.empty() && arguments[0].as_int()) return static_cast<std::int32_t>(*arguments[0].as_int());
  if (arguments.size() == 2 && arguments[1].text() == "TORCH_CHANNELS_LAST") return 1;
  if (arguments.size() == 2 && arguments[1].text() == "TORCH_PRESERVE_FORMAT") return 2;
  return 0;
}

// Names of files lie within the folder: no "..", nothing absolute.
bool is_safe_path(const std::filesystem::path& relative) {
  if (relative.empty() || relative.is_absolute()) return false;
  return std::none_of(relative.begin(), relative.end(), [](const auto& part) { return part == ".."; });
}

// Looks strings up by views of them.
struct string_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

class metadata_parser {
 public:
  metadata_parser(std::shared_ptr<const pickle_graph> graph, std::string_view file)
      : graph_(std::move(graph)), file_(file) {}

  result<dcp_metadata> parse() {
    const pickle_value root = graph_->root();
    const pickle_value entries = root.attribute("state_dict_metadata");
    if (entries.kind() != pickle_kind::dict)
      return fail(errc::bad_format, "is not DCP metadata: it has no state_dict_metadata")
          .with_file(file_)
          .with_values("a Metadata object", class_text(root));
    // Subclasses of other frameworks are welcome; PyTorch's own name in another module is damage.
    if (class_of(root).global_name() == "Metadata" && !is_metadata_class(root, "Metadata"))
      problem(errc::bad_format, "is not PyTorch's Metadata", {}).found = class_text(root);
    read_extras(root);
    const pickle_value planner = root.attribute("planner_data");
    made_.extras.has_planner_data = planner.kind() == pickle_kind::dict;
    if (planner && !planner.is_none() && !made_.extras.has_planner_data)
      problem(errc::bad_format, "its planner_data is not a dict of paths", {}).found = class_text(planner);
    if (made_.extras.has_planner_data)
      for (const auto [key, where] : planner.pairs())
        if (const auto fqn = key.text()) paths_.emplace(*fqn, where);
    for (const auto [key, entry] : entries.pairs()) read_entry(key, entry);
    const pickle_value storage = root.attribute("storage_data");
    if (storage.kind() == pickle_kind::dict)
      for (const auto [index, info] : storage.pairs()) read_place(index, info);
    else if (!entries.pairs().empty())
      problem(errc::bad_format, "storage_data is missing: nothing says where the bytes are", {});
    check_places();
    return std::move(made_);
  }

 private:
  error& problem(errc code, std::string message, std::string_view key) {
    made_.problems.push_back(fail(code, std::move(message)).with_file(file_).with_key(key));
    return made_.problems.back();
  }
  void problem(error e, std::string_view key) { made_.problems.push_back(std::move(e).with_file(file_).with_key(key)); }

  void read_extras(pickle_value root) {
    made_.extras.graph = graph_;
    made_.extras.has_version = false;
    pickle_value state = root.state();
    if (state.kind() == pickle_kind::tuple && state.size() == 2) state = state.items()[0];  // (dict, slots)
    for (const auto [key, value] : state.pairs()) {
      const auto field = key.text();
      if (!field || *field == "state_dict_metadata" || *field == "planner_data" || *field == "storage_data") continue;
      if (*field == "version" && value.text()) {
        made_.extras.version = *value.text();
        made_.extras.has_version = true;
      } else {
        made_.extras.attributes.emplace_back(*field, value);
      }
    }
    made_.contents.version = made_.extras.version;
  }

  path path_of(std::string_view key) {
    path where;
    const auto found = paths_.find(key);
    if (found == paths_.end()) return where;
    for (const pickle_value item : found->second.items()) {
      if (const auto number = item.as_int())
        where.push_back(*number);
      else if (const auto text = item.text())
        where.push_back(std::string(*text));
      else
        return problem(errc::bad_format, "its planner_data path holds something that is neither text nor an index",
                       key),
               path{};
    }
    return where;
  }

  void read_entry(pickle_value key, pickle_value entry) {
    const auto fqn = key.text();
    if (!fqn) return static_cast<void>(problem(errc::bad_format, "a key of state_dict_metadata is not text", {}));
    if (names_.contains(*fqn)) return static_cast<void>(problem(errc::duplicate_key, "is described twice", *fqn));
    if (is_metadata_class(entry, "TensorStorageMetadata")) return read_tensor(*fqn, entry);
    if (!is_metadata_class(entry, "BytesStorageMetadata"))
      return problem(fail(errc::bad_format, "its description is of an unknown kind")
                         .with_values("TensorStorageMetadata or BytesStorageMetadata", class_text(entry)),
                     *fqn);
    names_.emplace(*fqn, static_cast<std::int64_t>(-1 - static_cast<std::int64_t>(made_.contents.objects.size())));
    made_.contents.objects.push_back({std::string(*fqn), path_of(*fqn), {}});
  }

  void read_tensor(std::string_view key, pickle_value entry) {
    tensor_entry tensor;
    tensor.key = key;
    const pickle_value properties = entry.attribute("properties");
    const pickle_value type = property(properties, 0, "dtype");
    if (type.global_module() == "torch") tensor.type = parse_dtype(type.global_name()).value_or(dtype::undefined);
    if (tensor.type == dtype::undefined) {
      if (type.kind() != pickle_kind::global) return static_cast<void>(problem(errc::bad_format, "has no dtype", key));
      tensor.opaque_type = fmt::format("{}.{}", type.global_module(), type.global_name());
    }
    if (const auto layout = property(properties, 1, "layout").args().items(); !layout.empty())
      tensor.properties.layout = layout[0].text().value_or("torch.strided");
    tensor.properties.requires_grad = property(properties, 2, "requires_grad").as_bool().value_or(false);
    tensor.properties.memory_format = read_memory_format(property(properties, 3, "memory_format"));
    tensor.properties.pin_memory = property(properties, 4, "pin_memory").as_bool().value_or(false);
    auto shape = read_sizes(entry.attribute("size"), "size");
    if (!shape) return problem(std::move(shape).take_error(), key);
    const auto volume = checked_volume(*shape);
    if (!volume || !size_bytes(tensor.type, *volume))
      return problem(fail(errc::overflow, "its size does not fit in 64 bits").with_values("", to_string(*shape)), key);
    tensor.shape = *shape;
    tensor.where = path_of(key);
    names_.emplace(std::string(key), static_cast<std::int64_t>(made_.contents.tensors.size()));
    made_.contents.tensors.push_back(std::move(tensor));
    made_.contents.tensors.back().first_chunk = static_cast<std::int32_t>(made_.contents.chunk_places.size());
    for (const pickle_value chunk : entry.attribute("chunks").items()) read_chunk(key, chunk);
  }

  void read_chunk(std::string_view key, pickle_value chunk) {
    const extents& shape = made_.contents.tensors.back().shape;
    auto offsets = read_sizes(chunk.attribute("offsets"), "chunk's offsets");
    if (!offsets) return problem(std::move(offsets).take_error(), key);
    auto sizes = read_sizes(chunk.attribute("sizes"), "chunk's sizes");
    if (!sizes) return problem(std::move(sizes).take_error(), key);
    const box where{*offsets, *sizes};
    if (offsets->rank() != shape.rank() || sizes->rank() != shape.rank())
      return problem(fail(errc::shape_mismatch, "a chunk has another number of dimensions than the tensor")
                         .with_values(fmt::format("{}", shape.rank()),
                                      fmt::format("{} offsets, {} sizes", offsets->rank(), sizes->rank())),
                     key);
    if (!is_well_formed(where) || !lies_within(where, box::whole(shape)))
      return problem(fail(errc::out_of_bounds, "a chunk lies outside of the tensor")
                         .with_box(is_well_formed(where) ? where : box{*offsets, extents::filled(shape.rank(), 0)})
                         .with_values(to_string(box::whole(shape)),
                                      fmt::format("offsets {} sizes {}", to_string(*offsets), to_string(*sizes))),
                     key);
    made_.contents.add_chunk(where, {});
  }

  std::int32_t file_number(std::string_view relative) {
    if (const auto found = files_.find(relative); found != files_.end()) return found->second;
    if (relative.find('\0') != std::string_view::npos) {  // the system would open what stands in front of it
      problem(fail(errc::unsafe_path, "a file name holds a NUL").with_values("", std::string(relative)), {});
      return files_.emplace(relative, -1).first->second;
    }
    if (!is_safe_path(std::filesystem::path(relative))) {
      problem(
          fail(errc::unsafe_path, "a file name leaves the checkpoint's folder").with_values("", std::string(relative)),
          {});
      return files_.emplace(relative, -1).first->second;
    }
    made_.contents.files.emplace_back(relative);
    return files_.emplace(relative, static_cast<std::int32_t>(made_.contents.files.size() - 1)).first->second;
  }

  // Relative paths are text; foreign writers pickle a pathlib path.
  static std::optional<std::string> read_relative_path(pickle_value value) {
    if (const auto text = value.text()) return std::string(*text);
    if (!value.callable().global_module().starts_with("pathlib")) return std::nullopt;
    std::filesystem::path joined;
    for (const pickle_value part : value.args().items()) joined /= std::string(part.text().value_or(""));
    return joined.string();
  }

  std::optional<stored_range> read_info(std::string_view key, pickle_value info) {
    const auto relative = read_relative_path(info.attribute("relative_path"));
    const auto offset = info.attribute("offset").as_int();
    const auto length = info.attribute("length").as_int();
    if (!relative || !offset || !length || *offset < 0 || *length < 0 || !checked_add(*offset, *length)) {
      problem(errc::bad_format, "its place in a file is not a name, an offset and a length", key);
      return std::nullopt;
    }
    stored_range place{file_number(*relative), 0, *offset, *length};
    const pickle_value transforms = info.attribute("transform_descriptors");
    std::string joined;
    for (const pickle_value one : transforms.items()) (joined += joined.empty() ? "" : "+") += one.text().value_or("?");
    if (!joined.empty()) {
      auto& known = made_.contents.transforms;
      const auto found = std::find(known.begin(), known.end(), joined);
      place.transform = static_cast<std::int32_t>(found - known.begin());
      if (found == known.end()) known.push_back(joined);
    }
    if (place.file < 0) return std::nullopt;
    return place;
  }

  void read_place(pickle_value index, pickle_value info) {
    const auto fqn = index.attribute("fqn").text();
    if (!fqn) return static_cast<void>(problem(errc::bad_format, "an entry of storage_data has no name", {}));
    const auto entry = names_.find(*fqn);
    if (entry == names_.end()) {
      // An entry that could not be read was reported already; others are leftovers that PyTorch ignores, too.
      return;
    }
    const auto place = read_info(*fqn, info);
    if (!place) return;
    const pickle_value offset = index.attribute("offset");
    if (entry->second < 0) {
      made_.contents.objects[static_cast<std::size_t>(-1 - entry->second)].place = *place;
      return;
    }
    const auto tensor = static_cast<std::size_t>(entry->second);
    if (!offset || offset.is_none())
      return static_cast<void>(problem(errc::bad_format, "the place of a chunk has no offset", *fqn));
    auto at = read_sizes(offset, "chunk's offset");
    if (!at) return problem(std::move(at).take_error(), *fqn);
    const auto chunk = find_chunk(tensor, *at, index.attribute("index").as_int());
    if (!chunk)
      return problem(fail(errc::bad_format, "a stored chunk is not one of the tensor's")
                         .with_values("", fmt::format("offset {}", to_string(*at))),
                     *fqn);
    made_.contents.set_place(*chunk, *place);
  }

  // By the hint (position in the list, may be stale), else by offset. Where an empty chunk shares its offset with one
  // that is not, the bytes are the latter's.
  std::optional<std::int32_t> find_chunk(std::size_t tensor, const extents& at, std::optional<std::int64_t> hint) {
    const tensor_entry& entry = made_.contents.tensors[tensor];
    if (hint && *hint >= 0 && *hint < entry.chunk_count) {
      const auto chunk = static_cast<std::int32_t>(entry.first_chunk + *hint);
      const box where = made_.contents.chunk_box(entry, chunk);
      if (where.offsets == at && (!where.is_empty() || box::whole(entry.shape).is_empty())) return chunk;
    }
    auto [index, is_new] = by_offset_.try_emplace(tensor);
    if (is_new)
      for (std::int32_t chunk = entry.first_chunk; chunk < entry.first_chunk + entry.chunk_count; ++chunk) {
        const box where = made_.contents.chunk_box(entry, chunk);
        const auto [slot, added] = index->second.try_emplace(where.offsets, chunk);
        if (!added && !where.is_empty()) slot->second = chunk;
      }
    const auto found = index->second.find(at);
    if (found == index->second.end()) return std::nullopt;
    return found->second;
  }

  void check_places() {
    const catalog& contents = made_.contents;
    for (const tensor_entry& tensor : contents.tensors)
      for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
        const std::int32_t chunk = tensor.first_chunk + i;
        const box where = contents.chunk_box(tensor, chunk);
        if (contents.chunk_places[static_cast<std::size_t>(chunk)].file < 0 && !where.is_empty())
          problem(fail(errc::missing_key, "nothing says where a chunk is stored").with_box(where), tensor.key);
      }
    for (const object_entry& object : contents.objects)
      if (object.place.file < 0) problem(errc::missing_key, "nothing says where the object is stored", object.key);
  }

  std::shared_ptr<const pickle_graph> graph_;
  std::string_view file_;
  dcp_metadata made_;
  std::unordered_map<std::string_view, pickle_value> paths_;
  std::unordered_map<std::string, std::int64_t, string_hash, std::equal_to<>>
      names_;  // tensor index, or -1 - object index
  std::unordered_map<std::string, std::int32_t, string_hash, std::equal_to<>> files_;
  std::unordered_map<std::size_t, std::map<extents, std::int32_t>> by_offset_;
};

}  // namespace

result<dcp_metadata> parse_dcp_metadata(std::vector<std::byte> bytes, std::string_view file) {
  auto graph = pickle_graph::parse(std::move(bytes));
  if (!graph) return std::move(graph).take_error().with_file(file);
  return metadata_parser(std::make_shared<const pickle_graph>(std::move(*graph)), file).parse();
}

namespace {

// Copies entries of several catalogs into one, with files and transforms numbered anew.
class catalog_merge {
 public:
  stored_range renumber(const catalog& from, stored_range place) {
    if (place.file >= 0) {
      const std::string& file = from.files[static_cast<std::size_t>(place.file)];
      const auto [number, added] = files_.try_emplace(file, static_cast<std::int32_t>(merged.files.size()));
      if (added) merged.files.push_back(file);
      place.file = number->second;
    }
    const std::string& transform = from.transforms[static_cast<std::size_t>(place.transform)];
    const auto found = std::find(merged.transforms.begin(), merged.transforms.end(), transform);
    place.transform = static_cast<std::int32_t>(found - merged.transforms.begin());
    if (found == merged.transforms.end()) merged.transforms.push_back(transform);
    return place;
  }

  // The chunks of one tensor from every rank that has it; equal boxes are one chunk.
  void add_tensor(std::span<const std::pair<const catalog*, const tensor_entry*>> holders,
                  std::vector<error>& problems) {
    const tensor_entry& first = *holders.front().second;
    merged.tensors.push_back(first);
    merged.tensors.back().chunk_count = 0;
    merged.tensors.back().first_chunk = static_cast<std::int32_t>(merged.chunk_places.size());
    std::set<box> boxes;
    for (const auto& [from, tensor] : holders) {
      if (tensor->shape != first.shape || tensor->type != first.type) {
        problems.push_back(fail(errc::disagreement, "ranks describe the tensor differently")
                               .with_key(first.key)
                               .with_values(fmt::format("{} {}", name(first.type), to_string(first.shape)),
                                            fmt::format("{} {}", name(tensor->type), to_string(tensor->shape))));
        continue;
      }
      for (std::int32_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->chunk_count; ++c) {
        const box where = from->chunk_box(*tensor, c);
        if (boxes.insert(where).second)
          merged.add_chunk(where, renumber(*from, from->chunk_places[static_cast<std::size_t>(c)]));
      }
    }
  }

  catalog merged;

 private:
  std::map<std::string, std::int32_t> files_;
};

}  // namespace

dcp_metadata merge_dcp_metadata(std::vector<dcp_metadata> parts) {
  dcp_metadata made;
  made.extras = parts.front().extras;
  catalog_merge merge;
  merge.merged.version = made.extras.version;
  std::unordered_map<std::string_view, std::size_t> group_of;
  std::vector<std::vector<std::pair<const catalog*, const tensor_entry*>>> groups;
  for (const dcp_metadata& part : parts)
    for (const tensor_entry& tensor : part.contents.tensors) {
      const auto [group, added] = group_of.try_emplace(tensor.key, groups.size());
      if (added) groups.emplace_back();
      groups[group->second].emplace_back(&part.contents, &tensor);
    }
  for (const auto& holders : groups) merge.add_tensor(holders, made.problems);
  std::set<std::string_view> objects;
  for (const dcp_metadata& part : parts) {
    for (const object_entry& object : part.contents.objects)
      if (objects.insert(object.key).second) {
        merge.merged.objects.push_back(object);
        merge.merged.objects.back().place = merge.renumber(part.contents, object.place);
      }
    made.problems.insert(made.problems.end(), part.problems.begin(), part.problems.end());
  }
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh
