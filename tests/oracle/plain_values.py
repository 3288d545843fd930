# SPDX-License-Identifier: Apache-2.0
"""Plain data that goes through safetensors and Hugging Face folders keeps its values: random integers of any size,
bytes, and nested ordered dicts; twice over, as .pt (which torch.load(weights_only=True) reads) and as DCP. Pickles
of Python 2, whose ordered dicts are calls with a list of pairs, are read as PyTorch reads them. Objects of unknown
types are the same after a conversion from any protocol, although protocol 2 spells some of their parts as calls."""
import datetime
import pickle
import random
import time
import types
from collections import OrderedDict

from common import Oracle, need_torch, seed as common_seed

need_torch()
import torch  # noqa: E402

EDGES = sorted({sign * (1 << bits) + near for bits in (7, 15, 31, 53, 62, 63, 64, 127, 128, 1000, 2039, 2040)
                for sign in (-1, 1) for near in (-1, 0, 1)})


def value(dice, depth=0):
    leaves = (lambda: dice.choice(EDGES), lambda: dice.randrange(-2**90, 2**90), lambda: dice.randbytes(dice.randrange(5)),
              lambda: bytearray(dice.randbytes(3)), lambda: dice.choice(["", "x", "ä\n"]), lambda: dice.random(), lambda: None,
              lambda: True, lambda: complex(dice.random(), -0.0), lambda: float("inf"))
    nodes = (lambda: tuple(value(dice, depth + 1) for _ in range(dice.randrange(4))),
             lambda: [value(dice, depth + 1) for _ in range(dice.randrange(4))],
             lambda: OrderedDict((f"k{i}", value(dice, depth + 1)) for i in range(dice.randrange(4))),
             lambda: {dice.choice(["a", 3, 2**70, (1, "b")]): value(dice, depth + 1)},
             lambda: {dice.randrange(9) for _ in range(3)}, lambda: frozenset("ab"))
    return dice.choice(leaves if depth > 3 or dice.random() < 0.5 else nodes)()


