# SPDX-License-Identifier: Apache-2.0
"""Dict keys that are not text (integers, None, bools, numbers, tuples, bytes, enum members) keep their types
wherever the target can hold them, and are named and counted where it cannot."""
import enum
import json
import struct

from common import Oracle, need_torch

need_torch()
import torch  # noqa: E402


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def same(a, b):
    """Compares with the types of keys, in any order: we write tensors first."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        typed = ({(type(key), key) for key in a}, {(type(key), key) for key in b})
        return typed[0] == typed[1] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def loads_as(oracle, case, file, expected):
    found = torch.load(file, weights_only=False)
    oracle.check(same(expected, found), case, f"gives {found}, expected {expected}")


# Keys that JSON holds, and keys that only Python has.
PLAIN = [None, True, False, 1.5, -0.25, 10**15, -10**15, 10**20, 7, -3, b"x\xff", (1, "a"), (), frozenset({3, 4}), torch.float32,
         ("deep", (None, 2)), (None,), (True, "b"), (10**12,)]
FOREIGN = [Color.RED, Color.BLUE, (Color.RED, 1)]


def states(oracle):
    marks = oracle.marks_of(FOREIGN)
    below = [f"t.{mark}" for mark in marks]
    def tensors(keys):
        return {key: torch.full((2,), float(i)) for i, key in enumerate(keys)}

    def objects(keys):
        return {key: i for i, key in enumerate(keys)}
    yield "plain", {"t": tensors(PLAIN), "n": {"a": {key: {"w": torch.ones(1), "v": 3} for key in PLAIN}}, "x": 1}, {}
    yield "objects", {"o": objects(PLAIN), "w": torch.ones(1), "deep": [{"b": objects([None, 2.5])}]}, {}
    yield "root", {**tensors(PLAIN[1:4]), "w": torch.ones(1), "v": 3}, {}
    yield "foreign", {"t": tensors(["a", *FOREIGN]), "x": 1}, dict(zip(FOREIGN, below))
    yield "foreign alone", {"t": tensors(FOREIGN), "x": 1}, dict(zip(FOREIGN, below))
    yield "foreign root alone", tensors(FOREIGN), dict(zip(FOREIGN, marks))
    yield "foreign root", {**tensors(FOREIGN), "x": 1}, dict(zip(FOREIGN, marks))
    yield "foreign objects", {"o": objects(FOREIGN), "w": torch.ones(1)}, None  # one object, whole except in JSON


def as_text(value, lost):
    """The value with lost keys replaced by their names."""
    if not isinstance(value, dict):
        return value
    names = {key: name.split(".")[-1] for key, name in lost.items()}
    return {names.get(key, key): as_text(item, lost) for key, item in value.items()}


def check_keys(oracle):
    for name, state, lost in states(oracle):
        source = oracle.work / f"{name}.pt"
        torch.save(state, source)
        middle = {"pt": oracle.work / f"{name}.there.pt", "dcp": oracle.work / f"{name}_dcp", "hf": oracle.work / f"{name}_hf",
                  "safetensors": oracle.work / f"{name}.safetensors", "torch-checkpointing": oracle.work / f"{name}_tc"}
        for to, there in middle.items():
            case, back = f"{name} by {to}", oracle.work / f"{name}_{to}_back.pt"
            status, out, err = oracle.run("convert", source, there, "--to", to)
            said = out + err
            if not oracle.check(status == 0, case, said):
                continue
            holds_all = to in ("pt", "torch-checkpointing")
            is_lost = lost is not None and lost and not holds_all
            note = f"{len(lost or {})} Python-only dict keys become text in"
            listed = ": " + ", ".join((lost or {}).values())
            oracle.check((note in said and listed in said) == bool(is_lost), case, f"says {said}")
            if name == "plain" and to == "dcp":  # one per dict
                oracle.check(f"{2 * len(PLAIN) - 4} Python-only dict keys become text for PyTorch's" in said, case, said)
            oracle.succeeds(case, "diff", source, there)
            if lost is None and to in ("safetensors", "hf"):
                continue # JSON has only the type: nothing_left.py
            if oracle.succeeds(case, "convert", there, back) is None:
                continue
            if "root" in name and to == "torch-checkpointing":  # items have names
                keys = [key for key in state if not isinstance(key, str)]
                oracle.check(f"{len(keys)} keys of the root that are not text become names of items" in said, case, said)
                found = torch.load(back, weights_only=False)
                oracle.check(all(isinstance(key, str) for key in found) and len(found) == len(state), case, f"gives {found}")
                continue
            loads_as(oracle, case, back, as_text(state, lost) if is_lost else state)


def check_names_alone(oracle):
    """Formats without a document of objects have only names. Integers are told from text as --nest does."""
    keys = PLAIN + FOREIGN
    lost = [key for key in keys if type(key) is not int or len(str(key)) > 15]
    source = oracle.work / "names.pt"
    torch.save({"t": {key: torch.full((2,), float(i)) for i, key in enumerate(keys)}}, source)
    for to, ending in (("safetensors", "safetensors"), ("hf", "hf"), ("npz", "npz"), ("gguf", "gguf")):
        case, there = f"names alone in {to}", oracle.work / f"names.{ending}"
        status, out, err = oracle.run("convert", source, there, "--to", to)
        oracle.check(status == 0 and f"{len(lost)} Python-only dict keys become text in" in out + err, case, f"says {out + err}")
        oracle.succeeds(case, "diff", source, there)
    # GGUF keeps the names of objects, but not their paths.
    torch.save({"o": {"w": torch.ones(1), None: 3, 1.5: "text"}}, source)
    status, out, err = oracle.run("convert", source, oracle.work / "objects.gguf", "--to", "gguf")
    oracle.check(status == 0 and "2 Python-only dict keys become text in names of the GGUF file: o.None, o.1.5" in err,
                 "keys of objects in gguf", f"exits {status}: {out + err}")


def check_like_keys(oracle):
    """1 and "1" in one dict are two keys."""
    for name, state in (("nested", {"m": {1: {"a": torch.ones(2)}, "1": {"b": torch.zeros(3), "c": 4}}}),
                        ("mixed", {"m": {1: {"a": 7}, "1": {"b": torch.zeros(3)}, "x": torch.ones(1)}}),
                        ("empty", {"m": {1: {"a": torch.ones(2)}, "1": {}}}),
                        ("empty_integer", {"m": {"1": {"a": torch.ones(2)}, 1: {}}}),
                        ("empty_by_object", {"m": {1: {"a": 7}, "1": {}, "x": torch.ones(1)}}),
                        ("empty_none", {"m": {None: {"a": torch.ones(2)}, "None": {}}}),
                        ("empty_long", {"m": {10**15: {"a": torch.ones(2)}, str(10**15): {}}})):
        source = oracle.work / f"like_{name}.pt"
        torch.save(state, source)
        for to in ("torch-checkpointing", "dcp", "pt", "hf"):
            there, back = oracle.work / f"like_{name}_{to}{'.pt' if to == 'pt' else ''}", oracle.work / f"like_{name}_{to}_back.pt"
            oracle.succeeds(f"like keys {name} {to}", "convert", source, there, "--to", to)
            oracle.succeeds(f"like keys {name} {to}", "convert", there, back)
            loads_as(oracle, f"like keys {name} {to}", back, state)
    for name, state in (("root", {1: {"a": torch.ones(2)}, "1": {"b": torch.zeros(3)}}), ("leaf", {1: torch.ones(2), "1": {"b": 3}}),
                        ("none", {None: {"a": torch.ones(2)}, "None": {"b": torch.zeros(3)}})):
        source, there = oracle.work / f"items_{name}.pt", oracle.work / f"items_{name}_tc"
        torch.save(state, source)
        status, _, err = oracle.run("convert", source, there, "--to", "torch-checkpointing")
        text = "None" if name == "none" else "1"
        oracle.check(status == 1 and str(source) in err and f"two keys of the root, {text} and \"{text}\", would be one item" in err
                     and "--item" in err and not there.exists(), f"items {name}", f"exits {status}: {err}")
        oracle.succeeds(f"items {name}", "convert", source, there, "--to", "torch-checkpointing", "--item", "all")
        oracle.succeeds(f"items {name}", "convert", there, oracle.work / f"items_{name}_back.pt")
        loads_as(oracle, f"items {name}", oracle.work / f"items_{name}_back.pt", {"all": state})


def check_package_folders(oracle):
    """A folder whose file has keys that the metadata does not name, as the package itself saves items without a
    resharder."""
    state = {"by_color": {Color.RED: torch.ones(2), Color.BLUE: {None: torch.zeros(1)}}, "n": {1.5: 2}}
    source, folder = oracle.work / "item.pt", oracle.work / "item_tc"
    torch.save({"item": {"w": torch.ones(1)}}, source)
    oracle.succeeds("package", "convert", source, folder, "--to", "torch-checkpointing")
    (folder / ".shardmesh_checksums").unlink()
    torch.save(state, folder / "other_0.pt")
    oracle.succeeds("package", "convert", folder, oracle.work / "package_back.pt")
    loads_as(oracle, "package", oracle.work / "package_back.pt", {"item": {"w": torch.ones(1)}, "other": state})


def check_snapshot(oracle):
    """Keys of torchsnapshot's dicts follow its manifest: integers, bools, and text."""
    folder = oracle.work / "snapshot"
    folder.mkdir()
    (folder / "data").write_bytes(struct.pack("<4f", 1, 2, 3, 4))

    def number(value):
        return {"type": "int", "serialized_value": str(value), "replicated": False, "readable": None}

    def tensor(begin):
        return {"type": "Tensor", "location": "data", "serializer": "buffer_protocol", "dtype": "torch.float32", "shape": [2],
                "replicated": False, "byte_range": [begin, begin + 8]}
    manifest = {
        "0/o": {"type": "dict", "keys": ["state", "7", "groups", "big"]}, "0/o/7": number(1),
        "0/o/state": {"type": "OrderedDict", "keys": [0, -5, True, "s/"]},
        "0/o/state/0": {"type": "dict", "keys": ["exp_avg", 3]}, "0/o/state/0/exp_avg": tensor(0), "0/o/state/0/3": number(4),
        "0/o/state/-5": {"type": "dict", "keys": [1]}, "0/o/state/-5/1": tensor(8), "0/o/state/True": number(5),
        "0/o/state/s%2F": number(6), "0/o/big": {"type": "dict", "keys": [10**17, 2**63, 2**70, -2**70]}, f"0/o/big/{10**17}": number(8),
        f"0/o/big/{2**63}": number(9), f"0/o/big/{2**70}": number(10), f"0/o/big/{-2**70}": number(11),
        "0/o/groups": {"type": "list"}, "0/o/groups/0": {"type": "dict", "keys": [2]}, "0/o/groups/0/2": number(7)}
    expected = {"o": {"state": {0: {"exp_avg": torch.tensor([1., 2.]), 3: 4}, -5: {1: torch.tensor([3., 4.])}, True: 5, "s/": 6},
                      "7": 1, "groups": [{2: 7}], "big": {10**17: 8, 2**63: 9, 2**70: 10, -2**70: 11}}}
    (folder / ".snapshot_metadata").write_text(json.dumps({"version": "0.1.0", "world_size": 1, "manifest": manifest}))
    for number_of_way, way in enumerate((["pt"], ["dcp", "pt"], ["hf", "pt"], ["torch-checkpointing", "pt"])):
        now = folder
        for to in way:
            made = oracle.work / f"snapshot_{number_of_way}_{to}{'.pt' if to == 'pt' else ''}"
            oracle.succeeds(f"snapshot by {way}", "convert", now, made, "--to", to)
            now = made
        loads_as(oracle, f"snapshot by {way}", now, expected)


