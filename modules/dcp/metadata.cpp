// SPDX-License-Identifier: Apache-2.0
// Reading. The writing half is in dcp_metadata_writer.cpp.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <array>
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
module shardmesh.dcp;

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

// The dtypes of PyTorch 2.13 that we have no tensors of: of quantized tensors, and integers without arithmetic.
bool is_other_torch_dtype(std::string_view name) {
  static constexpr std::array<std::string_view, 20> names{
      "bit",  "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "int1",  "int2",  "int3",  "int4",
      "int5", "int6",  "int7",   "uint1",  "uint2",    "uint3",    "uint4", "uint5", "uint6", "uint7"};
  return std::find(names.begin(), names.end(), name) != names.end();
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
  metadata_parser(std::shared_ptr<const pickle_graph> graph, std::string_view file, read_budget& budget)
      : graph_(std::move(graph)), file_(file), budget_(budget) {}

  result<dcp_metadata> parse() {
    const pickle_value root = graph_->root();
    const pickle_value entries = field(root, "state_dict_metadata");
    if (entries.kind() != pickle_kind::dict)
      return fail(errc::bad_format, "is not DCP metadata: it has no state_dict_metadata")
          .with_file(file_)
          .with_values("a Metadata object", class_text(root));
    // Subclasses of other frameworks are welcome; PyTorch's own name in another module is damage.
    if (class_of(root).global_name() == "Metadata" && !is_metadata_class(root, "Metadata"))
      problem(errc::bad_format, "is not PyTorch's Metadata", {}).found = class_text(root);
    read_extras(root);
    const pickle_value planner = field(root, "planner_data");
    made_.extras.has_planner_data = planner.kind() == pickle_kind::dict;
    if (planner && !planner.is_none() && !made_.extras.has_planner_data)
      problem(errc::bad_format, "its planner_data is not a dict of paths", {}).found = class_text(planner);
    if (made_.extras.has_planner_data)
      for (const auto [key, where] : planner.pairs())
        if (const auto fqn = key.text(); fqn && spend(64 + fqn->size(), *fqn)) paths_.emplace(*fqn, where);
    for (const auto [key, entry] : entries.pairs())
      if (spend(entry_bytes, key.text().value_or(""))) read_entry(key, entry);
    for (const auto [key, where] : planner.pairs())
      if (const auto name = key.text(); name && !names_.contains(*name) && spend(64 + name->size(), *name))
        made_.extras.planner_entries.emplace_back(*name, where);
    read_texts(field(root, dcp_texts_attribute));
    for (const auto [key, strides] : field(root, dcp_strides_attribute).pairs()) read_later_strides(key, strides);
    const pickle_value storage = field(root, "storage_data");
    if (storage.kind() == pickle_kind::dict) {
      for (const auto [index, info] : storage.pairs())
        if (spend(place_bytes, {})) read_place(index, info);
    } else if (!entries.pairs().empty()) {
      problem(errc::bad_format, "storage_data is missing: nothing says where the bytes are", {});
    }
    check_places();
    if (refused_) return *std::move(refused_);
    if (unnamed_ > 0)
      made_.problems.push_back(
          fail(errc::bad_format, fmt::format("{} more of its entries cannot be used", unnamed_)).with_file(file_));
    return std::move(made_);
  }

 private:
  // What entries cost once they are built; shared parts of the pickle are built for each entry that has them. A chunk
  // is opened, checked and perhaps complained about by whoever reads on: more than its room.
  static constexpr std::size_t entry_bytes = 512, chunk_bytes = 2048, place_bytes = 64, most_problems = 200;

  // Counts what is about to be built for `key`; false beyond the limit, from where on nothing is read.
  bool spend(std::size_t bytes, std::string_view key) {
    if (refused_) return false;
    if (auto done = budget_.build(static_cast<std::int64_t>(bytes)); !done)
      refused_ = std::move(done).error().with_file(file_).with_key(key.substr(0, 200));
    return !refused_;
  }
  // An attribute; looking for it costs as much as the object has.
  pickle_value field(const pickle_value& object, std::string_view attribute) {
    const pickle_value state = object.state();
    if (state.size() > 16 && !spend(8 * state.size(), {})) return {};
    return object.attribute(attribute);
  }

  error& problem(errc code, std::string message, std::string_view key) {
    return add_problem(fail(code, std::move(message)), key);
  }
  void problem(error e, std::string_view key) { add_problem(std::move(e), key); }
  // The first ones are kept, the others counted.
  error& add_problem(error e, std::string_view key) {
    if (made_.problems.size() == most_problems) return ++unnamed_, spare_ = std::move(e);
    made_.problems.push_back(std::move(e).with_file(file_).with_key(key));
    return made_.problems.back();
  }

  void read_extras(pickle_value root) {
    made_.extras.graph = graph_;
    made_.extras.has_version = false;
    pickle_value state = root.state();
    if (state.kind() == pickle_kind::tuple && state.size() == 2) state = state.items()[0];  // (dict, slots)
    for (const auto [key, value] : state.pairs()) {
      const auto field = key.text();
      if (!field || *field == "state_dict_metadata" || *field == "planner_data" || *field == "storage_data" ||
          *field == dcp_texts_attribute || *field == dcp_strides_attribute)
        continue;
      if (*field == "version" && value.text()) {
        made_.extras.version = *value.text();
        made_.extras.has_version = true;
      } else {
        made_.extras.attributes.emplace_back(*field, value);
      }
    }
    made_.contents.version = made_.extras.version;
  }

  // Bounded, since a pickle may name one long text a million times.
  void read_texts(pickle_value texts) {
    std::int64_t total = 0;
    for (const auto [key, value] : texts.pairs()) {
      if (!key.text() || !value.text()) {
        problem(errc::bad_format, "holds a text that is none", dcp_texts_attribute);
        return;
      }
      total += static_cast<std::int64_t>(key.text()->size() + value.text()->size());
      if (total > max_text_bytes) {
        problem(errc::bad_format, "holds more text than a safetensors file can", dcp_texts_attribute).expected =
            fmt::format("at most {} bytes", max_text_bytes);
        return;
      }
      made_.contents.texts.push_back({std::string(*key.text()), std::string(*value.text()), -1});
    }
  }

  // Informative: strides that make no sense are as good as none.
  static std::optional<extents> read_strides(pickle_value strides, std::size_t rank) {
    if (strides.kind() != pickle_kind::tuple || strides.size() != rank) return std::nullopt;
    auto read = read_sizes(strides, "strides");
    if (!read) return std::nullopt;
    return *read;
  }
  void read_later_strides(pickle_value key, pickle_value strides) {
    const auto name = key.text();
    const auto entry = name ? names_.find(*name) : names_.end();
    if (entry == names_.end() || entry->second < 0) return;
    tensor_entry& tensor = made_.contents.tensors[static_cast<std::size_t>(entry->second)];
    tensor.properties.strides = read_strides(strides, tensor.shape.rank());
  }

  path path_of(std::string_view key) {
    path where;
    const auto found = paths_.find(key);
    if (found == paths_.end()) return where;
    for (const pickle_value item : found->second.items()) {
      if (!spend(48 + item.text().value_or("").size(), key)) return where;
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
    const pickle_value properties = field(entry, "properties");
    if (!spend(key.size() + 40 * properties.state().size(), key)) return;
    const pickle_value type = property(properties, 0, "dtype");
    if (type.global_module() == "torch") tensor.type = parse_dtype(type.global_name()).value_or(dtype::undefined);
    if (tensor.type == dtype::undefined) {
      if (type.kind() != pickle_kind::global) return static_cast<void>(problem(errc::bad_format, "has no dtype", key));
      tensor.opaque_type = fmt::format("{}.{}", type.global_module(), type.global_name());
      note_foreign_dtype(type, key, tensor);
    }
    if (const auto layout = property(properties, 1, "layout").args().items(); !layout.empty())
      tensor.properties.layout = layout[0].text().value_or("torch.strided");
    tensor.properties.requires_grad = property(properties, 2, "requires_grad").as_bool().value_or(false);
    tensor.properties.memory_format = read_memory_format(property(properties, 3, "memory_format"));
    tensor.properties.pin_memory = property(properties, 4, "pin_memory").as_bool().value_or(false);
    auto shape = read_sizes(field(entry, "size"), "size");
    if (!shape) return problem(std::move(shape).error(), key);
    const auto volume = checked_volume(*shape);
    if (!volume || !size_bytes(tensor.type, *volume))
      return problem(fail(errc::overflow, "its size does not fit in 64 bits").with_values("", to_string(*shape)), key);
    tensor.shape = *shape;
    tensor.properties.strides = read_strides(property(properties, 5, "strides"), shape->rank());
    tensor.where = path_of(key);
    names_.emplace(std::string(key), static_cast<std::int64_t>(made_.contents.tensors.size()));
    made_.contents.tensors.push_back(std::move(tensor));
    made_.contents.tensors.back().first_chunk = static_cast<std::int32_t>(made_.contents.chunk_places.size());
    for (const pickle_value chunk : field(entry, "chunks").items()) {
      if (!spend(chunk_bytes, key)) return;
      read_chunk(key, chunk);
    }
  }

  // A dtype that we do not have keeps its name, so that a copy says the same. torch.undefined, and what is no name of
  // torch's at all, stops PyTorch from reading the whole metadata.
  void note_foreign_dtype(pickle_value type, std::string_view key, tensor_entry& tensor) {
    const std::string_view spelled = type.global_name();
    const bool is_name = !spelled.empty() && std::all_of(spelled.begin(), spelled.end(), [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    if (type.global_module() != "torch" || !is_name || spelled == "undefined")
      return problem(fail(errc::bad_format, "has a dtype that PyTorch cannot load")
                         .with_values("a dtype of torch", tensor.opaque_type),
                     key);
    tensor.properties.foreign_dtype = spelled;
    if (!is_other_torch_dtype(spelled))
      made_.warnings.push_back(fail(errc::unsupported, "has a dtype that PyTorch 2.13 does not know")
                                   .with_file(file_)
                                   .with_key(key)
                                   .with_values("", tensor.opaque_type));
  }

  void read_chunk(std::string_view key, pickle_value chunk) {
    const extents& shape = made_.contents.tensors.back().shape;
    auto offsets = read_sizes(field(chunk, "offsets"), "chunk's offsets");
    if (!offsets) return problem(std::move(offsets).error(), key);
    auto sizes = read_sizes(field(chunk, "sizes"), "chunk's sizes");
    if (!sizes) return problem(std::move(sizes).error(), key);
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
    const auto relative = read_relative_path(field(info, "relative_path"));
    const auto offset = field(info, "offset").as_int();
    const auto length = field(info, "length").as_int();
    if (!relative || !offset || !length || *offset < 0 || *length < 0 || !checked_add(*offset, *length)) {
      problem(errc::bad_format, "its place in a file is not a name, an offset and a length", key);
      return std::nullopt;
    }
    if (!spend(relative->size(), key)) return std::nullopt;
    stored_range place{file_number(*relative), 0, *offset, *length};
    const pickle_value transforms = field(info, "transform_descriptors");
    std::string joined;
    for (const pickle_value one : transforms.items()) {
      const std::string_view text = one.text().value_or("?");
      if (!spend(8 + text.size(), key)) return std::nullopt;
      (joined += joined.empty() ? "" : "+") += text;
    }
    if (!joined.empty()) {
      auto& known = made_.contents.transforms;
      const auto [found, is_new] = transforms_.try_emplace(joined, static_cast<std::int32_t>(known.size()));
      place.transform = found->second;
      if (is_new) known.push_back(std::move(joined));
    }
    if (place.file < 0) return std::nullopt;
    return place;
  }

  void read_place(pickle_value index, pickle_value info) {
    const auto fqn = field(index, "fqn").text();
    if (!fqn) return static_cast<void>(problem(errc::bad_format, "an entry of storage_data has no name", {}));
    if (!spend(fqn->size(), *fqn)) return;
    const auto entry = names_.find(*fqn);
    if (entry == names_.end()) {
      // An entry that could not be read was reported already; others are leftovers that PyTorch ignores, too.
      return;
    }
    const auto place = read_info(*fqn, info);
    if (!place) return;
    const pickle_value offset = field(index, "offset");
    if (entry->second < 0) {
      made_.contents.objects[static_cast<std::size_t>(-1 - entry->second)].place = *place;
      return;
    }
    const auto tensor = static_cast<std::size_t>(entry->second);
    if (!offset || offset.is_none())
      return static_cast<void>(problem(errc::bad_format, "the place of a chunk has no offset", *fqn));
    auto at = read_sizes(offset, "chunk's offset");
    if (!at) return problem(std::move(at).error(), *fqn);
    const auto chunk = find_chunk(tensor, *at, field(index, "index").as_int());
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
    if (refused_) return;
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
  read_budget& budget_;
  std::optional<error> refused_;  // a limit was met
  std::int64_t unnamed_ = 0;      // problems beyond `most_problems`
  error spare_;                   // the last of them
  dcp_metadata made_;
  std::unordered_map<std::string_view, pickle_value> paths_;
  std::unordered_map<std::string, std::int64_t, string_hash, std::equal_to<>>
      names_;  // tensor index, or -1 - object index
  std::unordered_map<std::string, std::int32_t, string_hash, std::equal_to<>> files_, transforms_;
  std::unordered_map<std::size_t, std::map<extents, std::int32_t>> by_offset_;
};

}  // namespace

result<dcp_metadata> parse_dcp_metadata(std::vector<std::byte> bytes, std::string_view file, read_budget* budget) {
  read_budget own;
  read_budget& spent = budget != nullptr ? *budget : own;
  spent.add_description(static_cast<std::int64_t>(bytes.size()));
  auto graph = pickle_graph::parse(std::move(bytes));
  if (!graph) return std::move(graph).error().with_file(file);
  return metadata_parser(std::make_shared<const pickle_graph>(std::move(*graph)), file, spent).parse();
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
    if (place.transform == 0) return place;
    const std::string& transform = from.transforms[static_cast<std::size_t>(place.transform)];
    if (transform.empty()) return place;
    const auto [found, added] = transforms_.try_emplace(transform, static_cast<std::int32_t>(merged.transforms.size()));
    if (added) merged.transforms.push_back(transform);
    place.transform = found->second;
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
  std::map<std::string, std::int32_t> files_, transforms_;
};

}  // namespace

dcp_metadata merge_dcp_metadata(std::vector<dcp_metadata> parts) {
  dcp_metadata made;
  made.extras = parts.front().extras;
  catalog_merge merge;
  merge.merged.version = made.extras.version;
  merge.merged.texts = parts.front().contents.texts;
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
    made.warnings.insert(made.warnings.end(), part.warnings.begin(), part.warnings.end());
  }
  std::erase_if(made.extras.planner_entries, [&](const auto& named) {
    return group_of.contains(named.first) || objects.contains(named.first);  // another rank's entries
  });
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh
