# SPDX-License-Identifier: Apache-2.0
"""Long output: differences are counted by kind and cut at --limit, long lists of keys, problems, and notes end with
a number, and the user's JSON is refused if it nests without end. Needs no package."""
import json
import re

from common import Oracle


def safetensors(path, tensors):
    """`tensors` maps name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def differences(oracle):
    left, right = oracle.work / "left.safetensors", oracle.work / "right.safetensors"
    same = {f"same.{i}": ("U8", [1], b"\1") for i in range(3)}
    values = {f"v.{i:03}": ("U8", [1], b"\1") for i in range(150)}
    safetensors(left, {**same, **values, "only": ("U8", [1], b"\0"), "shape": ("U8", [2], b"\0\0")})
    safetensors(right, {**same, **{k: (d, s, b"\2") for k, (d, s, _) in values.items()}, "shape": ("U8", [1, 2], b"\0\0")})
    summary = "152 keys differ: 1 only-left, 1 shape, 150 values; compared 154 tensors (155 bytes)\n"
    for extra, lines, rest in (([], 100, 52), (["--limit", "3"], 3, 149), (["--limit", "0"], 152, 0), (["--limit", "1000"], 152, 0)):
        case = f"diff {' '.join(extra)}"
        status, out, err = oracle.run("diff", left, right, *extra)
        said = err.splitlines()
        oracle.check(status == 1, case, f"exits {status}")
        oracle.check(out == summary, case, f"stdout is {out!r}")
        oracle.check(len(said) == lines + (rest > 0), case, f"{len(said)} lines on stderr")
        oracle.check(said[0].startswith("only: only on the left"), case, f"begins with {said[0]!r}")
        if rest:
            oracle.check(said[-1] == f"... and {rest} more differences", case, f"ends with {said[-1]!r}")
        status, out, _ = oracle.run("diff", left, right, "--json", *extra)
        document = json.loads(out)
        shown = lines if extra and extra[1] == "3" else 152  # a document is truncated only on request
        oracle.check(status == 1 and document["equal"] is False and len(document["differences"]) == shown
                     and document["more_differences"] == 152 - shown, case, f"--json: {out[-200:]}")
    out = oracle.succeeds("diff of equal files", "diff", left, left)
    oracle.check(out == "equal: 155 tensors (156 bytes)\n", "diff of equal files", f"stdout is {out!r}")


def lists(oracle):
    """Rules that name a dimension that hundreds of tensors lack; renamings that collide."""
    file = oracle.work / "many.safetensors"
    safetensors(file, {f"k.{i}": ("U8", [1], b"\1") for i in range(400)})
    for case, arguments in (
            ("a dimension that 400 tensors lack", ["reshard", file, oracle.work / "cut", "--mesh", "2", "--place", ".*=S(3)"]),
            ("400 keys that meet", ["convert", file, oracle.work / "met", "--to", "dcp", "--rename", ".*=x"])):
        status, out, err = oracle.run(*arguments)
        oracle.check(status == 2 and out == "", case, f"exits {status}: {out!r}")
        oracle.check(len(err.splitlines()) <= 101 and max(map(len, err.splitlines())) < 2000, case,
                     f"{len(err.splitlines())} lines, the longest of {max(map(len, err.splitlines()))} characters")
        oracle.check(re.search(r"and \d+ more", err) is not None, case, f"does not count the rest: {err[-200:]!r}")


def deep(oracle):
    """The user's JSON input has 300,000 levels."""
    text = "[" * 300_000 + "]" * 300_000
    shards, spec = oracle.work / "deep.json", oracle.work / "spec.json"
    shards.write_text('{"size":' + text + "}")
    spec.write_text('{"units":' + text + "}")
    source = oracle.golden / "fsdp1_local" / "checkpoint"
    for case, arguments in (("deep check-shards", ["check-shards", shards]),
                            ("deep flat-spec", ["convert", source, oracle.work / "deep", "--to", "dcp", "--flat-spec", spec])):
        status, out, err = oracle.run(*arguments, timeout=20)
        oracle.check(status == 1 and out == "" and err.count("\n") == 1 and ".json" in err, case, f"exits {status}: {err[-300:]!r}")


def main():
    oracle = Oracle(__doc__)
    differences(oracle)
    lists(oracle)
    deep(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
