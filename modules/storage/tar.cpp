// SPDX-License-Identifier: Apache-2.0
// Reads the members of an archive, one header after the other.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.storage;

import :tar_header;

namespace shardmesh {
using namespace tar_header;

namespace {

constexpr std::int64_t most_extension_bytes = 1 << 20;  // of a long name, and of the fields of pax
constexpr std::int64_t most_padding_bytes = 16 << 20;   // behind the end; writers fill a record, usually of 10 KiB

class tar_reader {
 public:
  tar_reader(const byte_source& source, read_budget& budget) : source_(source), budget_(budget) {}

  result<std::vector<tar_member>> read() {
    for (;;) {
      block header;
      if (source_.size_bytes() - at_ < block_bytes) return bad("it has no end (cut off?)", {});
      SHARDMESH_TRY(source_.read(at_, header));
      at_ += block_bytes;
      if (is_zero(header)) break;
      SHARDMESH_TRY(read_member(header));
    }
    if (long_name_ || long_size_) return bad("a long name belongs to no member", {});
    SHARDMESH_TRY(check_rest());
    return std::move(members_);
  }

 private:
  error refuse(errc code, std::string message, std::string_view member) const {
    error made = fail(code, "malformed tar archive: " + std::move(message)).with_file(source_.name());
    return member.empty() ? made : std::move(made).with_key(member);
  }
  error bad(std::string message, std::string_view member) const {
    return refuse(errc::bad_format, std::move(message), member);
  }

  result<void> read_member(const block& header) {
    if (!has_mark(header) || !has_its_sum(header))
      return bad(fmt::format("the header at byte {} is damaged", at_ - block_bytes), {});
    const char type = std::to_integer<char>(header[156]);
    const bool is_extension = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    std::string name = long_name_ && !is_extension ? *long_name_ : name_of(header);
    const auto stated = number_at(header, 124, 12);
    if (!stated) return bad("the size of a member is not a number", name);
    if (const std::string_view kind = refused_kind(type); !kind.empty())
      return refuse(errc::unsupported, fmt::format("a member is {}, which is not read", kind), name);
    const std::int64_t size = is_extension || !long_size_ ? *stated : *long_size_;
    if (size > source_.size_bytes() - at_)
      return refuse(errc::bad_format, "the size of a member leaves the file", name)
          .with_values(fmt::format("at most {} bytes", source_.size_bytes() - at_), fmt::format("{}", size));
    const std::int64_t begin = at_;
    budget_.add_description(block_bytes);
    // The padding of the last member may be missing only if the file ends there, which has no end block either.
    at_ = std::min(source_.size_bytes(), begin + (size + block_bytes - 1) / block_bytes * block_bytes);
    if (is_extension) return read_extension(type, begin, size, std::move(name));
    long_name_.reset();
    long_size_.reset();
    return add(std::move(name), type == '5', begin, size);
  }

  // Reads a long name, or the fields of pax, which describe the next member ('g': all members).
  result<void> read_extension(char type, std::int64_t begin, std::int64_t size, std::string name) {
    if (size > most_extension_bytes)
      return refuse(errc::bad_format, "a description of a member is too large", name)
          .with_values(fmt::format("at most {} bytes", most_extension_bytes), fmt::format("{}", size));
    SHARDMESH_TRY(const std::vector<std::byte> bytes, read_range(source_, begin, size, most_extension_bytes));
    budget_.add_description(size);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (type == 'K') return {};  // the target of a link: the link itself is refused
    if (type != 'L') return read_fields(text, type == 'g', name);
    if (long_name_) return bad("a member has two long names", name);
    long_name_ = std::string(text.substr(0, text.find('\0')));
    return {};
  }

