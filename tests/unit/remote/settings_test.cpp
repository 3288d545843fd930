// SPDX-License-Identifier: Apache-2.0
// Tests the choice of regions, endpoints, and addresses, and of the Hugging Face hub and its token.
#include <catch2/catch_test_macros.hpp>
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
using test::environment_of;

namespace {

aws_files config_of(std::string_view text) {
  return parse_aws_file(text, "config", aws_file_kind::config).value();
}

std::string address_text(const s3_settings& settings, std::string_view bucket, std::string_view key) {
  const auto address = address_of(settings, bucket, key);
  return address ? address->scheme + "://" + address->host + address->path : to_string(address.error());
}

s3_settings with(std::string region, std::string endpoint = "", s3_addressing addressing = s3_addressing::automatic) {
  return {.region = std::move(region), .endpoint = std::move(endpoint), .addressing = addressing};
}

}  // namespace

TEST_CASE("the region comes from the caller, the environment, or the profile") {
  const aws_files files = config_of("[default]\nregion = of-profile\n");
  environment variables;
  CHECK(choose_region("", variables, files, "default") == "of-profile");
  CHECK(choose_region("", variables, files, "missing").empty());
  variables.set("AWS_DEFAULT_REGION", "of-default");
  CHECK(choose_region("", variables, files, "default") == "of-default");
  variables.set("AWS_REGION", "of-variable");
  CHECK(choose_region("", variables, files, "default") == "of-variable");
  CHECK(choose_region("given", variables, files, "default") == "given");
}

TEST_CASE("the endpoint of a service comes from the caller, its variable, the common variable, or the profile") {
  const aws_files files = config_of(
      "[default]\nendpoint_url = http://profile\n"
      "[profile services]\nservices = local\nendpoint_url = http://profile\n"
      "[profile ignoring]\nendpoint_url = http://profile\nignore_configured_endpoint_urls = true\n"
      "[profile broken]\nservices = missing\n"
      "[services local]\ns3 =\n  endpoint_url = http://service\n");
  environment variables;
  const auto endpoint = [&](std::string_view given, std::string_view profile) {
    const auto chosen = choose_endpoint("s3", given, variables, files, profile);
    return chosen ? *chosen : to_string(chosen.error());
  };
  CHECK(endpoint("", "missing").empty());
  CHECK(endpoint("", "default") == "http://profile");
  CHECK(endpoint("", "services") == "http://service");
  CHECK(choose_endpoint("sts", "", variables, files, "services").value() == "http://profile");
  CHECK(endpoint("", "ignoring").empty());
  CHECK(
      endpoint("", "broken") ==
      "config, line 10: the profile broken names a missing section [services missing]; add the section, or remove the "
      "setting");
  variables.set("AWS_ENDPOINT_URL", "http://common");
  CHECK(endpoint("", "services") == "http://common");
  variables.set("AWS_ENDPOINT_URL_S3", "http://own");
  CHECK(endpoint("", "services") == "http://own");
  CHECK(endpoint("http://given", "services") == "http://given");
  variables.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRUE");
  CHECK(endpoint("", "services").empty());
  CHECK(endpoint("http://given", "services") == "http://given");
  variables.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "perhaps");
  CHECK(endpoint("", "services") ==
        "the switch of AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is neither true nor false: expected true or false, found "
        "perhaps");
}

TEST_CASE("the settings of S3 are completed from the environment and the profile") {
  const aws_files files = config_of(
      "[default]\nregion = eu-west-1\nuse_dualstack_endpoint = true\ns3 =\n  addressing_style = virtual\n"
      "[profile odd]\ns3 =\n  addressing_style = sideways\n"
      "[profile fast]\ns3 =\n  use_accelerate_endpoint = true\n");
  environment variables;
  CHECK(choose_s3_settings({}, {}, {}, "default").value() == s3_settings{.region = "us-east-1"});
  CHECK(choose_s3_settings({}, variables, files, "default").value() ==
        s3_settings{.region = "eu-west-1", .addressing = s3_addressing::virtual_host, .uses_dualstack = true});
  variables.set("SHARDMESH_S3_ANONYMOUS", "1");
  variables.set("AWS_USE_FIPS_ENDPOINT", "true");
  variables.set("AWS_USE_DUALSTACK_ENDPOINT", "false");
  CHECK(choose_s3_settings({.addressing = s3_addressing::path}, variables, files, "default").value() ==
        s3_settings{.region = "eu-west-1", .addressing = s3_addressing::path, .uses_fips = true, .is_anonymous = true});
  CHECK(to_string(choose_s3_settings({}, {}, files, "odd").error()) ==
        "config, line 8: the setting s3.addressing_style is unknown: expected auto, path, or virtual, found sideways");
  CHECK(to_string(choose_s3_settings({}, {}, files, "fast").error()) ==
        "config, line 11: S3 Transfer Acceleration is not supported; set s3.use_accelerate_endpoint to false");
}

