// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :object_value_check;
import :objects_document;

namespace shardmesh::safetensors {
namespace {

using json = nlohmann::json;

bool is_kind(std::string_view text) {
  for (int kind = 0; kind <= static_cast<int>(torch_file::object_kind::opaque); ++kind)
    if (name(static_cast<torch_file::object_kind>(kind)) == text) return true;
  return false;
}

// Python's type name of plain values; other kinds have several types.
std::string_view type_of_kind(std::string_view kind) {
  static constexpr std::pair<std::string_view, std::string_view> types[] = {{"none", "builtins.NoneType"},
                                                                            {"bool", "builtins.bool"},
                                                                            {"int", "builtins.int"},
                                                                            {"float", "builtins.float"},
                                                                            {"str", "builtins.str"},
                                                                            {"complex", "builtins.complex"},
                                                                            {"bytes", "builtins.bytes"},
                                                                            {"size", "torch.Size"},
                                                                            {"bytearray", "builtins.bytearray"},
                                                                            {"dtype", "torch.dtype"},
                                                                            {"device", "torch.device"},
                                                                            {"list", "builtins.list"},
                                                                            {"tuple", "builtins.tuple"},
                                                                            {"set", "builtins.set"},
                                                                            {"frozenset", "builtins.frozenset"},
                                                                            {"odict", "collections.OrderedDict"}};
  for (const auto& [known, type] : types)
    if (known == kind) return type;
  return {};
}

// An opaque value keeps only its type. So does an integer with too many digits.
bool matches(std::string_view stated, std::string_view found) {
  if (found == "opaque")
    return stated == "opaque" || stated == "opaque-tensor" || stated == "global" || stated == "int";
  if (found == "none") return stated == "none" || stated == "opaque" || stated == "opaque-tensor";
  return stated == found;
}

/// Parses {"format":..,"xxh3":..,"objects":{KEY:{"path":[..],"kind":..,"type":..,"value":..}},"tensors":{KEY:[..]}},
/// event by event. A step of a path is a name, an index, {"$int": 0} for an integer key, or
/// {"$key": JSON, "text": NAME}.
class document_reader final : public nlohmann::json_sax<json> {
 public:
  stored_objects made;
  error problem;
  bool has_objects = false;

  bool null() override { return in_value() ? checked(value_.null()) : misplaced(); }
  bool boolean(bool value) override { return in_value() ? checked(value_.boolean(value)) : misplaced(); }
  bool number_integer(std::int64_t value) override {
    if (in_value()) return checked(value_.integer(value));
    if (!in_path()) return misplaced();
    if (step_ == integer_key::named)
      return step_ = integer_key::whole, path_.push_back(path_key::of_integer(value)), true;
    return step_ == integer_key::none ? (path_.push_back(value), true) : misplaced();
  }
  bool number_unsigned(std::uint64_t value) override {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return number_integer(static_cast<std::int64_t>(value));
    return in_value() ? checked(value_.wrong("an integer beyond 64 bits is written as $int")) : misplaced();
  }
  bool number_float(double, const std::string&) override {
    return in_value() ? checked(value_.wrong("a number with a fraction is written as $float")) : misplaced();
  }
  bool binary(json::binary_t&) override { return misplaced(); }
  bool string(std::string& value) override {
    if (in_value()) return checked(value_.string(value));
    if (in_path() && step_ == integer_key::none) return path_.push_back(value), true;
    if (in_path() && step_ == integer_key::python) return key_json_ = value, step_ = integer_key::given, true;
    if (in_path() && step_ == integer_key::text) {
      auto python = torch_file::key_of_json(value, key_json_);
      if (!python) return wrong("a key of a path is not plain data");
      return path_.push_back(*std::move(python)), step_ = integer_key::whole, true;
    }
    if (at_ == place::document) return (member_ != "objects" && member_ != "tensors") || misplaced();
    if (at_ != place::entry || (member_ != "kind" && member_ != "type")) return misplaced();
    (member_ == "kind" ? made.objects.back().value.kind : made.objects.back().value.type) = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_value()) return checked(value_.start_object());
    if (in_path() && step_ == integer_key::none) return step_ = integer_key::open, true;
    if (at_ == place::outside) return at_ = place::document, true;
    if (at_ == place::document && member_ == "objects" && !has_objects) return at_ = place::objects, has_objects = true;
    if (at_ == place::document && member_ == "tensors" && keys_of_tensors_.empty()) return at_ = place::tensors, true;
    if (at_ != place::objects) return misplaced();
    at_ = place::entry;
    return true;
  }
  bool key(std::string& name) override {
    if (in_value()) return checked(value_.key(name));
    if (in_path())
      return step_ == integer_key::open && name == "$int"    ? (step_ = integer_key::named, true)
             : step_ == integer_key::open && name == "$key"  ? (step_ = integer_key::python, true)
             : step_ == integer_key::given && name == "text" ? (step_ = integer_key::text, true)
                                                             : misplaced();
    if (at_ == place::objects) return begin_entry(name);
    if (at_ == place::tensors) return begin_tensor(name);
    member_ = name;
    if (at_ != place::entry) return true;
    if (!members_.insert(name).second) return wrong(fmt::format("an entry has {} twice", escaped(name)));
    if (name == "value") value_.begin();
    return name == "path" || name == "kind" || name == "type" || name == "value" ||
           wrong(fmt::format("an entry has an unknown member {}", escaped(name)));
  }
  bool end_object() override {
    if (in_value()) return checked(value_.end_object());
    if (in_path()) return step_ == integer_key::whole ? (step_ = integer_key::none, true) : misplaced();
    if (at_ == place::entry) return end_entry();
    at_ = at_ == place::document ? place::outside : place::document;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_value()) return checked(value_.start_array());
    path_ = {};
    if (at_ == place::tensors) return at_ = place::tensor_path, true;
    if (at_ != place::entry || member_ != "path") return misplaced();
    at_ = place::path;
    return true;
  }
  bool end_array() override {
    if (in_value()) return checked(value_.end_array());
    const bool is_of_object = at_ == place::path;
    (is_of_object ? made.objects.back().where : made.tensor_paths.back().second) = std::move(path_);
    at_ = is_of_object ? place::entry : place::tensors;
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return wrong(fmt::format("not JSON at byte {}", at));
  }

