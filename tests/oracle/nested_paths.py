# SPDX-License-Identifier: Apache-2.0
"""Nested state dicts keep their structure. Random ones with lists, tuples, empty containers, dotted names, and lists
without tensors go through DCP and safetensors and return unchanged. Any selection of their entries is a DCP folder
that PyTorch nests and flattens again to the same keys (dcp_to_torch_save), with the same values."""
import random

from common import Oracle, need_torch, rounds, seed as common_seed

need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402

ROUNDS = rounds(16, 40)


def tree(dice, depth=0):
    kind = dice.random()
    if depth > 3 or (depth > 0 and kind < 0.35):
        return dice.choice((lambda: torch.full((dice.randrange(4),), float(dice.randrange(99))), lambda: dice.randrange(9),
                            lambda: "text", lambda: (1, 2)))()
    if depth > 0 and kind < 0.65:
        return [tree(dice, depth + 1) for _ in range(dice.randrange(4))]
    names = ["a", "b.c", "0", "1", "weight", "ö", "t\tb"]
    return {name: tree(dice, depth + 1) for name in dice.sample(names, dice.randrange(1 if depth == 0 else 0, 4))}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def nested_by_torch(oracle, folder):
    """The state dict, or the error text if there is none."""
    back = oracle.work / "torch.pt"
    try:
        dcp_to_torch_save(folder, back)
    except BaseException as error:  # DCP's failures do not derive from Exception
        return str(error).strip()[-200:]
    return torch.load(back, weights_only=False)


def check_folder(oracle, case, folder, flat):
    """PyTorch's reading of a folder has exactly these keys and values."""
    state = nested_by_torch(oracle, folder)
    if oracle.check(not isinstance(state, str), case, f"dcp_to_torch_save: {state}"):
        found, _ = flatten_state_dict(state)
        oracle.check(same(flat, found), case, f"PyTorch finds {sorted(found)}, expected {sorted(flat)}")
    return state


def loads_as(oracle, case, file, expected):
    found = torch.load(file, weights_only=False)
    oracle.check(same(expected, found), case, f"gives {found}, expected {expected}")


def comes_back(oracle, dice, number):
    """A state dict that PyTorch saves, through every format; `None` if PyTorch itself cannot name its entries."""
    state = tree(dice)
    try:
        flat, _ = flatten_state_dict(state)
    except ValueError:
        return None  # two entries have one name
    case, source = f"round {number}", oracle.work / f"{number}_dcp"
    if not flat:
        return None
    dcp.save(state, checkpoint_id=source, no_dist=True)
    first, second = oracle.work / f"{number}.safetensors", oracle.work / f"{number}_hf"
    oracle.succeeds(case, "convert", source, first)
    oracle.succeeds(case, "convert", first, second, "--to", "hf")
    oracle.succeeds(case, "convert", source, oracle.work / f"{number}.pt")
    oracle.succeeds(case, "diff", source, oracle.work / f"{number}.pt")  # a gap becomes None there
    has_objects = any(not isinstance(value, torch.Tensor) for value in flat.values())
    for middle in (first, second):
        oracle.succeeds(case, "diff", source, middle)
        again, file = oracle.work / f"{middle.name}_dcp", oracle.work / f"{middle.name}_back.pt"
        oracle.succeeds(case, "convert", middle, again, "--to", "dcp")
        oracle.succeeds(case, "convert", middle, file)
        nested = check_folder(oracle, case, again, flat)
        if has_objects:  # otherwise no file stores more than names
            expected = nested_by_torch(oracle, source)  # an error if a list ends with an empty mapping
            oracle.check(isinstance(expected, str) or same(expected, nested), case, f"PyTorch nests {again.name} otherwise")
            loads_as(oracle, case, file, torch.load(oracle.work / f"{number}.pt", weights_only=False))
    through_ranks(oracle, dice, number, source)
    return source, flat


def through_ranks(oracle, dice, number, source):
    """Ranks hold some tensors of a list and not others; its other elements are in the files of all ranks."""
    case, ranks, folder = f"ranks {number}", oracle.work / f"{number}_ranks", oracle.work / f"{number}_folder"
    oracle.succeeds(case, "reshard", source, ranks, "--mesh", "3", "--default", dice.choice(("R", "S(0)")))
    oracle.succeeds(case, "convert", ranks, folder, "--to", "torch-checkpointing")
    oracle.succeeds(case, "verify", folder)
    oracle.succeeds(case, "convert", folder, oracle.work / f"{number}_ranks.pt")
    if (oracle.work / f"{number}_ranks.pt").is_file():
        loads_as(oracle, case, oracle.work / f"{number}_ranks.pt", torch.load(oracle.work / f"{number}.pt", weights_only=False))


