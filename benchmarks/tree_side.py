# SPDX-License-Identifier: Apache-2.0
"""The peers' side of ./dev bench tree: flatten and unflatten a nested state dict of --entries tensors with
torch.distributed.checkpoint (names_*) and optree (leaves_*), timed --repeat times, as one line of JSON."""
import argparse
import gc
import json
import time

NAMES = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked", "scale", "gate", "qkv_proj.weight",
         "zero_point", "norm"]


def model(entries, leaf):
    """{"layers": [{"block0": {"weight": .., ..}, ..}, ..]}, as in tree_bench.cpp."""
    return {"layers": [{f"block{b}": {name: leaf() for name in NAMES} for b in range(10)} for _ in range(entries // 100)]}


def prepare(case, entries):
    """Returns the function to time, with its input already made."""
    import torch
    state = model(entries, lambda: torch.zeros(1))
    if case.startswith("names"):
        from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
        if case == "names_flatten":
            return lambda: flatten_state_dict(state)
        flat, mapping = flatten_state_dict(state)
        return lambda: unflatten_state_dict(flat, mapping)
    import optree
    if case == "leaves_flatten":
        return lambda: optree.tree_flatten(state)
    leaves, spec = optree.tree_flatten(state)
    return lambda: optree.tree_unflatten(spec, leaves)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=["names_flatten", "names_unflatten", "leaves_flatten", "leaves_unflatten"])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    act = prepare(given.case, given.entries)
    act()
    gc.collect()
    gc.freeze()  # Python's collector must not scan the input
    seconds = []
    for _ in range(given.repeat):
        begin = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"case": given.case, "entries": given.entries, "seconds": seconds}))


if __name__ == "__main__":
    main()
