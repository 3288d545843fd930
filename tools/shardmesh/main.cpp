// SPDX-License-Identifier: Apache-2.0
// The command line: parses arguments and calls one command. All functionality is in the library.
#include <shardmesh/version.hpp>

#include <execinfo.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cache_option.hpp"
#include "command.hpp"
#include "completion.hpp"
#include "console.hpp"
#include "help.hpp"
#include "known_options.hpp"
#include "report.hpp"
#include "signals.hpp"

import shardmesh;
import shardmesh.core;

namespace {

// Whether the parser sets a flag for "--json=VALUE". An invalid value is an error, which is answered with a document.
bool is_set_by(std::string_view value) {
  try {
    return CLI::detail::to_flag_value(std::string(value)) > 0;
  } catch (const std::logic_error&) {
    return true;
  }
}

// Decided before anything is parsed: invalid arguments are also answered with a document.
bool asks_for_json(int argc, char** argv) {
  constexpr std::string_view flag = "--json", with_value = "--json=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") return false;
    if (argument == flag) return true;
    if (argument.starts_with(with_value) && is_set_by(argument.substr(with_value.size()))) return true;
  }
  return false;
}

// A checkpoint of many ranks has more files than the usual soft limit allows a process to open. This process runs no
// code of other programs that depends on that limit (select).
void open_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

// `limits`: of the whole command, set by --within. Requests to stores obey them wherever they are made.
void add_global_options(CLI::App& app, tool::invocation& call, std::optional<shardmesh::detail::call_scope>& limits) {
  app.add_option("--threads", call.common.threads, "Number of worker threads, at most 4096")
      ->type_name("N")
      ->default_str("all cores")
      ->transform(tool::whole_number(0, 4096));
  app.add_option("--limit-factor", call.common.limit_factor,
                 "Raise the limits on the cost of reading to N times their size, for files that you trust")
      ->type_name("N")
      ->default_str("1")
      ->transform(tool::whole_number(1, std::int64_t{1} << 40));
  app.add_option_function<double>(
         "--within",
         [&call, &limits](double seconds) {
           call.common.end = *shardmesh::time_limit(std::chrono::duration<double>(seconds));
           limits.emplace(shardmesh::call_options{.within = *call.common.end, .name = "command"});
         },
         "End the command with an error after this time, also while a server does not answer")
      ->type_name("SECONDS")
      ->default_str("no limit")
      ->check(tool::tolerance());
}

// Adds the options of all commands that read checkpoints.
void add_reading_options(CLI::App& app, tool::invocation& call) {
  for (const char* const reads : {"inspect", "verify", "diff", "convert", "reshard"}) {
    CLI::App* const command = app.get_subcommand(reads);
    command->add_flag("--all", call.common.all_parts,
                      "Read all checkpoints in a folder (model, optimizer, ...) as one, with keys PART.KEY");
    CLI::Option* const rank =
        command
            ->add_option("--rank", call.common.rank,
                         "Read rank N's value of each key for which the ranks saved different values")
            ->type_name("N")
            ->transform(tool::whole_number(0, INT32_MAX));
    command
        ->add_flag("--keys-at-ranks", call.common.keys_at_ranks,
                   "Read each rank's value of such a key as KEY@RANK (not with --rank)")
        ->excludes(rank);
    tool::add_cache_option(*command);
  }
}

// An unset variable of the shell is an empty value. It must not mean that an option is not given.
void refuse_empty_values(CLI::App& command) {
  const CLI::Validator some_value(
      [](std::string& text) -> std::string { return text.empty() ? "'' is an empty value" : ""; }, "");
  for (CLI::Option* const option : command.get_options())
    if (!option->get_lnames().empty() && option->get_items_expected_min() > 0) option->check(some_value);
  for (CLI::App* const inner : command.get_subcommands([](const CLI::App*) { return true; }))
    refuse_empty_values(*inner);
}

std::vector<tool::command_options> options_of_commands(const CLI::App& app) {
  std::vector<tool::command_options> all;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    tool::command_options one{command->get_name(), {}};
    for (const CLI::App* const of : {command, &app})
      for (const CLI::Option* const option : of->get_options())
        for (const std::string& name : option->get_lnames()) one.names.insert("--" + name);
    all.push_back(std::move(one));
  }
  return all;
}

// Called when a command is found on the command line, so that its errors are in its own terms.
void begin_command(const CLI::App& app, const std::string& running) {
  tool::set_failure_members(running);
  tool::set_known_options(running, [&app] { return options_of_commands(app); });
}