def check_optimizer(oracle):
    """The case for which keys matter: an optimizer's state, loaded from a snapshot."""
    try:
        from torchsnapshot import Snapshot, StateDict
    except Exception as error:  # an old package: newer PyTorch may not import it
        print(f"skipped: torchsnapshot cannot be imported ({type(error).__name__})")
        return
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    folder, back = oracle.work / "taken", oracle.work / "taken.pt"
    Snapshot.take(str(folder), {"optimizer": optimizer, "more": StateDict(a={1: torch.ones(2), "b": {2: 3}})})
    oracle.succeeds("optimizer", "convert", folder, back)
    found = torch.load(back)
    other = torch.optim.Adam(torch.nn.Linear(2, 3).parameters(), lr=0.5)
    other.load_state_dict(found["optimizer"])
    oracle.check(same(other.state_dict(), optimizer.state_dict()), "optimizer", f"loads {other.state_dict()}")
    oracle.check(same(found["more"], {"a": {1: torch.ones(2), "b": {2: 3}}}), "optimizer", f"gives {found['more']}")


class Hashed:
    """A key that only Python has."""

    def __init__(self, parts):
        self.parts = parts


def check_hostile(oracle):
    """Keys that share a large part are not written out for each entry."""
    for name, shared, count in (("long", Hashed(tuple(range(100, 1000))), 100_000), ("small", Hashed((1,)), 2000)):
        file, back = oracle.work / f"keys_{name}.pt", oracle.work / f"keys_{name}_back.pt"
        tensor = torch.ones(1)
        torch.save({"d": {(shared, i): tensor for i in range(count)}}, file)
        status, out, err = oracle.run("convert", file, back, timeout=20)
        if name == "small":
            found = torch.load(back, weights_only=False)["d"] if oracle.check(status == 0, "hostile", out + err) else {}
            oracle.check(len(found) == count and {key[1] for key in found} == set(range(count)), "hostile", f"gives {len(found)} keys")
        else:
            oracle.check(status == 1 and "an object with 1 tensor inside" in err, "hostile", f"exits {status}: {err[-300:]}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    check_keys(oracle)
    check_names_alone(oracle)
    check_like_keys(oracle)
    check_package_folders(oracle)
    check_snapshot(oracle)
    check_optimizer(oracle)
    check_hostile(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
