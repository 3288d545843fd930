# SPDX-License-Identifier: Apache-2.0
"""`plan CKPT --map` against NumPy, which numbers the elements of a random model and counts those that each rank holds,
wants, and lacks: the bytes of every rank and link, in both directions of the mapping. Needs NumPy."""
import itertools
import json
import random
import re
import struct

from common import Oracle, skip, seed as common_seed

try:
    import numpy as np
except ImportError as missing:
    skip(str(missing))

ROUNDS = 30
RULES = """left = "parts"
right = "fused"
[sizes]
{sizes}
[rename]
"norm" = "scale"
[[rule]]
left.q = "q"
left.k = "k"
left.v = "v"
right = "qkv"
index = "{index}"
[[rule]]
left = "embed"
right = "embedding"
index = "stored: vocab h -> padded: h [stored:vocab | _:pad]"
"""
INDEX = {True: "q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h",
         False: "q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: [q:(g r d) | k:(g d) | v:(g d)] h"}


def model(dice):
    """(mapping, left, right): arrays of the elements' numbers, from 1. Filler is 0."""
    sizes = {name: dice.randrange(1, 5) for name in ("g", "r", "d", "h", "vocab", "pad")}
    g, r, d, h, vocab, pad = sizes.values()
    numbers, by_group = itertools.count(1), dice.random() < 0.5

    def new(*shape):
        return np.fromiter(itertools.islice(numbers, int(np.prod(shape))), np.int64).reshape(shape)

    q, k, v, norm, embed = new(g * r * d, h), new(g * d, h), new(g * d, h), new(h), new(vocab, h)
    if by_group:
        qkv = np.concatenate([one.reshape(g, -1, h) for one in (q, k, v)], axis=1).reshape(-1, h)
    else:
        qkv = np.concatenate([q, k, v])
    padded = np.concatenate([embed, np.zeros((pad, h), np.int64)]).T
    text = RULES.format(sizes="\n".join(f"{name} = {size}" for name, size in sizes.items()), index=INDEX[by_group])
    return (text, {"q": q, "k": k, "v": v, "norm": norm, "embed": embed},
            {"qkv": qkv, "scale": norm, "embedding": padded})


def write_safetensors(path, arrays):
    header, offset = {}, 0
    for key, array in arrays.items():
        header[key] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + 4 * array.size]}
        offset += 4 * array.size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def chunk(array, parts, at, dimension):
    """The part `at` of torch.chunk."""
    length = array.shape[dimension]
    size = -(-length // parts)
    begin = min(at * size, length)
    return np.take(array, range(begin, min(begin + size, length)), dimension)


def parts_of(array, mesh, placements):
    """The part of each rank, one mesh dimension after the other."""
    made = []
    for coordinate in np.ndindex(*mesh):
        local = array
        for parts, at, placement in zip(mesh, coordinate, placements):
            if placement != "R":
                local = chunk(local, parts, at, int(placement[2:-1]))
        made.append(local)
    return made


def side(dice, arrays):
    """(mesh, default placements, {key: placements}, the parts of each key)"""
    mesh = dice.choice([(1,), (2,), (3,), (5,), (2, 2), (1, 3), (3, 2)])
    default = [dice.choice(("S(0)", "R")) for _ in mesh]
    rules = {key: [dice.choice(("S(0)", "S(1)", "R")) for _ in mesh] for key, array in arrays.items()
             if array.ndim == 2 and dice.random() < 0.5}
    return mesh, default, rules, {key: parts_of(array, mesh, rules.get(key, default)) for key, array in arrays.items()}


def elements(given, rank):
    """The numbers of the elements in a rank's parts of a side, and the bytes of the parts."""
    mine = [parts[rank] for parts in given[3].values() if rank < len(parts)]
    return {int(one) for array in mine for one in array.flat} - {0}, 4 * sum(array.size for array in mine)


def expected_ranks(before, after):
    """Per rank: the bytes before, after, and received."""
    found = []
    for rank in range(max(int(np.prod(given[0])) for given in (before, after))):
        (held, bytes_before), (wanted, bytes_after) = elements(before, rank), elements(after, rank)
        found.append((bytes_before, bytes_after, 4 * len(wanted - held)))
    return found


def arguments(prefix, given):
    mesh, default, rules, _ = given
    made = [f"--{prefix}-mesh", ",".join(map(str, mesh)), f"--{prefix}", ",".join(default)]
    for key, placements in rules.items():
        made += [f"--{prefix}-place", f"{re.escape(key)}={','.join(placements)}"]
    return made


def check(oracle, case, plan, before, after):
    ranks = [(one["bytes_before"], one["bytes_after"], one["received_bytes"]) for one in plan["ranks"]]
    oracle.check(ranks == expected_ranks(before, after), case, f"{ranks}, not {expected_ranks(before, after)}")
    moved = sum(one[2] for one in expected_ranks(before, after))
    totals = (plan["bytes_moved"], plan["lower_bound"], sum(one["sent_bytes"] for one in plan["ranks"]),
              sum(one["bytes"] for one in plan["links"]))
    oracle.check(totals == (moved,) * 4, case, f"{totals}, not {moved}")
    for number, rank in enumerate(plan["ranks"]):
        oracle.check(rank["rank"] == number, case, f"rank {number} is {rank['rank']}")
        sent = sum(one["bytes"] for one in plan["links"] if one["from"] == number)
        received = sum(one["bytes"] for one in plan["links"] if one["to"] == number)
        oracle.check((rank["sent_bytes"], rank["received_bytes"]) == (sent, received), case, f"the links of rank {number}")
    oracle.check(all(one["from"] != one["to"] and one["bytes"] > 0 for one in plan["links"]), case, "an empty link")


def main():
    oracle = Oracle(__doc__)
    dice = random.Random(common_seed())
    for number in range(ROUNDS):
        text, left, right = model(dice)
        rules, file = oracle.work / "rules.toml", oracle.work / "checkpoint.safetensors"
        rules.write_text(text)
        for source, target, more in ((left, right, ["--map", rules]), (right, left, ["--map", rules, "--inverse"]),
                                     (left, left, [])):
            case = f"{number} {' '.join(map(str, more[2:])) or ('mapped' if more else 'plain')}"
            write_safetensors(file, source)
            before, after = side(dice, source), side(dice, target)
            out = oracle.succeeds(case, "plan", file, *arguments("from", before), *arguments("to", after), *more, "--json")
            if out is not None:
                check(oracle, case, json.loads(out), before, after)
    oracle.finish()


if __name__ == "__main__":
    main()
