// SPDX-License-Identifier: Apache-2.0
// The command line: parses arguments and calls one command. Everything it can do is in the library.
#include <shardmesh/version.hpp>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>

#include "command.hpp"
#include "signals.hpp"

int main(int argc, char** argv) {
  const std::stop_token cancel = tool::end_on_signals();
  CLI::App app{"shardmesh: sharded checkpoints without Python", "shardmesh"};
  app.set_version_flag("--version", "shardmesh " SHARDMESH_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  tool::invocation call;
  call.common.cancel = cancel;
  app.add_option("--threads", call.common.threads, "Worker threads (default: all cores)")->check(CLI::Range(0, 4096));
  app.add_option("--limit-factor", call.common.limit_factor,
                 "Allow N times what reading a file may cost before it is taken for an attack (default 1)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  tool::add_inspect(app, call);
  tool::add_verify(app, call);
  tool::add_diff(app, call);
  tool::add_convert(app, call);
  tool::add_reshard(app, call);
  tool::add_layout(app, call);
  tool::add_plan(app, call);
  tool::add_check_shards(app, call);
  tool::add_clean(app, call);
  int status = tool::done;
  try {
    app.parse(argc, argv);
    status = call.status;
  } catch (const CLI::ParseError& e) {
    status = e.get_exit_code() == 0 ? app.exit(e) : tool::usage_error(app, e);  // 0: --help and --version
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shardmesh: internal error: %s\n", e.what());
    return tool::not_completed;
  }
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    std::fprintf(stderr, "shardmesh: cannot write to standard output\n");
    return tool::not_completed;
  }
  return status;
}
