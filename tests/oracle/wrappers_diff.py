# SPDX-License-Identifier: Apache-2.0
"""`diff` of wrapping tensors (sparse of every layout, nested, quantized): a checkpoint equals all its conversions,
and differences are named by component. torch_checkpointing stores wrapping tensors and returns them."""
import json
import random
import shutil

from common import Oracle, need_torch, rounds

need_torch()
import torch  # noqa: E402
from wrappers_again import LAYOUTS, compare, random_state  # noqa: E402

FORMS = (("a.safetensors", "source.pt"), ("hf", "source.pt", "--to", "hf"), ("dcp", "source.pt", "--to", "dcp"),
         ("apart", "source.pt", "--to", "dcp", "--components"), ("tc", "source.pt", "--to", "torch-checkpointing"),
         ("tc_apart", "source.pt", "--to", "torch-checkpointing", "--components", "--item", "all"), ("pt_apart.pt", "source.pt", "--components"))


def is_wrapper(value):
    return isinstance(value, torch.Tensor) and (value.is_quantized or value.is_nested or value.layout is not torch.strided)


def changed(rng, tensor):
    """Returns (the tensor with one number changed, the name of the component); None if it has no number."""
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
            told = [(one["key"], one["kind"], one["different"]) for one in document.get("differences", [])]
            oracle.check(told == [(f"{key}.{component}", "values", 1)] and document["equal"] is False, case,
                         f"{other}: exits {status}: {told} {err[:300]}")
            status, out, _ = oracle.run("diff", work / "source.pt", work / other, "--tolerance", "10")
            oracle.check(status == 0, case, f"{other}: exits {status} with a tolerance: {out}")
    return sum(change is not None for change in found.values())


def check_kinds(oracle):
    """Differences in size, shape, or class, rather than in a component's numbers; a selection rule applies to the
    whole."""
    work = oracle.work / "kinds"
    work.mkdir()
    eye = torch.eye(3)
    left = {"w": eye.to_sparse(), "v": eye}
    rights = {
        "size": ({**left, "w": torch.sparse_coo_tensor(left["w"].indices(), left["w"].values(), (3, 4)).coalesce()}, [("w.wrapper", "object")]),
        "shape": ({**left, "w": torch.eye(2).to_sparse()}, None),
        "class": ({**left, "w": eye.to_sparse_csr()}, None),
        "plain": ({**left, "w": eye}, [("w", "kind")]),
        "dtype": ({**left, "w": eye.double().to_sparse()}, [("w.values", "dtype")]),
        "left out": ({"v": eye}, [("w", "only-left")]),
    }
    torch.save(left, work / "left.pt")
    for case, (right, wanted) in rights.items():
        torch.save(right, work / "right.pt")
        for made in ("right.pt", "right.safetensors"):
            if made != "right.pt":
                oracle.succeeds(case, "convert", work / "right.pt", work / made, "--force")
            status, out, err = oracle.run("diff", work / "left.pt", work / made, "--json")
            told = sorted((one["key"], one["kind"]) for one in json.loads(out)["differences"])
            oracle.check(status == 1 and told and (wanted is None or told == wanted) and all(key.split(".")[0] == "w" for key, _ in told),
                         f"{case} {made}", f"exits {status}: {told} {err}")
            oracle.succeeds(case, "diff", work / "left.pt", work / made, "--skip", "w", "--allow-unused")
    torch.save({**left, "w": eye.double().to_sparse()}, work / "right.pt")
    oracle.succeeds("dtype", "diff", work / "left.pt", work / "right.pt", "--ignore-dtype")
    # Two files of components are compared as they are: by the names in the files, which hold no wrapper.
    torch.save(left, work / "right.pt")
    for made in ("one.safetensors", "two.safetensors"):
        oracle.succeeds("components", "convert", work / "right.pt", work / made)
    oracle.succeeds("components", "diff", work / "one.safetensors", work / "two.safetensors", "--only", "w.values")