TEST_CASE("the bucket stands in the host of AWS's endpoints, and in the path of others") {
  CHECK(address_text(with("us-east-1"), "bucket", "a b/c") == "https://bucket.s3.us-east-1.amazonaws.com/a b/c");
  CHECK(address_text(with("us-east-1"), "bucket", "") == "https://bucket.s3.us-east-1.amazonaws.com/");
  CHECK(address_text(with("cn-north-1"), "bucket", "k") == "https://bucket.s3.cn-north-1.amazonaws.com.cn/k");
  CHECK(address_text(with("us-east-1"), "dotted.bucket", "k") == "https://s3.us-east-1.amazonaws.com/dotted.bucket/k");
  CHECK(address_text(with("us-east-1"), "Upper", "k") == "https://s3.us-east-1.amazonaws.com/Upper/k");
  CHECK(address_text(with("us-east-1"), "192.168.1.1", "k") == "https://s3.us-east-1.amazonaws.com/192.168.1.1/k");
  CHECK(address_text(with("us-east-1", "", s3_addressing::path), "bucket", "") ==
        "https://s3.us-east-1.amazonaws.com/bucket");
  s3_settings settings = with("us-east-1");
  settings.uses_fips = settings.uses_dualstack = true;
  CHECK(address_text(settings, "bucket", "k") == "https://bucket.s3-fips.dualstack.us-east-1.amazonaws.com/k");
  CHECK(address_text(with("r", "http://127.0.0.1:9000/"), "bucket", "k") == "http://127.0.0.1:9000/bucket/k");
  CHECK(address_text(with("r", "https://storage.googleapis.com:443"), "bucket", "k") ==
        "https://storage.googleapis.com/bucket/k");
  CHECK(address_text(with("r", "HTTPS://Host/base/", s3_addressing::virtual_host), "bucket", "k") ==
        "https://bucket.host/base/k");
  CHECK(address_text(with("r", "http://[::1]:80"), "bucket", "k") == "http://[::1]/bucket/k");
}

TEST_CASE("a key is not normalised") {
  CHECK(address_text(with("r", "http://h"), "b", "/a//b/./../c") == "http://h/b//a//b/./../c");
}

