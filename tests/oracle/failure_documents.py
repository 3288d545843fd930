# SPDX-License-Identifier: Apache-2.0
"""With --json, every command prints exactly one JSON document on any failure. Its "ok" is false, its problems are
the lines on stderr, and the exit status follows the command table. It has each member of the document of a success.
Every document that lists problems counts those beyond its list, as "more_problems".
Tests commands x kinds of failure. Needs no package."""
import json
import os
import shutil
import signal
import subprocess
import time

from common import Oracle

DCP = "{dcp}"
# command: valid arguments
COMMANDS = {
    "inspect": ["inspect", DCP],
    "verify": ["verify", DCP],
    "diff": ["diff", DCP, DCP],
    "convert": ["convert", DCP, "{out}/a.safetensors"],
    "convert to dcp": ["convert", DCP, "{out}/a", "--to", "dcp"],
    "convert to hf": ["convert", DCP, "{out}/a", "--to", "hf"],
    "convert to pt": ["convert", DCP, "{out}/a.pt"],
    "reshard": ["reshard", DCP, "{out}/a", "--mesh", "2", "--place", ".*=S(0)"],
    "reshard --dry-run": ["reshard", DCP, "{out}/a", "--mesh", "2", "--place", ".*=S(0)", "--dry-run"],
    "layout": ["layout", "--shape", "4", "--mesh", "2", "--place", "S(0)"],
    "plan": ["plan", "--shape", "4", "--from-mesh", "2", "--from", "S(0)", "--to-mesh", "2", "--to", "R"],
    "plan CKPT": ["plan", DCP, "--from-mesh", "2", "--from", "R", "--to-mesh", "2", "--to", "R"],
    "check-shards": ["check-shards", "{work}/shards.json"],
    "clean": ["clean", "{out}"],
    "run list": ["run", "list", "{out}"],
    "run prune": ["run", "prune", "{out}"],
    "run diff": ["run", "diff", "{work}/run", "5", "10"],
    "run resume-plan": ["run", "resume-plan", "{work}/run", "--mesh", "2"],
    "delta make": ["delta", "make", DCP, DCP, "{out}/a.delta"],
    "devices": ["devices"],
}
# Replacements of the source, and the exit status of every command that has a source.
SOURCES = {
    "nothing": ("{work}/nothing", 3),
    "an empty folder": ("{work}/empty", 1),
    "no checkpoint": ("{work}/text.safetensors", 1),
    "a name with control characters": ("{work}/no\nsuch\x1b[31m\u202efile", 3),
    "a damaged checkpoint": ("{work}/damaged", 1),
}
USAGE = [["--frobnicate"], ["surplus1", "surplus2", "surplus3"], ["--threads", "none"], ["--threads", "-1"]]
# Options that are wrong for this checkpoint: each exits with 2.
SELECTIONS = [["--only", "("], ["--only", "no such key"], ["--skip", "["], ["--skip", "no such key"], ["--rename", "x"],
              ["--rename", "(=y"], ["--rename", "no such key=y"], ["--rename", ".*=same"], ["--rename", r"(.*)=\9"],
              ["--dtype", "float33"], ["--dtype", "no such key=float16"], ["--dtype", "w=float4_e2m1fn_x2"],
              ["--strip-prefix", "no such prefix"]]
PLACEMENTS = [["--place", "("], ["--place", "w"], ["--place", "no such key=S(0)"], ["--place", "w=S(7)"], ["--place", "w=S(0),S(1)"],
              ["--place", "(=S(0)"], ["--default", "Q"], ["--default", "S(9)"]]
MEMORY = [["--memory", "lots"]]


