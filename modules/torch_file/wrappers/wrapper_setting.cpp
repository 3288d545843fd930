// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :wrapper_setting;
import :wrapper_table;

namespace shardmesh::torch_file {
namespace {

constexpr int most_levels = 12;         // of nested settings
constexpr std::size_t most_items = 64;  // in a list of settings
constexpr int most_values = 4096;       // shared ones count each time

bool is_plain(const pickle::value& value) {
  switch (value.kind()) {
    case pickle::kind::none:
    case pickle::kind::boolean:
    case pickle::kind::floating:
    case pickle::kind::text:
      return true;
    case pickle::kind::integer:
      return value.as_int().has_value();
    case pickle::kind::global:
      return value.global_module() == "torch" && is_dtype_name(value.global_name());
    default:
      return false;
  }
}

bool is_size(const pickle::value& value) {
  if (!value.is_record_of("torch", "Size") || value.args().size() != 1 || value.state()) return false;
  const pickle::value sizes = value.args().items()[0];
  if (sizes.kind() != pickle::kind::tuple || sizes.size() > most_items) return false;
  const pickle::items items = sizes.items();
  return std::all_of(items.begin(), items.end(), [](const pickle::value& size) { return size.as_int().has_value(); });
}

class speller {
 public:
  explicit speller(pickle::writer& out) : out_(out) {}

  void spell(const pickle::value& value, int level) {
    if (++values_ > most_values) level = most_levels;
    const bool is_list = value.kind() == pickle::kind::list, is_tuple = value.kind() == pickle::kind::tuple;
    if (is_plain(value) || is_size(value)) {
      // Cannot fail: plain values are short, except texts, which the pickle held already.
      is_known_only_by_name(value) ? spell_dtype(value) : static_cast<void>(out_.value(value));
    } else if ((is_list || is_tuple) && value.size() <= most_items && level < most_levels) {
      is_list ? out_.begin_list() : out_.begin_tuple();
      for (const pickle::value item : value.items()) spell(item, level + 1);
      is_list ? out_.end_list() : out_.end_tuple();
    } else if (value.kind() != pickle::kind::record || level >= most_levels || !spell_object(value, level)) {
      out_.begin_dict();
      out_.text("unknown");
      out_.text(value.kind() == pickle::kind::record ? pickle::type_name(value.callable())
                                                     : std::string(pickle::name(value.kind())));
      out_.end_dict();
    }
  }

 private:
  // JSON has a tag for the dtypes that shardmesh has. Others ("int4") are written by name.
  static bool is_known_only_by_name(const pickle::value& value) {
    return value.kind() == pickle::kind::global && !parse_dtype(value.global_name());
  }

  void spell_dtype(const pickle::value& value) {
    out_.begin_dict();
    out_.text("dtype");
    out_.text(value.global_name());
    out_.end_dict();
  }

  // False for objects of unknown classes.
  bool spell_object(const pickle::value& value, int level) {
    if (value.appended() || value.assigned() || value.keyword_args()) return false;
    if (pickle::is_builtin(value, "getattr")) {
      const auto name = pickle::argument_of(value, 1).text();
      const std::string type = pickle::type_name(pickle::argument_of(value, 0));
      return value.args().size() == 2 && name && spell_member(type, "name", pickle::argument_of(value, 1));
    }
    const std::string type = pickle::type_name(value.callable());
    if (value.form() == pickle::form::reduce)
      return value.args().size() == 1 && !value.state() && spell_member(type, "value", pickle::argument_of(value, 0));
    const setting_class* const known = find_setting_class(type);
    const pickle::value state = value.state();
    if (value.form() != pickle::form::newobj || known == nullptr || known->is_enum ||
        (state && state.kind() != pickle::kind::dict) || value.args().size() > most_items || state.size() > most_items)
      return false;
    for (const pickle::pair pair : state.pairs())
      if (!pair.key.text()) return false;
    out_.begin_dict();
    out_.text("instance");
    out_.text(type);
    out_.text("arguments");
    out_.begin_list();
    for (const pickle::value argument : value.args().items()) spell(argument, level + 1);
    out_.end_list();
    if (state) {
      out_.text("state");
      out_.begin_dict();
      for (const pickle::pair pair : state.pairs()) out_.text(*pair.key.text()), spell(pair.value, level + 1);
      out_.end_dict();
    }
    out_.end_dict();
    return true;
  }

