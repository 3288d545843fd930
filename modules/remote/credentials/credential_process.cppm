// SPDX-License-Identifier: Apache-2.0
// Not exported: the program of a profile's `credential_process`.
module shardmesh.remote:credential_process;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :secret;

namespace shardmesh::remote {

// Splits a command line at spaces, tabs, and line breaks, as Python's shlex does. '...' and "..." group characters. A
// backslash makes the next character literal, in "..." only before '"' and '\'. There are no variables, no "~", and no
// shell.
// \errors errc::invalid_argument for an open quote, and for no program
result<std::vector<std::string>> split_arguments(std::string_view command);

// Runs the program of `command` and parses the JSON that it prints. Standard input is empty, and standard error is
// ours. The program is killed at the limits of the call, at the latest after a minute, and when it prints more than 64
// KiB. Errors name the program but none of its arguments, which can be secrets. The credentials have no source.
// \errors errc::io when it cannot be started, fails, or runs for more than a minute; errc::bad_format for its output;
//         errc::deadline_exceeded, errc::cancelled
result<aws_credentials> process_credentials(std::string_view command, const call_options& limits);

}  // namespace shardmesh::remote
