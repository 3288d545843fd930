// SPDX-License-Identifier: Apache-2.0
// The command line: parses arguments and calls one command. Everything it can do is in the library.
#include <shardmesh/version.hpp>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "command.hpp"

int main(int argc, char** argv) {
  CLI::App app{"shardmesh: sharded checkpoints without Python", "shardmesh"};
  app.set_version_flag("--version", "shardmesh " SHARDMESH_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  tool::invocation call;
  app.add_option("--threads", call.common.threads, "Worker threads (default: all cores)")->check(CLI::Range(0, 4096));
  tool::add_inspect(app, call);
  tool::add_verify(app, call);
  tool::add_diff(app, call);
  tool::add_convert(app, call);
  tool::add_reshard(app, call);
  tool::add_layout(app, call);
  tool::add_plan(app, call);
  tool::add_check_shards(app, call);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? tool::done : tool::wrong_usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shardmesh: internal error: %s\n", e.what());
    return tool::not_completed;
  }
  return call.status;
}
