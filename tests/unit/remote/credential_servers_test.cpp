// SPDX-License-Identifier: Apache-2.0
// Tests the sources of credentials that ask a server: roles by STS, SSO, containers, and EC2 instances. The servers are
// in memory; each test compares the requests and what is found.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
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
using test::fake_http;
using test::header_of;

namespace {

constexpr const char* sts_answer =
    "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\n"
    "<AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>a&lt;b</SecretAccessKey><SessionToken> tok/en== </SessionToken>\n"
    "<Expiration>2015-08-30T13:36:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";
constexpr const char* server_answer = R"({"Code": "Success", "AccessKeyId": "ASIA", "SecretAccessKey": "s", )"
                                      R"("Token": "t", "Expiration": "2015-08-30T13:36:00Z"})";

struct search {
  scratch_folder home;
  fake_http servers;
  credential_sources sources{.variables = environment_of({{"HOME", home.path.string()}}),
                             .call = servers.call(),
                             .clock = [] { return parse_utc_time("2015-08-30T12:36:00Z").value(); }};

  void set(std::string_view name, std::string_view value) { sources.variables.set(name, value); }
  void write(const std::string& file, std::string_view text) const {
    std::filesystem::create_directories((home.path / file).parent_path());
    std::ofstream(home.path / file) << text;
  }
  std::string found() const {
    const auto made = find_credentials(sources);
    if (!made) return to_string(made.error());
    return made->access_key + " " + std::string(made->secret_key.reveal()) + " " +
           std::string(made->session_token.reveal()) + " until " +
           (made->expires ? basic_utc_time(*made->expires) : "ever") + " (" + made->source + ")";
  }
};

constexpr const char* keys =
    "[base]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n";

}  // namespace

TEST_CASE("a role is taken with the keys of its source profile, by a signed request") {
  search in;
  in.write(".aws/credentials", keys);
  in.write(".aws/config",
           "[profile dev]\nregion=eu-west-1\nrole_arn=arn:aws:iam::1:role/reader\nsource_profile=base\n"
           "role_session_name=me\nexternal_id=partner\nduration_seconds=900\n");
  in.sources.profile = "dev";
  in.servers.serve("POST https://sts.eu-west-1.amazonaws.com/", 200, sts_answer);
  CHECK(in.found() ==
        "ASIA a<b tok/en== until 20150830T133600Z (role arn:aws:iam::1:role/reader taken by profile base in "
        "~/.aws/credentials)");
  REQUIRE(in.servers.requests().size() == 1);
  const http_call_request request = in.servers.requests().front();
  CHECK(request.body ==
        "Action=AssumeRole&DurationSeconds=900&ExternalId=partner&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Freader&"
        "RoleSessionName=me&Version=2011-06-15");
  CHECK(header_of(request, "content-type") == "application/x-www-form-urlencoded; charset=utf-8");
  CHECK(header_of(request, "x-amz-date") == "20150830T123600Z");
  CHECK(header_of(request, "authorization") ==
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-1/sts/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=0d1767395ec2dfd7fda067069d496c8218bb6818fefcc69061660a9188f85df2");
}

TEST_CASE("a profile can hold keys and the role that they take") {
  search in;
  in.write(".aws/credentials",
           "[self]\naws_access_key_id=AK\naws_secret_access_key=s\nrole_arn=r\nsource_profile=self\n");
  in.sources.profile = "self";
  in.servers.serve("POST https://sts.amazonaws.com/", 200, sts_answer);
  CHECK(in.found().ends_with("(role r taken by profile self in ~/.aws/credentials)"));
  const std::string body = in.servers.requests().at(0).body;
  CHECK(body == "Action=AssumeRole&RoleArn=r&RoleSessionName=shardmesh-1440938160&Version=2011-06-15");
}

TEST_CASE("STS's refusal is quoted without the secrets that it repeats") {
  search in;
  in.write(".aws/credentials", "[default]\nrole_arn=r\ncredential_source=Environment\n");
  in.sources.profile = "default";
  in.set("AWS_ACCESS_KEY_ID", "AK");
  in.set("AWS_SECRET_ACCESS_KEY", "hunter2");
  in.set("AWS_SESSION_TOKEN", "to&ken");
  in.servers.serve("POST https://sts.amazonaws.com/", 403,
                   "<ErrorResponse><Error><Type>Sender</Type><Code>SignatureDoesNotMatch</Code><Message>expected "
                   "x-amz-security-token:to&amp;ken and hunter2\nmore</Message></Error></ErrorResponse>");
  CHECK(
      in.found() ==
      "AWS STS gave no credentials: SignatureDoesNotMatch: expected x-amz-security-token:*** and ***: expected status "
      "200, found status 403");
  in.servers.serve("POST https://sts.amazonaws.com/", 200, "<html>hunter2</html>");
  CHECK(in.found() == "the answer of AWS STS lacks the member AccessKeyId");
}

TEST_CASE("a role is taken with the token of a file, by an unsigned request") {
  search in;
  in.write("token", " web.identity.token\n");
  in.set("AWS_WEB_IDENTITY_TOKEN_FILE", "~/token");
  CHECK(in.found() == "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not; set both, or none");
  in.set("AWS_ROLE_ARN", "arn:r");
  in.set("AWS_ROLE_SESSION_NAME", "pod");
  in.set("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:5000");
  in.servers.serve("POST http://127.0.0.1:5000/", 200, sts_answer);
  CHECK(in.found() == "ASIA a<b tok/en== until 20150830T133600Z (role arn:r by the web identity token in ~/token)");
  const http_call_request request = in.servers.requests().at(0);
  CHECK(request.body ==
        "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Ar&RoleSessionName=pod&Version=2011-06-15&"
        "WebIdentityToken=web.identity.token");
  CHECK(header_of(request, "authorization") == "(none)");
  in.servers.serve("POST http://127.0.0.1:5000/", 400,
                   "<Error><Code>InvalidIdentityToken</Code><Message>bad web.identity.token</Message></Error>");
  CHECK(in.found() ==
        "AWS STS gave no credentials: InvalidIdentityToken: bad ***: expected status 200, found status 400");
  in.write("token", "web/token");
  in.servers.serve("POST http://127.0.0.1:5000/", 400,
                   "<Error><Code>InvalidIdentityToken</Code><Message>bad &amp;Token=web%2Ftoken</Message></Error>");
  CHECK(in.found() ==
        "AWS STS gave no credentials: InvalidIdentityToken: bad &Token=***: expected status 200, found status 400");
}

TEST_CASE("a container's endpoint is asked with its token") {
  search in;
  in.set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/uuid");
  in.servers.serve("GET http://169.254.170.2/v2/credentials/uuid", 200, server_answer);
  CHECK(in.found() == "ASIA s t until 20150830T133600Z (container endpoint http://169.254.170.2)");
  CHECK(header_of(in.servers.requests().at(0), "authorization") == "(none)");

  search pod;
  pod.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials");
  pod.write("token", "of-the-pod\n");
  pod.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "~/token");
  pod.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "unused");
  pod.servers.serve("GET http://169.254.170.23/v1/credentials", 200, server_answer);
  CHECK(pod.found() == "ASIA s t until 20150830T133600Z (container endpoint http://169.254.170.23)");
  CHECK(header_of(pod.servers.requests().at(0), "authorization") == "of-the-pod");
  pod.write("token", "line\nbreak");
  CHECK(pod.found() ==
        "the token of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE has a line break or another control character");
}

