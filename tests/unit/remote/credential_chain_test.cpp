// SPDX-License-Identifier: Apache-2.0
// Tests the search for credentials: its order, the sources that need no server, and its errors, which show no secret.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.remote;
import shardmesh.test.fake_http;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace std::chrono_literals;
using test::environment_of;
using test::fake_http;

namespace {

// A home folder, and a search that starts in it.
struct search {
  scratch_folder home;
  fake_http servers;
  credential_sources sources{.variables = environment_of({{"HOME", home.path.string()}}),
                             .call = servers.call(),
                             .clock = [] { return parse_utc_time("2026-11-24T10:00:00Z").value(); }};

  void set(std::string_view name, std::string_view value) { sources.variables.set(name, value); }
  void write(const std::string& file, std::string_view text) const {
    std::filesystem::create_directories((home.path / file).parent_path());
    std::ofstream(home.path / file) << text;
  }
  // "ACCESS SECRET TOKEN (SOURCE)" of what is found, or the error.
  std::string found(const call_options& call = {}) const {
    const auto made = find_credentials(sources, call);
    if (!made) return to_string(made.error());
    return made->access_key + " " + std::string(made->secret_key.reveal()) + " " +
           std::string(made->session_token.reveal()) + " (" + made->source + ")";
  }
};

// A script in the home folder that prints `text`, and is not a shell's command line.
std::string printing(const search& in, const std::string& text) {
  in.write("printed file", text);
  return "/bin/cat \"" + (in.home.path / "printed file").string() + "\"";
}

}  // namespace

TEST_CASE("given credentials come before the environment, and anonymous access before both") {
  search in;
  in.set("AWS_ACCESS_KEY_ID", "ENV");
  in.set("AWS_SECRET_ACCESS_KEY", "env-secret");
  in.set("AWS_SESSION_TOKEN", "env-token");
  CHECK(in.found() == "ENV env-secret env-token (environment)");
  in.set("SHARDMESH_S3_ANONYMOUS", "true");
  CHECK(in.found() == "   (anonymous, by SHARDMESH_S3_ANONYMOUS)");
  in.sources.given = aws_credentials{.access_key = "GIVEN", .secret_key = secret("given-secret")};
  CHECK(in.found() == "GIVEN given-secret  (the caller)");
  in.sources.is_anonymous = true;
  CHECK(in.found() == "   (anonymous)");
  CHECK(find_credentials(in.sources).value().is_anonymous());
}

TEST_CASE("half of a key in the environment is an error that names the other half") {
  search in;
  in.set("AWS_SECRET_ACCESS_KEY", "hunter2");
  CHECK(in.found() == "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not; set both, or none");
  in.set("AWS_ACCESS_KEY_ID", "AK");
  in.set("AWS_CREDENTIAL_EXPIRATION", "soon");
  CHECK(in.found() ==
        "the time in AWS_CREDENTIAL_EXPIRATION is malformed: expected a time such as 2026-11-24T10:00:00Z, found soon");
  in.set("AWS_CREDENTIAL_EXPIRATION", "2026-11-24T11:00:00Z");
  CHECK(find_credentials(in.sources).value().expires == parse_utc_time("2026-11-24T11:00:00Z"));
}

TEST_CASE("a profile has keys, and a given profile comes before the environment") {
  search in;
  in.write(".aws/credentials",
           "[default]\naws_access_key_id=A\naws_secret_access_key=a\n"
           "[dev]\naws_access_key_id=D\naws_secret_access_key=d\naws_session_token=t\n"
           "[half]\naws_access_key_id=H\n");
  CHECK(in.found() == "A a  (profile default in ~/.aws/credentials)");
  in.set("AWS_PROFILE", "dev");
  CHECK(in.found() == "D d t (profile dev in ~/.aws/credentials)");
  in.set("AWS_ACCESS_KEY_ID", "ENV");
  in.set("AWS_SECRET_ACCESS_KEY", "env-secret");
  CHECK(in.found() == "ENV env-secret  (environment)");
  in.sources.profile = "default";
  CHECK(in.found() == "A a  (profile default in ~/.aws/credentials)");
  in.sources.profile = "half";
  CHECK(in.found() ==
        "~/.aws/credentials, line 9: the profile half lacks the setting aws_secret_access_key; set both, or none");
  in.sources.profile = "missing";
  CHECK(in.found() ==
        "the profile missing is in neither ~/.aws/credentials nor ~/.aws/config; correct AWS_PROFILE; "
        "AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other files");
}

TEST_CASE("without credentials the error lists every source") {
  search in;
  in.set("AWS_EC2_METADATA_DISABLED", "true");
  CHECK(
      in.found() ==
      "no AWS credentials were found: expected credentials in the environment, a profile, or a server's answer, found "
      "environment: AWS_ACCESS_KEY_ID is not set; profile default: is missing; container: "
      "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set; instance: AWS_EC2_METADATA_DISABLED is true; set AWS_PROFILE, or "
      "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket, set SHARDMESH_S3_ANONYMOUS=1");
  CHECK(in.servers.requests().empty());
}

