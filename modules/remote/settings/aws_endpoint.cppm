// SPDX-License-Identifier: Apache-2.0
// The region and the endpoint of an AWS service, from variables and profiles.
export module shardmesh.remote:aws_endpoint;

import shardmesh.std;
import shardmesh.core;
import :aws_profile;
import :environment;

export namespace shardmesh::remote {

/// Returns the region: `given`, else AWS_REGION, AWS_DEFAULT_REGION, or the profile's `region`; "" if none is set.
std::string choose_region(std::string_view given, const environment& variables, const aws_files& files,
                          std::string_view profile);

/// Returns the URL of a service's endpoint, such as that of "s3": `given`, else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL,
/// the profile's `services` section (`s3 =`, `endpoint_url = URL`), or its `endpoint_url`; "" if none is set. If
/// AWS_IGNORE_CONFIGURED_ENDPOINT_URLS or the profile's `ignore_configured_endpoint_urls` is true, only `given` counts.
/// \errors errc::invalid_argument for a profile that names a missing `services` section, and for a switch that is
///         neither true nor false
result<std::string> choose_endpoint(std::string_view service, std::string_view given, const environment& variables,
                                    const aws_files& files, std::string_view profile);

/// Returns the value of a switch: true for "true", "1", and "yes"; false for "false", "0", "no", and "". Letters may be
/// in upper or lower case.
/// \param what  names the switch in errors
/// \errors errc::invalid_argument for other text
result<bool> parse_switch(std::string_view text, std::string_view what);

/// Returns the domain of a region's endpoints, such as "amazonaws.com", or "amazonaws.com.cn" for "cn-north-1".
std::string_view aws_domain(std::string_view region);

}  // namespace shardmesh::remote
