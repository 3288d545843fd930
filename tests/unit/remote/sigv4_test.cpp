// SPDX-License-Identifier: Apache-2.0
// Tests signatures against AWS's published vectors: the Signature Version 4 test suite, and the examples of the S3
// documentation. Signatures of other requests come from a few lines of Python with hashlib and hmac.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;

namespace {

constexpr const char* no_body = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const std::string unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

std::string header_of(const name_values& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return "(none)";
}

// The keys and the scope of the test suite.
aws_credentials suite_keys(std::string_view token = {}) {
  return {.access_key = "AKIDEXAMPLE",
          .secret_key = secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
          .session_token = secret(token)};
}
const sigv4_scope suite_scope{
    .region = "us-east-1", .service = "service", .time = parse_utc_time("2015-08-30T12:36:00Z").value()};

struct suite_case {
  std::string name, method, path;
  name_values query, headers;
  std::string signed_headers, signature;
  std::string payload_hash = no_body, token = {};
};

// The keys and the scope of the S3 documentation.
const aws_credentials s3_keys{.access_key = "AKIAIOSFODNN7EXAMPLE",
                              .secret_key = secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")};
const sigv4_scope s3_scope{.region = "us-east-1", .time = parse_utc_time("2013-05-24T00:00:00Z").value()};
constexpr const char* s3_host = "examplebucket.s3.amazonaws.com";

std::string s3_signature(sigv4_request request) {
  request.headers.emplace_back("Host", s3_host);
  const auto headers = sign(request, s3_scope, s3_keys).value();
  const std::string authorization = header_of(headers, "authorization");
  return authorization.substr(authorization.find("SignedHeaders="));
}

std::string error_of(const result<name_values>& made) {
  REQUIRE_FALSE(made);
  return to_string(made.error());
}

sigv4_request plain() {
  return {.headers = {{"host", "h"}}, .payload_hash = no_body};
}

}  // namespace

TEST_CASE("signatures are those of AWS's test suite") {
  const std::string form_hash = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
  const std::string token =
      "AQoDYXdzEPT//////////"
      "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthA"
      "x7mSEI/qkPpKPi/"
      "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY"
      "9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
  const std::vector<suite_case> cases{
      {"get-vanilla",
       "GET",
       "/",
       {},
       {},
       "host;x-amz-date",
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-vanilla-empty-query-key",
       "GET",
       "/",
       {{"Param1", "value1"}},
       {},
       "host;x-amz-date",
       "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       "host;x-amz-date",
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-order-encoded",
       "GET",
       "/",
       {{"Param-3", "Value3"}, {"Param", "Value2"}, {"\xE1\x88\xB4", "Value1"}},
       {},
       "host;x-amz-date",
       "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
      {"get-vanilla-query-unreserved",
       "GET",
       "/",
       {{unreserved, unreserved}},
       {},
       "host;x-amz-date",
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {"get-vanilla-utf8-query",
       "GET",
       "/",
       {{"\xE1\x88\xB4", "bar"}},
       {},
       "host;x-amz-date",
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"get-utf8",
       "GET",
       "/\xE1\x88\xB4",
       {},
       {},
       "host;x-amz-date",
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-unreserved",
       "GET",
       "/" + unreserved,
       {},
       {},
       "host;x-amz-date",
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-space",
       "GET",
       "/example space/",
       {},
       {},
       "host;x-amz-date",
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-header-key-duplicate",
       "GET",
       "/",
       {},
       {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
       "host;my-header1;x-amz-date",
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {"get-header-value-order",
       "GET",
       "/",
       {},
       {{"My-Header1", "value4"}, {"My-Header1", "value1"}, {"My-Header1", "value3"}, {"My-Header1", "value2"}},
       "host;my-header1;x-amz-date",
       "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
      {"get-header-value-trim",
       "GET",
       "/",
       {},
       {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"post-vanilla",
       "POST",
       "/",
       {},
       {},
       "host;x-amz-date",
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"post-vanilla-query",
       "POST",
       "/",
       {{"Param1", "value1"}},
       {},
       "host;x-amz-date",
       "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
      {"post-vanilla-query-nonunreserved",
       "POST",
       "/",
       {{"@#$%^", ""}, {"+", "/,?><`\";:\\|][{}"}},
       {},
       "host;x-amz-date",
       "66c82657c86e26fb25238d0e69f011edc4c6df5ae71119d7cb98ed9b87393c1e"},
      {"post-header-value-case",
       "POST",
       "/",
       {},
       {{"My-Header1", "VALUE1"}},
       "host;my-header1;x-amz-date",
       "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
      {"post-x-www-form-urlencoded",
       "POST",
       "/",
       {},
       {{"Content-Type", "application/x-www-form-urlencoded"}},
       "content-type;host;x-amz-date",
       "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
       form_hash},
      {"post-x-www-form-urlencoded-parameters",
       "POST",
       "/",
       {},
       {{"Content-Type", "application/x-www-form-urlencoded; charset=utf8"}},
       "content-type;host;x-amz-date",
       "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe",
       form_hash},
      {"post-sts-header-before",
       "POST",
       "/",
       {},
       {},
       "host;x-amz-date;x-amz-security-token",
       "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
       no_body,
       token},
      {"get-vanilla-with-session-token",
       "GET",
       "/",
       {},
       {},
       "host;x-amz-date;x-amz-security-token",
       "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
       no_body,
       "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"},
  };
  for (const suite_case& one : cases) {
    INFO(one.name);
    sigv4_request request{.method = one.method,
                          .path = one.path,
                          .query = one.query,
                          .headers = one.headers,
                          .payload_hash = one.payload_hash};
    request.headers.emplace_back("Host", "example.amazonaws.com");
    const auto headers = sign(request, suite_scope, suite_keys(one.token)).value();
    CHECK(header_of(headers, "x-amz-date") == "20150830T123600Z");
    CHECK(header_of(headers, "x-amz-security-token") == (one.token.empty() ? "(none)" : one.token));
    CHECK(header_of(headers, "x-amz-content-sha256") == "(none)");  // of S3 only
    CHECK(header_of(headers, "authorization") ==
          "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" +
              one.signed_headers + ", Signature=" + one.signature);
  }
}

TEST_CASE("signatures are those of the S3 documentation") {
  CHECK(s3_signature({.path = "/test.txt", .headers = {{"Range", "bytes=0-9"}}, .payload_hash = no_body}) ==
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  CHECK(s3_signature(
            {.method = "PUT",
             .path = "/test$file.text",
             .headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
             .payload_hash = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"}) ==
        "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, "
        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  CHECK(s3_signature({.query = {{"lifecycle", ""}}, .payload_hash = no_body}) ==
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(s3_signature({.query = {{"prefix", "J"}, {"max-keys", "2"}}, .payload_hash = no_body}) ==
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("the canonical request and the string to sign are those of the S3 documentation") {
  const std::string canonical = canonical_request({.path = "/test.txt",
                                                   .headers = {{"Host", s3_host},
                                                               {"Range", "bytes=0-9"},
                                                               {"x-amz-content-sha256", no_body},
                                                               {"x-amz-date", "20130524T000000Z"}},
                                                   .payload_hash = no_body});
  CHECK(canonical ==
        "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n"
        "x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
        "x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(string_to_sign(canonical, s3_scope) ==
        "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
        "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
}

TEST_CASE("a path is encoded once and never normalised") {
  const std::string canonical = canonical_request({.path = "//a/./b/../c d+e%\xC3\xA9", .headers = {{"host", "h"}}});
  CHECK(canonical.starts_with("GET\n//a/./b/../c%20d%2Be%25%C3%A9\n\n"));
}

TEST_CASE("a body in chunks with a trailing checksum is signed by its constant") {
  CHECK(s3_signature({.method = "PUT",
                      .path = "/k",
                      .headers = {{"x-amz-trailer", "x-amz-checksum-crc32c"}},
                      .payload_hash = std::string(streaming_unsigned_payload_trailer)}) ==
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-trailer, "
        "Signature=287672a0c447b0311ca90ef397f624f1e688dc1eca69add0360cd1f24f8b3fd7");
}

TEST_CASE("a signed URL is that of the S3 documentation") {
  CHECK(
      presign({.path = "/test.txt", .headers = {{"host", s3_host}}}, s3_scope, s3_keys, std::chrono::hours(24))
          .value() ==
      "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
      "AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"
      "X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST_CASE("a signed URL of temporary credentials has their token, and the endpoint's port") {
  const aws_credentials keys{.access_key = "AK", .secret_key = secret("secret"), .session_token = secret("a+b/c==")};
  CHECK(presign({.path = "/b/k", .headers = {{"host", "127.0.0.1:8333"}}}, s3_scope, keys, std::chrono::minutes(1),
                "http")
            .value() ==
        "http://127.0.0.1:8333/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
        "AK%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=60&"
        "X-Amz-Security-Token=a%2Bb%2Fc%3D%3D&X-Amz-SignedHeaders=host&"
        "X-Amz-Signature=deebdda29001670a0567300e7fe0993589f52bb29189533f63796e9261dfabb9");
}

TEST_CASE("anonymous requests get no header") {
  CHECK(sign(plain(), {}, {}).value() == name_values{{"host", "h"}});
  CHECK(to_string(presign(plain(), s3_scope, {}, std::chrono::seconds(60)).error()) ==
        "a URL cannot be signed without credentials; use the URL as it is, if the object is public");
}

TEST_CASE("a request that cannot be signed is refused with its reason") {
  const auto refused = [](const sigv4_request& request) { return error_of(sign(request, s3_scope, s3_keys)); };
  sigv4_request bad = plain();
  bad.path = "key";
  CHECK(refused(bad) == "the request's path is malformed: expected a path that begins with /, found key");
  bad = plain();
  bad.headers = {};
  CHECK(refused(bad) == "a request without host cannot be signed");
  bad = plain();
  bad.headers.emplace_back("X-Amz-Date", "now");
  CHECK(refused(bad) == "the signature sets the header x-amz-date; leave the header out");
  bad = plain();
  bad.headers.emplace_back("x-note", "hidden\r\nx-other: 1");
  CHECK(refused(bad) == "the header x-note has a control character");
  bad = plain();
  bad.headers.emplace_back("x note", "1");
  CHECK(refused(bad) == "a header's name is malformed: expected letters, digits, and -, found x note");
  bad = plain();
  bad.payload_hash = std::string(64, 'A');
  CHECK(refused(bad) ==
        "the payload hash is malformed: expected 64 lower-case hexadecimal digits, UNSIGNED-PAYLOAD, or STREAMING-..., "
        "found " +
            std::string(64, 'A'));
  bad = plain();
  bad.method = "GET /";
  CHECK(refused(bad) == "the request's method is malformed: expected letters, found GET /");
  CHECK(error_of(sign(plain(), {.time = s3_scope.time}, s3_keys)) ==
        "the region is malformed: expected letters, digits, and -; set AWS_REGION, or the profile's region");
  for (const std::chrono::seconds valid : {std::chrono::seconds(0), std::chrono::seconds(604801)}) {
    const auto url = presign(plain(), s3_scope, s3_keys, valid);
    REQUIRE_FALSE(url);
    CHECK(url.error().expected == "1 to 604800 seconds");
    CHECK(url.error().found == std::to_string(valid.count()));
  }
}

TEST_CASE("keys that would break a header are refused without showing them") {
  aws_credentials keys = s3_keys;
  keys.source = "environment";
  keys.session_token = secret("hidden\nx");
  CHECK(error_of(sign(plain(), s3_scope, keys)) ==
        "the session token of the credentials cannot be sent in a header: expected printable ASCII characters without "
        "spaces, found other characters; correct the value; its source is environment");
  keys = s3_keys;
  keys.access_key = "AK hidden";
  CHECK(error_of(sign(plain(), s3_scope, keys)).find("hidden") == std::string::npos);
  keys = {.access_key = "AK"};
  CHECK(error_of(sign(plain(), s3_scope, keys)) ==
        "the credentials have an access key but no secret key; set both; the source is the caller");
}
