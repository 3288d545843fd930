# SPDX-License-Identifier: Apache-2.0
"""Does a test notice when the code is wrong? Builds the files of faults.py again, with every fault beside the code
that it replaces and a number in the environment that selects one. Links the test programs with them, and runs them
with one fault after the other. Each must make a suite fail. Prints how many did; fails on a fault that survives, no
longer applies, or no longer compiles. The tree and its build are only read."""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from faults import FAULTS, NOT_NOTICED_YET, OPTIONAL_ROOMS

HEADER = """#pragma once
#include <stdlib.h>
namespace shardmesh_faults {
inline bool is(int number) {
  static const int chosen = [](const char* text) { return text != nullptr ? atoi(text) : 0; }(getenv("SHARDMESH_FAULT"));
  return chosen == number;
}
}  // namespace shardmesh_faults
"""
TIME_LIMIT_S = 180


class Broken(Exception):
    """The list and the code do not match."""


def with_faults(text, faults, file):
    """The file's text with every fault beside the code that it replaces."""
    for number, old, new in faults:
        if text.count(old) != 1:
            raise Broken(f"fault {number}: {file} has {text.count(old)} times `{old}`, not once: choose another text in faults.py")
        statement = old.endswith(";")
        is_chosen = f"::shardmesh_faults::is({number})"
        text = text.replace(old, f"if ({is_chosen}) {{ {new} }} else {{ {old} }}" if statement else old_or_new(old, new, is_chosen))
    if "\nmodule;\n" in text:  # the header goes into the global fragment
        return text.replace("\nmodule;\n", '\nmodule;\n#include "chosen_fault.hpp"\n', 1)
    if re.search(r"^module shardmesh", text, re.M):
        return re.sub(r"^module shardmesh", 'module;\n#include "chosen_fault.hpp"\nmodule shardmesh', text, count=1, flags=re.M)
    return '#include "chosen_fault.hpp"\n' + text


def old_or_new(old, new, is_chosen):
    tail = next((end for end in (" ||", " &&") if old.endswith(end)), "")  # the beginning of a longer condition
    old, new = old[:len(old) - len(tail)], new[:len(new) - len(tail)]
    return f"({is_chosen} ? ({new}) : ({old})){tail}"