  bool spell_member(std::string_view type, std::string_view how, const pickle::value& value) {
    const setting_class* const known = find_setting_class(type);
    if (known == nullptr || !known->is_enum || !is_plain(value)) return false;
    out_.begin_dict();
    out_.text("enum");
    out_.text(type);
    out_.text(how);
    static_cast<void>(out_.value(value));
    out_.end_dict();
    return true;
  }

  pickle::writer& out_;
  int values_ = 0;
};

class setting_writer {
 public:
  explicit setting_writer(pickle::writer& out) : out_(out) {}

  result<void> write(const pickle::value& spelled, int level) {
    if (level > most_levels || ++values_ > most_values)
      return fail(errc::bad_format, "there are too many settings, or they are nested too deeply");
    if (is_plain(spelled) || is_size(spelled)) return out_.value(spelled);
    if (spelled.kind() == pickle::kind::dict) return write_object(spelled, level);
    const bool is_list = spelled.kind() == pickle::kind::list;
    if ((!is_list && spelled.kind() != pickle::kind::tuple) || spelled.size() > most_items)
      return fail(errc::bad_format, "a setting is not plain data")
          .with_values("plain data", std::string(pickle::name(spelled.kind())));
    if (!is_list && spelled.size() == 0) return out_.empty_tuple(), result<void>{};
    is_list ? out_.begin_list() : out_.begin_tuple();
    for (const pickle::value item : spelled.items()) SHARDMESH_TRY(write(item, level + 1));
    is_list ? out_.end_list() : out_.end_tuple();
    return {};
  }

 private:
  result<void> write_object(const pickle::value& spelled, int level) {
    if (const auto dtype_name = spelled.find("dtype").text(); dtype_name && is_dtype_name(*dtype_name))
      return out_.global("torch", *dtype_name), result<void>{};
    const auto member = spelled.find("enum").text(), instance = spelled.find("instance").text();
    const auto type = member ? member : instance ? instance : spelled.find("unknown").text();
    if (!type) return fail(errc::bad_format, "a setting is a dict that does not describe an object");
    const setting_class* const known = find_setting_class(*type);
    if (known == nullptr || known->is_enum != member.has_value() || (!member && !instance))
      return fail(errc::unsupported, fmt::format("a setting is of the unknown class {}", escaped(*type)));
    if (member) return write_member(*known, spelled);
    return write_instance(*known, spelled, level);
  }

  result<void> write_member(const setting_class& known, const pickle::value& spelled) {
    const pickle::value name = spelled.find("name"), value = spelled.find("value");
    const bool by_name = static_cast<bool>(name);
    if (by_name ? !name.text() : !is_plain(value)) return fail(errc::bad_format, "a member of an enum has no value");
    if (by_name) out_.global("builtins", "getattr");
    if (by_name) out_.begin_tuple();
    out_.global(known.module_name, known.name);
    if (!by_name) out_.begin_tuple();
    SHARDMESH_TRY(out_.value(by_name ? name : value));
    out_.end_tuple();
    out_.reduce();
    return {};
  }

  result<void> write_instance(const setting_class& known, const pickle::value& spelled, int level) {
    const pickle::value arguments = spelled.find("arguments"), state = spelled.find("state");
    if (arguments.kind() != pickle::kind::list || arguments.size() > most_items || state.size() > most_items ||
        (state && state.kind() != pickle::kind::dict))
      return fail(errc::bad_format, fmt::format("the description of an object of {} is incomplete", known.name));
    out_.global(known.module_name, known.name);
    if (arguments.size() == 0) {
      out_.empty_tuple();
    } else {
      out_.begin_tuple();
      for (const pickle::value argument : arguments.items()) SHARDMESH_TRY(write(argument, level + 1));
      out_.end_tuple();
    }
    out_.newobj();
    if (!state) return {};
    out_.begin_dict();
    for (const pickle::pair pair : state.pairs()) {
      const auto name = pair.key.text();
      if (!name || !is_attribute_name(*name)) return fail(errc::bad_format, "an attribute's name is not valid");
      out_.text(*name);
      SHARDMESH_TRY(write(pair.value, level + 1));
    }
    out_.end_dict();
    out_.build();
    return {};
  }

  pickle::writer& out_;
  int values_ = 0;
};

}  // namespace

bool is_attribute_name(std::string_view name) {
  const auto is_letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && is_letter(name[0]) && !name.starts_with("__") &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

void spell_setting(pickle::writer& out, const pickle::value& value) {
  speller(out).spell(value, 0);
}

result<void> write_setting(pickle::writer& out, const pickle::value& spelled) {
  return setting_writer(out).write(spelled, 0);
}

}  // namespace shardmesh::torch_file
