// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :secret_file;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{1} << 20;

// Each setting of a nested block has a copy of the block's name.
constexpr std::size_t most_name_bytes = 256;
// Each of these lines copies the value.
constexpr int most_continued = 256;

class aws_file_parser {
 public:
  aws_file_parser(std::string_view file, aws_file_kind kind) : file_(file), kind_(kind) {}

  result<aws_files> run(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      ++line_;
      SHARDMESH_TRY(read_line(text.substr(0, end)));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return std::move(made_);
  }

 private:
  // Names no text of the line, which can hold a key.
  error refuse(std::string_view problem, std::string_view hint) const {
    return fail(errc::bad_format, fmt::format("line {}: {}", line_, problem)).with_file(file_).with_hint(hint);
  }

  result<void> read_line(std::string_view line) {
    const std::string_view content = trimmed(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') return {};
    if (is_blank(line.front())) return read_indented(content);
    if (content.front() == '[') return read_heading(content);
    name_.clear();
    continued_ = 0;
    return read_setting(content, "");
  }

  result<void> read_heading(std::string_view content) {
    const std::size_t end = content.find(']');
    if (end == std::string_view::npos) return refuse("a section's heading has no ']'", "write [profile NAME]");
    const std::string_view rest = trimmed(content.substr(end + 1));
    if (!rest.empty() && rest.front() != '#' && rest.front() != ';')
      return refuse("text follows a section's heading", "move the text to the next line");
    name_.clear();
    is_in_section_ = true;
    section_ = nullptr;
    const std::string_view heading = trimmed(content.substr(1, end - 1));
    if (heading.empty()) return refuse("a section has no name", "write [profile NAME]");
    if (kind_ == aws_file_kind::credentials) {
      section_ = &made_.profiles[std::string(heading)];
      return {};
    }
    return choose_section(heading);
  }

  // The section of a heading of `config`. Other kinds are skipped: section_ stays null.
  result<void> choose_section(std::string_view heading) {
    if (heading == "default") {
      // "[profile default]" counts, if the file has both.
      if (!has_profile_default_) section_ = &made_.profiles["default"];
      return {};
    }
    const std::size_t space = heading.find_first_of(" \t");
    if (space == std::string_view::npos) return {};
    const std::string_view kind = heading.substr(0, space);
    std::string_view name = trimmed(heading.substr(space));
    if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'') && name.back() == name.front())
      name = name.substr(1, name.size() - 2);
    if (name.empty()) return refuse("a section has no name", "write [profile NAME]");
    if (kind == "profile") {
      section_ = &made_.profiles[std::string(name)];
      if (name == "default" && !std::exchange(has_profile_default_, true)) section_->clear();
    } else if (kind == "sso-session") {
      section_ = &made_.sso_sessions[std::string(name)];
    } else if (kind == "services") {
      section_ = &made_.services[std::string(name)];
    }
    return {};
  }

  // "NAME = VALUE". `block` is the setting whose nested block has the line, or empty.
  result<void> read_setting(std::string_view content, std::string_view block) {
    if (!is_in_section_) return refuse("a setting comes before the first section", "write [default] above it");
    const std::size_t equals = content.find('=');
    if (equals == std::string_view::npos) return refuse("a setting has no '='", "write NAME = VALUE");
    std::string name = lower(trimmed(content.substr(0, equals)));
    if (name.empty()) return refuse("a setting has no name", "write NAME = VALUE");
    if (name.size() > most_name_bytes)
      return refuse(fmt::format("a setting's name has more than {} bytes", most_name_bytes), "write NAME = VALUE");
    std::string_view value = content.substr(equals + 1);
    if (name != "credential_process") value = without_comment(value);
    if (block.empty()) {
      name_ = name;
    } else {
      name = fmt::format("{}.{}", block, name);
    }
    if (section_ != nullptr) (*section_)[name] = {secret(trimmed(value)), file_, line_};
    return {};
  }

  result<void> read_indented(std::string_view content) {
    if (name_.empty()) return refuse("an indented line follows no setting", "remove the spaces at its beginning");
    if (content.front() == '[') return refuse("a section's heading is indented", "remove the spaces before '['");
    if (section_ == nullptr) return {};
    aws_setting& above = (*section_)[name_];
    if (above.value.empty()) return read_setting(content, name_);
    if (++continued_ > most_continued)
      return refuse(fmt::format("more than {} lines continue a setting", most_continued), "write fewer, longer lines");
    std::string longer = fmt::format("{}\n{}", above.value.reveal(), content);
    above.value = secret(longer);
    wipe(longer);
    return {};
  }

  static std::string_view without_comment(std::string_view value) {
    for (std::size_t i = 1; i < value.size(); ++i)
      if ((value[i] == '#' || value[i] == ';') && is_blank(value[i - 1])) return value.substr(0, i);
    return value;
  }

  std::string file_;
  aws_file_kind kind_;
  aws_files made_;
  int line_ = 0;
  bool is_in_section_ = false, has_profile_default_ = false;
  aws_section* section_ = nullptr;  // null in a section that is skipped
  int continued_ = 0;               // lines
  std::string name_;                // of the setting that an indented line continues
};

// Adds the sections of the other file. Its settings replace those of `to`.
void merge_into(std::map<std::string, aws_section, std::less<>>& to,
                std::map<std::string, aws_section, std::less<>> from) {
  for (auto& [name, section] : from)
    for (auto& [setting, value] : section) to[name][setting] = std::move(value);
  for (auto& [name, section] : from) to.try_emplace(name);  // also the sections without settings
}

result<aws_files> read_one(const environment& variables, const char* variable, std::string_view usual,
                           aws_file_kind kind) {
  const std::string_view named = variables.variable(variable);
  const std::filesystem::path path = variables.expanded(named.empty() ? usual : named);
  if (named.empty() && variables.variable("HOME").empty()) return aws_files{};
  if (path == "/dev/null") return aws_files{};  // the usual way to have no such file
  auto text = read_secret_file(path, most_file_bytes);
  if (!text) {
    if (const int sys = text.error().sys; sys == ENOENT || sys == ENOTDIR) return aws_files{};
    return std::move(text).error();
  }
  return parse_aws_file(text->reveal(), variables.shown(path), kind);
}

}  // namespace

std::string_view aws_files::setting(std::string_view profile, std::string_view name) const {
  const auto section = profiles.find(profile);
  if (section == profiles.end()) return {};
  const auto at = section->second.find(name);
  return at == section->second.end() ? std::string_view{} : at->second.value.reveal();
}

std::string aws_files::place(std::string_view profile, std::string_view name) const {
  const auto section = profiles.find(profile);
  if (section == profiles.end()) return {};
  const auto at = section->second.find(name);
  return at == section->second.end() ? std::string{} : fmt::format("{}, line {}", at->second.file, at->second.line);
}

result<aws_files> parse_aws_file(std::string_view text, std::string_view file, aws_file_kind kind) {
  return aws_file_parser(file, kind).run(text);
}

result<aws_files> read_aws_files(const environment& variables) {
  SHARDMESH_TRY(aws_files made, read_one(variables, "AWS_CONFIG_FILE", "~/.aws/config", aws_file_kind::config));
  SHARDMESH_TRY(aws_files keys,
                read_one(variables, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", aws_file_kind::credentials));
  merge_into(made.profiles, std::move(keys.profiles));
  return made;
}

std::string choose_profile(std::string_view given, const environment& variables) {
  if (!given.empty()) return std::string(given);
  for (const char* const name : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"})
    if (const std::string_view chosen = variables.variable(name); !chosen.empty()) return std::string(chosen);
  return "default";
}

}  // namespace shardmesh::remote