// Ends the use of the parser by hints, before it is destroyed.
struct known_options_scope {
  known_options_scope() = default;
  known_options_scope(const known_options_scope&) = delete;
  ~known_options_scope() { tool::set_known_options({}, {}); }
};

int run(int argc, char** argv) {
  open_many_files();
  CLI::App app{"shardmesh: sharded checkpoints without Python", "shardmesh"};
  app.formatter(std::make_shared<tool::help_formatter>());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "shardmesh " SHARDMESH_VERSION, "Print the version and exit");
  const known_options_scope hints;
  app.require_subcommand(1);
  app.fallthrough();
  tool::invocation call;
  const shardmesh::detail::call_scope whole_command({});  // requests to a lost server are those of one call
  std::optional<shardmesh::detail::call_scope> limits;
  call.common.cancel = tool::end_on_signals();
  add_global_options(app, call, limits);
  tool::add_inspect(app, call);
  tool::add_verify(app, call);
  tool::add_diff(app, call);
  tool::add_convert(app, call);
  tool::add_reshard(app, call);
  add_reading_options(app, call);
  tool::add_layout(app, call);
  tool::add_plan(app, call);
  tool::add_check_shards(app, call);
  tool::add_clean(app, call);
  tool::add_map(app, call);
  tool::add_run(app, call);
  tool::add_delta(app, call);
#ifdef SHARDMESH_HAS_DEVICES
  tool::add_devices(app, call);
#endif
  tool::add_self_description(app, call);
  refuse_empty_values(app);
  app.footer(
      "shardmesh inspect CKPT --map\n"
      "shardmesh verify CKPT\n"
      "shardmesh convert CKPT model.safetensors --no-optimizer");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    command->preparse_callback([&app, command](std::size_t) { begin_command(app, command->get_name()); });
  try {
    app.parse(argc, argv);
    return call.status;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return tool::usage_error(app, e);
    // The help of an unknown command is not the general one.
    const std::vector<std::string> unknown = app.remaining();
    if (app.get_subcommands().empty() && !unknown.empty()) return tool::usage_error(app, CLI::ExtrasError(unknown));
    app.exit(e);  // --help and --version
    std::cout.flush();
    return std::cout ? tool::done : tool::not_completed;
  }
}

// Reports an exception as a problem of the given path.
int stopped_by(const shardmesh::error& cause) {
  tool::drop_document();
  tool::print_problem(cause);
  return tool::finish(tool::not_completed);
}

// The C library loads its unwinder when an exception first passes through one of its frames (pthread_once). It ends the
// process if there is no memory for that then.
void load_unwinder() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

std::atomic<bool> memory_ran_out = false;

void note_want_of_memory() {
  memory_ran_out = true;
  throw std::bad_alloc();
}

// Functions that promise not to throw end here if they get no memory (those of std::filesystem paths, CLI11's
// get_option). Without this handler the process would crash. Anything else that ends here is a bug of ours, and its
// core dump shows where.
[[noreturn]] void end_without_memory() {
  if (memory_ran_out) std::_Exit(tool::out_of_memory());
  std::abort();
}

// The libraries' initializers run before main, and may get no memory either. This runs before them.
void end_before_main() {
  constexpr std::string_view line = "shardmesh: not enough memory to begin\n";
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  std::_Exit(tool::not_completed);
}
void prepare_end() {
  std::set_terminate(end_before_main);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const first)() = prepare_end;

// A description of 30 MB takes a few arrays of its size, one after another. By default, the C library stops returning
// such arrays to the system once one was freed, so that later ones add to the resident memory.
void give_large_memory_back() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shardmesh;
  load_unwinder();
  give_large_memory_back();
  std::set_new_handler(note_want_of_memory);
  std::set_terminate(end_without_memory);
  try {
    if (asks_for_json(argc, argv)) tool::begin_json();
    try {
      return tool::finish(run(argc, argv));
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // a size that no container can have exceeds the memory
    } catch (const std::system_error& e) {
      return stopped_by(fail_sys(e.code().value(), "cannot continue", tool::subject()));
    } catch (const std::exception& e) {
      return stopped_by(fail(errc::io, std::string("internal error: ") + e.what()).with_file(tool::subject()));
    }
  } catch (const std::exception&) {  // no memory to report the failure
  }
  return tool::out_of_memory();
}