class Builder:
    def __init__(self, root, build, work):
        self.root, self.build, self.work = root, build, work
        self.commands = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
        self.objects = {}  # the library's archive -> objects that replace its members

    def compile(self, file, faults):
        """Compiles the file with its faults; returns the object's path."""
        source = self.root / "modules" / file
        entry = self.commands.get(str(source))
        if entry is None:
            raise Broken(f"{source} is not part of the build")
        made = self.work / file.replace("/", "_")
        made.write_text(with_faults(source.read_text(), faults, file))
        line = shlex.split(entry["command"])
        out = line.index("-o") + 1
        line[line.index(str(source))] = str(made)
        archive = "modules/lib" + Path(line[out]).parts[2].removesuffix(".dir") + ".a"
        line[out] = str(made.with_suffix(".o"))
        line += ["-w", f"-iquote{source.parent}", f"-iquote{self.work}"]
        done = subprocess.run(line, cwd=entry["directory"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"{file} with faults {', '.join(str(n) for n, _, _ in faults)} does not compile:\n{done.stderr[-3000:]}")
        self.objects.setdefault(archive, []).append(line[out])

    def link(self, suite):
        """Links the test program with the objects instead of their archives' members; returns its path."""
        said = subprocess.run(["ninja", "-C", self.build, "-t", "commands", "-s", f"tests/{suite}"], capture_output=True, text=True)
        text = next((line for line in said.stdout.splitlines() if f" -o tests/{suite} " in line), None)
        if text is None:
            raise Broken(f"{suite} is not part of the build:\n{said.stdout[-300:]}{said.stderr[-300:]}")
        line = [word for word in shlex.split(text.removeprefix(": && ").removesuffix(" && :"))]
        made = self.work / suite
        line[line.index("-o") + 1] = str(made)
        first = next(i for i, word in enumerate(line) if word.endswith(".a"))
        line[first:first] = [object_ for archive, of in self.objects.items() if archive in line for object_ in of]
        done = subprocess.run(line, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(f"{suite} does not link:\n{done.stderr[-3000:]}")
        return made


def runs(program, number, build):
    """(whether it passes, seconds, the end of its output). A hang or a crash is a failure."""
    begin = time.monotonic()
    environment = {**os.environ, "SHARDMESH_FAULT": str(number)}
    environment.pop("SHARDMESH_PROPERTY_RUNS", None)  # the short runs must notice faults
    try:
        done = subprocess.run([program, "--abort"], cwd=build / "tests", env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=TIME_LIMIT_S)
        good, said = done.returncode == 0, done.stdout[-3000:]
    except subprocess.TimeoutExpired:
        good, said = False, f"it does not end in {TIME_LIMIT_S} s"
    return good, time.monotonic() - begin, said


def judge(programs, number, fault, build):
    """The suite that notices the fault, or None."""
    return next((suite for suite in fault[3] if not runs(programs[suite], number, build)[0]), None)


def of_built_rooms(chosen, builder):
    """The faults of rooms that are in the build. A build without the libraries of an optional room lacks it."""
    absent = sorted({room for room in OPTIONAL_ROOMS for _, fault in chosen if fault[0].startswith(f"{room}/")
                     and str(builder.root / "modules" / fault[0]) not in builder.commands})
    for room in absent:
        print(f"skipped: the faults of room {room}, which is not part of the build")
    return [(number, fault) for number, fault in chosen if fault[0].partition("/")[0] not in absent]


def chosen_of(text):
    return [(n, fault) for n, fault in enumerate(FAULTS, 1) if not text or str(n) in text.split(",") or text in fault[0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default=os.environ.get("SHARDMESH_FAULTS", ""), help="numbers, or a part of a file's name")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("SHARDMESH_JOBS") or os.cpu_count()))
    parser.add_argument("--apply-only", action="store_true", help="only see whether every fault applies")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    (given.work / "chosen_fault.hpp").write_text(HEADER)
    broken, builder = [], Builder(given.root.resolve(), given.build.resolve(), given.work.resolve())
    chosen = chosen_of(given.only)
    if not given.apply_only:
        chosen = of_built_rooms(chosen, builder)
    by_file = collections.defaultdict(list)
    for number, (file, old, new, _) in chosen:
        by_file[file].append((number, old, new))

    def attempt(act, *arguments):
        try:
            return act(*arguments)
        except Broken as why:
            broken.append(str(why))
            return None
    if given.apply_only:
        for file, faults in by_file.items():
            attempt(with_faults, (builder.root / "modules" / file).read_text(), faults, file)
        sys.exit("\n".join(broken) if broken else print(f"{len(chosen)} faults apply"))
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda item: attempt(builder.compile, *item), by_file.items()))
        if broken:
            sys.exit("\n".join(broken))
        suites = sorted({suite for _, fault in chosen for suite in fault[3]})
        programs = dict(zip(suites, pool.map(lambda suite: attempt(builder.link, suite), suites)))
        if broken:
            sys.exit("\n".join(broken))
        print(f"{len(by_file)} files and {len(suites)} suites built in {time.monotonic() - begin:.0f} s", flush=True)
        undisturbed = pool.map(lambda suite: runs(programs[suite], 0, given.build.resolve()), suites)
        for suite, (good, seconds, text) in zip(suites, undisturbed):
            print(f"{suite} without a fault: {'passes' if good else 'FAILS'} in {seconds:.1f} s", flush=True)
            if not good:
                print(text, flush=True)
                broken.append(f"{suite} fails without a fault: nothing can be told from it")
        if broken:
            sys.exit("\n".join(broken))
        noticed = list(pool.map(lambda one: judge(programs, *one, given.build.resolve()), chosen))
    survivors = [(number, fault) for (number, fault), suite in zip(chosen, noticed) if suite is None]
    for number, (file, old, new, suites) in survivors:
        known = "NOT NOTICED YET" if old in NOT_NOTICED_YET else "SURVIVES"
        print(f"{known}: fault {number}: {file}: `{old}` becomes `{new}`, and {' and '.join(suites)} pass")
    caught = [fault[1] for (_, fault), suite in zip(chosen, noticed) if suite is not None and fault[1] in NOT_NOTICED_YET]
    for old in caught:
        print(f"NOTICED NOW: `{old}`: take it off NOT_NOTICED_YET in faults.py")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults noticed in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if caught or any(fault[1] not in NOT_NOTICED_YET for _, fault in survivors) else 0)


if __name__ == "__main__":
    main()
