# SPDX-License-Identifier: Apache-2.0
"""Names in pickles beside plain data: `inspect` and `verify` list all of them, `verify --strict` fails,
self-contradictory archives are refused, and nothing is executed. Modelled on the published bypasses of picklescan
and fickling (GHSA lists of both projects, 2023 to 2026). In the ordinary run, an eighth of the names of long lists, which
SHARDMESH_SEED chooses, meets every command, and the others meet `verify`, and `inspect --json` or `verify --strict`.
SHARDMESH_PROPERTY_RUNS=long takes all. Needs no package; no file made here is ever unpickled."""
import _compat_pickle
import json
import os
import random
import sys
import zipfile

from common import Oracle, seed as common_seed
from global_cases import CASES, folder_with, npy, zipped
from pickles import *  # noqa: F403


def names_of(oracle, case, *arguments):
    status, out, err = oracle.run(*arguments)
    try:
        return status, json.loads(out)["globals"], err
    except (ValueError, KeyError) as problem:
        oracle.check(False, case, f"no globals: {problem}: {out[:200]} {err[:300]}")
        return status, [], err


# The cases that have only unknown names: `verify` counts them and exits with 0.
UNKNOWN_CASES = {"extension", "persistent_id", "call_of_a_result", "getattr_of_an_enum", "getattr_of_a_nested_class",
                 "behind_the_end"}


def classes(oracle, name, names, refused, source, is_thorough):
    """Plain `verify`: dangerous names give status 1 and are on the first line, unknown ones are counted; both can be
    allowed."""
    is_unknown = name.startswith("unknown ") or name in UNKNOWN_CASES
    status, out, err = oracle.run("verify", source)
    first = (out if status == 0 else err).split("\n")[0]
    if refused:
        return oracle.check(status == 1, name, f"verify exits {status}: {err[:300]}")
    allow = [word for one in names for word in ("--allow-globals", one)]
    if is_unknown:
        oracle.check(status == (1 if name == "behind_the_end" else 0), name, f"verify exits {status}: {err[:300]}")
        count = len(set(names))
        if status == 0:
            oracle.check(f"{count} unknown name" in first, name, f"the first line is {first!r}")
            if is_thorough:
                oracle.check(oracle.run("verify", "--strict", *allow, source)[0] == 0, name, "allowed names are refused")
        return oracle.check("dangerous" not in out + err, name, f"called dangerous: {err[:300]}")
    oracle.check(status == 1, name, f"verify exits {status}: {out[:200]} {err[:200]}")
    oracle.check("dangerous" in first and any(one in first for one in names) and str(source) in first, name,
                 f"the first line is {first!r}")
    if not is_thorough:
        return None
    document = json.loads(oracle.run("verify", "--json", source)[1])
    oracle.check(not document["ok"] and set(document["dangerous_globals"]) & set(names), name, f"{document}"[:300])
    if name.startswith("advisory "):
        status, out, err = oracle.run("verify", "--strict", *allow, source)
        oracle.check(status == 0, name, f"allowed, it exits {status}: {err[:300]}")
        oracle.check(oracle.run("verify", "--allow-globals", "m.other", source)[0] == 1, name, "another name allows it")
    return None


def python_2_names(oracle):
    """A name that is dangerous in Python 3 is also dangerous in its Python 2 spelling."""
    danger = {"dbm", "http", "socketserver", "subprocess", "tkinter", "urllib", "xmlrpc", "pickle", "test.support",
              "multiprocessing", "_thread", "winreg"}
    for number, (old, new) in enumerate(sorted(_compat_pickle.IMPORT_MAPPING.items())):
        if new not in danger and new.split(".")[0] not in danger:
            continue
        source = oracle.work / f"python_2_{number}.pt"
        archive(source, PROTO2 + global_(old, "anything") + STOP)
        status, out, err = oracle.run("verify", source)
        oracle.check(status == 1 and f"{old}.anything" in err, old, f"verify exits {status}: {out[:200]} {err[:200]}")


def plain_arrays(oracle):
    """Numeric arrays beside a model are not pickles, whatever their bytes."""
    folder = oracle.work / "plain_arrays"
    folder.mkdir()
    source = folder_with("a.npy", npy(b"\x80\x02" + bytes(range(98)), "<f4"))(folder)
    (source / "b.npz").write_bytes(zipped([("x.npy", npy(bytes(4), "<f4"))], zipfile.ZIP_DEFLATED))
    status, out, err = oracle.run("verify", "--strict", source)
    oracle.check(status == 0, "plain_arrays", f"verify --strict exits {status}: {out[:200]} {err[:300]}")


