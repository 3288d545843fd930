// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :checked_archive;
import :exported_program;
import :item;

namespace shardmesh::torch_file {
namespace fs = places;
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view weights_folder = "data/weights/", list_ending = "_weights_config.json";
constexpr std::string_view not_read = "it is an exported program: its weights are read, its graph and inputs are not";

// torch._export.serde.schema.ScalarType
std::optional<dtype> scalar_type(std::int64_t number) {
  switch (number) {
    case 1:
      return dtype::uint8;
    case 2:
      return dtype::int8;
    case 3:
      return dtype::int16;
    case 4:
      return dtype::int32;
    case 5:
      return dtype::int64;
    case 6:
      return dtype::float16;
    case 7:
      return dtype::float32;
    case 8:
      return dtype::float64;
    case 9:
      return dtype::complex32;
    case 10:
      return dtype::complex64;
    case 11:
      return dtype::complex128;
    case 12:
      return dtype::boolean;
    case 13:
      return dtype::bfloat16;
    case 28:
      return dtype::uint16;
    case 29:
      return dtype::float8_e4m3fn;
    case 30:
      return dtype::float8_e5m2;
    case 31:
      return dtype::float8_e4m3fnuz;
    case 32:
      return dtype::float8_e5m2fnuz;
    case 33:
      return dtype::float8_e8m0fnu;
    case 34:
      return dtype::uint32;
    case 35:
      return dtype::uint64;
    default:
      return std::nullopt;
  }
}

// Returns a member of an object; null for other values.
const json& member(const json& value, const char* key) {
  static const json none;
  if (!value.is_object()) return none;
  const auto found = value.find(key);
  return found == value.end() ? none : *found;
}

std::optional<std::int64_t> integer_of(const json& value) {
  const json& number = member(value, "as_int");
  return number.is_number_integer() ? std::optional(number.get<std::int64_t>()) : std::nullopt;
}

result<extents> integers_of(const json& list, std::string_view what) {
  extents numbers;
  if (!list.is_array()) return fail(errc::bad_format, fmt::format("its {} are not a list", what));
  if (list.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("it has {} dimensions", list.size()))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", list.size()));
  for (const json& part : list) {
    const auto number = integer_of(part);
    if (!number || *number < 0) return fail(errc::bad_format, fmt::format("its {} are not all numbers", what));
    numbers.push_back(*number);
  }
  return numbers;
}

// Finds the one torch.save archive with all weights, as PyTorch up to 2.8 wrote it.
const zip_record* old_weights(const zip_directory& directory) {
  for (const char* name : {"serialized_state_dict.pt", "serialized_state_dict.json"})
    if (const zip_record* record = directory.find(name)) return record;
  const std::string folder = archive_prefix(directory) + std::string(weights_folder);
  const zip_record* found = nullptr;
  for (const zip_record& record : directory.records()) {
    if (!record.name.starts_with(folder) || !record.name.ends_with(".pt")) continue;
    if (found != nullptr) return nullptr;
    found = &record;
  }
  return found;
}

// The records of a program's archive other than its weights.
struct unread_parts {
  std::vector<std::string> constants;
  std::int64_t tensors = 0;  // among the constants

