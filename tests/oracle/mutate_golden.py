# SPDX-License-Identifier: Apache-2.0
"""Do the tests notice when an answer of PyTorch changes? Changes every kind of field of every golden file in a copy,
one field at a time, and runs the tests that read the file against the copy (SHARDMESH_GOLDEN_DIR): one must fail. A
field that no test notices means that a comparison skips something. Needs no package.

A kind of field is its path without list indices ("boxes[].ranks[].get_box[][]"). SAMPLES fields of each kind are
changed, chosen with a fixed seed; with --all, every field. Inputs to PyTorch are not answers: QUESTIONS lists them.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

SKIPPED = 77
LIST = "[]"
NAMES = ("tensors", "objects", "state_dict_metadata", "planner_data")  # objects whose keys are names

# file: (test binaries, Catch2 filter, samples of each kind of field, questions as regular expressions of paths)
FILES = {
    "seeds/traverse.json": (
        ["unit_tree", "unit_state"], "[traverse]", 2,
        [r"torch_version", r"\w+\[\]\.(name|note|input|root|path|value|mapping|state)\b.*", r"get_element_root\b.*"]),
    "seeds/flatten_nested.json": (
        ["unit_state"], "[flatten_nested]", 2,
        [r"torch_version", r"cases\[\]\.(name|world|note|mesh|outer_dim|inner_dim)\b.*",
         r"cases\[\]\.ranks\[\]\.input\b.*"]),
    "seeds/tp_fsdp.json": (
        ["unit_fsdp"], "[tp_fsdp]", 3,
        [r"torch_version", r"\w+\[\]\.(world|mesh|shape|dtype|kind|names|group|placements|dim|tensor_device|rank|spec"
                           r"|device_type|num_devices_per_node)\b.*"]),
    "seeds/fsdp_flat.json": (
        ["unit_fsdp"], "[fsdp_flat]", 2,
        [r"torch_version", r"cases\[\]\.(name|world|model|args|seed|wrap|orig|dtype|ckpt|prefix|mesh|strategy|ignored"
                           r"|values)\b.*",
         r"cases\[\]\.(state_dicts|loads)\[\] shorter",  # fewer questions
         r"cases\[\]\.units\[\]\.raw_module", r"cases\[\]\.(state_dicts|loads)\[\]\.(type|config|what)\b.*"]),
    "seeds/sharded_utils.json": (
        ["unit_sharding"], "[sharded_utils]", 3,
        [r"torch_version", r"\w+\[\]\.(world|shape|dtype|requires_grad|note|base|group|rows|cols|missing|placement|src|dst"
                           r"|kind|dim|size|args|range_arg|my_rank|dst_rank|out|fill|prop|expected|actual|is_local)\b.*",
         r"(grids|recalc)\[\]\.shards\b.*", r"raise_if_mismatch\[\]\.ranks\b.*"]),
    "layouts.json": (
        ["unit_layout"], "[layouts]", 12,
        [r"\w+", r"cases\[\]\.(mesh|shape|placements|spec)\b.*"]),
    "chunk_specs.json": (
        ["unit_sharding"], "[chunk_specs]", 12,
        [r"\w+", r"chunk\[\]\.(shape|dim|placements|note)\b.*", r"infer\[\]\.(shape|shards|note)\b.*",
         r"enumerable\[\]\.(boxes|shape|note)\b.*"]),
    "errors.json": (
        ["unit_sharding"], "[errors]", 12,
        [r"\w+", r"cases\[\]\.(function|note|input)\b.*"]),
}

# The files of every golden case: samples of each kind of field, questions. The name of a tensor or object is not a
# kind. The cases share their kinds, so each case gets every CASE_SHAREth change, different from its neighbours'
# changes.
CASE_SHARE = 3
CASE_FILES = {
    "expected.json": (1, [
        r"case|how|torch_version|python_version|backend|params\b.*|dtypes_not_made\b.*|also_checked\b.*",
        # The memory layout of PyTorch's tensor, which a checkpoint's chunks do not store.
        r"tensors\.\*\.(stride|storage_offset|is_conj|is_neg|sharding_spec|mesh\.dim_names)\b.*",
        # The text of objects, which often only Python can make; the text of plain data is compared.
        r"objects\.\*\.repr|objects\.\*\.value\b.*repr"]),
    "metadata.json": (1, []),
}


def fields(value, path=(), kind=""):
    """(path, kind) of every leaf, and of every list that is not empty (a shorter list is another answer)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            name = "*" if kind in NAMES else key
            yield from fields(item, path + (key,), f"{kind}.{name}" if kind else name)
    elif isinstance(value, list) and value:
        yield path, kind + LIST + " shorter"
        for index, item in enumerate(value):
            yield from fields(item, path + (index,), kind + LIST)
    else:
        yield path, kind


def changed(value, kind):
    """Another value of the same sort."""
    if kind.endswith(" shorter"):
        return value[:-1]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "~"
    return 7  # null, and an empty list or object


def replaced(document, path, kind):
    made = copy.copy(document)
    if not path:
        return changed(document, kind)
    made[path[0]] = replaced(document[path[0]], path[1:], kind)
    return made


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


