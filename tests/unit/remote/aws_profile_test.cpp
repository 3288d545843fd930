// SPDX-License-Identifier: Apache-2.0
// Tests the shared files of the AWS tools: their syntax, their errors, and how the two files are merged.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.remote;
import shardmesh.test.fake_http;

using namespace shardmesh;
using namespace shardmesh::remote;
using test::environment_of;

namespace {

aws_files config_of(std::string_view text) {
  return parse_aws_file(text, "config", aws_file_kind::config).value();
}

// "NAME=VALUE" of each setting of a section.
std::vector<std::string> settings_of(const std::map<std::string, aws_section, std::less<>>& sections,
                                     const std::string& name) {
  std::vector<std::string> made;
  if (const auto at = sections.find(name); at != sections.end())
    for (const auto& [key, setting] : at->second) made.push_back(key + "=" + std::string(setting.value.reveal()));
  return made;
}

std::string error_of(std::string_view text, aws_file_kind kind = aws_file_kind::config) {
  const auto parsed = parse_aws_file(text, "config", kind);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == errc::bad_format);
  return to_string(parsed.error());
}

void write(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

using texts = std::vector<std::string>;

}  // namespace

TEST_CASE("the sections of a configuration are read") {
  const aws_files files = config_of(
      "\xEF\xBB\xBF# comment\n"
      "[default]\r\n"
      "region = eu-west-1\r\n"
      "\n"
      "  ; comment\n"
      "[profile dev]  # comment\n"
      "Role_ARN=arn:aws:iam::1:role/r\n"
      "sso_start_url = https://example.awsapps.com/start#/\n"
      "output = json ; comment\n"
      "empty =\n"
      "[profile \"two words\"]\n"
      "region = a = b\n"
      "[sso-session corp]\n"
      "sso_region = us-east-1\n"
      "[services local]\n"
      "s3 =\n"
      "  endpoint_url = http://127.0.0.1:9000\n"
      "sts =\n"
      "  endpoint_url = http://127.0.0.1:9001\n"
      "[plugins]\n"
      "cli = ignored\n"
      "  nested\n");
  CHECK(files.profiles.size() == 3);
  CHECK(settings_of(files.profiles, "default") == texts{"region=eu-west-1"});
  CHECK(settings_of(files.profiles, "dev") == texts{"empty=", "output=json", "role_arn=arn:aws:iam::1:role/r",
                                                    "sso_start_url=https://example.awsapps.com/start#/"});
  CHECK(settings_of(files.profiles, "two words") == texts{"region=a = b"});
  CHECK(settings_of(files.sso_sessions, "corp") == texts{"sso_region=us-east-1"});
  CHECK(settings_of(files.services, "local") ==
        texts{"s3=", "s3.endpoint_url=http://127.0.0.1:9000", "sts=", "sts.endpoint_url=http://127.0.0.1:9001"});
  CHECK(files.place("dev", "role_arn") == "config, line 7");
  CHECK(files.place("dev", "missing").empty());
  CHECK(files.setting("missing", "region").empty());
}

TEST_CASE("nested blocks and continued values belong to the setting above them") {
  const aws_files files = config_of(
      "[default]\n"
      "s3 =\n"
      "  addressing_style = path  # comment\n"
      "\tmax_concurrent_requests = 4\n"
      "credential_process = /bin/tool\n"
      "  --name \"a # b\"\n"
      "region = x\n");
  CHECK(settings_of(files.profiles, "default") == texts{"credential_process=/bin/tool\n--name \"a # b\"", "region=x",
                                                        "s3=", "s3.addressing_style=path",
                                                        "s3.max_concurrent_requests=4"});
}

TEST_CASE("sections of one name are merged, and the last value counts") {
  const aws_files files = config_of("[profile a]\nx=1\ny=1\n[profile b]\n[profile a]\ny=2\n");
  CHECK(settings_of(files.profiles, "a") == texts{"x=1", "y=2"});
  CHECK(files.profiles.contains("b"));
}

TEST_CASE("[profile default] counts before [default] in either order") {
  CHECK(settings_of(config_of("[default]\na=1\nb=1\n[profile default]\na=2\n").profiles, "default") == texts{"a=2"});
  CHECK(settings_of(config_of("[profile default]\na=2\n[default]\na=1\nb=1\n").profiles, "default") == texts{"a=2"});
}

TEST_CASE("a section of the credentials file is a profile of that whole name") {
  const aws_files files =
      parse_aws_file("[dev]\naws_access_key_id=AK\n", "credentials", aws_file_kind::credentials).value();
  CHECK(settings_of(files.profiles, "dev") == texts{"aws_access_key_id=AK"});
}

