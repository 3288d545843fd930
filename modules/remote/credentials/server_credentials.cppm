// SPDX-License-Identifier: Apache-2.0
// Not exported: credentials that a server near the program hands out: the agent of a container, or the metadata service
// of an EC2 instance.
module shardmesh.remote:server_credentials;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :credential_context;

namespace shardmesh::remote {

// The credentials of an ECS task or an EKS pod; nothing unless AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
// AWS_CONTAINER_CREDENTIALS_FULL_URI is set.
// \errors errc::invalid_argument for a URL of http:// whose host is neither loopback nor one of the agents
result<std::optional<aws_credentials>> container_credentials(const credential_context& context);

// The credentials of the EC2 instance's role, by IMDSv2. Without a metadata service or a role, or if
// AWS_EC2_METADATA_DISABLED is true: nothing, and the reason in `why_not`.
result<std::optional<aws_credentials>> instance_credentials(const credential_context& context, std::string& why_not);

}  // namespace shardmesh::remote