class Folder:
    """A copy of the golden folder in which one file can be replaced."""

    def __init__(self, golden, place, name):
        shutil.rmtree(place, ignore_errors=True)
        self.root = place / "golden"
        shutil.copytree(golden, self.root, ignore=shutil.ignore_patterns("corrupt"))
        self.file = self.root / name
        self.file.chmod(0o644)

    def notices(self, commands, text, deadline):
        """Whether a command fails with this text in place of the file."""
        self.file.write_text(text)
        environment = {**os.environ, "SHARDMESH_GOLDEN_DIR": str(self.root)}
        for command in commands:
            command = [str(word).replace("DATA", str(self.root.parent)) for word in command]
            try:
                done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      timeout=deadline)
            except subprocess.TimeoutExpired:
                return True
            if done.returncode != 0:
                return True
        return False


def chosen(document, questions, samples, everything):
    """The fields to change: a few of each kind of answer, by a fixed seed."""
    kinds = {}
    for path, kind in fields(document):
        plain = kind.removesuffix(" shorter")
        if len(path) == 1 and kind != plain:
            continue  # the list of cases: fewer questions, not another answer
        if kind.startswith("tensors.*.boxes[][]") and len(path) > 3 and 0 in value_at(document, path[:4])[2]:
            continue  # the place of an empty box: layouts.json compares that
        if not any(re.fullmatch(question, text) for question in questions for text in (plain, kind)):
            kinds.setdefault(kind, []).append(path)
    generator = random.Random(7)
    for kind, paths in sorted(kinds.items()):
        for path in paths if everything or len(paths) <= samples else generator.sample(paths, samples):
            yield path, kind


class Run:
    """Changes fields of one file, on all processors."""

    def __init__(self, golden, work, name, commands):
        self.golden, self.work, self.name, self.commands = golden, work, name, commands
        self.local = threading.local()
        self.missed = []

    def folder(self):
        if not hasattr(self.local, "folder"):
            self.local.folder = Folder(self.golden, self.work / f"{threading.get_ident()}-{self.name.replace('/', '-')}", self.name)
        return self.local.folder

    def one(self, document, path, kind):
        if not self.folder().notices(self.commands, json.dumps(replaced(document, path, kind)), 120):
            self.missed.append((kind, path))

    def all(self, document, picks):
        if self.folder().notices(self.commands, json.dumps(document), 120):
            sys.exit(f"{self.name}: the tests fail on the unchanged file: {self.commands}")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(self.one, document, path, kind) for path, kind in picks]:
                done.result()
        for folder in self.work.iterdir():
            shutil.rmtree(folder)
        shown = self.name.removeprefix("seeds/").removesuffix(".json")
        print(f"{shown}: {len(picks) - len(self.missed)} of {len(picks)} changes noticed", flush=True)
        for kind, path in sorted(self.missed, key=str)[:40]:
            print(f"  not noticed: {kind} at /{'/'.join(map(str, path))}", flush=True)
        return len(self.missed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, required=True, help="the shardmesh executable")
    parser.add_argument("--data", type=Path, required=True, help="tests/data")
    parser.add_argument("--work", type=Path, required=True, help="scratch folder, emptied first")
    parser.add_argument("--tests", type=Path, required=True, help="the folder of the test executables")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--samples", type=int, default=100, help="at most so many fields of each kind")
    parser.add_argument("--all", action="store_true", help="every field, not samples: hours")
    parser.add_argument("--always", action="store_true", help="run although this is not a full test run")
    args = parser.parse_args()
    if not (args.always or args.all or os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"):
        print("skipped: thousands of runs of the tests, part of ./dev test --full")
        sys.exit(SKIPPED)
    golden = args.data.resolve() / "golden"
    work = args.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    missed, ran = 0, 0
    binaries = args.tests.resolve()
    work_list = [(name, [[binaries / binary, tests, "--abort"] for binary in names], samples, questions)
                 for name, (names, tests, samples, questions) in FILES.items()]
    for kind, (samples, questions) in CASE_FILES.items():
        for file in sorted(golden.glob(f"*/{kind.replace('.', '*.')}")):
            if file.parent.name.startswith("era_torch"):
                continue  # shortened: names and bytes, which the same scripts compare
            oracle = [[sys.executable, "-B", Path(__file__).parent / "golden.py", "--tool", args.tool.resolve(), "--data",
                       "DATA", "--work", "DATA/out", "--only", file.parent.name]]
            metadata = [[binaries / "unit_dcp", "[metadata]", "--abort"]]
            work_list.append((str(file.relative_to(golden)), metadata if kind == "metadata.json" else oracle, samples,
                              questions))
    for name, commands, samples, questions in work_list:
        if args.only not in name:
            continue
        begin = time.monotonic()
        document = json.loads((golden / name).read_text())
        picks = list(chosen(document, questions, min(samples, args.samples), args.all))
        if name not in FILES and not args.all:
            picks = picks[len(name) % CASE_SHARE::CASE_SHARE]
        missed += Run(golden, work, name, commands).all(document, picks)
        ran += len(picks)
        print(f"  {time.monotonic() - begin:.0f} s", flush=True)
    shutil.rmtree(work, ignore_errors=True)
    print(f"{ran} changes, {missed} not noticed")
    sys.exit(1 if missed or not ran else 0)


if __name__ == "__main__":
    main()
