# SPDX-License-Identifier: Apache-2.0
"""Explores the models of the shared-memory protocol with Spin: every reachable state is sound, and each defect that
a model can have is found in the expected way. Skipped (77) if spin or a C compiler is missing.

An exploration has the same result each time. explored.json has the digests of the models whose states are all sound, so
that the ordinary run explores these states only after a model changes. --full explores them always, and fails if
explored.json has another digest. After a change, run with --write."""
import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPLORED = HERE / "explored.json"
STUCK = "invalid end state"
SOUND = {"shared_memory": [("death", ["ONLY_DEATH"]), ("giving up", ["ONLY_GIVING_UP"])], "poison": [("all", [])]}
FULL = {"shared_memory": [("all", [])]}
# The invariant whose violation the exploration must report.
FOREIGN_BYTES, DENIED, BUSY = "seen_bytes==1", "outcome", "spins"
DEFECTS = {
    "shared_memory": {
        "GUARDS_ALIKE": FOREIGN_BYTES,
        "GUARD_KEPT": FOREIGN_BYTES,
        "ANSWERS_IN_RING": STUCK,  # the receiver makes no further call; if it leaves, its sender loses the message
        "LOOKS_FOR_PEER_LAST": DENIED,
        "ROOM_OF_ANY_SIZE": BUSY,
        "REFUSAL_FORGOTTEN": STUCK,
        "AGAIN_TWICE": "refused_in",
        "LENT_WITHOUT_BOUND": "answered",
        "WISH_NOT_SEEN": STUCK,
        "NO_LAST_LOOK": STUCK,
    },
    "poison": {
        "CLAIMED_FIRST": "knows",
        "NOTE_LAST": "note",
        "NO_BELLS": STUCK,
    },
}


class Explorer:
    def __init__(self, work, compiler):
        self.work, self.compiler = work, compiler
        self.failed = 0

    def explore(self, model, flags, level="-O1"):
        """The output of Spin's verifier for the model with these macros, or an error's text."""
        folder = self.work / "-".join([model, *flags])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        defines = [f"-D{flag}" for flag in flags]
        for line in (["spin", "-a", *defines, str(HERE / f"{model}.pml")],
                     [self.compiler, level, "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", "-o", "pan", "pan.c"]):
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                return f"{line[0]} exits {done.returncode}: {done.stdout}{done.stderr}"
        return subprocess.run(["./pan", "-m1000000"], cwd=folder, capture_output=True, text=True).stdout

    def check(self, good, case, text):
        if not good:
            self.failed += 1
            print(f"FAILED {case}\n{text}", flush=True)

    def sound(self, model, name, flags):
        text = self.explore(model, flags)
        whole = "errors: 0" in text and not re.search(r"not completed|too small|out of memory|exits", text)
        states = re.search(r"(\d+) states, stored", text)
        self.check(whole, f"{model}, {name}", text[-2000:])
        print(f"{model}, {name}: {states.group(1) if states else 'no'} states, {'sound' if whole else 'NOT SOUND'}", flush=True)

    def defect(self, model, name, expected):
        text = self.explore(model, [f"DEFECT_{name}"], "-O0")  # found soon: to compile takes longer
        first = re.search(r"^pan:\d+: (.*)$", text, re.M)
        found = first.group(1) if first else ""
        self.check(expected in found, f"{model} with {name}: expected to find {expected!r}", text[-2000:])
        print(f"{model} with {name}: {found or 'nothing found'}", flush=True)

    # A macro that no model uses would be a defect that is never turned on.
    def known(self, model, names):
        text = (HERE / f"{model}.pml").read_text()
        self.check(set(re.findall(r"DEFECT_(\w+)", text)) == set(names), f"{model}: its defects and the list here", names)


def digest(model):
    return hashlib.sha256((HERE / f"{model}.pml").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help="also with deaths and giving up in one exploration")
    parser.add_argument("--write", action="store_true", help="as --full, and then write explored.json")
    args = parser.parse_args()
    args.full = args.full or args.write
    compiler = next((found for found in map(shutil.which, ("cc", "gcc", "clang", "clang-19")) if found), None)
    if not shutil.which("spin") or not compiler:
        print(f"skipped: {'spin' if compiler else 'a C compiler'} was not found (Debian: {'spin' if compiler else 'gcc'})")
        return 77
    explorer = Explorer(args.work.resolve(), compiler)
    explored = json.loads(EXPLORED.read_text())
    for model, scenes in SOUND.items():
        is_explored = explored.get(model) == digest(model)
        if is_explored and not args.full:
            print(f"{model}: all states were explored since its last change")
        else:
            for name, flags in scenes + (FULL.get(model, []) if args.full else []):
                explorer.sound(model, name, flags)
        if args.full and not args.write:
            explorer.check(is_explored, f"{model}: explored.json", "it has another digest; run with --write")
        explorer.known(model, DEFECTS[model])
        for name, expected in DEFECTS[model].items():
            explorer.defect(model, name, expected)
    if args.write and not explorer.failed:
        EXPLORED.write_text(json.dumps({model: digest(model) for model in SOUND}, indent=2) + "\n")
    print(f"{explorer.failed} failed")
    return 1 if explorer.failed else 0


if __name__ == "__main__":
    sys.exit(main())
