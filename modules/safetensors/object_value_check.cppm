// SPDX-License-Identifier: Apache-2.0
// Checks the JSON value of one object (the tags of docs/formats.md) while it is parsed, and writes it again without
// blanks. Uses a stack of open brackets, no recursion.
module;
#include <fmt/format.h>

#include <unordered_set>
module shardmesh.safetensors:object_value_check;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::safetensors {

// Returns true for hex digits, two per byte.
inline bool is_hex(std::string_view text) {
  return text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// Python's float.hex(), "inf", "-inf", or "nan".
inline bool is_float_hex(const std::string& text) {
  if (text == "inf" || text == "-inf" || text == "nan") return true;
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  if (text.compare(sign, 2, "0x") != 0 || text.find_first_not_of("-0123456789abcdefx.p+") != std::string::npos)
    return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == '\0' && text.find('p') != std::string::npos;
}

inline bool is_decimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "cuda:0", "cpu".
inline bool is_device(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view index = text.substr(std::min(colon + 1, text.size()));
  return colon > 0 &&
         text.substr(0, colon).find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos &&
         (colon == text.size() || (is_decimal(index) && !index.starts_with('-') && index.size() <= 9));
}

class object_value_check {
 public:
  // Starts a new value. Once `is_whole`, `out` is the value's text, and `kind` is its kind as in `object_value`.
  void begin() { *this = object_value_check(); }
  bool is_whole() const { return begun_ && open_.empty(); }
  std::string out, kind, problem;

  bool null() { return plain("none") && write("null"); }
  bool boolean(bool value) { return plain("bool") && write(value ? "true" : "false"); }
  bool integer(std::int64_t value) {
    const std::string_view tag = pending_tag();
    if (tag == "$ref") {
      if (value < 1 || value > composites_) return wrong("$ref leaves the object");
      return finish_tag("") && write(std::to_string(value));
    }
    if (in(place::sizes) && value < 0) return wrong("a size is negative");
    if (!in(place::sizes) && !in(place::numbers) && !plain("int", false)) return false;
    return element() && write(std::to_string(value));
  }
  bool string(const std::string& value) {
    if (in(place::tensor) || (in(place::other) && !shows_value())) return member_text(value);
    const std::string_view tag = pending_tag();
    if (tag.empty() && in(place::parts))
      return is_float_hex(value) ? element() && write(json_quoted(value))
                                 : wrong("$complex has values that are not floats");
    if (tag.empty()) return plain("str") && write(json_quoted(value));
    if (const auto why = text_problem(tag, value); !why.empty()) return wrong(why);
    if (tag == "$other") open_.back().what = place::other;
    return finish_tag(kind_of_text(tag)) && write(json_quoted(value));
  }

  bool start_object() {
    const bool in_tensor = pending_tag() == "$tensor";
    if (!in_tensor && !composite_fits()) return false;
    if (!in_tensor && !element()) return false;
    if (in_tensor && !finish_tag("tensor")) return false;
    return open({in_tensor ? place::tensor : place::object, '}'}) && write("{");
  }
  bool key(const std::string& name) {
    level& top = open_.back();
    const bool is_tag = top.what == place::object && top.items == 0 && name.starts_with('$');
    if (top.what == place::tagged) return wrong("a tag has other members beside it");
    if (is_tag && !is_known(name)) return wrong(fmt::format("the tag {} is not known", escaped(name)));
    if (is_tag) {
      top.what = place::tagged;
    } else if (top.what == place::object) {
      if (top.items == 0 && !set_kind("dict")) return false;
      if (top.items == 0) ++composites_, top.is_composite = true;
      if (!top.keys.insert(name).second) return wrong(fmt::format("a dict has the key {} twice", json_quoted(name)));
    } else if (!is_member(top.what, name)) {
      return wrong(fmt::format("{} is not a member of it", escaped(name)));
    }
    if (top.items++ > 0) out += ',';
    top.name = name;
    out += json_quoted(name) + ":";
    return true;
  }
  bool end_object() {
    const level& top = open_.back();
    if (top.what == place::object && top.items == 0 && !set_kind("dict")) return false;
    if (top.what == place::tensor && top.items != 3) return wrong("$tensor lacks dtype, shape, or sha256");
    return close();
  }

  bool start_array() {
    const std::string tag(pending_tag());
    const place above = open_.empty() ? place::object : open_.back().what;
    place what = place::items;
    if (above == place::tensor || above == place::other) {
      const std::string& name = open_.back().name;
      if (above == place::other && name == "values") return open({place::items, ']'}) && write("[");
      if (name != "shape" && name != "range") return wrong(fmt::format("{} is a list", escaped(name)));
      return open({name == "shape" ? place::sizes : place::numbers, ']'}) && write("[");
    }
    if (above == place::pairs) {
      what = place::pair;
    } else if (tag.empty()) {
      if (!plain("list", false)) return false;
    } else if (tag == "$dict" || tag == "$odict") {
      what = place::pairs;
    } else if (tag == "$size") {
      what = place::sizes;
    } else if (tag == "$complex") {
      what = place::parts;
    } else if (tag != "$tuple" && tag != "$set" && tag != "$frozenset") {
      return wrong(fmt::format("{} is a list", tag));
    }
    if (!tag.empty() && !finish_tag(tag.substr(1))) return false;
    if (tag.empty() && !element()) return false;
    level made{what, ']'};
    made.is_composite = what != place::pair && what != place::parts;
    if (made.is_composite) ++composites_;
    return open(std::move(made)) && write("[");
  }
  bool end_array() {
    const level& top = open_.back();
    if (top.what == place::pair && top.items != 2) return wrong("a pair of a dict does not have two members");
    if (top.what == place::parts && top.items != 2) return wrong("$complex does not have two parts");
    if (top.what == place::numbers && top.items != 3) return wrong("a range does not have three numbers");
    return close();
  }

  bool wrong(std::string why) {
    if (problem.empty()) problem = std::move(why);
    return false;
  }

 private:
  // The content of an open bracket.
  enum class place { object, tagged, tensor, other, items, pairs, pair, sizes, parts, numbers };
  struct level {
    place what;
    char bracket;
    bool is_composite = false;
    std::size_t items = 0;
    std::string name{};                      // of the last member
    std::unordered_set<std::string> keys{};  // of a plain dict
  };
  static constexpr std::size_t most_levels = 2000;

  static bool is_known(std::string_view tag) {
    static constexpr std::string_view tags[] = {"$int",   "$float",  "$complex", "$bytes", "$bytearray", "$str",
                                                "$tuple", "$dict",   "$odict",   "$set",   "$frozenset", "$size",
                                                "$dtype", "$device", "$tensor",  "$ref",   "$other"};
    return std::find(std::begin(tags), std::end(tags), tag) != std::end(tags);
  }
  static bool is_member(place what, std::string_view name) {
    if (what == place::tensor) return name == "dtype" || name == "shape" || name == "sha256";
    return name == "range" || name == "dtype" || name == "shape" || name == "data" || name == "value" ||
           name == "values" || name == "name";
  }
  static std::string kind_of_text(std::string_view tag) {
    if (tag == "$other") return "opaque";
    return std::string(tag.substr(1));  // $int: int, $float: float, ...
  }
  // Returns the problem of a text after a tag; empty when there is none.
  static std::string text_problem(std::string_view tag, const std::string& value) {
    const bool good = tag == "$int"                            ? is_decimal(value)
                      : tag == "$float"                        ? is_float_hex(value)
                      : tag == "$bytes" || tag == "$bytearray" ? is_hex(value)
                      : tag == "$str"                          ? is_hex(value)
                      : tag == "$dtype"                        ? parse_dtype(value).has_value()
                      : tag == "$device"                       ? is_device(value)
                      : tag == "$other"                        ? !value.empty()
                                                               : false;
    return good ? "" : fmt::format("{} has an invalid value: {}", tag, json_quoted(value.substr(0, 60)));
  }

  bool in(place what) const { return !open_.empty() && open_.back().what == what; }
  // Returns true inside the `value` or `values` of a numpy array or scalar, which repeat its bytes for human readers.
  bool shows_value() const {
    return in(place::other) && (open_.back().name == "value" || open_.back().name == "values");
  }
  // Returns the tag whose value comes next.
  std::string_view pending_tag() const {
    return in(place::tagged) ? std::string_view(open_.back().name) : std::string_view();
  }
  bool set_kind(std::string_view found) {
    if (open_.size() <= 1 && kind.empty()) kind = found;
    return true;
  }
  // Accepts a value without a tag, and records its kind when it is the whole object.
  bool plain(std::string_view found, bool as_element = true) {
    if (const auto tag = pending_tag(); !tag.empty()) return wrong(fmt::format("{} has a value of another kind", tag));
    if (in(place::tensor) || (in(place::other) && !shows_value()) || in(place::sizes) || in(place::parts) ||
        in(place::numbers) || in(place::pairs))
      return wrong("a value is of a kind that is not allowed here");
    if (open_.empty()) kind = found;
    return !as_element || element();
  }
  bool finish_tag(std::string_view found) {
    if (open_.size() == 1 && !found.empty()) kind = found;
    return true;
  }
  bool composite_fits() {
    if (const auto tag = pending_tag(); !tag.empty()) return wrong(fmt::format("{} has a value of another kind", tag));
    if (open_.empty() || in(place::object) || in(place::items) || in(place::pair) || shows_value()) return true;
    return wrong("a value is of a kind that is not allowed here");
  }
  // Call it before every element: writes the comma in a list; elsewhere it writes nothing.
  bool element() {
    begun_ = true;
    if (!open_.empty() && open_.back().bracket == ']' && open_.back().items++ > 0) out += ',';
    return true;
  }
  bool member_text(const std::string& value) {
    const level& top = open_.back();
    const bool good = top.what == place::tensor
                          ? (top.name == "dtype" ? parse_dtype(value).has_value()
                                                 : top.name == "sha256" && value.size() == 64 && is_hex(value))
                          : (top.name == "dtype" || top.name == "name" || (top.name == "data" && is_hex(value)));
    if (!good) return wrong(fmt::format("{} has an invalid value", top.name));
    return write(json_quoted(value));
  }
  bool open(level made) {
    begun_ = true;
    if (open_.size() >= most_levels) return wrong(fmt::format("it is nested deeper than {} levels", most_levels));
    open_.push_back(std::move(made));
    return true;
  }
  bool close() {
    out += open_.back().bracket;
    if (open_.back().is_composite) --composites_;
    open_.pop_back();
    return true;
  }
  bool write(std::string_view text) {
    begun_ = true;
    out += text;
    return true;
  }

  std::vector<level> open_;
  std::int64_t composites_ = 0;  // open Python objects around the current value
  bool begun_ = false;
};

}  // namespace shardmesh::safetensors