TEST_CASE("addresses that would lead elsewhere are refused") {
  CHECK(
      address_text(with("us-east-1/x"), "bucket", "k") ==
      "the region is malformed: expected letters, digits, and '-', found us-east-1/x; set AWS_REGION, or the profile's "
      "region");
  CHECK(address_text(with("r"), "evil.example/", "k") ==
        "the bucket's name is malformed: expected 1 to 255 letters, digits, '-', '.', and '_', found evil.example/; "
        "write "
        "s3://BUCKET/KEY");
  CHECK(address_text(with("r"), "bucket?X-Amz-Signature=hidden", "k") ==
        "the bucket's name is malformed: expected 1 to 255 letters, digits, '-', '.', and '_', found bucket?; write "
        "s3://BUCKET/KEY");
  CHECK(address_text(with("r"), "..", "k").starts_with("the bucket's name is malformed"));
  CHECK(address_text(with("r"), "", "k").starts_with("the bucket's name is malformed"));
  CHECK(address_text(with("r"), "arn:aws:s3:r:1:accesspoint/a", "k") ==
        "the bucket arn:aws:s3:r:1:accesspoint/a is an access point's ARN; use the access point's alias as the bucket");
  CHECK(address_text(with("r"), "b--use1-az4--x-s3", "k") ==
        "the bucket b--use1-az4--x-s3 is a directory bucket of S3 Express; use a general purpose bucket");
  CHECK(address_text(with("r", "http://h", s3_addressing::virtual_host), "Upper", "k") ==
        "the bucket Upper cannot be a part of a host; set s3.addressing_style to path");
  CHECK(address_text(with("r", "http://127.0.0.1", s3_addressing::virtual_host), "bucket", "k") ==
        "a bucket cannot be a part of an IP address; set s3.addressing_style to path, or use a name for the endpoint's "
        "host");
  const std::string hint = "; write https://HOST or http://HOST:PORT";
  const auto refused = [](const std::string& url) { return address_text(with("r", url), "bucket", "k"); };
  CHECK(refused("ftp://h") == "the URL of the S3 endpoint begins with neither http:// nor https://" + hint);
  CHECK(refused("h:9000") == "the URL of the S3 endpoint begins with neither http:// nor https://" + hint);
  CHECK(refused("http://me:hunter2@h") == "the URL of the S3 endpoint has a user name or a password" + hint);
  CHECK(refused("http://h:0") == "the URL of the S3 endpoint has a malformed port" + hint);
  CHECK(refused("http://h:65536") == "the URL of the S3 endpoint has a malformed port" + hint);
  CHECK(refused("http://") == "the URL of the S3 endpoint has a malformed host" + hint);
  CHECK(refused("http://a b") == "the URL of the S3 endpoint has a malformed host" + hint);
  CHECK(refused("http://a\\b") == "the URL of the S3 endpoint has a malformed host" + hint);
  CHECK(refused("http://[::1") == "the URL of the S3 endpoint has no ']'" + hint);
  CHECK(refused("http://[1.2.3.4]") == "the URL of the S3 endpoint has a malformed IPv6 address" + hint);
  CHECK(refused("http://h/#x") ==
        "the URL of the S3 endpoint has a fragment, or a character that must be encoded" + hint);
  CHECK(refused("http://h/?x=1") == "the URL of the S3 endpoint has a query or an encoded path" + hint);
}

TEST_CASE("the hub's token comes from the environment, or from its file") {
  const scratch_folder home;
  environment variables = environment_of({{"HOME", home.path.string()}});
  CHECK(find_hugging_face_token(variables).value() == hugging_face_token{});
  std::filesystem::create_directories(home.path / ".cache/huggingface");
  std::ofstream(home.path / ".cache/huggingface/token") << " hf_file\n";
  CHECK(find_hugging_face_token(variables).value() ==
        hugging_face_token{secret("hf_file"), "~/.cache/huggingface/token"});
  std::filesystem::create_directories(home.path / "xdg/huggingface");
  std::ofstream(home.path / "xdg/huggingface/token") << "hf_xdg";
  variables.set("XDG_CACHE_HOME", "~/xdg");
  CHECK(find_hugging_face_token(variables).value() == hugging_face_token{secret("hf_xdg"), "~/xdg/huggingface/token"});
  std::ofstream(home.path / "token") << "hf_home";
  variables.set("HF_HOME", "~");
  CHECK(find_hugging_face_token(variables).value() == hugging_face_token{secret("hf_home"), "~/token"});
  std::ofstream(home.path / "own") << "two words";
  variables.set("HF_TOKEN_PATH", (home.path / "own").string());
  CHECK(to_string(find_hugging_face_token(variables).error()) ==
        "the Hugging Face token of ~/own has a space or a control character; write the token alone");
  variables.set("HF_TOKEN", " hf_variable ");
  CHECK(find_hugging_face_token(variables).value() == hugging_face_token{secret("hf_variable"), "HF_TOKEN"});
  variables.set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  CHECK(find_hugging_face_token(variables).value() == hugging_face_token{});
}

TEST_CASE("the hub's URL has no slash at its end") {
  CHECK(choose_hugging_face_endpoint("", {}).value() == "https://huggingface.co");
  const environment variables = environment_of({{"HF_ENDPOINT", "https://hub.example:8443/mirror//"}});
  CHECK(choose_hugging_face_endpoint("", variables).value() == "https://hub.example:8443/mirror");
  CHECK(choose_hugging_face_endpoint("http://127.0.0.1:80/", variables).value() == "http://127.0.0.1");
  CHECK(to_string(choose_hugging_face_endpoint("", environment_of({{"HF_ENDPOINT", "hub"}})).error()) ==
        "the URL of HF_ENDPOINT begins with neither http:// nor https://; write https://HOST or http://HOST:PORT");
}
