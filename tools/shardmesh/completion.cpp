// SPDX-License-Identifier: Apache-2.0
// `shardmesh completion` and `shardmesh man`: the files that packages install beside the program.
#include "completion.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "console.hpp"

namespace tool {
namespace {

int write(const std::string& text) {
  return print(text) ? done : not_completed;
}

}  // namespace

void add_self_description(CLI::App& app, invocation& call) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "Print the script with which a shell completes shardmesh's commands");
  completion->footer(
      "source <(shardmesh completion bash)\n"
      "shardmesh completion fish | source");
  completion->add_option("SHELL", *shell, "The shell")->required()->check(one_of({"bash", "zsh", "fish"}));
  completion->callback([shell, &app, &call] {
    const described_tool tool = describe(app);
    call.status = write(*shell == "bash"  ? bash_completion(tool)
                        : *shell == "zsh" ? zsh_completion(tool)
                                          : fish_completion(tool));
  });
  CLI::App* manual = app.add_subcommand("man", "Print the manual page in roff");
  manual->footer("shardmesh man | man -l -");
  manual->callback([&app, &call] { call.status = write(manual_page(describe(app))); });
}

}  // namespace tool