def stray_archives(oracle):
    """A file that only begins like an archive: `verify` and `convert` agree, with and without --all."""
    for name, is_checkpoint in (("stray", False), ("README.md", False), ("notes.zip", False), ("m.pt", True),
                                ("m.bin", True), ("m.pt2", True)):
        folder = oracle.work / ("stray_" + name)
        folder.mkdir()
        source = folder_with(name, b"PK\3\4 and no archive behind that")(folder)
        for all_parts in ([], ["--all"]):
            checked, out, err = oracle.run("verify", *all_parts, source)
            target = folder / ("to" + "".join(all_parts))
            converted, _, notes = oracle.run("convert", "--to", "dcp", *all_parts, source, target)
            wanted = 1 if is_checkpoint else 0
            case = " ".join(["stray", name, *all_parts])
            oracle.check(checked == wanted, case, f"verify exits {checked}: {out[:200]} {err[:300]}")
            oracle.check(converted == wanted, case, f"convert exits {converted}: {notes[:300]}")
            oracle.check(name in err, case, f"verify does not name the file: {err[:300]}")


def main():
    oracle = Oracle(__doc__)
    is_long = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
    seed = common_seed()
    for number, (name, names, refused, build) in enumerate(CASES):
        if oracle.args.only not in name:
            continue
        folder = oracle.work / str(number)
        folder.mkdir()
        build.data = oracle.data
        source = build(folder)
        is_of_list = name.startswith(("advisory ", "reached ", "unknown "))
        is_thorough = is_long or not is_of_list or (number + seed) % 8 == 0
        both = (["inspect", "--json"], ["verify", "--strict", "--json"])
        for command in both if is_thorough else (both[(number + seed) % 2],):
            status, found, err = names_of(oracle, name, *command, source)
            odd = [entry["name"] for entry in found if not entry["harmless"]]
            for wanted in names:
                oracle.check(wanted in odd, name, f"{command[0]} names {odd}, not {wanted}: {err[:200]}")
            oracle.check(all(entry["file"] for entry in found), name, "a name without a file")
            if command[0] == "verify":
                oracle.check(status == 1, name, f"verify --strict exits {status}: {err[:200]}")
            if refused:
                oracle.check(refused in err, name, f"{command[0]} does not refuse: {err[:300]}")
        classes(oracle, name, names, refused, source, is_thorough)
        if is_thorough:
            text_status, out, err = oracle.run("inspect", source)
            for wanted in names:
                oracle.check(wanted in out, name, f"inspect's text does not name {wanted}: {out[:300]}")
        oracle.check(not any("MARKER" in str(p) for p in folder.rglob("*")), name, "something was run")

    if oracle.args.only in "python_2_names":
        python_2_names(oracle)
    if oracle.args.only in "plain_arrays":
        plain_arrays(oracle)
    if oracle.args.only in "stray_archives":
        stray_archives(oracle)
    # PyTorch's own programs name nothing dangerous.
    for source in sorted((oracle.data / "writers" / "torch_export").glob("*.pt2")):
        status, out, err = oracle.run("verify", source)
        oracle.check(status == 0, source.name, f"verify exits {status}: {err[:300]}")

    # Golden checkpoints, which PyTorch wrote, name only harmless things.
    for golden in oracle.cases():
        status, found, err = names_of(oracle, golden.name, "inspect", "--json", golden.checkpoint)
        odd = [entry["name"] for entry in found if not entry["harmless"]]
        oracle.check(odd == [], golden.name, f"names {odd}")
        oracle.check(found or not golden.is_dcp, golden.name, "no pickle was looked at")
    for wanted, corrupt in (("posix.system", "evil_inside"), ("builtins.eval", "evil_eval")):
        folder = oracle.golden / "corrupt" / corrupt / "checkpoint"
        status, found, err = names_of(oracle, corrupt, "inspect", "--json", folder)
        oracle.check(any(entry["name"] == wanted and entry["file"] == ".metadata" for entry in found), corrupt, f"{found}")
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
