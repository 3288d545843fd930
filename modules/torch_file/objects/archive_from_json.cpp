// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :long_integer;
import :numpy_value;

namespace shardmesh::torch_file {
namespace {

using json = nlohmann::ordered_json;

// Works without recursion: the pending steps are on a stack, with the next one on top.
class object_pickler {
 public:
  result<std::vector<std::byte>> pickle(const json& whole) && {
    later(act::value, whole);
    while (!pending_.empty()) {
      const step next = pending_.back();
      pending_.pop_back();
      SHARDMESH_TRY(run(next));
    }
    return std::move(out_).finish();
  }

 private:
  enum class act : std::uint8_t { value, tuple, text, end_list, end_tuple, end_dict, reduce };
  struct step {
    act what;
    const json* value = nullptr;        // for value and tuple
    const std::string* text = nullptr;  // for text
  };

  void later(act what) { pending_.push_back({what}); }
  void later(act what, const json& value) { pending_.push_back({what, &value}); }
  // Pushes every element as `what`; the first ends on top.
  void later_each(act what, const json& list) {
    for (auto item = list.rbegin(); item != list.rend(); ++item) later(what, *item);
  }

  result<void> run(const step& next) {
    switch (next.what) {
      case act::value:
        return write(*next.value);
      case act::tuple:
        return write_tuple(*next.value);
      case act::text:
        return out_.text(*next.text), result<void>{};
      case act::end_list:
        return out_.end_list(), result<void>{};
      case act::end_tuple:
        return out_.end_tuple(), result<void>{};
      case act::end_dict:
        return out_.end_dict(), result<void>{};
      case act::reduce:
        return out_.reduce(), result<void>{};
    }
    return {};
  }

  result<void> write(const json& value) {
    if (value.is_null()) return out_.none(), result<void>{};
    if (value.is_boolean()) return out_.boolean(value.get<bool>()), result<void>{};
    if (value.is_number_integer()) return out_.integer(value.get<std::int64_t>()), result<void>{};
    if (value.is_string()) return out_.text(value.get_ref<const std::string&>()), result<void>{};
    if (value.is_array()) return write_list(act::value, value);
    if (value.is_object() && value.size() == 1 && value.begin().key().starts_with("$"))
      return write_tagged(value.begin().key(), value.begin().value());
    if (value.is_object() && value.contains("$other")) return write_other(value);
    if (!value.is_object()) return unsupported("a bare number with a fraction");
    out_.begin_dict();
    later(act::end_dict);
    const auto& members = value.get_ref<const json::object_t&>();
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      later(act::value, member->second);
      pending_.push_back({act::text, nullptr, &member->first});
    }
    return {};
  }

  result<void> write_list(act items, const json& value) {
    out_.begin_list();
    later(act::end_list);
    later_each(items, value);
    return {};
  }

  result<void> write_tagged(const std::string& tag, const json& value) {
    if (tag == "$float") return write_float(value);
    if (tag == "$int") return write_digits(value);
    if (tag == "$bytes") return write_bytes(value);
    if (tag == "$str") return write_surrogates(value);
    if (tag == "$tuple") return write_tuple(value);
    if (tag == "$dict") return write_pairs(value);
    if (tag == "$odict") return write_call("collections", "OrderedDict", [&] { return write_list(act::tuple, value); });
    if (tag == "$set") return write_call("builtins", "set", [&] { return write(value); });
    if (tag == "$frozenset") return write_call("builtins", "frozenset", [&] { return write(value); });
    if (tag == "$bytearray") return write_call("builtins", "bytearray", [&] { return write_bytes(value); });
    if (tag == "$size") return write_call("torch", "Size", [&] { return write_tuple(value); });
    if (tag == "$device") return write_call("torch", "device", [&] { return write(value); });
    if (tag == "$dtype" && value.is_string())
      return out_.global("torch", value.get_ref<const std::string&>()), result<void>{};
    if (tag == "$complex" && value.is_array() && value.size() == 2) return write_complex(value);
    return unsupported(tag);
  }

  // Writes values that are not plain data but are known: ranges, and numpy's arrays and scalars.
  result<void> write_other(const json& value) {
    if (value.contains("range")) {
      const json& bounds = value["range"];
      if (!bounds.is_array() || bounds.size() != 3) return unsupported("range");
      return write_call_of("builtins", "range", bounds);
    }
    const auto data = value.contains("data") ? bytes_from(value["data"]) : std::nullopt;
    if (!data || !value.contains("dtype") || !value["dtype"].is_string()) return unsupported("$other");
    numpy_value made;
    made.dtype = value["dtype"].get<std::string>();
    made.data.assign(reinterpret_cast<const char*>(data->data()), data->size());
    made.is_scalar = !value.contains("shape");
    if (!made.is_scalar) {
      if (!value["shape"].is_array()) return unsupported("shape");
      for (const json& size : value["shape"]) {
        if (!size.is_number_integer()) return unsupported("shape");
        made.shape.push_back(size.get<std::int64_t>());
      }
    }
    return write_numpy(out_, made);
  }

