// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.npz;

namespace shardmesh::npz {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t preamble_bytes = 8;  // the magic and the version

struct known_type {
  dtype type;
  std::string_view descr;  // as NumPy writes it
};
constexpr std::array known_types{
    known_type{dtype::boolean, "|b1"},   known_type{dtype::uint8, "|u1"},      known_type{dtype::int8, "|i1"},
    known_type{dtype::uint16, "<u2"},    known_type{dtype::int16, "<i2"},      known_type{dtype::uint32, "<u4"},
    known_type{dtype::int32, "<i4"},     known_type{dtype::uint64, "<u8"},     known_type{dtype::int64, "<i8"},
    known_type{dtype::float16, "<f2"},   known_type{dtype::float32, "<f4"},    known_type{dtype::float64, "<f8"},
    known_type{dtype::complex64, "<c8"}, known_type{dtype::complex128, "<c16"}};

error bad(std::string message) {
  return fail(errc::bad_format, "malformed header of a NumPy array: " + std::move(message));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Parses the dict. After each function, the position is at the end of the text that the function has read.
class header_parser {
 public:
  explicit header_parser(std::string_view text) : text_(text) {}

  result<array_header> parse() {
    array_header made;
    bool has_descr = false, has_order = false, has_shape = false;
    SHARDMESH_TRY(expect('{'));
    while (!accept('}')) {
      SHARDMESH_TRY(const std::string_view key, text("a key"));
      SHARDMESH_TRY(expect(':'));
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      if (seen == nullptr) return bad(fmt::format("the key \"{}\" is unknown", shortened(escaped(key), 40)));
      if (*seen) return bad(fmt::format("the key \"{}\" is there twice", key));
      *seen = true;
      if (seen == &has_descr) SHARDMESH_TRY(read_descr(made));
      if (seen == &has_order) SHARDMESH_TRY(read_order(made));
      if (seen == &has_shape) SHARDMESH_TRY(read_shape(made.shape));
      if (accept(',')) continue;
      SHARDMESH_TRY(expect('}'));
      break;
    }
    skip_space();
    if (at_ != text_.size()) return bad("bytes follow the dict");
    if (!has_descr || !has_order || !has_shape) return bad("it lacks \"descr\", \"fortran_order\", or \"shape\"");
    return made;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  result<void> expect(char wanted) {
    if (accept(wanted)) return {};
    return bad("it is not a dict of plain values")
        .with_values(fmt::format("'{}' at character {}", wanted, at_),
                     at_ == text_.size() ? "its end" : fmt::format("'{}'", escaped(text_.substr(at_, 1))));
  }

  // Reads a quoted text. NumPy writes no escapes in the texts that matter here.
  result<std::string_view> text(std::string_view what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return bad(fmt::format("{} is not a text", what));
    const std::size_t begin = at_ + 1, end = text_.find(quote, begin);
    if (end == std::string_view::npos) return bad(fmt::format("{} has no end", what));
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  result<void> read_order(array_header& into) {
    if (accept_word("True")) return into.is_fortran = true, result<void>{};
    return accept_word("False") ? result<void>{} : bad("\"fortran_order\" is neither True nor False");
  }

  result<void> read_descr(array_header& into) {
    skip_space();
    const std::size_t begin = at_;
    if (begin < text_.size() && (text_[begin] == '[' || text_[begin] == '(')) {
      SHARDMESH_TRY(skip_nested());
      into.descr = text_.substr(begin, std::min(at_ - begin, max_descr_bytes));
      return {};
    }
    SHARDMESH_TRY(const std::string_view descr, text("\"descr\""));
    into.descr = descr.substr(0, max_descr_bytes);
    return {};
  }

  // Skips a list or tuple, with everything inside.
  result<void> skip_nested() {
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        const std::size_t begin = at_;
        for (++at_; at_ < text_.size() && text_[at_] != text_[begin]; ++at_)
          if (text_[at_] == '\\') ++at_;
        if (at_ >= text_.size()) break;
      }
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      ++at_;
      if (depth == 0) return {};
    }
    at_ = std::min(at_, text_.size());
    return bad("\"descr\" has no end");
  }

  result<void> read_shape(extents& into) {
    SHARDMESH_TRY(expect('('));
    while (!accept(')')) {
      SHARDMESH_TRY(const std::int64_t size, number());
      if (into.rank() == max_rank)
        return fail(errc::rank_too_large, "has too many dimensions")
            .with_values(fmt::format("at most {}", max_rank), "more");
      into.push_back(size);
      if (accept(',')) continue;
      SHARDMESH_TRY(expect(')'));
      break;
    }
    return {};
  }

  // Reads a size. NumPy on Python 2 wrote "3L".
  result<std::int64_t> number() {
    skip_space();
    const std::size_t begin = at_;
    std::optional<std::int64_t> value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (value) value = checked_multiply(*value, 10);
      if (value) value = checked_add(*value, text_[at_] - '0');
    }
    if (at_ == begin) return bad("\"shape\" is not a tuple of sizes");
    if (!value)
      return fail(errc::overflow, "one of its sizes does not fit in 63 bits")
          .with_values("", shortened(text_.substr(begin, at_ - begin), 40));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return *value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// Sets the dtype that the spelling of the type names, if shardmesh has it.
void find_type(array_header& header) {
  std::string_view descr = header.descr;
  if (descr.empty()) return;
  const char order = descr.front();
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  if (has_order) descr.remove_prefix(1);
  for (const known_type& known : known_types)
    if (known.descr.substr(1) == descr) {
      header.type = known.type;
      header.is_big_endian = order == '>' && item_bytes(known.type) > 1;
    }
}

}  // namespace

bool begins_array(std::span<const std::byte> first) {
  return text_of(first).starts_with(magic);
}

result<std::int64_t> header_bytes_of(std::span<const std::byte> first) {
  if (!begins_array(first))
    return fail(errc::bad_format, "is not a NumPy array")
        .with_values("the bytes \"\\x93NUMPY\" at its begin", "others");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::int64_t>(first[i]); };
  if (first.size() < preamble_bytes + 2) return bad("it is cut off");
  const std::int64_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    return fail(errc::unsupported, "is of a version of NumPy's format that is not read")
        .with_values("1.0, 2.0, or 3.0", fmt::format("{}.{}", major, minor));
  const std::size_t width = major == 1 ? 2 : 4;
  if (first.size() < preamble_bytes + width) return bad("it is cut off");
  std::int64_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length << 8 | byte(preamble_bytes + i);
  const std::int64_t all = static_cast<std::int64_t>(preamble_bytes + width) + length;
  if (all > max_header_bytes)
    return bad("it is too large")
        .with_values(fmt::format("at most {} bytes", max_header_bytes), fmt::format("{}", all));
  return all;
}

result<array_header> parse_array_header(std::span<const std::byte> header) {
  SHARDMESH_TRY(const std::int64_t length, header_bytes_of(header));
  if (length != static_cast<std::int64_t>(header.size()))
    return bad("it is cut off").with_values(fmt::format("{} bytes", length), fmt::format("{}", header.size()));
  const std::size_t text_begin =
      preamble_bytes + (std::to_integer<int>(header[6]) == 1 ? std::size_t{2} : std::size_t{4});
  SHARDMESH_TRY(array_header made, header_parser(text_of(header.subspan(text_begin))).parse());
  find_type(made);
  made.data_begin = length;
  made.crc32 = crc32_of(header);
  const auto elements = checked_volume(made.shape);
  const auto bytes = elements ? size_bytes(made.type, *elements) : std::nullopt;  // 0 for an undefined type
  if (!bytes || !checked_add(made.data_begin, *bytes))
    return fail(errc::overflow, fmt::format("its shape {} does not fit in 64 bits", to_string(made.shape)));
  made.data_bytes = *bytes;
  return made;
}

std::string_view descr_of(dtype type) {
  const auto found =
      std::find_if(known_types.begin(), known_types.end(), [&](const known_type& known) { return known.type == type; });
  return found == known_types.end() ? std::string_view() : found->descr;
}

std::string format_array_header(dtype type, const extents& shape) {
  constexpr std::size_t alignment = 64;
  constexpr std::size_t longest_number = 21;  // NumPy leaves room, so that the first size can grow in place
  std::string sizes;
  for (std::size_t d = 0; d < shape.rank(); ++d) sizes += fmt::format("{}{}", d == 0 ? "" : ", ", shape[d]);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr_of(type), sizes,
                                 shape.rank() == 1 ? "," : "");
  if (!shape.empty()) text.append(longest_number - fmt::format("{}", shape[0]).size(), ' ');
  const std::size_t taken = preamble_bytes + 2 + text.size() + 1;
  text.append(alignment - taken % alignment, ' ');
  text += '\n';
  std::string made(magic);
  made += {'\1', '\0', static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8)};
  return made + text;
}

std::string kind_of(const array_header& header) {
  std::string_view descr = header.descr;
  if (descr.starts_with('[') || descr.starts_with('(')) return "NumPy array of records";
  if (!descr.empty() && (descr[0] == '<' || descr[0] == '>' || descr[0] == '|' || descr[0] == '='))
    descr.remove_prefix(1);
  switch (descr.empty() ? '\0' : descr[0]) {
    case 'O':
      return "NumPy array of Python objects (a pickle, which is never executed)";
    case 'V':
      return "NumPy array of raw bytes (ml_dtypes stores bfloat16 and float8 in this way, without their name)";
    case 'S':
    case 'a':
    case 'U':
    case 'T':
      return "NumPy array of texts";
    case 'M':
    case 'm':
      return "NumPy array of dates";
    case 'f':
    case 'c':
      return "NumPy array of extended precision";
    default:
      return "NumPy array of an unknown type";
  }
}

}  // namespace shardmesh::npz