TEST_CASE("a container's token goes to no other host over http") {
  search in;
  const auto asked = [&](const std::string& url) {
    in.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    return in.found();
  };
  const std::string refusal = "AWS_CONTAINER_CREDENTIALS_FULL_URI has a host that must not see the token over http";
  for (const char* const url : {"http://evil.example/x", "http://127.0.0.1.evil.example/", "http://10.0.0.1/",
                                "http://169.254.170.3/", "http://[fd00:ec2::24]/"})
    CHECK(asked(url).starts_with(refusal));
  CHECK(asked("http://127.0.0.1@evil.example/") ==
        "the URL of AWS_CONTAINER_CREDENTIALS_FULL_URI has a user name or a password; write https://HOST or "
        "http://HOST:PORT");
  CHECK(in.servers.requests().empty());
  for (const char* const url : {"https://agent.example/", "http://127.1.2.3:80/", "http://localhost:8080/",
                                "http://[::1]/", "http://[fd00:ec2::23]/"}) {
    INFO(url);
    CHECK(asked(url).find("did not answer: nothing listens") != std::string::npos);
  }
  search relative;
  relative.set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil.example/");
  CHECK(relative.found() ==
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with '/'; set a path, or "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

TEST_CASE("a container's endpoint is asked three times before it counts as broken") {
  search in;
  in.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/secret-path");
  in.servers.serve("GET http://localhost/secret-path", 500, "");
  CHECK(in.found() ==
        "the container endpoint http://localhost gave no credentials: expected status 200, found status 500");
  CHECK(in.servers.requests().size() == 3);
  in.servers.serve("GET http://localhost/secret-path", 403, "");
  CHECK(in.found() ==
        "the container endpoint http://localhost gave no credentials: expected status 200, found status 403");
  CHECK(in.servers.requests().size() == 4);
}

TEST_CASE("an EC2 instance hands out the credentials of its role by a token") {
  search in;
  const std::string service = "http://169.254.169.254/latest/";
  in.servers.serve("PUT " + service + "api/token", 200, "imds-token");
  in.servers.serve("GET " + service + "meta-data/iam/security-credentials/", 200, "my role\nother");
  in.servers.serve("GET " + service + "meta-data/iam/security-credentials/my%20role", 200, server_answer);
  CHECK(in.found() == "ASIA s t until 20150830T133600Z (role my role of the EC2 instance)");
  const auto requests = in.servers.requests();
  REQUIRE(requests.size() == 3);
  CHECK(header_of(requests[0], "x-aws-ec2-metadata-token-ttl-seconds") == "21600");
  CHECK(header_of(requests[1], "x-aws-ec2-metadata-token") == "imds-token");
  CHECK(header_of(requests[2], "x-aws-ec2-metadata-token") == "imds-token");

  in.servers.serve("GET " + service + "meta-data/iam/security-credentials/my%20role", 200, R"({"Code": "Failed"})");
  CHECK(in.found() ==
        "the metadata service of the EC2 instance gave no credentials of the role my role: expected Success, found "
        "Failed");
  in.servers.serve("GET " + service + "meta-data/iam/security-credentials/", 404, "");
  CHECK(in.found().find("instance: the EC2 instance has no role") != std::string::npos);
}

TEST_CASE("outside of EC2 the search ends after one request") {
  search in;
  CHECK(in.found().find("instance: the metadata service of the EC2 instance did not answer: nothing listens") !=
        std::string::npos);
  REQUIRE(in.servers.requests().size() == 1);
  CHECK(in.servers.requests().front().timeout == std::chrono::seconds(1));
  in.sources.call = {};
  CHECK(in.found().find("instance: the metadata service of the EC2 instance cannot be asked without an HTTP client") !=
        std::string::npos);
}

TEST_CASE("an instance's endpoint is chosen by variables") {
  search in;
  in.set("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");
  CHECK_FALSE(in.found().empty());
  in.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1338/");
  CHECK_FALSE(in.found().empty());
  const auto requests = in.servers.requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].url == "http://[fd00:ec2::254]/latest/api/token");
  CHECK(requests[1].url == "http://127.0.0.1:1338/latest/api/token");
}