  // Writes callable(*arguments).
  result<void> write_call_of(std::string_view module_name, std::string_view callable, const json& arguments) {
    out_.global(module_name, callable);
    later(act::reduce);
    return write_tuple(arguments);
  }

  static result<void> unsupported(std::string_view what) {
    return fail(errc::unsupported,
                fmt::format("objects.json holds only a part of it ({}), so it cannot be pickled again", what));
  }

  static std::optional<double> number_of(const json& value) {
    if (!value.is_string()) return std::nullopt;
    const auto& text = value.get_ref<const std::string&>();
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);  // accepts hexadecimal floats, inf, and nan
    if (text.empty() || *end != '\0') return std::nullopt;
    return number;
  }

  result<void> write_float(const json& value) {
    const auto number = number_of(value);
    if (!number) return unsupported("$float");
    return out_.floating(*number), result<void>{};
  }

  result<void> write_complex(const json& value) {
    const auto real = number_of(value[0]);
    const auto imaginary = number_of(value[1]);
    if (!real || !imaginary) return unsupported("$complex");
    out_.global("builtins", "complex");
    out_.begin_tuple();
    out_.floating(*real);
    out_.floating(*imaginary);
    out_.end_tuple();
    return out_.reduce(), result<void>{};
  }

  result<void> write_digits(const json& value) {
    if (!value.is_string()) return unsupported("$int");
    const auto& digits = value.get_ref<const std::string&>();
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(digits.c_str(), &end, 10);
    if (errno == 0 && *end == '\0' && !digits.empty()) return out_.integer(number), result<void>{};
    auto pickled = pickle_of_digits(digits);
    if (!pickled) return unsupported("$int");
    SHARDMESH_TRY(auto parsed, pickle::graph::parse(*std::move(pickled)));
    long_numbers_.push_back(std::move(parsed));
    return out_.value(long_numbers_.back().root());
  }

  // Decodes hexadecimal digits, two per byte.
  static std::optional<std::vector<std::byte>> bytes_from(const json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().size() % 2 != 0) return std::nullopt;
    const auto& digits = value.get_ref<const std::string&>();
    std::vector<std::byte> bytes;
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return std::nullopt;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      const auto nibble = [&](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
      bytes.push_back(static_cast<std::byte>(nibble(digits[i]) << 4 | nibble(digits[i + 1])));
    }
    return bytes;
  }

  result<void> write_bytes(const json& value) {
    const auto bytes = bytes_from(value);
    if (!bytes) return unsupported("$bytes");
    return out_.bytes(*bytes), result<void>{};
  }

  result<void> write_surrogates(const json& value) {
    const auto bytes = bytes_from(value);
    if (!bytes) return unsupported("$str");
    return out_.text({reinterpret_cast<const char*>(bytes->data()), bytes->size()}), result<void>{};
  }

  result<void> write_tuple(const json& value) {
    if (value.empty()) return out_.empty_tuple(), result<void>{};
    out_.begin_tuple();
    later(act::end_tuple);
    later_each(act::value, value);
    return {};
  }

  result<void> write_pairs(const json& value) {
    out_.begin_dict();
    later(act::end_dict);
    for (auto pair = value.rbegin(); pair != value.rend(); ++pair) {
      if (!pair->is_array() || pair->size() != 2) return unsupported("$dict");
      later_each(act::value, *pair);
    }
    return {};
  }

  // Writes callable(argument). `argument` writes its value or pushes it onto the stack.
  result<void> write_call(std::string_view module_name, std::string_view callable,
                          function_ref<result<void>()> argument) {
    out_.global(module_name, callable);
    out_.begin_tuple();
    later(act::reduce);
    later(act::end_tuple);
    return argument();
  }

  std::vector<step> pending_;
  std::vector<pickle::graph> long_numbers_;  // kept because out_ identifies what it wrote by address
  pickle::writer out_{2};
};

}  // namespace

result<std::vector<std::byte>> pickle_from_json(std::string_view text) {
  SHARDMESH_TRY(check_json_depth(text));
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return fail(errc::bad_format, "the object's value is not JSON");
  return object_pickler().pickle(value);
}

result<std::vector<std::byte>> archive_from_json(std::string_view text) {
  SHARDMESH_TRY(const std::vector<std::byte> pickle, pickle_from_json(text));
  return object_archive(pickle);
}

}  // namespace shardmesh::torch_file
