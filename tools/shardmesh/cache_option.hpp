// SPDX-License-Identifier: Apache-2.0
// --cache of every command that opens checkpoints at URLs.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace tool {

/// Adds --cache: this process then keeps what it reads from URLs in a folder.
void add_cache_option(CLI::App& command);

}  // namespace tool