  // Reads the fields of pax: "LENGTH KEY=VALUE\n" one after the other.
  result<void> read_fields(std::string_view text, bool is_global, const std::string& member) {
    while (!text.empty()) {
      const std::size_t space = text.find(' ');
      const auto length = decimal(text.substr(0, space));
      if (space == text.npos || !length || *length > std::ssize(text) || *length < static_cast<std::int64_t>(space) + 3)
        return bad("the fields of pax are damaged", member);
      const std::string_view field = text.substr(space + 1, static_cast<std::size_t>(*length) - space - 1);
      const std::size_t equals = field.find('=');
      if (equals == field.npos || !field.ends_with('\n')) return bad("the fields of pax are damaged", member);
      const std::string_view key = field.substr(0, equals);
      SHARDMESH_TRY(take_field(key, field.substr(equals + 1, field.size() - equals - 2), is_global, member));
      text.remove_prefix(static_cast<std::size_t>(*length));
    }
    return {};
  }

  result<void> take_field(std::string_view key, std::string_view value, bool is_global, const std::string& member) {
    if (key.starts_with("GNU.sparse"))
      return refuse(errc::unsupported, "a member is a sparse file, which is not read", member);
    if (key != "path" && key != "size") return {};  // times, owners, and comments
    if (is_global) return bad(fmt::format("one {} for all members makes no sense", key), member);
    if (key == "path") {
      if (long_name_) return bad("a member has two long names", member);
      long_name_ = std::string(value);
      return {};
    }
    if (long_size_) return bad("a member has two sizes", member);
    long_size_ = decimal(value);
    return long_size_ ? result<void>{} : bad("the size of a member is not a number", member);
  }

  static std::optional<std::int64_t> decimal(std::string_view digits) {
    if (digits.empty()) return std::nullopt;
    std::optional<std::int64_t> value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return std::nullopt;
      if (value) value = checked_multiply(*value, 10);
      if (value) value = checked_add(*value, digit - '0');
    }
    return value;
  }

  result<void> add(std::string name, bool is_folder, std::int64_t begin, std::int64_t size) {
    SHARDMESH_TRY(std::string plain, plain_name(name));
    // Old writers mark a folder by the slash behind its name alone.
    if (is_folder || name.ends_with('/')) {
      if (size != 0) return bad("a folder has bytes", name);
      return {};
    }
    if (plain.empty()) return bad("a member has no name", {});
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(tar_member) + 2 * plain.size() + 64)));
    if (!names_.insert(plain).second) return refuse(errc::duplicate_key, "two members have this name", plain);
    members_.push_back({std::move(plain), begin, size});
    return {};
  }

  // Returns the name without empty steps and ".", and refuses names that lead out of the archive's folder.
  result<std::string> plain_name(const std::string& name) const {
    if (name.starts_with('/') || name.find('\0') != name.npos)
      return refuse(errc::unsafe_path, "the name of a member is absolute, or contains a NUL", name);
    std::string plain;
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.find('/', begin), name.size());
      const std::string_view step = std::string_view(name).substr(begin, end - begin);
      if (step == "..") return refuse(errc::unsafe_path, "the name of a member leads out of the archive", name);
      if (!step.empty() && step != ".") plain += fmt::format("{}{}", plain.empty() ? "" : "/", step);
      begin = end + 1;
    }
    return plain;
  }

  // A reader that continues behind the first empty block would see other members.
  result<void> check_rest() {
    if (source_.size_bytes() - at_ > most_padding_bytes) return bad("bytes follow its end", {});
    while (at_ < source_.size_bytes()) {
      std::array<std::byte, 1 << 16> piece;
      const auto part = std::span(piece).first(
          static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), source_.size_bytes() - at_)));
      SHARDMESH_TRY(source_.read(at_, part));
      if (!is_zero(part)) return bad("bytes follow its end", {});
      at_ += std::ssize(part);
    }
    return {};
  }

  const byte_source& source_;
  read_budget& budget_;
  std::int64_t at_ = 0;
  std::optional<std::string> long_name_;   // of the next member
  std::optional<std::int64_t> long_size_;  // of the next member
  std::vector<tar_member> members_;
  std::unordered_set<std::string> names_;
};

}  // namespace

bool looks_like_tar(const byte_source& source) {
  block header;
  return source.size_bytes() >= block_bytes && source.read(0, header) && has_mark(header) && has_its_sum(header);
}

result<std::vector<tar_member>> read_tar(const byte_source& source, read_budget& budget) {
  return tar_reader(source, budget).read();
}

}  // namespace shardmesh
