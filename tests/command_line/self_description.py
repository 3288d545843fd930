# SPDX-License-Identifier: Apache-2.0
"""Checks the command line's descriptions of itself: each shell completes, and the manual page describes, every command
and option of --help. Runs the real shells; a missing shell is named and skipped.

    self_description.py TOOL WORK
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Bash's completions for these words; "|" precedes the word to complete. Paths are those of WORK/paths.
BASH = {
    "|": "inspect verify diff convert reshard layout plan check-shards clean map run delta devices completion man",
    "|v": "verify",
    "--threads 2 |lay": "layout",
    "--threads |": "",
    "convert --to |": "dcp safetensors hf pt torch-checkpointing gguf npz",
    "convert --to = |s": "safetensors",
    "convert --to |=": "dcp safetensors hf pt torch-checkpointing gguf npz",
    "convert --dedup = |": "tied equal",
    "convert --dedup |": "a b.svg folder",
    "convert --max-shard-size |": "",
    "convert a |f": "folder",
    "reshard --place R --like |f": "folder",
    "layout --svg |b": "b.svg",
    "layout |": "",
    "layout --s|": "--shape --svg",
    "layout --svg = |": "a b.svg folder",
    "verify a --l|": "--limit-factor",
    "run |": "list latest verify prune pin unpin diff flatten resume-plan",
    "run list --names |": "step checkpoint iter",
    "delta |": "make apply",
    "delta apply --to |": "dcp safetensors hf pt torch-checkpointing gguf npz",
    "completion |": "bash zsh fish",
    "completion f|": "fish",
    "man |": "",
    "clean --|": "--help --dry-run --json --version --within --threads --limit-factor",
}
FISH = {
    "shardmesh ver": ["verify"],
    "shardmesh convert --to ": ["dcp", "gguf", "hf", "npz", "pt", "safetensors", "torch-checkpointing"],
    "shardmesh convert --max": ["--max-shard-size"],
    "shardmesh layout ": [],
    "shardmesh verify f": ["folder/"],
    "shardmesh completion f": ["fish"],
    "shardmesh --threads 2 lay": ["layout"],
    "shardmesh convert --payload=s": ["--payload=safetensors"],
    "shardmesh convert --dedup=": ["--dedup=equal", "--dedup=tied"],
    "shardmesh layout --svg b": ["b.svg"],
    "shardmesh layout --svg=b": ["--svg=b.svg"],
    "shardmesh verify plan --f": [],  # a path, not the command, which has --from
    "shardmesh man ": [],
}
# Zsh's completion of a line after the Tab key.
ZSH = {
    "shardmesh ver": "shardmesh verify",
    "shardmesh convert --max": "shardmesh convert --max-shard-size",
    "shardmesh convert --to saf": "shardmesh convert --to safetensors",
    "shardmesh convert --dedup=eq": "shardmesh convert --dedup=equal",
    "shardmesh verify fol": "shardmesh verify folder/",
    "shardmesh completion fi": "shardmesh completion fish",
    "shardmesh --thr": "shardmesh --threads",
    "shardmesh --threads 2 lay": "shardmesh --threads 2 layout",
    "shardmesh convert a fol": "shardmesh convert a folder/",
    "shardmesh convert --payload saf": "shardmesh convert --payload safetensors",
    "shardmesh layout --svg b": "shardmesh layout --svg b.svg",
    "shardmesh convert --only x --onl": "shardmesh convert --only x --only",
}


def output(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, **more).stdout


def options_of_help(text):
    """The names that begin a line of help: "  -h, --help    Print ..."; "  --dedup[=VALUE]  Write ..."."""
    names = []
    for line in re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*)", text, re.M):
        names += line.split(", ")
    return names


def ask_bash(script, words, work):
    """The completions of bash for these words; the cursor is at the end of the marked word."""
    parts = ("shardmesh " + words).split(" ")
    at = next(i for i, part in enumerate(parts) if "|" in part)
    parts[at] = parts[at].replace("|", "")
    # The mark may precede or follow the word: "--s|" and "|v" are both completed at their ends.
    listed = " ".join(f"'{part}'" for part in parts)
    code = f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={at}; _shardmesh; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return " ".join(sorted(output("bash", "--norc", "-c", code, cwd=work).split()))


def check_bash(tool, scripts, work, helps):
    script = scripts["bash"]
    for words, expected in BASH.items():
        if (found := ask_bash(script, words, work)) != " ".join(sorted(expected.split())):
            yield f"bash: {words}: expected {expected!r}, found {found!r}"
    for command, options in helps.items():
        offered = ask_bash(script, f"{command} |-".strip(), work).split()
        if sorted(offered) != sorted({*options, *helps[""]}):
            yield f"bash: {command or 'shardmesh'}: --help has {options}, completion {offered}"


def check_fish(tool, scripts, work, helps):
    def ask(line):
        code = f"source {scripts['fish']}; complete -C '{line}'"
        home = {**os.environ, "HOME": str(work.parent), "XDG_CONFIG_HOME": str(work.parent / "config")}
        return [answer.split("\t")[0] for answer in output("fish", "--no-config", "-c", code, cwd=work, env=home).splitlines()]
    for line, expected in FISH.items():
        if (found := ask(line)) != expected:
            yield f"fish: {line!r}: expected {expected}, found {found}"
    for command, options in helps.items():
        offered = ask(f"shardmesh {command} -".replace("  ", " "))
        if missing := {o for o in {*options, *helps[""]} if o.startswith("--")} - set(offered):
            yield f"fish: {command or 'shardmesh'}: not completed: {sorted(missing)}"


class Terminal:
    """A zsh that believes a person uses it."""

    def __init__(self, script, work):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(work)
            os.environ.update(TERM="dumb", PROMPT="> ", ZDOTDIR=str(work), HOME=str(work))
            os.execvp("zsh", ["zsh", "-f", "-i"])
        self.type(f"PROMPT='> '; unsetopt zle_bracketed_paste beep; autoload -Uz compinit; compinit -u -D; source {script}; echo rea''dy\n")
        self.read_until("ready")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, wanted, seconds=20):
        said, end = "", time.monotonic() + seconds
        while wanted not in said and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.2)[0]:
                said += os.read(self.terminal, 4096).decode(errors="replace").replace("\r", "")
        return said

    def close(self):
        self.type("\x15exit\n")
        os.close(self.terminal)
        os.waitpid(self.process, 0)


def check_zsh(tool, scripts, work, helps):
    terminal = Terminal(scripts["zsh"], work)
    for line, expected in ZSH.items():
        terminal.type(line + "\t")
        said = terminal.read_until(expected)
        if expected not in said:
            yield f"zsh: {line!r}: expected {expected!r}, the terminal shows {said!r}"
        terminal.type("\x15")  # erases the line
    terminal.close()
    text = Path(scripts["zsh"]).read_text()
    for command, options in helps.items():
        part = text.partition(f"\n    {command})")[2].partition(";;")[0] if command else text.partition("case $state")[0]
        if missing := [o for o in options if not re.search(rf"'\*?{o}[=+\[]", part)]:
            yield f"zsh: {command or 'shardmesh'}: not completed: {missing}"


def check_manual(tool, work, helps):
    page = work.parent / "shardmesh.1"
    page.write_text(output(tool, "man"))
    formatter = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"] if shutil.which("groff") else None
    if not formatter:
        print("the manual page is not formatted: there is no groff")
        return
    ended = subprocess.run([*formatter, page], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if ended.stderr or ended.returncode:
        yield f"groff complains of the manual page: {ended.stderr}"
    sections = re.split(r"^   (\S+)$", ended.stdout.replace("‐", "-").replace("−", "-"), flags=re.M)
    described = dict(zip(["", *sections[1::2]], sections[::2]))
    for command, options in helps.items():
        names = re.findall(r"(?:^ +|, )(-[\w-]+)(?=[ ,\[\n])", described.get(command, ""), re.M)
        if missing := [option for option in options if option not in names]:
            yield f"the manual page does not describe of {command or 'shardmesh'}: {missing}"


def main(tool, work):
    shutil.rmtree(work, ignore_errors=True)
    paths = work / "paths"
    (paths / "folder").mkdir(parents=True)
    (paths / "a").touch()
    (paths / "b.svg").touch()
    top = output(tool, "--help")
    commands = re.findall(r"^  ([a-z][\w-]+) ", top.partition("Commands:\n")[2].partition("\n\n")[0], re.M)
    helps = {"": options_of_help(top)} | {name: options_of_help(output(tool, name, "--help")) for name in commands}
    scripts, wrong = {}, []
    if not {"completion", "man"} <= set(commands) or len(commands) < 11:
        wrong.append(f"--help shows the commands {commands}")
    for shell, check in {"bash": check_bash, "fish": check_fish, "zsh": check_zsh}.items():
        scripts[shell] = work / f"shardmesh.{shell}"
        scripts[shell].write_text(output(tool, "completion", shell))
        if shutil.which(shell):
            wrong += check(tool, scripts, paths, helps)
        else:
            print(f"not asked, as it is not installed: {shell}")
    wrong += check_manual(tool, paths, helps)
    print("\n".join(wrong) or f"{sum(map(len, helps.values()))} options of {len(commands)} commands are known everywhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
