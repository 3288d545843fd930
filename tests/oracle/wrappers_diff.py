# SPDX-License-Identifier: Apache-2.0
"""`diff` of wrapping tensors (sparse of every layout, nested, quantized): a checkpoint equals all that it is converted to, and what
differs is named by the component. torch_checkpointing holds them and gives them back."""
import json
import random

from common import Oracle, need_torch

need_torch()
import torch  # noqa: E402
from wrappers_again import LAYOUTS, compare, random_state  # noqa: E402

FORMS = (("a.safetensors", "source.pt"), ("hf", "source.pt", "--to", "hf"), ("dcp", "source.pt", "--to", "dcp"),
         ("apart", "source.pt", "--to", "dcp", "--components"), ("tc", "source.pt", "--to", "torch-checkpointing"),
         ("tc_apart", "source.pt", "--to", "torch-checkpointing", "--components", "--item", "all"), ("pt_apart.pt", "source.pt", "--components"))


def is_wrapper(value):
    return isinstance(value, torch.Tensor) and (value.is_quantized or value.is_nested or value.layout is not torch.strided)


def changed(rng, tensor):
    """(the same with one number changed, the component that it is in); None where there is none."""
    def put(values):
        if values.numel() == 0:
            return False
        where = tuple(rng.randrange(size) for size in values.shape)
        values[where] = values[where] + 1
        return True

    kept, tensor = tensor, tensor.detach().clone()
    if tensor.is_quantized:
        if tensor.qscheme() != torch.per_tensor_affine or not tensor.is_contiguous():
            return None
        numbers = tensor.int_repr()
        numbers.view(-1)[rng.randrange(numbers.numel())] ^= 1
        tensor, name = torch._make_per_tensor_quantized_tensor(numbers, tensor.q_scale(), tensor.q_zero_point()), "int_repr"
        if numbers.dtype is not kept.int_repr().dtype or tensor.dtype is not kept.dtype:
            return None
    elif tensor.layout is torch.sparse_coo:
        good, name = put(tensor._values()), "values"
    elif tensor.layout in LAYOUTS:
        good, name = put(tensor.values()), "values"
    elif tensor.layout is torch.jagged:
        good, name = put(tensor._values), "values"
    else:
        good, name = put(tensor.values()), "buffer"
    if not kept.is_quantized and not good:
        return None
    return (torch.nn.Parameter(tensor, requires_grad=kept.requires_grad) if isinstance(kept, torch.nn.Parameter) else tensor), name


def check_equal(oracle, seed):
    case, work = f"equal {seed}", oracle.work / f"equal_{seed}"
    work.mkdir()
    torch.save(random_state(seed), work / "source.pt")
    for made, source, *options in FORMS:
        oracle.succeeds(case, "convert", work / source, work / made, *options)
    names = ["source.pt", *(form[0] for form in FORMS)]
    for left in names:
        for right in names:
            prefix = {"--strip-prefix": "all."} if "tc_apart" in (left, right) else {}
            options = [word for pair in prefix.items() for word in pair]
            status, out, err = oracle.run("diff", work / left, work / right, *options)
            oracle.check(status == 0 and out.startswith("equal: "), f"{case} {left} {right}", f"exits {status}: {out}{err[:500]}")
    # The way back, from the ranks' files as from any other format.
    original = torch.load(work / "source.pt", weights_only=True)
    for folder, *options in (("tc",), ("tc_apart", "--strip-prefix", "all.")):
        oracle.succeeds(case, "convert", work / folder, work / f"{folder}.pt", *options)
        loaded = torch.load(work / f"{folder}.pt", weights_only=True)
        compare(oracle, f"{case} {folder}.pt", {key: loaded.get(key) for key in original}, original)


def check_changed(oracle, seed):
    rng, work = random.Random(seed), oracle.work / f"changed_{seed}"
    work.mkdir()
    state = random_state(seed)
    torch.save(state, work / "source.pt")
    found = {key: changed(rng, value) for key, value in state.items() if is_wrapper(value)}
    for key, change in found.items():
        if change is None:
            continue
        case, (tensor, component) = f"changed {seed} {key}", change
        torch.save({**state, key: tensor}, work / "other.pt")
        oracle.succeeds(case, "convert", work / "other.pt", work / "other.safetensors", "--force")
        for other in ("other.pt", "other.safetensors"):
            status, out, err = oracle.run("diff", work / "source.pt", work / other, "--json")
            document = json.loads(out) if status == 1 else {}
            told = [(one["key"], one["what"], one["different"]) for one in document.get("differences", [])]
            oracle.check(told == [(f"{key}.{component}", "values", 1)] and document["equal"] is False, case,
                         f"{other}: exits {status}: {told} {err[:300]}")
            status, out, _ = oracle.run("diff", work / "source.pt", work / other, "--tolerance", "10")
            oracle.check(status == 0, case, f"{other}: exits {status} with a tolerance: {out}")
    return sum(change is not None for change in found.values())


def check_kinds(oracle):
    """What is no number of a component: its size, its shape, its class; a rule of selection means the whole."""
    work = oracle.work / "kinds"
    work.mkdir()
    eye = torch.eye(3)
    left = {"w": eye.to_sparse(), "v": eye}
    rights = {
        "size": ({**left, "w": torch.sparse_coo_tensor(left["w"].indices(), left["w"].values(), (3, 4)).coalesce()}, [("w.wrapper", "object")]),
        "shape": ({**left, "w": torch.eye(2).to_sparse()}, None),
        "class": ({**left, "w": eye.to_sparse_csr()}, None),
        "plain": ({**left, "w": eye}, [("w", "kind")]),
        "dtype": ({**left, "w": eye.double().to_sparse()}, [("w.values", "dtype"), ("w.wrapper", "object")]),
        "left out": ({"v": eye}, [("w", "only-left")]),
    }
    torch.save(left, work / "left.pt")
    for case, (right, wanted) in rights.items():
        torch.save(right, work / "right.pt")
        for made in ("right.pt", "right.safetensors"):
            if made != "right.pt":
                oracle.succeeds(case, "convert", work / "right.pt", work / made, "--force")
            status, out, err = oracle.run("diff", work / "left.pt", work / made, "--json")
            told = sorted((one["key"], one["what"]) for one in json.loads(out)["differences"])
            oracle.check(status == 1 and told and (wanted is None or told == wanted) and all(key.split(".")[0] == "w" for key, _ in told),
                         f"{case} {made}", f"exits {status}: {told} {err}")
            oracle.succeeds(case, "diff", work / "left.pt", work / made, "--skip", "w", "--allow-unused")
    # Two files of components are compared as what they are: names of files that no wrapper is in.
    torch.save(left, work / "right.pt")
    for made in ("one.safetensors", "two.safetensors"):
        oracle.succeeds("components", "convert", work / "right.pt", work / made)
    oracle.succeeds("components", "diff", work / "one.safetensors", work / "two.safetensors", "--only", "w.values")


def main():
    oracle = Oracle(__doc__)
    for seed in range(4):
        check_equal(oracle, seed)
    count = sum(check_changed(oracle, seed) for seed in range(2))
    oracle.check(count >= 20, "changed", f"only {count} tensors could be changed")
    check_kinds(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