  std::string note(const zip_directory& directory) const {
    std::string rest;
    const auto say = [&](const std::vector<std::string>& names, std::string_view one) {
      if (names.empty()) return;
      rest += fmt::format("{}{} ({})", rest.empty() ? "; not kept: " : ", ", detail::counted(names.size(), one),
                          name_list(names));
    };
    say(constants, "constant");
    say(extra_files(directory), "extra file");
    return std::string(not_read) + rest;
  }
};

// Adds the constants of a torch.save archive, where PyTorch up to 2.8 wrote them. An archive that cannot be read counts
// as one tensor, under the record's name.
void add_old_constants(const byte_source& source, const zip_record& record, read_budget& budget, unread_parts& parts) {
  if (record.method == 0 && record.offset >= 0) {
    const section_source bytes(source, record.offset, record.size_bytes);
    const auto constants =
        item::open(bytes, {.pickle_limit_bytes = budget.limits().description_bytes, .budget = &budget});
    if (constants && constants->root().kind() == pickle::kind::dict) {
      for (const pickle::pair pair : constants->root().pairs())
        parts.constants.push_back(pair.key.text() ? escaped(*pair.key.text()) : "?");
      parts.tensors += static_cast<std::int64_t>(constants->tensors().size());
      return;
    }
  }
  parts.constants.push_back(escaped(record.name));
  ++parts.tensors;
}

// Finds what PyTorch up to 2.8 wrote beside the one archive of all weights.
unread_parts old_parts(const byte_source& source, const zip_directory& directory, read_budget& budget) {
  unread_parts parts;
  const std::string folder = archive_prefix(directory) + "data/constants/";
  for (const zip_record& record : directory.records())
    if (record.name == "serialized_constants.pt" || record.name == "serialized_constants.json" ||
        (record.name.starts_with(folder) && record.name.ends_with(".pt")))
      add_old_constants(source, record, budget, parts);
  return parts;
}

class program_reader final : public payload_reader {
 public:
  program_reader(fs::path file, const open_options& options)
      : payload_reader(checkpoint_format::torch_file, std::move(file), options), pool_(options.pool()) {
    contents_.files.push_back(fs::name_of(path_).string());
  }

