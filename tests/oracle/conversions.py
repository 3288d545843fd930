# SPDX-License-Identifier: Apache-2.0
"""Converts every sample checkpoint to every target and back. `diff` finds no difference between the source and the
output, nor between the source and the result of the way back. Exceptions are listed below with their reasons, and in
docs/formats.md; an exception that no longer applies is a failure. GGUF and NumPy have fewer dtypes: exactly the tensors
of other dtypes are refused by name, and the rest is converted. The ordinary run takes twenty seconds, with a
share of the samples chosen by SHARDMESH_SEED; SHARDMESH_PROPERTY_RUNS=long takes all."""
import fnmatch
import json
import os
import random
import re
import time

from common import Oracle, seed as common_seed

TARGETS = {"dcp": "", "safetensors": ".safetensors", "hf": "", "pt": ".pt", "torch-checkpointing": "", "npz": ".npz", "gguf": ".gguf"}
BUDGET_S = 8
INTEGERS = {"int8", "int16", "int32", "int64"}
# The dtypes of formats with few, and the most dimensions.
HELD = {"npz": ({"bool", "float16", "float32", "float64", "complex64", "complex128", "uint8", "uint16", "uint32", "uint64"} | INTEGERS, 64),
        "gguf": ({"float16", "bfloat16", "float32", "float64"} | INTEGERS, 4)}

# (sample, targets or "*", the refused step, text in the message, reason). docs/formats.md has the same table.
NO_COMPLEX = "safetensors has no complex128"
EXCEPTIONS = [
    ("writers/torchsnapshot/one", "safetensors hf", "convert", "cannot hold complex128", NO_COMPLEX),
    ("writers/torch_checkpointing/one_rank/checkpoint", "safetensors hf", "convert", "cannot hold complex128", NO_COMPLEX),
    ("objects/containers.pt", "*", "convert", "an object with 1 tensor inside", "only Python knows what a call makes of its tensor"),
    ("objects/collision.pt", "*", "convert", "an object with 1 tensor inside", "a part of it has the name of another entry"),
    ("golden/dtypes/checkpoint", "safetensors hf", "convert", "cannot hold complex32", "safetensors has no complex32"),
    ("golden/options_xor/checkpoint", "*", "convert", "an unknown transform", "its bytes went through a program of the writer's"),
    ("gguf/blocks.gguf", "*", "convert", "IQ2_XXS blocks cannot be written", "these blocks need large tables"),
    ("npz/stored.npz", "*", "convert", "NumPy array of texts cannot be written", "no other format has arrays of texts"),
    ("npz/deflated.npz", "*", "convert", "NumPy array of texts cannot be written", "no other format has arrays of texts"),
    ("golden/nested_objects/checkpoint", "gguf", "convert", "GGUF cannot hold uint16", "GGUF has no such dtype, and the tensor is inside an object"),
    ("golden/nested_objects/checkpoint", "safetensors hf npz", "back", "holds only a part of it", "JSON has the type alone of an instance"),
    ("writers/torch_ranks/partial_2/checkpoint", "*", "convert", "a DTensor that is Partial", "its terms were never reduced"),
    ("pickle/cycles.pkl", "safetensors hf npz gguf", "back", "holds only a part of it", "JSON has no references"),
]