class Checker:
    def __init__(self, oracle):
        self.oracle = oracle
        self.values = {"dcp": str(oracle.golden / "single_rank" / "checkpoint"), "work": str(oracle.work), "out": str(oracle.work / "out")}
        self.members = {}  # of the document of a success, by command

    def fill(self, arguments):
        return [a.format(**self.values) if "{" in a else a for a in arguments]

    def empty_out(self):
        shutil.rmtree(self.values["out"], ignore_errors=True)
        os.mkdir(self.values["out"])

    def succeeds(self, name, arguments):
        """One run that must succeed. Its document has the members that a failure's must have."""
        self.empty_out()
        out = self.oracle.succeeds(name, *self.fill(arguments), "--json")
        self.members[name] = set(json.loads(out)) if out else set()
        self.oracle.check("problems" not in self.members[name] or "more_problems" in self.members[name], name,
                          "the document does not count the problems beyond its list")

    def fails(self, case, arguments, *expected, members=()):
        """One run that must fail with one of these statuses, as text and as JSON, with at least these members."""
        self.empty_out()
        check, arguments = self.oracle.check, self.fill(arguments)
        status, out, err = self.oracle.run(*arguments, "--json")
        check(status in expected, case, f"exits {status}, expected {expected}: {err[-300:]}")
        check(not any(c in err for c in "\x1b\u202e\x9b"), case, f"stderr has control characters: {err!r}")
        try:
            document = json.loads(out)
        except ValueError as cause:
            return check(False, case, f"not one document ({cause}): {out[:200]!r}")
        check(document.get("ok") is False, case, f"the document does not say that it failed: {out[:200]}")
        lacking = sorted({*members, "problems", "more_problems"} - set(document))
        check(not lacking, case, f"the document lacks {lacking}")
        texts = [problem.get("text") for problem in document.get("problems", [])]
        lines = [line for line in err.splitlines() if not line.startswith(("note: ", "warning: ", "... and "))]
        check(texts and texts == lines, case, f"problems {texts} are not the lines {lines}")
        plain_status, plain_out, plain_err = self.oracle.run(*arguments)
        check(plain_status == status and plain_err == err, case, f"without --json exits {plain_status}: {plain_err[-300:]}")
        check(os.listdir(self.values["out"]) == [], case, f"leaves {os.listdir(self.values['out'])}")
        return True


def make_files(oracle):
    (oracle.work / "empty").mkdir()
    for step in ("step-5", "step-10"):
        shutil.copytree(oracle.golden / "single_rank" / "checkpoint", oracle.work / "run" / step)
    (oracle.work / "text.safetensors").write_text("this is not a checkpoint")
    (oracle.work / "shards.json").write_text('{"size":[4],"shards":[{"offsets":[0],"sizes":[4]}]}')
    shutil.copytree(oracle.golden / "single_rank" / "checkpoint", oracle.work / "damaged")
    file = oracle.work / "damaged" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:100])


HIDDEN = "\x1b\x7f\x9b\u00ad\u061c\u200b\u200e\u2028\u202e\u2066\u2060\ufeff\ufe0f\U000e0041"


def hostile_names(oracle):
    """Names from files and from the command line are escaped in every command's terminal output; a NUL is refused."""
    clean = lambda text: not any(c in text for c in HIDDEN)  # noqa: E731
    original = (oracle.golden / "single_rank" / "checkpoint" / ".metadata").read_bytes()
    for what, byte, word in (("NUL", b"\0", "holds a NUL"), ("newline", b"\n", "__0_0\\\\ndistcp"), ("escape", b"\x1b", "__0_0\\\\x1bdistcp")):
        folder = oracle.work / f"file_name_{what}"
        shutil.copytree(oracle.golden / "single_rank" / "checkpoint", folder)
        (folder / ".metadata").write_bytes(original.replace(b"__0_0.distcp", b"__0_0" + byte + b"distcp"))
        for command in (["verify", folder], ["convert", folder, oracle.work / "named.safetensors"]):
            status, out, err = oracle.run(*command)
            oracle.check(status == 1 and word.replace("\\\\", "\\") in err and clean(out + err), f"file name with {what}",
                         f"{command[0]} exits {status}: {err[-300:]!r}")
    name = "w" + HIDDEN
    header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, ensure_ascii=False).encode()
    for value, file in ((b"\0", "left.safetensors"), (b"\1", "right.safetensors")):
        (oracle.work / file).write_bytes(len(header).to_bytes(8, "little") + header + value)
    left, right = oracle.work / "left.safetensors", oracle.work / "right.safetensors"
    for command in (["inspect", left, "--map"], ["verify", left], ["diff", left, right], ["convert", left, oracle.work / name, "--to", "dcp"],
                    ["reshard", left, oracle.work / ("r" + name), "--mesh", "2", "--place", ".*=S(3)"], ["inspect", left, "--only", name + "x"],
                    ["inspect", left, "--only", "(" + name], ["inspect", left, "--" + name], [name], ["inspect", left, "--limit", name],
                    ["layout", "--shape", name, "--mesh", "2", "--place", "R"], ["check-shards", oracle.work / name]):
        status, out, err = oracle.run(*command)
        oracle.check(clean(out + err), f"hidden characters: {command[0]}", f"exits {status}: {(out + err)[-400:]!r}")
    out = oracle.succeeds("hidden characters", "inspect", left, "--json")
    oracle.check(out is not None and clean(out) and name in json.loads(out)["tensors"], "hidden characters", f"inspect --json: {out!r}")