def check_unreadable(oracle):
    """One wrapper that cannot be rebuilt or read does not affect the others."""
    work = oracle.work / "unreadable"
    work.mkdir()
    eye = torch.eye(3)
    torch.save({"none": torch.nested.nested_tensor([]), "w": eye.to_sparse_csr(), "v": eye, "q": quantized(3)}, work / "a.pt")
    oracle.succeeds("empty nested", "convert", work / "a.pt", work / "a.safetensors")
    status, out, err = oracle.run("diff", work / "a.pt", work / "a.safetensors")
    told = {line.split(":")[0].split(".")[0] for line in err.splitlines() if "only on the" in line}
    oracle.check(status == 1 and told == {"none"}, "empty nested", f"exits {status}: {err}")
    torch.save({"w": eye.to_sparse_csr(), "v": eye}, work / "b.pt")
    for name in ("whole", "lost"):
        oracle.succeeds("lost", "convert", work / "b.pt", work / name, "--to", "dcp")
    (work / "lost" / "__0_0.distcp").unlink()
    status, out, err = oracle.run("diff", work / "whole", work / "lost")
    oracle.check(status == 1 and sorted(line.split(": ")[:2] for line in err.splitlines()) == [["v", "cannot be read"], ["w", "cannot be read"]],
                 "lost", f"exits {status}: {err}")
    document = json.loads(oracle.run("diff", work / "whole", work / "lost", "--json")[1])
    oracle.check(sorted(problem["text"] for problem in document["problems"]) == sorted(err.splitlines()), "lost", f"{document['problems']}: {err}")
    # A damaged archive has no known kind.
    shutil.copytree(oracle.data / "writers" / "wrappers" / "dcp", work / "damaged")
    damaged = bytearray((work / "damaged" / "__0_0.distcp").read_bytes())
    end = damaged.find(b"PK\x05\x06")
    damaged[end:end + 2] = b"XX"
    (work / "damaged" / "__0_0.distcp").write_bytes(damaged)
    status, out, err = oracle.run("diff", oracle.data / "writers" / "wrappers" / "dcp", work / "damaged")
    oracle.check(status == 1 and err.count("\n") == 1 and err.startswith("m.int8: cannot be read: "), "damaged", f"exits {status}: {err}")
    # The error names the side that lacks it.
    for name in ("ours", "theirs"):
        oracle.succeeds("lost", "convert", work / "whole", work / name, "--to", "torch-checkpointing", "--item", "m")
    (work / "theirs" / "m_0.pt").unlink()
    status, out, err = oracle.run("diff", work / "ours", work / "theirs")
    oracle.check(status == 1 and f"m.v: cannot be read: {work.name}/theirs: " in err.replace(str(oracle.work) + "/", ""), "lost", f"exits {status}: {err}")
    # The output shows exactly what differs.
    torch.save({"q": quantized(3)}, work / "c.pt")
    torch.save({"q": quantized(4)}, work / "d.pt")
    status, out, err = oracle.run("diff", work / "c.pt", work / "d.pt")
    oracle.check(status == 1 and err == "q.wrapper: {'zero_point': 3} against {'zero_point': 4}\n", "zero point", f"exits {status}: {err}")


def quantized(zero_point):
    return torch._make_per_tensor_quantized_tensor(torch.ones(2, 2, dtype=torch.uint8), 0.1, zero_point)


