# SPDX-License-Identifier: Apache-2.0
"""gdb prints every local of values.cpp as these tables say, and no output has a Python error.

    printers.py GDB PRINTERS SOURCE PROGRAM PROGRAM_WITHOUT_TYPES
"""
import re
import subprocess
import sys
from pathlib import Path

ZEROS = "{0, 0, 0, 0, 0, 0}"
GAP = ('gap: folder/.metadata: model.w: rows are held by "nobody" in [4:6, 0:8) (ranks 1, 2): '
       "expected 8 rows, found 6 rows; save it again")
NO_FILE = "io: a file: cannot open: No such file or directory"
SHARDED = f"[4, 3] float32 in 2 shards, rank 1 of [0, 1] = {{[2:4, 0:3) on rank:1/cpu = {{tensor = float32 [2, 3] = {ZEROS}}}}}"
EXPECTED = {
    "look_at_core": {
        "scalar": "[]", "sizes": "[2, 3]",
        "whole": "[0:10, 0:7)", "part": "[4:6, 0:8)", "point": "[)",
        "type": "shardmesh::dtype::bfloat16", "host": "cpu", "second": "cuda:1",
        "named": "rank:3/cuda:0", "worker": "worker0/cpu",
        "nothing": "no error", "gap": GAP, "refused": NO_FILE,
        "answer": "a value = {value = [4:6, 0:8)}", "no_answer": f"failed: {GAP}",
        "success": "success", "failure": f"failed: {NO_FILE}", "number": "a value = {value = 7}",
        "empty": "undefined []", "matrix": f"float32 [2, 3] = {ZEROS}",
        "view": "int64 [4, 5], strides [5, 1], on cpu at 0x0",
    },
    "look_at_layout": {
        "whole": "R", "rows": "S(0)", "strided": "SS(1,4)", "sum": "P(sum)", "fused": "SG(0,64:16:16)",
        "chunks": "torch_chunk", "sizes": "explicit_sizes [2, 8]",
        "one": "one rank", "flat": "2,3", "named": "dp=2,tp=3", "some": "2 of ranks [5, 3]",
        "plain": "[] on one rank", "cut": "[10, 7] on dp=2,tp=3 as S(0), S(1)",
        "here": "[4:6, 0:7) of owner 3, slot 0 at [0, 0]",
        "there": "[0:4, 0:7) of owner 1, slot 2 at [1, 0], term 5",
        "nothing": "[0] of 0 ranks", "grid": "[10, 7] of 6 ranks: [10, 7] on dp=2,tp=3 as S(0), S(1)",
        "terms": "[10, 7] of 6 ranks, sum of 2 terms: [10, 7] on 2,3 as P(sum), S(0)",
        "list": "[10, 7] of 4 items: 1 fragment = {[4:6, 0:7) of owner 3, slot 0}",
    },
    "look_at_sharding": {
        "placed": "[4:6, 0:3) on rank:1/cuda:0", "nowhere": "[4:6, 0:3) on no device",
        "alone": "[0]", "world": "[0, 1, 2, 3]", "chosen": "[0, 1, 3]",
        "sharded": SHARDED,
        "nested": f"[4, 3] float32 in 1 shard, rank 1 of [4, 1] = {{[0:4, 0:3) on rank:1/cpu = {{nested = {SHARDED}}}}}",
        "rows": "[4, 3] on 2 as S(0)",
        "distributed": f"[4, 3] on 2 as S(0), rank 1 = {{local = float32 [2, 3] = {ZEROS}}}",
        "outside": "[4, 3] on 2 as S(0), rank 9, which holds nothing",
    },
    "look_at_state": {
        "root": "the root", "deep": 'model["a.b"][3]["a name of more than fifteen bytes"].weight',
        "index": "4", "integer_key": "-12", "name": '"bias"', "long_name": '"a name of more than fifteen bytes"',
        "empty": "0 leaves",
        "dict": "9 leaves = {[model.layers[0].w] = int16 [2] = {0, 0}, [model.layers[1].w] = int16 [2] = {0, 0}, "
                f"[model.whole] = {SHARDED}, [betas[0]] = 0.5, [betas[1]] = -2, [name] = \"adam\", [fused] = true, "
                "[nothing] = none, [raw] = 3 bytes}",
        "spec": "9 leaves of 16 nodes = {model.layers[0].w, model.layers[1].w, model.whole, betas[0], betas[1], name, "
                "fused, nothing, raw}",
        "no_spec": "0 leaves of 0 nodes", "text": '"ad\\"am"', "integer": "12",
    },
}
# A program knows these types even if its library has no debug information: types of headers, and templates.
UNKNOWN = "the library has no debug information"
WITHOUT_TYPES = {
    "sizes": "[2, 3]", "whole": "<incomplete type>", "gap": f"<error: {UNKNOWN}>", "answer": f"<result: {UNKNOWN}>",
    "number": "a value = {value = 7}", "named": "rank:3/cuda:0",
}
# Names as written by compilers that append the module.
ATTACHED = """python
class attached:
    name = "shardmesh::result@shardmesh.core<shardmesh::box@shardmesh.core:box>"
    strip_typedefs = unqualified = lambda self: self
print("attached:", name_of(attached()))
end
"""