def interrupted(checker):
    """A command that a signal ends at once prints one document with its members."""
    oracle, header = checker.oracle, json.dumps({"w": {"dtype": "U8", "shape": [1 << 38], "data_offsets": [0, 1 << 38]}}).encode()
    sides = [oracle.work / "left_hole.safetensors", oracle.work / "right_hole.safetensors"]
    for side in sides:  # 256 GiB of zeros, which take no space
        side.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(side, 8 + len(header) + (1 << 38))
    for number in (signal.SIGINT, signal.SIGTERM):
        running = subprocess.Popen([oracle.tool, "diff", *sides, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
        document = json.loads(out)
        oracle.check(running.returncode == 3 and err == "shardmesh: interrupted\n", number.name, f"exits {running.returncode}: {err}")
        lacking = sorted(checker.members["diff"] - set(document))
        oracle.check(not lacking, number.name, f"the document lacks {lacking}")
        texts = [problem["text"] for problem in document["problems"]]
        oracle.check(document["ok"] is False and texts == ["shardmesh: interrupted"], number.name, f"{out}")


def main():
    oracle = Oracle(__doc__)
    hostile_names(oracle)
    make_files(oracle)
    checker = Checker(oracle)
    for name, arguments in COMMANDS.items():
        checker.succeeds(name, arguments)
        # Actions with documents of their own, and plans of checkpoints, are known once the line is parsed.
        is_known = name not in ("plan CKPT", "run diff", "run resume-plan")
        for extra in USAGE:
            checker.fails(f"{name} {' '.join(extra)}", [*arguments, *extra], 2, members=checker.members[name] if is_known else ())
        if len(arguments) > 1:
            checker.fails(f"{name} alone", arguments[:1], 2)
        if DCP in arguments:
            for what, (source, status) in SOURCES.items():
                if what == "a damaged checkpoint" and name in ("inspect", "diff", "reshard --dry-run", "plan CKPT"):
                    continue  # they read no more than they show
                checker.fails(f"{name} of {what}", [source if a == DCP else a for a in arguments], status, members=checker.members[name])
        selected = [["--only", "("], ["--only", "no such key"]] if name == "inspect" else SELECTIONS
        if DCP in arguments and name not in ("verify", "plan CKPT"):
            for extra in selected:
                checker.fails(f"{name} {' '.join(extra)}", [*arguments, *extra], 2, members=checker.members[name])
        if name.startswith("reshard"):
            for extra in PLACEMENTS:
                checker.fails(f"{name} {' '.join(extra)}", [a for a in arguments if a not in ("--place", ".*=S(0)")] + extra, 2)
        if name.startswith(("reshard", "convert")) and "dry" not in name:
            for extra in MEMORY:
                checker.fails(f"{name} {' '.join(extra)}", [*arguments, *extra], 2)
            blocked = [a.replace("{out}/", "{work}/text.safetensors/") for a in arguments]
            checker.fails(f"{name} below a file", blocked, 2, 3)
    interrupted(checker)
    # A rule that matches nothing can be allowed.
    oracle.succeeds("unused", "inspect", checker.values["dcp"], "--only", "w", "--json")
    oracle.succeeds("unused", "diff", checker.values["dcp"], checker.values["dcp"], "--skip", "no such key", "--allow-unused")
    # A failing write to stdout is reported as a failure.
    for name, arguments in COMMANDS.items():
        checker.empty_out()
        shell = " ".join(f"'{a}'" for a in [str(oracle.tool), *checker.fill(arguments), "--json"])
        status = os.system(f"{shell} >/dev/full 2>'{oracle.work}/err'") >> 8
        err = (oracle.work / "err").read_text()
        problems = [line for line in err.splitlines() if not line.startswith("warning: ")]
        oracle.check(status == 3 and len(problems) == 1 and "cannot write to standard output: No space" in err,
                     f"{name} to a full stdout", f"exits {status}: {err[-300:]}")
    oracle.finish()


if __name__ == "__main__":
    main()