def check_parts(oracle):
    """DCP objects that are tensors are also tensors if the folder is one of several parts."""
    work = oracle.work / "parts"
    work.mkdir()
    state = random_state(0)
    torch.save(state, work / "source.pt")
    rng = random.Random(0)
    torch.save({**state, "random_coo0": changed(rng, state["coo_parameter"])[0]}, work / "other.pt")
    for name in ("source", "other"):
        (work / name).mkdir()
        oracle.succeeds("parts", "convert", work / f"{name}.pt", work / name / "d", "--to", "dcp")
        torch.save({"step": 3}, work / name / "scheduler.pt")
    for made in ("a.safetensors", "a.pt"):
        oracle.succeeds("parts", "convert", work / "source", work / made, "--all")
        oracle.succeeds("parts", "diff", work / "source", work / made, "--all")
    oracle.succeeds("parts", "convert", work / "a.safetensors", work / "back.pt")
    for made in ("a.pt", "back.pt"):
        loaded = torch.load(work / made, weights_only=True)["d"]
        compare(oracle, f"parts {made}", {key: loaded.get(key) for key in state}, torch.load(work / "source.pt", weights_only=True))
    status, out, err = oracle.run("diff", work / "source", work / "other", "--all")
    oracle.check(status == 1 and all(line.startswith("d.random_coo0") for line in err.splitlines()), "parts", f"exits {status}: {out}{err}")


def check_ranks(oracle):
    """Ranks that have different wrappers under one name: a problem that names file and key, or one entry each."""
    eye = torch.eye(3)
    pairs = {"values": (eye.to_sparse(), 2 * eye.to_sparse()), "csr": (eye.to_sparse_csr(), (2 * eye).to_sparse_csr()), "class": (eye.to_sparse(), eye.to_sparse_csr()),
             "zero point": (quantized(3), quantized(4))}
    for case, (first, second) in pairs.items():
        folder = oracle.work / f"ranks_{case.replace(' ', '_')}"
        folder.mkdir()
        for rank, mine in enumerate((first, second)):
            torch.save({"x": mine, "same": eye.to_sparse(), "rng": {"state": mine}, "e": {}, "o": {"state": {}, "lr": 1}}, folder / f"model_world_size_2_rank_{rank}.pt")
        for command in (["verify", folder], ["convert", folder, folder.with_suffix(".pt")]):
            status, _, err = oracle.run(*command)
            lines = [line for line in err.splitlines() if not line.startswith(("note: ", "warning: "))]
            oracle.check(status == 1 and len(lines) == 1 and "rank_1.pt: x: " in lines[0], f"ranks {case}", f"{command[0]} exits {status}: {err}")
        if case == "class":
            continue
        torch.save({"x": first, "same": eye.to_sparse(), "rng": {"state": second}, "e": {}, "o": {"state": {}, "lr": 1}}, folder / "model_world_size_2_rank_1.pt")
        oracle.succeeds(f"ranks {case}", "convert", folder, folder.with_suffix(".pt"))
        made = torch.load(folder.with_suffix(".pt"), weights_only=True)
        wanted = {"x": first, "same": eye.to_sparse()}
        compare(oracle, f"ranks {case}", {key: made.get(key) for key in wanted}, wanted)
        compare(oracle, f"ranks {case}", made["rng"]["state"], {"rank_0": first, "rank_1": second})
        oracle.check(made["e"] == {} and made["o"] == {"state": {}, "lr": 1}, f"ranks {case}", f"empty dicts become {made['e']}, {made['o']}")
    # An empty dict on one rank is not an entry, and another value is a problem.
    folder = oracle.work / "ranks_nothing"
    folder.mkdir()
    torch.save({"a": {"b": 1, "t": eye}}, folder / "model_world_size_2_rank_0.pt")
    for other, good in (({}, True), (5, False)):
        torch.save({"a": other}, folder / "model_world_size_2_rank_1.pt")
        status, out, err = oracle.run("convert", folder, oracle.work / f"nothing_{good}.pt")
        oracle.check((status == 0) == good, "ranks nothing", f"exits {status}: {err}")
    oracle.check(list(torch.load(oracle.work / "nothing_True.pt", weights_only=True)["a"]) == ["t", "b"], "ranks nothing", "other entries")


