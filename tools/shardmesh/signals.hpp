// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, and SIGHUP: commands that write remove their partial output and exit with 3; all others end at once.
#pragma once
#include <stop_token>

namespace tool {

/// Call this once, before there are threads. Returns the token for commands that write. A second signal always ends the
/// process. Signals that the caller ignores (nohup) stay ignored.
std::stop_token end_on_signals();

/// From here on, the first signal requests a stop through the token instead of ending the process. Once the object is
/// gone, nothing looks at the token: the command ends with the status of what it has done.
class unwinding_on_signals {
 public:
  unwinding_on_signals();
  ~unwinding_on_signals();
  unwinding_on_signals(const unwinding_on_signals&) = delete;
};

}  // namespace tool
