// SPDX-License-Identifier: Apache-2.0
// sigv4: AWS Signature Version 4, with S3's rules for paths. Values in, headers out: nothing here sends a request.
export module shardmesh.remote:sigv4;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :percent_encoding;
import :utc_time;

export namespace shardmesh::remote {

/// Texts in place of a payload's hash. The first leaves the body out of the signature. The second announces a body in
/// chunks, followed by a checksum.
inline constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";
inline constexpr std::string_view streaming_unsigned_payload_trailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// A request before it is signed.
struct sigv4_request {
  std::string method = "GET";
  std::string path = "/";  // begins with "/"; not encoded. Send `encode_path(path)`
  name_values query{};     // not encoded. Send `encode_query(query)`
  name_values headers{};   // all are signed; "host" (with a port that is not the scheme's) is required
  std::string payload_hash{unsigned_payload};  // SHA-256 of the body in lower-case digits, or a constant above
};

/// The service that a signature is for, and its time.
struct sigv4_scope {
  std::string region{};
  std::string service = "s3";
  wall_time time{};
};

/// Returns the canonical request: the text whose SHA-256 is signed. Header names are lower-case and sorted, values are
/// trimmed, inner spaces are collapsed, and values of one name are joined by commas. The path is encoded once.
std::string canonical_request(const sigv4_request& request);

/// Returns the text that the signing key signs.
std::string string_to_sign(std::string_view canonical, const sigv4_scope& scope);

/// Signs a request. Returns the headers to send: those of the request, then x-amz-date, x-amz-content-sha256 (service
/// "s3" only), x-amz-security-token (with a session token), and authorization. With anonymous credentials, returns the
/// headers of the request alone.
/// \errors errc::invalid_argument for a request that cannot be signed: a path without "/", no host, a header that the
///         signature sets or that has control characters, or a malformed payload hash, method, region, or key
/// Cost: two passes over the headers.
/// Source: docs.aws.amazon.com, "Authenticating Requests (AWS Signature Version 4)"
result<name_values> sign(const sigv4_request& request, const sigv4_scope& scope, const aws_credentials& credentials);

/// Returns a URL that is signed in its query, for `valid` (1 s to 7 days) from the scope's time. The receiver must send
/// the request's headers unchanged. The URL gives access: print it nowhere.
/// \errors those of `sign`; errc::invalid_argument for another duration, and for anonymous credentials
result<std::string> presign(const sigv4_request& request, const sigv4_scope& scope, const aws_credentials& credentials,
                            std::chrono::seconds valid, std::string_view scheme = "https");

}  // namespace shardmesh::remote