# The table of docs/debugging.md.
BREAKPOINTS = [
    "break grid.cpp:60", "break shardmesh::device_mesh::make",
    "break shardmesh::sharded_tensor<shardmesh::host_tensor>::make", "break 'shardmesh::distribute@shardmesh.layout'",
    "rbreak ^shardmesh::distribute", "break shardmesh::detail::broken_precondition", "break 'shardmesh::fail@shardmesh.core'",
]


def run(gdb, printers, program, commands, work):
    script = work / "commands.gdb"
    script.write_text(f"set pagination off\nset width 0\nsource {printers}\n{commands}")
    ended = subprocess.run([gdb, "-nx", "-batch", "-iex", "set auto-load off", "-x", script, program],
                           capture_output=True, text=True, timeout=120)
    said = ended.stdout + ended.stderr
    if "Python Exception" in said or "Traceback" in said:
        sys.exit(f"a printer failed:\n{said}")
    return said


def locals_of(said):
    """The NAME = VALUE lines after each frame line, by function."""
    found, current = {}, None
    for line in said.splitlines():
        if frame := re.match(r"#1 .* in \(anonymous namespace\)::(\w+)", line):
            current = found.setdefault(frame.group(1), {})
        elif (value := re.match(r"(\w+) = (.*)", line)) and current is not None:
            current[value.group(1)] = value.group(2)
    return found


def compare(found, expected, title):
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            yield f"{title}: {name}\n  expected {expected.get(name)}\n  found    {found.get(name)}"


def main(gdb, printers, source, program, bare_program):
    lines, work = source.read_text().splitlines(), Path.cwd()
    stop = 1 + next(i for i, line in enumerate(lines) if "the debugger stops here" in line)
    begin = [2 + i for i, line in enumerate(lines) if line.startswith("void look_at_")]
    show = "up\ninfo locals\n"
    said = run(gdb, printers, program, f"break {source.name}:{stop}\nrun\n{show}" + f"continue\n{show}" * 3 + ATTACHED, work)
    wrong = [] if "attached: result" in said else [f"names with modules are not ours:\n{said}"]
    found = locals_of(said)
    for function in sorted(found.keys() | EXPECTED.keys()):
        wrong += compare(found.get(function, {}), EXPECTED.get(function, {}), function)
    bare = locals_of(run(gdb, printers, bare_program, f"break {source.name}:{stop}\nrun\n{show}", work))["look_at_core"]
    wrong += compare({name: bare.get(name) for name in WITHOUT_TYPES}, WITHOUT_TYPES, "without types")
    # Before initialisation, values are whatever memory holds: each must still print.
    commands = "".join(f"break {source.name}:{line}\n" for line in begin) + "run\n" + "info locals\ncontinue\n" * len(begin)
    unmade = run(gdb, printers, program, commands, work)
    wrong += [f"not printed before it is made: {name}" for values in EXPECTED.values() for name in values
              if not re.search(rf"^{name} = ", unmade, re.M)]
    page = (Path(__file__).parents[2] / "docs/debugging.md").read_text()
    said = run(gdb, printers, program, "\n".join(BREAKPOINTS), work)
    wrong += [f"does not stop, or is not in docs/debugging.md: {command}" for number, command in enumerate(BREAKPOINTS, 1)
              if f"`{command}`" not in page or f"\nBreakpoint {number} at" not in "\n" + said]
    print("\n".join(wrong) or f"{sum(map(len, EXPECTED.values()))} values are printed as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(Path(argument) for argument in sys.argv[2:])))