def same(a, b):
    """Compares with types, and the order of ordered dicts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else repr(a) == repr(b)


def through_safetensors(oracle):
    dice = random.Random(common_seed())
    state = {"w": torch.arange(5.), "edges": tuple(EDGES), **{f"v{i}": (value(dice),) for i in range(150)}}
    source, other = oracle.work / "source.pt", None
    torch.save(state, source)
    for number, way in enumerate(("st.safetensors", "hf", "again.safetensors")):
        middle, back, dcp = oracle.work / f"{number}_{way}", oracle.work / f"{number}.pt", oracle.work / f"{number}_dcp"
        oracle.succeeds(way, "convert", other or source, middle, "--to", way.split(".")[-1])
        if oracle.succeeds(way, "convert", middle, back) is None:
            continue
        oracle.succeeds(way, "convert", middle, dcp, "--to", "dcp")
        for found in (middle, back, dcp):
            oracle.succeeds(way, "diff", source, found)
        read = torch.load(back, weights_only=False)
        wrong = [key for key in state if key not in read or not same(state[key], read[key])]
        oracle.check(not wrong and len(read) == len(state), way, f"differ: {[(k, state[k], read.get(k)) for k in wrong[:3]]}")
        other = back
    plain = {"w": torch.ones(2), "seed": 2**64 - 1, "least": -2**63 - 1, "o": (OrderedDict(a=1, b=b"\xff\0"),), "b": b"\x80"}
    torch.save(plain, oracle.work / "plain.pt")
    oracle.succeeds("weights_only", "convert", oracle.work / "plain.pt", oracle.work / "plain.safetensors")
    oracle.succeeds("weights_only", "convert", oracle.work / "plain.safetensors", oracle.work / "plain_back.pt")
    oracle.check(same(plain, {k: torch.load(oracle.work / "plain_back.pt", weights_only=True)[k] for k in plain}), "weights_only",
                 "torch.load(weights_only=True) gives other values")


class Pickler2(pickle._Pickler):
    dispatch = dict(pickle._Pickler.dispatch)

    def pairs(self, items):
        self.save_reduce(OrderedDict, ([[key, item] for key, item in items.items()],), state=vars(items) or None, obj=items)
    dispatch[OrderedDict] = pairs


PYTHON2 = types.SimpleNamespace(__name__="python2", Pickler=Pickler2, dump=lambda value, file, protocol: Pickler2(file, protocol).dump(value))


def from_python2(oracle):
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2, bias=False))
    for name, state in (("model", model.state_dict()), ("nested", {"m": model.state_dict(), "n": (OrderedDict(x=3),)})):
        for is_zip in (False, True):
            case = f"python 2, {name}, {'zip' if is_zip else 'legacy'}"
            file, back = oracle.work / f"{name}_{is_zip}.pt", oracle.work / f"{name}_{is_zip}_back.pt"
            torch.save(state, file, pickle_module=PYTHON2, _use_new_zipfile_serialization=is_zip)
            if oracle.succeeds(case, "convert", file, back) is not None:
                expected, found = torch.load(file, weights_only=True), torch.load(back, weights_only=True)
                flat, got = (expected["m"], found["m"]) if name == "nested" else (expected, found)
                oracle.check(list(got) == list(flat) and all(torch.equal(got[k], flat[k]) for k in flat), case, f"gives {list(got)}")
                oracle.check(name == "model" or same(found["n"], expected["n"]), case, f"gives {found.get('n')}")
    # One list that occurs many times is counted each time.
    many = b"\x80\x02(" + b"]q\0(" + b"]q\1(K\1K\2e" + b"h\1" * 5000 + b"e0" + b"ccollections\nOrderedDict\nq\2" + b"h\2h\0\x85R" * 200000 + b"t."
    (oracle.work / "many.pt").write_bytes(many)
    status, _, err = oracle.run("inspect", oracle.work / "many.pt")
    oracle.check(status == 1 and "more memory than its size justifies" in err, "many", f"exits {status}: {err[-300:]}")


class Outer:
    class Inner:
        def __init__(self, *content):
            self.content = content


def from_every_protocol(oracle):
    day = datetime.date(2020, 1, 2)
    content = (b"\xff\0", b"", bytearray(b"\1"), {1, 2}, frozenset([3]), day)
    state = {"w": torch.ones(2), "i": Outer.Inner(*content), "class": Outer.Inner, "t": {day: torch.ones(1)}}
    first = oracle.work / "protocol_2.pt"
    torch.save(state, first)
    for protocol in range(2, 6):
        for kind in ("zip", "legacy", "pickle"):
            case, file = f"protocol {protocol}, {kind}", oracle.work / f"{kind}_{protocol}.pt"
            if kind == "pickle":
                with open(file, "wb") as out:
                    pickle.dump(state, out, protocol=protocol)
            else:
                torch.save(state, file, pickle_protocol=protocol, _use_new_zipfile_serialization=kind == "zip")
            oracle.succeeds(case, "diff", first, file)
            for to in ("pt", "dcp", "torch-checkpointing"):
                there, back = oracle.work / f"{kind}_{protocol}_{to}", oracle.work / f"{kind}_{protocol}_{to}.back.pt"
                if oracle.succeeds(case, "convert", file, there, "--to", to) is None:
                    continue
                oracle.succeeds(case, "diff", file, there)
                if oracle.succeeds(case, "convert", there, back) is None:
                    continue
                found = torch.load(back, weights_only=False)
                oracle.check(found["class"] is Outer.Inner and type(found["i"]) is Outer.Inner and found["i"].content == content
                             and (to == "dcp" or list(found["t"]) == [day]), case, f"by {to}: gives {found}")


def shared_and_long(oracle):
    """A comparison hashes a text once, however often an object refers to it, and makes no decimal digits of a long integer."""
    integer, files = 1 << 3_000_000, []
    for number in (integer, integer, integer + 1):
        files.append(oracle.work / f"long_{len(files)}.pt")
        torch.save({"w": torch.ones(1), "o": Outer.Inner(["x" * 1_000_000] * 100_000, number), "n": [number]}, files[-1])
    begin = time.monotonic()
    oracle.succeeds("long", "diff", files[0], files[1])
    status, out, err = oracle.run("diff", files[0], files[2])
    oracle.check(status == 1 and "2 keys differ" in out, "long", f"exits {status}: {out}{err}")
    oracle.check(time.monotonic() - begin < 10, "long", f"takes {time.monotonic() - begin:.1f} s")


def main():
    oracle = Oracle(__doc__, syncs=False)
    through_safetensors(oracle)
    from_python2(oracle)
    from_every_protocol(oracle)
    shared_and_long(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
