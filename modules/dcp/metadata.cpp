// SPDX-License-Identifier: Apache-2.0
// Reads the entries of a `.metadata`. Single fields are in `pickled_fields`, places in `storage_data`, several files in
// `merge`, and writing in `metadata_writer`.
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :parse_account;
import :pickled_fields;
import :storage_data;

namespace shardmesh::dcp {
namespace {

// Moves the values beside the entries to a graph of their own. The graph of the whole description takes several times
// the file's size in memory, and would live as long as the reader. If a value cannot be written again, all values stay
// where they are.
void move_to_own_graph(dcp::extras& extras) {
  pickle::writer out;
  out.begin_list();
  for (const auto* const named : {&extras.attributes, &extras.planner_entries})
    for (const auto& [name, value] : *named)
      if (!out.value(value)) return;
  out.end_list();
  auto parsed = pickle::graph::parse(std::move(out).finish());
  if (!parsed) return;
  auto own = std::make_shared<const pickle::graph>(std::move(*parsed));
  std::size_t at = 0;
  for (auto* const named : {&extras.attributes, &extras.planner_entries})
    for (auto& [name, value] : *named) value = own->root().items()[at++];
  extras.graph = std::move(own);
}

class metadata_parser {
 public:
  metadata_parser(std::shared_ptr<const pickle::graph> graph, std::string_view file, read_budget& budget)
      : graph_(std::move(graph)), account_(file, budget) {}

  result<metadata> parse() {
    const pickle::value root = graph_->root();
    const pickle::value entries = field(root, "state_dict_metadata");
    if (entries.kind() != pickle::kind::dict)
      return fail(errc::bad_format, "is not DCP metadata: it has no state_dict_metadata")
          .with_file(account_.file())
          .with_values("a Metadata object", class_text(root));
    // Subclasses of other frameworks are accepted; PyTorch's own class name in another module is damage.
    if (class_name(root) == "Metadata" && !is_metadata_class(root, "Metadata"))
      problem(errc::bad_format, "is not PyTorch's Metadata", {}).found = class_text(root);
    read_extras(root);
    const pickle::value planner = field(root, "planner_data");
    made_.extras.has_planner_data = planner.kind() == pickle::kind::dict;
    if (planner && !planner.is_none() && !made_.extras.has_planner_data)
      problem(errc::bad_format, "its planner_data is not a dict of paths", {}).found = class_text(planner);
    if (made_.extras.has_planner_data)
      for (const auto [key, where] : planner.pairs())
        if (const auto fqn = key.text()) spend(64 + fqn->size(), *fqn);
    planner_ = planner.pairs();
    for (const auto [key, where] : field(root, paths_attribute).pairs())
      if (const auto fqn = key.text(); fqn && spend(64 + fqn->size(), *fqn))
        paths_.insert_or_assign(*fqn, given_path{where, paths_attribute});
    reserve(entries.pairs().size(), field(root, "storage_data").pairs().size());
    for (const auto [key, entry] : entries.pairs())
      if (spend(entry_bytes, key.text().value_or(""))) read_entry(key, entry);
    for (const auto [key, where] : planner.pairs())
      if (const auto name = key.text(); name && !names_.contains(*name) && spend(64 + name->size(), *name))
        made_.extras.planner_entries.emplace_back(*name, where);
    read_texts(field(root, texts_attribute));
    for (const auto [key, strides] : field(root, strides_attribute).pairs()) read_later_strides(key, strides);
    read_places(field(root, "storage_data"), !entries.pairs().empty());
    if (account_.refusal()) return *account_.refusal();
    made_.problems = std::move(account_).take_problems();
    graph_.reset();
    move_to_own_graph(made_.extras);
    return std::move(made_);
  }

 private:
  struct given_path {
    pickle::value steps;
    std::string_view in;  // the field that holds it
  };

  // The costs of entries that are built, in bytes. Parts of the pickle that entries share are built once for each of
  // these entries. A chunk costs more than its own memory: it is opened and checked, and the caller may report errors
  // on it.
  static constexpr std::size_t entry_bytes = 512, chunk_bytes = 2048, place_bytes = 64;

  bool spend(std::size_t bytes, std::string_view key) { return account_.spend(bytes, key); }
  pickle::value field(const pickle::value& object, std::string_view name) { return account_.field(object, name); }
  error& problem(errc code, std::string message, std::string_view key) {
    return account_.problem(code, std::move(message), key);
  }
  void problem(error e, std::string_view key) { account_.problem(std::move(e), key); }

