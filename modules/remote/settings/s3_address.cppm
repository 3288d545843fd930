// SPDX-License-Identifier: Apache-2.0
// The address of an object: host and path, from a bucket, a key, and the settings of S3.
export module shardmesh.remote:s3_address;

import shardmesh.std;
import shardmesh.core;
import :aws_profile;
import :environment;

export namespace shardmesh::remote {

/// Where the bucket stands: in the path, or in the host. `automatic` puts it into the host for AWS's own endpoints if
/// the bucket's name allows that, and into the path for every other endpoint.
enum class s3_addressing { automatic, path, virtual_host };

/// The settings of S3 that do not depend on a bucket.
struct s3_settings {
  std::string region{};    // empty: not chosen yet
  std::string endpoint{};  // URL; empty: AWS's own
  s3_addressing addressing = s3_addressing::automatic;
  bool uses_fips = false;       // of AWS's own endpoints
  bool uses_dualstack = false;  // of AWS's own endpoints
  bool is_anonymous = false;    // requests are not signed

  friend bool operator==(const s3_settings&, const s3_settings&) = default;
};

/// Completes settings. Those that `given` lacks come from the environment, and then from the profile:
/// `choose_region` (else "us-east-1"), `choose_endpoint`, `s3.addressing_style`, AWS_USE_FIPS_ENDPOINT,
/// AWS_USE_DUALSTACK_ENDPOINT, and SHARDMESH_S3_ANONYMOUS.
/// \errors errc::invalid_argument for a malformed setting, with its place; errc::unsupported for S3 Transfer
///         Acceleration
result<s3_settings> choose_s3_settings(const s3_settings& given, const environment& variables, const aws_files& files,
                                       std::string_view profile);

/// The address of an object or a bucket.
struct s3_address {
  std::string scheme{};  // "https" or "http"
  std::string host{};    // with the port, unless it is the scheme's: the header "host"
  std::string path{};    // not encoded; send `encode_path(path)`

  friend bool operator==(const s3_address&, const s3_address&) = default;
};

/// Returns the address of a key in a bucket; of the bucket itself if `key` is empty. No part of the key is normalised.
/// Precondition: the settings are complete.
/// \errors errc::invalid_argument for a malformed region, endpoint, or bucket; errc::unsupported for access point ARNs
///         and directory buckets
result<s3_address> address_of(const s3_settings& settings, std::string_view bucket, std::string_view key);

}  // namespace shardmesh::remote