  result<void> open() {
    SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path_));
    source_ = std::move(source);
    SHARDMESH_TRY(directory_, torch_file::open_archive(*source_, *budget_));
    const std::string folder = archive_prefix(directory_) + std::string(weights_folder);
    std::vector<const zip_record*> lists;
    for (const zip_record& record : directory_.records())
      if (record.name.starts_with(folder) && record.name.ends_with(list_ending)) lists.push_back(&record);
    if (lists.empty())
      return fail(errc::unsupported, "it is a package of exported programs without weights that can be read")
          .with_hint("write them in Python: torch.save(torch.export.load(FILE).state_dict, ...)");
    for (const zip_record* list : lists) {
      const std::string_view program =
          std::string_view(list->name).substr(folder.size(), list->name.size() - folder.size() - list_ending.size());
      SHARDMESH_TRY(read_list(*list, folder, lists.size() == 1 ? std::string() : std::string(program)));
    }
    check_expanded();
    note_rest();
    return {};
  }

  result<std::shared_ptr<const byte_source>> section(const stored_range& place) override {
    return std::shared_ptr<const byte_source>(
        std::make_shared<const shared_section>(source_, place.offset, place.length));
  }

 private:
  result<json> read_json(const zip_record& record) {
    SHARDMESH_TRY(budget_->decode(record.name, record.compressed_bytes, record.size_bytes));
    SHARDMESH_TRY(const auto bytes, read_record(*source_, record, budget_->limits().description_bytes));
    budget_->add_description(static_cast<std::int64_t>(bytes.size()));
    SHARDMESH_TRY(budget_->build(16 * static_cast<std::int64_t>(bytes.size())));  // for the parsed document
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    SHARDMESH_TRY(check_json_depth(text, 64));
    json document = json::parse(text, nullptr, false);
    if (document.is_discarded() || !member(document, "config").is_object())
      return fail(errc::bad_format, fmt::format("its list of weights \"{}\" is malformed", escaped(record.name)));
    return document;
  }

  result<void> read_list(const zip_record& record, const std::string& folder, const std::string& program) {
    SHARDMESH_TRY(const json document, read_json(record));
    for (const auto& [name, weight] : document["config"].items()) {
      tensor_entry entry;
      entry.key = program.empty() ? name : program + "." + name;
      entry.where = program.empty() ? shardmesh::path{name} : shardmesh::path{program, name};
      const std::string key = entry.key;
      auto added = keys_.insert(key).second
                       ? add_weight(std::move(entry), weight, folder)
                       : result<void>(fail(errc::duplicate_key, "two weights of the programs have the same name"));
      if (!added) return std::move(added).error().with_key(key);
    }
    return {};
  }

  result<void> add_weight(tensor_entry entry, const json& weight, const std::string& folder) {
    const json& meta = member(weight, "tensor_meta");
    const json& path_name = member(weight, "path_name");
    const json& type = member(meta, "dtype");
    if (!path_name.is_string() || !meta.is_object() || !type.is_number_integer())
      return fail(errc::bad_format, "its entry in the list of weights lacks its path or dtype");
    const auto known = scalar_type(type.get<std::int64_t>());
    if (!known)
      return fail(errc::unsupported, fmt::format("has an unknown dtype, number {}", type.get<std::int64_t>()));
    entry.type = *known;
    SHARDMESH_TRY(entry.shape, integers_of(member(meta, "sizes"), "sizes"));
    const json& requires_grad = member(meta, "requires_grad");
    entry.properties.requires_grad = requires_grad.is_boolean() && requires_grad.get<bool>();

    const std::string name = folder + path_name.get<std::string>();
    const zip_record* const record = directory_.find(name);
    if (record == nullptr)
      return fail(errc::bad_format, fmt::format("the archive has no record \"{}\"", escaped(name)));
    if (record->method != 0)
      return fail(errc::unsupported, fmt::format("the record \"{}\" is compressed", escaped(name)))
          .with_hint("write them in Python: torch.save(torch.export.load(FILE).state_dict, ...)");
    tensor_payload payload;
    payload.place = {0, 0, record->offset, record->size_bytes};
    payload.is_archive = member(weight, "use_pickle") == true;
    payload.crc32 = record->crc32;
    if (!payload.is_archive) {
      if (member(meta, "layout") != 7)  // torch.strided
        return fail(errc::unsupported, "it is not strided");
      SHARDMESH_TRY(payload.strides, integers_of(member(meta, "strides"), "strides"));
      const auto storage_offset = integer_of(member(meta, "storage_offset"));
      if (!storage_offset) return fail(errc::bad_format, "its storage offset is not a number");
      payload.storage_offset = *storage_offset;
    }
    const box whole = box::whole(entry.shape);
    add_tensor(std::move(entry));
    return add_chunk(whole, payload);
  }

  void note_rest() {
    unread_parts parts;
    const std::string folder = archive_prefix(directory_) + "data/constants/";
    for (const zip_record& record : directory_.records()) {
      if (!record.name.starts_with(folder) || record.name.ends_with(".json")) continue;
      parts.constants.push_back(escaped(record.name.substr(folder.size())));
      parts.tensors += parts.constants.back().starts_with("tensor_") ? 1 : 0;
    }
    unread_tensors_ += parts.tensors;
    notes_.push_back(parts.note(directory_));
  }

  file_pool pool_;
  std::shared_ptr<const byte_source> source_;
  zip_directory directory_;
  std::unordered_set<std::string> keys_;
};

}  // namespace

bool is_exported_program(const zip_directory& directory) {
  const std::string prefix = archive_prefix(directory);
  return directory.find("serialized_exported_program.json") != nullptr ||
         directory.find(prefix + "archive_format") != nullptr;
}

result<std::unique_ptr<checkpoint_reader>> open_exported_program(const fs::path& file, const open_options& options) {
  {
    file_pool pool(1);
    SHARDMESH_TRY(const auto source, pool.open(file));
    read_budget budget(options.limits);
    SHARDMESH_TRY(const zip_directory directory, open_archive(*source, budget));
    if (const zip_record* record = old_weights(directory)) {
      if (record->method != 0)
        return fail(errc::unsupported, "its weights are a compressed record")
            .with_file(file.string())
            .with_hint("write them in Python: torch.save(torch.export.load(FILE).state_dict, ...)");
      const unread_parts parts = old_parts(*source, directory, budget);
      return open_run(file, options,
                      file_run{record->offset, record->size_bytes, {parts.note(directory)}, parts.tensors});
    }
  }
  auto reader = std::make_unique<program_reader>(file, options);
  if (auto opened = reader->open(); !opened) {
    error problem = std::move(opened).error();
    return problem.file.empty() ? std::move(problem).with_file(file.string()) : problem;
  }
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torch_file