 private:
  enum class place { outside, document, objects, entry, path, tensors, tensor_path };
  // The progress within {"$int": 0}, or {"$key": JSON, "text": NAME}, in a path.
  enum class integer_key { none, open, named, python, given, text, whole };

  bool in_path() const { return at_ == place::path || at_ == place::tensor_path; }
  bool in_value() const { return at_ == place::entry && member_ == "value" && !value_.is_whole(); }
  bool misplaced() { return wrong("a value is of a kind that is not allowed here"); }
  bool wrong(std::string_view what) {
    if (problem.code != errc::ok) return false;
    problem = fail(errc::bad_format, fmt::format("is not a file of objects: {}", what));
    if (at_ == place::entry || at_ == place::path) problem.key = made.objects.back().key;
    if (at_ == place::tensor_path) problem.key = made.tensor_paths.back().first;
    return false;
  }
  bool checked(bool good) { return good || wrong(value_.problem); }

  bool begin_entry(const std::string& name) {
    if (!keys_.insert(name).second) {
      problem = fail(errc::duplicate_key, "two objects have the same name").with_key(name);
      return false;
    }
    made.objects.emplace_back().key = name;
    members_.clear();
    member_.clear();
    return true;
  }

  bool begin_tensor(const std::string& name) {
    if (!keys_of_tensors_.insert(name).second) {
      problem = fail(errc::duplicate_key, "two tensors have the same name").with_key(name);
      return false;
    }
    return made.tensor_paths.emplace_back(name, path{}), true;
  }

  bool end_entry() {
    stored_object& object = made.objects.back();
    for (const char* needed : {"kind", "type", "value"})
      if (!members_.contains(needed)) return wrong(fmt::format("an entry lacks its {}", needed));
    const std::string& kind = object.value.kind;
    if (!is_kind(kind)) return wrong(fmt::format("'{}' is not a kind of object", escaped(kind)));
    if (!matches(kind, value_.kind)) return mismatch("a value does not match its kind", kind, value_.kind);
    const std::string_view type = type_of_kind(kind);
    if (object.value.type.empty() || (!type.empty() && type != object.value.type))
      return mismatch("the type does not match the kind", std::string(type), object.value.type);
    object.value.json = std::move(value_.out);
    at_ = place::objects;
    return true;
  }
  bool mismatch(std::string_view what, std::string expected, std::string found) {
    wrong(what);
    problem.expected = std::move(expected);
    problem.found = std::move(found);
    return false;
  }

  place at_ = place::outside;
  std::string member_;                       // the last member of the document or of an entry
  std::unordered_set<std::string> members_;  // members of the current entry
  path path_;                                // the path that is being read
  integer_key step_ = integer_key::none;
  std::string key_json_;  // the "$key" of the current step
  std::unordered_set<std::string> keys_, keys_of_tensors_;
  object_value_check value_;
};

}  // namespace

result<stored_objects> read_objects_document(std::string_view text) {
  document_reader reader;
  if (!json::sax_parse(text, &reader)) return std::move(reader.problem);
  if (!reader.has_objects) return fail(errc::bad_format, "is not a file of objects: it has none");
  return std::move(reader.made);
}

}  // namespace shardmesh::safetensors
