# SPDX-License-Identifier: Apache-2.0
"""Random nested states go from .pt to every target and back: keys that only Python has, empty keys, empty
containers, tuples, and named tuples. `diff` and `verify` find nothing on the way, and torch.load returns the
source's values. The only differences are those in docs/formats.md: tuples with tensors become lists, and enum keys
become text where a target has no pickles."""
import collections
import enum
import json
import os
import random
import shutil

from common import Oracle, need_torch, seed as common_seed

need_torch()
import torch  # noqa: E402

TARGETS = {"pt": ".pt", "torch-checkpointing": "", "dcp": "", "hf": "", "safetensors": ".safetensors"}
ROUNDS, LONG_ROUNDS = 5, 300


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Pair = collections.namedtuple("Pair", "first second")
FOREIGN = (Color.RED, Color.BLUE, (Color.RED, 1))
KEYS = ("", "a", "b", "weight", 0, 7, None, True, 1.5, b"\xff", (1, "x"), frozenset([0]), frozenset(["p", "q", "r"]), torch.float32, *FOREIGN)


class Maker:
    def __init__(self, dice):
        self.dice, self.tensors, self.has_foreign = dice, 0, False

    def tensor(self):
        self.tensors += 1
        return torch.full((self.dice.randrange(1, 4),), float(self.tensors))

    def value(self, depth=0):
        kind = self.dice.random()
        if depth > 3 or kind < 0.4:
            return self.dice.choice((self.tensor, self.tensor, lambda: self.dice.randrange(9), lambda: "text", lambda: None, lambda: {}, lambda: [],
                                     lambda: ()))()
        if kind < 0.55:
            return [self.value(depth + 1) for _ in range(self.dice.randrange(4))]
        if kind < 0.65:
            return tuple(self.value(depth + 1) for _ in range(self.dice.randrange(1, 3)))
        if kind < 0.7:
            return Pair(self.value(depth + 1), self.value(depth + 1))
        keys = self.dice.sample(KEYS, self.dice.randrange(5))
        self.has_foreign = self.has_foreign or any(key in FOREIGN for key in keys)
        return {key: self.value(depth + 1) for key in keys}

    def state(self):
        return {**{name: self.value() for name in self.dice.sample(["k", "l", "m", ""], 3)}, "w": self.tensor()}


def children(value):
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []


def holds_tensor(value):
    return isinstance(value, torch.Tensor) or any(map(holds_tensor, children(value)))


def has_instance(value):
    """Whether JSON stores part of the value only by its type."""
    if isinstance(value, Pair) and not holds_tensor(value):
        return True
    return isinstance(value, dict) and any(key in FOREIGN for key in value) or any(map(has_instance, children(value)))


def as_written(value):
    """The value as written: tuples with tensors become lists."""
    if isinstance(value, dict):
        return {key: as_written(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and holds_tensor(value):
        return [as_written(one) for one in value]
    return value


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        if not isinstance(b, dict) or {(type(key), key) for key in a} != {(type(key), key) for key in b}:
            return False
        return all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def goes_everywhere(oracle, number, state, has_foreign):
    source = oracle.work / f"{number}.pt"
    torch.save(state, source)
    # Without an object, nothing beside the tensors of safetensors stores their nesting.
    has_objects = json.loads(oracle.run("inspect", source, "--json")[1])["objects"]
    for target, ending in TARGETS.items():
        case, there = f"round {number} to {target}", oracle.work / f"{number}_{target}{ending}"
        if oracle.succeeds(case, "convert", source, there, "--to", target) is None:
            continue
        oracle.succeeds(case, "verify", there)
        oracle.succeeds(case, "diff", source, there)
        for way in ("pt", "dcp"):
            back = oracle.work / f"{number}_{target}_{way}{TARGETS[way]}"
            status, _, err = oracle.run("convert", there, back, "--to", way)
            if target in ("hf", "safetensors") and has_instance(state) and "holds only a part of it" in err:
                continue
            if not oracle.check(status == 0, f"{case} to {way}", f"exits {status}: {err[-400:]}"):
                continue
            oracle.succeeds(f"{case} to {way}", "diff", source, back)
            is_nested = target in ("pt", "torch-checkpointing", "dcp") or has_objects
            if way == "pt" and is_nested and (target in ("pt", "torch-checkpointing") or not has_foreign):
                found, expected = torch.load(back, weights_only=False), as_written(state)
                oracle.check(same(expected, found), f"{case} to pt", f"gives {found}, expected {expected}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    seed = common_seed()
    dice = random.Random(seed)
    for number in range(LONG_ROUNDS if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long" else ROUNDS):
        made = Maker(dice)
        state = made.state()
        before = len(oracle.failures)
        goes_everywhere(oracle, number, state, made.has_foreign)
        if len(oracle.failures) > before:
            print(f"SHARDMESH_SEED={seed}, round {number}: {state}")
            break
        shutil.rmtree(oracle.work)
        oracle.work.mkdir()
    oracle.finish()


if __name__ == "__main__":
    main()
