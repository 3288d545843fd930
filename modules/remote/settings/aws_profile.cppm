// SPDX-License-Identifier: Apache-2.0
// aws_files: the shared files of the AWS tools, ~/.aws/credentials and ~/.aws/config, as a value.
export module shardmesh.remote:aws_profile;

import shardmesh.std;
import shardmesh.core;
import :environment;
import :secret;

export namespace shardmesh::remote {

/// One setting, and its place. Every value is treated as a secret, because the files hold keys.
struct aws_setting {
  secret value{};
  std::string file{};  // as messages show it
  int line = 0;        // of its name, from 1
};

/// The settings of one section by lower-case name. A setting of a nested block is "s3.addressing_style".
using aws_section = std::map<std::string, aws_setting, std::less<>>;

/// The sections of both files by name.
struct aws_files {
  std::map<std::string, aws_section, std::less<>> profiles, sso_sessions, services;

  /// Returns the value of a profile's setting, or "" for a missing profile or setting. Valid as long as this object.
  std::string_view setting(std::string_view profile, std::string_view name) const;
  /// Returns "FILE, line N" of a profile's setting, for messages; "" for a missing one.
  std::string place(std::string_view profile, std::string_view name) const;
};

/// The two files differ in their section names: a profile is [NAME] in `credentials`, and [profile NAME] in `config`.
enum class aws_file_kind { credentials, config };

/// Parses one of the files. A section begins with "[profile NAME]" and holds lines "NAME = VALUE". An indented line
/// continues the value above it (at most 256 do), or, below an empty value, is a setting of a nested block. "#" and ";"
/// begin a comment at the start of a line, and after a space (except in credential_process, as in the AWS command
/// line). Sections of other kinds are skipped, as the AWS tools do. Repeated sections are merged, and the last of two
/// equal names counts.
/// \param file  for messages
/// \errors errc::bad_format, which names the file and the line, but no text of it
/// Cost: O(size of text · log(settings)).
result<aws_files> parse_aws_file(std::string_view text, std::string_view file, aws_file_kind kind);

/// Reads both files: those that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, else those in ~/.aws. A missing
/// file counts as empty. In a profile of both files, the settings of `credentials` count.
/// \errors those of `parse_aws_file`; errc::io for a file that exists and cannot be read; errc::invalid_argument for a
///         file of more than 1 MiB
result<aws_files> read_aws_files(const environment& variables);

/// Returns the name of the profile to use: `given`, else AWS_PROFILE, else AWS_DEFAULT_PROFILE, else "default".
std::string choose_profile(std::string_view given, const environment& variables);

}  // namespace shardmesh::remote