  // Reserves memory, because a growing vector holds its elements twice while it moves them. A short pickle may list one
  // entry a million times, so each number is capped by the entries that the pickle's bytes can hold.
  void reserve(std::size_t tensors, std::size_t chunks) {
    constexpr std::size_t least_bytes_of_tensor = 128, least_bytes_of_chunk = 64;
    made_.contents.reserve(std::min(tensors, graph_->consumed_bytes() / least_bytes_of_tensor),
                           std::min(chunks, graph_->consumed_bytes() / least_bytes_of_chunk));
    names_.reserve(std::min(tensors, graph_->consumed_bytes() / least_bytes_of_tensor));
  }

  void read_extras(pickle::value root) {
    made_.extras.graph = graph_;
    made_.extras.has_version = false;
    pickle::value state = root.state();
    if (state.kind() == pickle::kind::tuple && state.size() == 2) state = state.items()[0];  // (dict, slots)
    for (const auto [key, value] : state.pairs()) {
      const auto field = key.text();
      if (!field || *field == "state_dict_metadata" || *field == "planner_data" || *field == "storage_data" ||
          *field == texts_attribute || *field == strides_attribute || *field == paths_attribute)
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

  // Limits the total, because a pickle may refer to one long text a million times.
  void read_texts(pickle::value texts) {
    std::int64_t total = 0;
    for (const auto [key, value] : texts.pairs()) {
      if (!key.text() || !value.text()) {
        problem(errc::bad_format, "holds a key or value that is not text", texts_attribute);
        return;
      }
      total += static_cast<std::int64_t>(key.text()->size() + value.text()->size());
      if (total > max_text_bytes) {
        problem(errc::bad_format, "holds more text than a safetensors file can", texts_attribute).expected =
            fmt::format("at most {} bytes", max_text_bytes);
        return;
      }
      made_.contents.texts.push_back({std::string(*key.text()), std::string(*value.text()), -1});
    }
  }

  void read_later_strides(pickle::value key, pickle::value strides) {
    const auto name = key.text();
    const auto entry = name ? names_.find(*name) : names_.end();
    if (entry == names_.end() || entry->second < 0) return;
    tensor_entry& tensor = made_.contents.tensors[static_cast<std::size_t>(entry->second)];
    tensor.properties.strides = read_strides(strides, tensor.shape.rank());
  }

  // Reads an integer key, which our own attribute stores as (0,).
  static std::optional<std::int64_t> integer_key_of(pickle::value step) {
    if (step.kind() != pickle::kind::tuple || step.items().size() != 1) return std::nullopt;
    return step.items()[0].as_int();
  }

  // Reads another Python key, which our own attribute stores as (text, JSON).
  std::optional<path_key> python_key_of(pickle::value step) {
    const pickle::items parts = step.items();
    if (step.kind() != pickle::kind::tuple || parts.size() != 2 || !parts[0].text() || !parts[1].text())
      return std::nullopt;
    if (!spend(4 * (parts[0].text()->size() + parts[1].text()->size()), *parts[0].text())) return std::nullopt;
    auto made = torch_file::key_of_json(*parts[0].text(), *parts[1].text());
    return made ? std::optional(*std::move(made)) : std::nullopt;
  }

  // PyTorch writes planner_data in the order of the entries, so the next item usually has this key. The first time it
  // does not, a table is built. No key is looked up twice.
  std::optional<given_path> planned_path_of(std::string_view key) {
    if (planned_.empty()) {
      if (next_planned_ == planner_.size()) return std::nullopt;
      if (planner_[next_planned_].key.text() == key) return given_path{planner_[next_planned_++].value, "planner_data"};
      planned_.reserve(planner_.size());
      for (const auto [fqn, where] : planner_)
        if (const auto text = fqn.text()) planned_.emplace(*text, where);
      if (planned_.empty()) return std::nullopt;
    }
    const auto found = planned_.find(key);
    return found == planned_.end() ? std::nullopt : std::optional(given_path{found->second, "planner_data"});
  }

  path path_of(std::string_view key) {
    const auto later = paths_.find(key);
    const auto found = later != paths_.end() ? std::optional(later->second) : planned_path_of(key);
    if (!found) return path{std::string(key)};
    path where;
    for (const pickle::value item : found->steps.items()) {
      if (!spend(48 + item.text().value_or("").size(), key)) return where;
      if (const auto number = item.as_int())
        where.push_back(*number);
      else if (const auto text = item.text())
        where.push_back(std::string(*text));
      else if (const auto integer = integer_key_of(item))
        where.push_back(path_key::of_integer(*integer));
      else if (const auto python = python_key_of(item))
        where.push_back(*python);
      else
        return problem(errc::bad_format,
                       fmt::format("its path in {} holds something that is neither text nor an index", found->in), key),
               path{};
    }
    if (where.empty()) where.push_back(std::string(key));
    return where;
  }

  void read_entry(pickle::value key, pickle::value entry) {
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

  void read_tensor(std::string_view key, pickle::value entry) {
    tensor_entry tensor;
    tensor.key = key;
    const pickle::value properties = field(entry, "properties");
    if (!spend(key.size() + 40 * properties.state().size(), key)) return;
    const pickle::value type = property(properties, 0, "dtype");
    if (type.global_module() == "torch") tensor.type = parse_dtype(type.global_name()).value_or(dtype::undefined);
    if (tensor.type == dtype::undefined) {
      if (type.kind() != pickle::kind::global) return static_cast<void>(problem(errc::bad_format, "has no dtype", key));
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
    names_.emplace(key, static_cast<std::int64_t>(made_.contents.tensors.size()));
    made_.contents.tensors.push_back(std::move(tensor));
    made_.contents.tensors.back().first_chunk = static_cast<std::int32_t>(made_.contents.chunk_places.size());
    for (const pickle::value chunk : field(entry, "chunks").items()) {
      if (!spend(chunk_bytes, key)) return;
      read_chunk(key, chunk);
    }
  }

  // Keeps the name of a dtype that shardmesh lacks, so that a copy has the same name. torch.undefined, or a name that
  // does not belong to torch, stops PyTorch from reading the whole metadata.
  void note_foreign_dtype(pickle::value type, std::string_view key, tensor_entry& tensor) {
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
                                   .with_file(account_.file())
                                   .with_key(key)
                                   .with_values("", tensor.opaque_type));
  }

  void read_chunk(std::string_view key, pickle::value chunk) {
    const extents& shape = made_.contents.tensors.back().shape;
    auto offsets = read_sizes(field(chunk, "offsets"), "chunk's offsets");
    if (!offsets) return problem(std::move(offsets).error(), key);
    auto sizes = read_sizes(field(chunk, "sizes"), "chunk's sizes");
    if (!sizes) return problem(std::move(sizes).error(), key);
    const box where{*offsets, *sizes};
    if (offsets->rank() != shape.rank() || sizes->rank() != shape.rank())
      return problem(fail(errc::shape_mismatch, "a chunk has a different number of dimensions than the tensor")
                         .with_values(fmt::format("{}", shape.rank()),
                                      fmt::format("{}, {}", detail::counted(offsets->rank(), "offset"),
                                                  detail::counted(sizes->rank(), "size"))),
                     key);
    if (!is_well_formed(where) || !lies_within(where, box::whole(shape)))
      return problem(fail(errc::out_of_bounds, "a chunk lies outside of the tensor")
                         .with_box(is_well_formed(where) ? where : box{*offsets, extents::filled(shape.rank(), 0)})
                         .with_values(to_string(box::whole(shape)),
                                      fmt::format("offsets {} sizes {}", to_string(*offsets), to_string(*sizes))),
                     key);
    made_.contents.add_chunk(where, {});
  }

  void read_places(pickle::value storage, bool has_entries) {
    storage_data_reader places(made_.contents, names_, account_);
    if (storage.kind() == pickle::kind::dict) {
      for (const auto [index, info] : storage.pairs())
        if (spend(place_bytes, {})) places.read(index, info);
    } else if (has_entries) {
      problem(errc::bad_format, "storage_data is missing, which says where the bytes are", {});
    }
    if (!account_.refusal()) places.check_complete();
  }

  std::shared_ptr<const pickle::graph> graph_;
  parse_account account_;
  metadata made_;
  std::unordered_map<std::string_view, given_path> paths_;  // from the attribute that shardmesh adds
  pickle::pairs planner_;
  std::size_t next_planned_ = 0;
  std::unordered_map<std::string_view, pickle::value> planned_;
  entry_numbers names_;
};

}  // namespace

extras new_extras() {
  extras made;
  made.version = "1.0.0";
  return made;
}

result<metadata> parse_metadata(std::vector<std::byte> bytes, std::string_view file, read_budget* budget) {
  read_budget own;
  read_budget& spent = budget != nullptr ? *budget : own;
  spent.add_description(static_cast<std::int64_t>(bytes.size()));
  auto named = pickle::named_graph::parse(std::move(bytes));
  if (!named) return std::move(named).error().with_file(file);
  auto graph = std::make_shared<const pickle::graph>(std::move(named->graph));
  SHARDMESH_TRY(metadata made, metadata_parser(std::move(graph), file, spent).parse());
  made.names.emplace(std::filesystem::path(file).filename().string(), std::move(named->names));
  return made;
}

}  // namespace shardmesh::dcp