TEST_CASE("a credential process prints credentials, and its arguments reach no shell") {
  search in;
  const std::string json = R"({"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "p", )"
                           R"("SessionToken": "t", "Expiration": "2026-11-24T11:00:00Z"})";
  in.write(".aws/config", "[default]\ncredential_process = " + printing(in, json) + "\n");
  CHECK(in.found() == "P p t (credential_process of profile default)");
  CHECK(find_credentials(in.sources).value().expires == parse_utc_time("2026-11-24T11:00:00Z"));

  const std::string touched = (in.home.path / "touched").string();
  in.write(".aws/config",
           "[default]\ncredential_process = /bin/echo $(touch " + touched + ") ; touch " + touched + "\n");
  CHECK(in.found() == "the output of the credential process /bin/echo is not a JSON object");
  CHECK_FALSE(std::filesystem::exists(touched));
}

TEST_CASE("a credential process that fails is an error without its arguments and its output") {
  search in;
  const auto error_of = [&](const std::string& command, const call_options& call = {}) {
    in.write(".aws/config", "[default]\ncredential_process = " + command + "\n");
    const std::string text = in.found(call);
    CHECK(text.find("hunter2") == std::string::npos);
    return text;
  };
  CHECK(
      error_of("/bin/false hunter2") ==
      "/bin/false: the credential process failed: expected exit status 0, found exit status 1; run the program by hand "
      "to see its messages");
  CHECK(error_of("/nowhere/tool hunter2") ==
        "/nowhere/tool: cannot start the credential process: No such file or directory; correct credential_process in "
        "the profile");
  CHECK(error_of("/bin/cat \"hunter2") == "the command of credential_process has an open quote; close the \"");
  CHECK(error_of("''") ==
        "the command of credential_process names no program; write credential_process = PROGRAM ARGUMENT...");
  CHECK(error_of(printing(in, R"({"Version": 2, "SecretAccessKey": "hunter2"})")) ==
        "the output of the credential process /bin/cat has an unknown version: expected \"Version\": 1, found 2");
  CHECK(error_of(printing(in, R"({"Version": 1, "SecretAccessKey": "hunter2"})")) ==
        "the output of the credential process /bin/cat lacks the member AccessKeyId");
  CHECK(error_of("/usr/bin/yes hunter2") ==
        "/usr/bin/yes: the credential process prints too much: expected at most 65536 bytes, found more");
  CHECK(error_of("/bin/sleep 30", {.within = 100ms}) == "/bin/sleep: the credential search's deadline has passed");
}

TEST_CASE("profiles that name each other end with an error") {
  search in;
  in.write(".aws/config",
           "[profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\nrole_arn=r\nsource_profile=a\n"
           "[profile both]\nrole_arn=r\nsource_profile=a\ncredential_source=Environment\n"
           "[profile none]\nrole_arn=r\n"
           "[profile odd]\nrole_arn=r\ncredential_source=Elsewhere\n"
           "[profile mfa]\nrole_arn=r\nsource_profile=a\nmfa_serial=m\n"
           "[profile bare]\nrole_arn=r\nsource_profile=missing\n");
  const auto error_of = [&](const std::string& profile) {
    in.sources.profile = profile;
    return in.found();
  };
  CHECK(error_of("a") ==
        "~/.aws/config, line 3: the profiles a, b, a name each other as source_profile; end the chain with a profile "
        "that has keys");
  CHECK(error_of("both") ==
        "~/.aws/config, line 8: the profile both has both source_profile and credential_source; set one of the two");
  CHECK(
      error_of("none") ==
      "~/.aws/config, line 12: the profile none has a role, but neither source_profile nor credential_source; set one "
      "of the two");
  CHECK(error_of("odd") ==
        "~/.aws/config, line 15: the profile odd has an unknown credential_source: expected Environment, EcsContainer, "
        "or Ec2InstanceMetadata, found Elsewhere");
  CHECK(error_of("mfa") ==
        "~/.aws/config, line 19: the role of the profile mfa needs the code of an MFA device; use SSO, or a "
        "credential_process that asks for the code");
  CHECK(error_of("bare") ==
        "~/.aws/config, line 22: the profile bare takes its role with the profile missing, which has no credentials");
  std::string chain;
  for (int i = 0; i < 20; ++i)
    chain += "[profile p" + std::to_string(i) + "]\nrole_arn=r\nsource_profile=p" + std::to_string(i + 1) + "\n";
  in.write(".aws/config", chain);
  CHECK(error_of("p0") == "~/.aws/config, line 48: more than 16 profiles name each other as source_profile");
  CHECK(in.servers.requests().empty());
}