class Settings:
    """An instance whose attributes are tensors, dicts, and lists."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def made_samples(oracle):
    """State dicts with shapes that no sample has, and random ones; none without PyTorch."""
    try:
        import torch
    except Exception as error:
        print(f"skipped: the samples that PyTorch makes ({type(error).__name__})")
        return []
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    groups = [{"lr": 0.1, "betas": (0.9, 0.95), "params": [0, 1], "nested": [{"a": None}]}, {}]
    attributes = {"w": torch.ones(2), "config": {"lr": 1, "deep": {"a": [1, {"b": 2}]}, 3: None}, "names": ["x", {"y": 1}], "empty": {}}
    states = {
        "optimizer": optimizer.state_dict(), "schedulers": {"schedulers": [{"step": 3, "lrs": [0.1]}, {"step": 4}], "last": 7},
        "groups": {"param_groups": groups, "w": torch.ones(2)}, "root_list": [{"w": torch.ones(2), "c": {"a": 1}}, {"lr": 0.5}, [torch.zeros(1), {"b": 1}]],
        "instance": {"obj": Settings(**attributes), "n": 1}, "instance_root": Settings(**attributes),
        "tuple": {"t": (torch.ones(1), {"a": {"b": 1}}, [1, {"c": 2}])}, "sharded_objects": {"m._extra_state/shard_0_2": {"a": {"b": 1}}, "w": torch.ones(1)},
        "items": {"model": dict(model.state_dict()), "lists": [[{"a": 1}], [torch.ones(1)]], "empty": {}, "none": None}}
    dice = random.Random(oracle.seed)

    def value(depth):
        kind = dice.random()
        if depth > 3 or kind < 0.4:
            return dice.choice((lambda: torch.full((dice.randrange(1, 4),), float(dice.randrange(99))), lambda: dice.randrange(9), lambda: "text",
                                lambda: (1, {"x": 2}), lambda: None, lambda: b"\xff", lambda: 0.5))()
        if kind < 0.6:
            return [value(depth + 1) for _ in range(dice.randrange(1, 4))]
        if kind < 0.7:
            return Settings(**{name: value(depth + 1) for name in dice.sample("abcd", 2)}, w=torch.ones(1))
        keys = dice.sample(["a", "b", "w", 0, 7, None, True, 1.5, (1, 2), "long name"], dice.randrange(1, 4))
        return {key: value(depth + 1) for key in keys}
    for number in range(8):
        states[f"random_{number}"] = {name: value(0) for name in dice.sample("klmn", 3)}
    folder = oracle.work / "made"
    folder.mkdir()
    for name, state in states.items():
        torch.save(state, folder / f"{name}.pt")
    return [f"made/{name}.pt" for name in states]


def without_opaque(oracle):
    """Files of GGUF and NumPy as the tool writes them: the samples have tensors that nothing can hold."""
    for sample, more in (("gguf/blocks.gguf", ()), ("npz/stored.npz", ("--skip", "none"))):  # `none` is complex128
        file = oracle.work / "made" / sample.split("/")[1]
        file.parent.mkdir(exist_ok=True)
        oracle.succeeds(sample, "convert", oracle.data / sample, file, "--skip-unsupported", *more)
        yield f"made/{file.name}"


def samples(oracle):
    """Every path that opens, by its name below tests/data."""
    found = []
    for folder in sorted(path for path in oracle.data.rglob("*") if path.is_dir()):
        name = str(folder.relative_to(oracle.data))
        if "corrupt" in name or "interrupted" in name or name.startswith(("archive", "pictures", "differences", "casts")):
            continue
        # Expected data is beside a golden checkpoint, and would open in its place.
        if (folder / "checkpoint").is_dir() or any(name.startswith(other + "/") for other in found):
            continue
        if oracle.run("inspect", "--json", folder)[0] == 0:
            found.append(name)
    files = [path for ending in ("*.pt", "*.pth", "*.bin", "*.safetensors", "*.pt2", "*.pkl", "*.ckpt", "*.gguf", "*.npz", "*.npy",
              "*.nemo") for path in oracle.data.rglob(ending)]
    for file in sorted(files):
        name = str(file.relative_to(oracle.data))
        if "corrupt" in name or "interrupted" in name or name.startswith("archive") or file.name == "expected.safetensors":
            continue
        if not any(name.startswith(other + "/") for other in found) and oracle.run("inspect", "--json", file)[0] == 0:
            found.append(name)
    return [name for name in found if oracle.args.only in name]


def exception_for(name, target, step):
    for number, (pattern, targets, at, _, _) in enumerate(EXCEPTIONS):
        if fnmatch.fnmatch(name, pattern) and at == step and (targets == "*" or target in targets.split()):
            return number
    return None


def expect(oracle, case, name, target, step, used, *command):
    """Whether the command succeeds; a listed exception must fail with its text."""
    status, out, err = oracle.run(*command)
    number = exception_for(name, target, step)
    if number is None:
        return oracle.check(status == 0, case, f"`{' '.join(map(str, command))}` exits {status}: {(out + err).strip()[-700:]}")
    used.add(number)
    oracle.check(status == 1 and EXCEPTIONS[number][3] in out + err, case,
                 f"is listed to fail ({EXCEPTIONS[number][3]}), but exits {status}: {(out + err).strip()[-400:]}")
    return status == 0


def left_out(oracle, case, source, there, target):
    """Options that leave out the tensors that the target cannot hold, which the tool must refuse by name. Their dtypes
    are those of a conversion to DCP, which has the components of wrapping tensors as tensors."""
    dtypes, dimensions = HELD[target]
    whole = oracle.work / "left_out"
    if oracle.run("convert", source, whole, "--to", "dcp", "--components", "--force")[0] != 0:
        whole = source
    described = json.loads(oracle.run("inspect", whole, "--json")[1])
    wanted = {key for key, tensor in described["tensors"].items()
              if tensor["dtype"] not in dtypes or len(tensor["shape"]) > dimensions}
    if not wanted:
        return []
    status, out, err = oracle.run("convert", source, there, "--to", target, "--json")
    document = json.loads(out)
    named = {problem["key"] for problem in document["problems"]}
    oracle.check(status == 1 and named == wanted and document["more_problems"] == 0 and not there.exists(), case,
                 f"exits {status} and refuses {sorted(named)}, expected {sorted(wanted)}: {err[:600]}")
    # A wrapping tensor is left out with all of its components.
    wrapping = [key.removesuffix(".wrapper") for key in described["objects"] if key.endswith(".wrapper")]
    names = {next((name for name in wrapping if key.startswith(name + ".")), key) for key in wanted}
    return [word for name in sorted(names) for word in ("--skip", re.escape(name) + r"(\..*)?")]


def goes_there_and_back(oracle, name, target, used):
    source, case = (oracle.work if name.startswith("made/") else oracle.data) / name, f"{name} to {target}"
    stem = f"{name.replace('/', '_')}_{target}"
    there = oracle.work / (stem + TARGETS[target])
    is_narrow = target in HELD and exception_for(name, target, "convert") is None
    skipped = left_out(oracle, case, source, there, target) if is_narrow else []
    if not expect(oracle, case, name, target, "convert", used, "convert", source, there, "--to", target, *skipped):
        return
    compared = [*skipped, *(["--allow-unused"] if skipped else [])]
    expect(oracle, case, name, target, "diff", used, "diff", source, there, *compared)
    for way in ("pt", "dcp"):
        back = oracle.work / f"{stem}_back{TARGETS[way]}"
        if expect(oracle, f"{case} and back to {way}", name, target, "back", used, "convert", there, back, "--to", way):
            expect(oracle, f"{case} and back to {way}", name, target, "diff", used, "diff", source, back, *compared)


def main():
    oracle = Oracle(__doc__, syncs=False)
    is_long = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
    oracle.seed = seed = common_seed()
    names = samples(oracle)
    oracle.check(len(names) > (0 if oracle.args.only else 60), "samples", f"only {len(names)} were found")
    names += [name for name in (*made_samples(oracle), *without_opaque(oracle)) if oracle.args.only in name]
    cases = [(name, target) for name in names for target in TARGETS]
    random.Random(seed).shuffle(cases)
    used, begin, done = set(), time.monotonic(), 0
    for name, target in cases:
        if not is_long and time.monotonic() - begin > BUDGET_S:
            break
        goes_there_and_back(oracle, name, target, used)
        done += 1
    if done == len(cases) and not oracle.args.only:
        for number, (pattern, targets, step, _, reason) in enumerate(EXCEPTIONS):
            oracle.check(number in used, f"{pattern} to {targets}", f"the exception at {step} is met no more: {reason}")
    print(f"SHARDMESH_SEED={seed}: {done} of {len(cases)} conversions of {len(names)} samples")
    oracle.finish()


if __name__ == "__main__":
    main()