TEST_CASE("the cached token of SSO is exchanged for credentials") {
  search in;
  in.write(".aws/config",
           "[profile dev]\nsso_session=my-sso\nsso_account_id=123456789012\nsso_role_name=reader role\n"
           "[sso-session my-sso]\nsso_start_url=https://example.awsapps.com/start\nsso_region=eu-west-1\n"
           "[profile old]\nsso_start_url=https://example.awsapps.com/start\nsso_region=eu-west-1\n"
           "sso_account_id=1\nsso_role_name=r\n"
           "[profile half]\nsso_session=my-sso\nsso_role_name=r\n");
  in.sources.profile = "dev";
  CHECK(in.found() == "the profile dev is not signed in; run aws sso login --profile dev");
  const std::string cached = R"({"accessToken": "sso-token", "expiresAt": "2015-08-30T13:00:00UTC"})";
  in.write(".aws/sso/cache/0ad374308c5a4e22f723adf10145eafad7c4031c.json", cached);  // SHA-1 of "my-sso"
  const std::string portal = "GET https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?account_id=";
  const std::string role_keys = R"({"roleCredentials": {"accessKeyId": "ASIA", "secretAccessKey": "s", )"
                                R"("sessionToken": "t", "expiration": 1440941760000}})";
  in.servers.serve(portal + "123456789012&role_name=reader%20role", 200, role_keys);
  CHECK(in.found() == "ASIA s t until 20150830T133600Z (SSO of profile dev)");
  CHECK(header_of(in.servers.requests().at(0), "x-amz-sso_bearer_token") == "sso-token");

  in.sources.profile = "old";
  in.write(".aws/sso/cache/e8be5486177c5b5392bd9aa76563515b29358e6e.json", cached);  // SHA-1 of the start URL
  in.servers.serve(portal + "1&role_name=r", 401, "{}");
  CHECK(
      in.found() ==
      "the SSO portal gave no credentials: the sign-in is no longer valid: expected status 200, found status 401; run "
      "aws sso login --profile old");
  in.write(".aws/sso/cache/e8be5486177c5b5392bd9aa76563515b29358e6e.json",
           R"({"accessToken": "sso-token", "expiresAt": "2015-08-30T12:00:00Z"})");
  CHECK(in.found() ==
        "the sign-in of the profile old expired at 2015-08-30 12:00:00 UTC; run aws sso login --profile old");
  in.sources.profile = "half";
  CHECK(in.found() == "the profile half lacks the setting sso_account_id; run aws configure sso");
}