def selected(oracle, dice, number, source, flat):
    """Some entries are removed or renamed: the rest is still a folder for PyTorch."""
    gone = set(dice.sample(sorted(flat), dice.randrange(len(flat))))
    renamed = {key for key in sorted(flat) if key not in gone and dice.random() < 0.2}
    case, out = f"selection {number}", oracle.work / f"{number}_selected"
    rules = [word for key in sorted(gone) for word in ("--skip", re_of(key))]
    rules += [word for key in sorted(renamed) for word in ("--rename", f"{re_of(key)}=new.{key}")]
    oracle.succeeds(case, "convert", source, out, "--to", "dcp", *rules)
    left = {("new." + key if key in renamed else key): value for key, value in flat.items() if key not in gone}
    check_folder(oracle, case, out, left)
    # Our formats still know the whole paths.
    straight, through = oracle.work / f"{number}_straight.pt", oracle.work / f"{number}_through.pt"
    oracle.succeeds(case, "convert", source, straight, *rules)
    oracle.succeeds(case, "convert", out, through)
    oracle.check(straight.is_file() and through.is_file(), case, "a file is missing")
    loads_as(oracle, case, through, torch.load(straight, weights_only=False))


def re_of(key):
    return "".join(c if c.isalnum() else "\\" + c for c in key)


def roots_that_are_lists(oracle):
    for name, root in (("tensors", [torch.arange(3.), torch.ones(())]), ("nested", [{"w": torch.ones(2)}, [torch.zeros(1), 3]])):
        file, folder, back = oracle.work / f"{name}.pt", oracle.work / f"{name}_dcp", oracle.work / f"{name}_back.pt"
        torch.save(root, file)
        oracle.succeeds(name, "convert", file, folder, "--to", "dcp")
        oracle.succeeds(name, "convert", folder, back)
        loads_as(oracle, name, back, root)
        names = ("0", "1") if name == "tensors" else ("0.w", "1.0", "1.1")
        values = root if name == "tensors" else (root[0]["w"], *root[1])
        check_folder(oracle, name, folder, dict(zip(names, values)))


def damaged_documents(oracle):
    """A damaged objects.json of our own files is never ignored."""
    source, folder = oracle.work / "damaged.pt", oracle.work / "damaged_hf"
    torch.save({"a": {"w": torch.ones(3)}, "e": 3}, source)
    oracle.succeeds("damaged", "convert", source, folder, "--to", "hf")
    file = folder / "objects.json"
    whole = file.read_bytes()
    (folder / ".shardmesh_checksums").unlink()  # easily lost in a copy
    oracle.succeeds("damaged", "verify", "--strict", folder)
    for name, data in (("empty", b""), ("short", whole[:30]), ("cut", whole[:-20]), ("version", whole.replace(b"objects 1", b"objects 2")),
                       ("letter", whole.replace(b"format", b"form_at")), ("value", whole.replace(b":3", b":4"))):
        file.write_bytes(data)
        for command in (("verify", folder), ("convert", folder, oracle.work / "damaged_back.pt")):
            status, _, err = oracle.run(*command)
            oracle.check(status == 1 and "objects.json" in err, f"damaged {name}", f"{command[0]} exits {status}: {err[-200:]}")
    file.write_bytes(b"{}")  # another program's, beside files that are not ours
    for written in folder.glob("*.safetensors"):
        written.write_bytes(written.read_bytes().replace(b"shardmesh.xxh3", b"anothers_xxh3_"))
    oracle.succeeds("damaged, another's", "verify", folder)


def main():
    oracle = Oracle(__doc__, syncs=False)
    dice, done = random.Random(common_seed()), 0
    for number in range(ROUNDS):
        made = comes_back(oracle, dice, number)
        if made is not None:
            selected(oracle, dice, number, *made)
            done += 1
    oracle.check(done > ROUNDS // 2, "rounds", f"only {done} state dicts had names")
    roots_that_are_lists(oracle)
    damaged_documents(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