def check_names(oracle):
    """Keys that are empty, or that are prefixes of other keys."""
    state = {"": torch.eye(3).to_sparse(), "m": {"": torch.eye(2).to_sparse_csr()}, "a": torch.eye(2).to_sparse(), "a.b": torch.eye(4).to_sparse_csr()}
    torch.save(state, oracle.work / "names.pt")
    for made, source in (("names.safetensors", "names.pt"), ("names_again.pt", "names.safetensors"), ("names_copy.pt", "names.pt")):
        oracle.succeeds("names", "convert", oracle.work / source, oracle.work / made)
        oracle.succeeds("names", "diff", oracle.work / "names.pt", oracle.work / made)
    for made in ("names_again.pt", "names_copy.pt"):
        loaded = torch.load(oracle.work / made, weights_only=True)
        compare(oracle, f"names {made}", {key: loaded.get(key) for key in ("", "a", "a.b")}, {key: state[key] for key in ("", "a", "a.b")})
        compare(oracle, f"names {made}", loaded["m"], state["m"])


def check_changed_components(oracle):
    """Changes of single components by a rule are reported if there is no way back."""
    eye, work = torch.eye(3), oracle.work / "rules"
    work.mkdir()
    torch.save({"x": eye.to_sparse(), "y": eye.to_sparse(), "t": eye}, work / "a.pt")
    for number, (options, lost) in enumerate(((["--dtype", "float16"], "x, y"), (["--rename", r"x\.values=x.v"], "x"), (["--skip", r"y\.indices"], "y"),
                                              (["--dedup=equal"], "y"), (["--skip", r"x\..*"], ""), (["--rename", r"x\.(.*)=z.\1"], ""), ([], ""))):
        status, _, err = oracle.run("convert", work / "a.pt", work / f"{number}.safetensors", *options)
        said = [line.rpartition(": ")[2] for line in err.splitlines() if "cannot be rebuilt" in line]
        oracle.check(status == 0 and said == ([lost] if lost else []), f"rules {options}", f"exits {status}: {err}")


def check_notes(oracle):
    """A note names the tensors that were rebuilt, but none that the source stores whole."""
    eye, work = torch.eye(3), oracle.work / "notes"
    work.mkdir()
    torch.save({"x": eye.to_sparse()}, work / "whole.pt")
    oracle.succeeds("notes", "convert", work / "whole.pt", work / "apart.pt", "--components")
    apart = torch.load(work / "apart.pt", weights_only=True)
    torch.save({**apart, "y": eye.to_sparse()}, work / "both.pt")
    wanted = ["note: wrapping tensors are rebuilt from their components: x (sparse COO tensor)"]
    commands = {"convert": ["convert", work / "both.pt", work / "made.pt"], "reshard": ["reshard", work / "both.pt", work / "cut", "--mesh", "2"]}
    for case, command in commands.items():
        status, _, err = oracle.run(*command)
        said = [line for line in err.splitlines() if "wrapping tensors" in line]
        oracle.check(status == 0 and said == wanted, f"notes of {case}", f"exits {status}: {err}")


def check_like(oracle):
    """Components have the sizes of their values: --like does not change them."""
    eye, work = torch.eye(3), oracle.work / "like"
    work.mkdir()
    torch.save({"w": eye, "s": eye.to_sparse(), "q": quantized(3)}, work / "a.pt")
    torch.save({"w": torch.eye(4), "s": torch.ones(3, 3).to_sparse(), "q": quantized(4)}, work / "b.pt")
    oracle.succeeds("like", "convert", work / "b.pt", work / "b.safetensors")
    for like in ("b.pt", "b.safetensors"):
        for made in (f"{like}.pt", f"{like}.safetensors"):
            status, _, err = oracle.run("convert", work / "a.pt", work / made, "--like", work / like)
            oracle.check(status == 1 and [line.split(": ")[1] for line in err.splitlines() if "another shape" in line] == ["w"], "like", f"exits {status}: {err}")
            oracle.succeeds("like", "convert", work / "a.pt", work / made, "--like", work / like, "--allow-shape-mismatch")
            oracle.succeeds("like", "diff", work / "a.pt", work / made, "--skip", "w")
    oracle.succeeds("like", "reshard", work / "a.pt", work / "cut", "--like", work / "a.pt")
    oracle.succeeds("like", "diff", work / "a.pt", work / "cut")


