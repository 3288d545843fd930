# SPDX-License-Identifier: Apache-2.0
"""Follows the page docs/ten-minutes.md from an empty folder: writes its files, runs its commands in order, and compares
each output with the page. `...` matches any output. Compared are standard output and, for a command that fails,
standard error.

    ten_minutes.py PAGE FOLDER PREFIX [--print]   (PREFIX: where shardmesh is installed; --print: shows the output)
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

if not importlib.util.find_spec("torch"):
    print("skipped: this Python has no PyTorch, which writes the page's checkpoint")
    sys.exit(0)

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def steps(page):
    """Yields ("file", name, text) and ("run", command, output) in the page's order."""
    for language, text in BLOCK.findall(page):
        if language == "console":
            for found in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
                yield "run", found.group(1), found.group(2)
        else:
            name = re.match(r"(?://|#) (\S+)\n", text)
            assert name, f"a block of {language} does not name its file: {text[:60]!r}"
            yield "file", Path(name.group(1)).name, text


def environment(folder, prefix):
    """The environment of a shell, with shardmesh where the page has it, and this Python and its neighbours first in
    PATH."""
    home = folder / "home"
    home.mkdir()
    (home / "shardmesh").symlink_to(prefix)
    return {**os.environ, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def main(page, folder, prefix, prints):
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "empty"
    work.mkdir(parents=True)
    env, commands, wrong = environment(folder, prefix), 0, []
    # Files come first: the page shows both programs before it builds them.
    todo = list(steps(page.read_text()))
    for kind, name, text in todo:
        if kind == "file":
            (work / name).write_text(text)
    for kind, command, wanted in todo:
        if kind != "run":
            continue
        commands += 1
        done = subprocess.run(["bash", "-c", command], cwd=work, env=env, capture_output=True, text=True)
        said = done.stdout + (done.stderr if done.returncode else "")
        if prints:
            print(f"$ {command}\n{said}", end="")
        if wanted == "...\n" and done.returncode:
            sys.exit(f"$ {command}\n{done.stdout}{done.stderr}\nended with status {done.returncode}")
        if wanted != "...\n" and said != wanted:
            wrong.append(f"$ {command}\nprints\n{said}{done.stderr}the page says\n{wanted}")
    if wrong and not prints:
        sys.exit("\n".join(wrong))
    assert commands > 6, "the page has no commands"
    print(f"{commands} commands of {page.name} do what it says")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), "--print" in sys.argv[4:])