TEST_CASE("errors of the files name the line and show nothing of it") {
  CHECK(error_of("[default]\nhunter2\n") == "config: line 2: a setting has no '='; write NAME = VALUE");
  CHECK(error_of("\n[default\nx=1") == "config: line 2: a section's heading has no ']'; write [profile NAME]");
  CHECK(error_of("[default] hunter2") ==
        "config: line 1: text follows a section's heading; move the text to the next line");
  CHECK(error_of("x = hunter2") ==
        "config: line 1: a setting comes before the first section; write [default] above it");
  CHECK(error_of("[default]\n= hunter2") == "config: line 2: a setting has no name; write NAME = VALUE");
  CHECK(error_of("[default]\n" + std::string(257, 'n') + " = hunter2") ==
        "config: line 2: a setting's name has more than 256 bytes; write NAME = VALUE");
  CHECK(error_of("[default]\n  x = hunter2") ==
        "config: line 2: an indented line follows no setting; remove the spaces at its beginning");
  CHECK(error_of("[default]\nx = 1\n  [profile b]") ==
        "config: line 3: a section's heading is indented; remove the spaces before '['");
  CHECK(error_of("[default]\ns3 =\n  hunter2") == "config: line 3: a setting has no '='; write NAME = VALUE");
  std::string long_value = "[default]\nx = 1\n";
  for (int i = 0; i < 256; ++i) long_value += " hunter2\n";
  CHECK(parse_aws_file(long_value, "config", aws_file_kind::config));
  CHECK(error_of(long_value + " hunter2\n") ==
        "config: line 259: more than 256 lines continue a setting; write fewer, longer lines");
  CHECK(error_of("[profile \"\"]") == "config: line 1: a section has no name; write [profile NAME]");
  CHECK(error_of("[]", aws_file_kind::credentials) == "config: line 1: a section has no name; write [profile NAME]");
}

TEST_CASE("the credentials file counts before the configuration, and a missing file is empty") {
  const scratch_folder home;
  const environment variables = environment_of({{"HOME", home.path.string()}});
  CHECK(read_aws_files(variables).value().profiles.empty());
  write(home.path / ".aws/config", "[profile dev]\nregion=r\naws_access_key_id=old\n[profile empty]\n");
  write(home.path / ".aws/credentials", "[dev]\naws_access_key_id=new\n[bare]\n");
  const aws_files files = read_aws_files(variables).value();
  CHECK(settings_of(files.profiles, "dev") == texts{"aws_access_key_id=new", "region=r"});
  CHECK(files.place("dev", "aws_access_key_id") == "~/.aws/credentials, line 2");
  CHECK(files.place("dev", "region") == "~/.aws/config, line 2");
  CHECK(files.profiles.contains("empty"));
  CHECK(files.profiles.contains("bare"));
}

TEST_CASE("variables name other files, and one that cannot be read is an error") {
  const scratch_folder home;
  write(home.path / "keys", "[default]\naws_access_key_id=AK\n");
  environment variables = environment_of({{"HOME", home.path.string()},
                                          {"AWS_SHARED_CREDENTIALS_FILE", "~/keys"},
                                          {"AWS_CONFIG_FILE", (home.path / "none").string()}});
  CHECK(read_aws_files(variables).value().place("default", "aws_access_key_id") == "~/keys, line 2");
  variables.set("AWS_CONFIG_FILE", home.path.string());
  const auto folder = read_aws_files(variables);
  REQUIRE_FALSE(folder);
  CHECK(folder.error().code == errc::bad_format);
  CHECK(folder.error().file == home.path.string());
  write(home.path / "large", std::string((std::size_t{1} << 20) + 1, '#'));
  variables.set("AWS_CONFIG_FILE", "~/large");
  const auto large = read_aws_files(variables);
  REQUIRE_FALSE(large);
  CHECK(large.error().code == errc::bad_format);
  CHECK(large.error().file == (home.path / "large").string());
}

TEST_CASE("the profile is the given one, that of the environment, or default") {
  CHECK(choose_profile("", {}) == "default");
  CHECK(choose_profile("", environment_of({{"AWS_DEFAULT_PROFILE", "b"}})) == "b");
  CHECK(choose_profile("", environment_of({{"AWS_DEFAULT_PROFILE", "b"}, {"AWS_PROFILE", "a"}})) == "a");
  CHECK(choose_profile("c", environment_of({{"AWS_PROFILE", "a"}})) == "c");
}