def check_contradictions(oracle):
    """One rank has a value where another has entries."""
    eye = torch.eye(3)
    for number, (first, second, good) in enumerate((({"a": 5}, {"a": {"x": 6}}, False), ({"a": eye}, {"a": {"x": eye}}, False), ({"a": {"x": eye}}, {"a": 5}, False),
                                                    ({"a": []}, {"a": [eye]}, True), ({"a": {}}, {"a": {"x": eye}}, True))):
        folder = oracle.work / f"contradiction_{number}"
        folder.mkdir()
        for rank, state in enumerate((first, second)):
            torch.save(state, folder / f"model_world_size_2_rank_{rank}.pt")
        for command in (["verify", folder], ["convert", folder, folder.with_suffix(".safetensors")]):
            status, _, err = oracle.run(*command)
            oracle.check((status == 0) == good and (good or (status == 1 and "a: is one value here" in err)), f"contradiction {number}", f"{command[0]} exits {status}: {err}")


def check_all_of_one(oracle):
    """--all of a folder whose files are one checkpoint is that checkpoint."""
    work = oracle.work / "all_of_one"
    work.mkdir()
    torch.save({"model": {"w": torch.eye(4)}, "step": 5}, work / "a.pt")
    oracle.succeeds("all of one", "reshard", work / "a.pt", work / "cut", "--mesh", "2", "--default", "S(0)")
    oracle.succeeds("all of one", "convert", work / "cut", work / "tc", "--to", "torch-checkpointing")
    oracle.succeeds("all of one", "convert", work / "tc", work / "b.pt", "--all")
    oracle.succeeds("all of one", "diff", work / "a.pt", work / "b.pt")
    for folder in ("writers/torchsnapshot/one", "writers/torch_checkpointing/mesh_2x2/checkpoint"):
        oracle.succeeds("all of one", "diff", oracle.data / folder, oracle.data / folder, "--all")
        alone, together = (json.loads(oracle.succeeds("all of one", "inspect", oracle.data / folder, "--json", *more))["tensors"] for more in ([], ["--all"]))
        oracle.check(alone == together, "all of one", f"{folder}: other tensors with --all")


def check_ranks_of_checkpointing(oracle):
    """A wrapper in a list that only one rank has: None marks the elements that the others lack."""
    work = oracle.work / "tc_list"
    work.mkdir()
    torch.save({"m": {"l": [torch.eye(3).to_sparse_csr(), torch.arange(6.)]}}, work / "a.pt")
    oracle.succeeds("list", "convert", work / "a.pt", work / "apart", "--to", "dcp", "--components")
    oracle.succeeds("list", "reshard", work / "apart", work / "cut", "--mesh", "3", "--default", "S(0)")
    oracle.succeeds("list", "convert", work / "cut", work / "tc", "--to", "torch-checkpointing")
    oracle.succeeds("list", "diff", work / "a.pt", work / "tc")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for seed in range(rounds(2, 4)):
        check_equal(oracle, seed)
    count = sum(check_changed(oracle, seed) for seed in range(2))
    oracle.check(count >= 20, "changed", f"only {count} tensors could be changed")
    check_kinds(oracle)
    check_unreadable(oracle)
    check_parts(oracle)
    check_names(oracle)
    check_like(oracle)
    check_contradictions(oracle)
    check_all_of_one(oracle)
    check_changed_components(oracle)
    check_notes(oracle)
    check_ranks(oracle)
    check_ranks_of_checkpointing(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
