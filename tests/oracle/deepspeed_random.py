# SPDX-License-Identifier: Apache-2.0
"""Random parameters (scalars, empty ones, prime sizes, several groups), partitioned over random numbers of ranks as
DeepSpeed does under ZeRO 1, 2, and 3: shardmesh reads the original parameters, bit for bit. If DeepSpeed is
installed, its zero_to_fp32.py reads them as well. Needs PyTorch."""
import collections
import contextlib
import enum
import io
import json
import os
import random

from common import Oracle, need_torch, read_safetensors, seed as common_seed

need_torch()
import torch  # noqa: E402

SEED = int(os.environ.get("SHARDMESH_RANDOM_SEED") or common_seed())
CASES = int(os.environ.get("SHARDMESH_RANDOM_CASES", "12"))


class ZeroStageEnum(enum.IntEnum):
    """DeepSpeed's class; Python's release decides which of two ways its members are pickled in."""
    disabled, optimizer_states, gradients, weights = range(4)


class ByValue(int):
    def __reduce_ex__(self, protocol):
        return ZeroStageEnum, (int(self),)


class ByName(int):
    def __reduce_ex__(self, protocol):
        return getattr, (ZeroStageEnum, ZeroStageEnum(self).name)


def random_shape(dice, allow_empty):
    shape = [dice.choice([1, 2, 3, 5, 7, 11, 16]) for _ in range(dice.randrange(5))]
    if allow_empty and shape and dice.random() < 0.1:
        shape[dice.randrange(len(shape))] = 0
    return torch.Size(shape)


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors]) if tensors else torch.empty(0)


def padded(tensor, multiple):
    missing = -tensor.numel() % multiple
    return torch.cat([tensor, torch.full((missing,), float("nan"))])


def share_over_ranks(groups, world, dice):
    """ZeRO 1 and 2: for each group and rank, its part with and without padding; and the padding behind each
    parameter where parameters are aligned."""
    aligned = dice.random() < 0.5
    parts, paddings = [], []
    for group in groups:
        behind = [dice.choice([0, 0, 3]) if aligned else 0 for _ in group]
        whole = flat([x for t, n in zip(group.values(), behind) for x in (t, torch.full((n,), float("nan")))])
        buffer = padded(whole, 2 * world)
        size = buffer.numel() // world
        cut = list(buffer.split(size)) if size else [buffer] * world
        lean = max(0, size - (buffer.numel() - whole.numel()))
        parts.append([(part, part[:lean] if rank == world - 1 else part) for rank, part in enumerate(cut)])
        paddings.append(behind)
    return parts, paddings if aligned else None


def share_over_groups(groups, world):
    """ZeRO 3: for each group and rank, its parts of all parameters."""
    return [[flat([padded(t.reshape(-1), world).reshape(world, -1)[rank] for t in group.values()])
             for rank in range(world)] for group in groups]


def write(folder, stage, world, dice):
    folder.mkdir(parents=True)
    names = iter(dice.sample([f"{a}.{b}" for a in "stem.0 stem.1 body head.a head.b".split()
                              for b in "weight bias gain table norm.scale".split()], 20))
    generator = torch.Generator().manual_seed(dice.randrange(1 << 30))
    make = lambda empty: torch.randn(random_shape(dice, empty), generator=generator)  # noqa: E731
    groups = [collections.OrderedDict((next(names), make(stage < 3)) for _ in range(dice.randrange(0, 6)))
              for _ in range(dice.randrange(1, 4))]
    groups[0].setdefault(next(names), make(stage < 3))
    frozen = collections.OrderedDict((next(names), make(True).to(torch.bfloat16)) for _ in range(dice.randrange(3)))
    buffers = {"count": torch.tensor(7), "mean": torch.randn(3, generator=generator).to(torch.float16),
               "var": torch.randn(2, 2, generator=generator, dtype=torch.float64)}
    trained = {name: value for group in groups for name, value in group.items()}
    states = {name: [collections.OrderedDict((k, torch.randn(v.shape, generator=generator)) for k, v in g.items())
                     for g in groups] for name in ("exp_avg", "exp_avg_sq")}
    tied = {"tied.weight": next(iter(trained)), "tied.nothing": "absent"}
    common = dict(buffer_names=list(buffers), param_shapes=[collections.OrderedDict((k, v.shape) for k, v in g.items())
                                                            for g in groups],
                  frozen_param_shapes=collections.OrderedDict((k, v.shape) for k, v in frozen.items()) or None,
                  shared_params=tied, optimizer=None, global_steps=4, ds_version="0.0.0", ds_config={"a": 1})
    if stage == 3:
        parts = {"": share_over_groups(groups, world), **{n: share_over_groups(s, world) for n, s in states.items()}}
    else:
        fixed = random.Random(dice.randrange(1 << 30))
        again = lambda value: share_over_ranks(value, world, random.Random(seed))  # noqa: E731
        seed = fixed.randrange(1 << 30)
        weights, paddings = again(groups)
        shared = {n: again(s)[0] for n, s in states.items()}
    spelled = dice.choice([int, ByValue, ByName])
    for rank in range(world):
        module = {**buffers, **{k: torch.empty(0) if stage == 3 else v.half() for k, v in trained.items()}}
        pieces = {k: padded(v.reshape(-1).float(), world).reshape(world, -1)[rank].to(torch.bfloat16)
                  for k, v in frozen.items()} if stage == 3 else frozen
        model = dict(common, module=module, frozen_param_fragments=collections.OrderedDict(pieces) or None)
        group_count = range(len(groups))
        if stage == 3:
            torch.save(model, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
            optimizer = {"zero_stage": spelled(3), "partition_count": world,
                         "fp32_flat_groups": [parts[""][g][rank] for g in group_count],
                         "optimizer_state_dict": {"state": {g: {"step": torch.tensor(4.0), **{
                             n: parts[n][g][rank] for n in states}} for g in group_count}, "param_groups": []}}
        else:
            if rank == 0:
                torch.save(model, folder / "mp_rank_00_model_states.pt")
            optimizer = {"zero_stage": spelled(stage), "partition_count": [world] * len(groups),
                         "param_alignment_paddings": paddings,
                         "single_partition_of_fp32_groups": [weights[g][rank][1] for g in group_count],
                         "base_optimizer_state": {"state": {g: {"step": 4, **{
                             n: shared[n][g][rank][0] for n in states}} for g in group_count}, "param_groups": []}}
        prefix = dice.choice(["", "bf16_"]) if rank == 0 else prefix  # noqa: F821
        torch.save({"optimizer_state_dict": optimizer, "ds_version": "0.0.0"},
                   folder / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    wanted = {k: v.float() if v.is_floating_point() else v for k, v in buffers.items()}
    wanted.update(frozen)
    wanted.update(trained)
    wanted["tied.weight"] = trained[tied["tied.weight"]]
    model_names = set(wanted)
    for state, shared_groups in states.items():
        for group in shared_groups:
            wanted.update({f"optimizer.state.{state}.{name}": value for name, value in group.items()})
    return wanted, model_names


def data_of(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def compare(oracle, case, found, wanted):
    oracle.check(found.keys() == wanted.keys(), case, f"names differ: {sorted(found.keys() ^ wanted.keys())}")
    for name in found.keys() & wanted.keys():
        _, shape, data = found[name]
        oracle.check(shape == list(wanted[name].shape) and data == data_of(wanted[name]), case, f"{name} differs")


def ask_deepspeed(oracle, case, folder, wanted):
    try:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as merge
    except Exception:  # not installed, or not for this machine
        return False
    with contextlib.redirect_stdout(io.StringIO()):
        merged = merge(str(folder.parent), tag=folder.name)
    oracle.check(merged.keys() == wanted.keys(), case, f"DeepSpeed's names: {sorted(merged.keys() ^ wanted.keys())}")
    for name in merged.keys() & wanted.keys():
        same = merged[name].shape == wanted[name].shape and data_of(merged[name]) == data_of(wanted[name])
        oracle.check(same, case, f"DeepSpeed reads {name} as something else than was shared")
    return True


def simple(folder, stage=2):
    """Two ranks, one parameter of 2 x 3; returns the files' values by kind."""
    folder.mkdir(parents=True)
    model = {"module": {"w": torch.zeros(2, 3).half()}, "buffer_names": [], "param_shapes": [{"w": torch.Size([2, 3])}],
             "shared_params": {}, "global_steps": 1}
    key, base = ("fp32_flat_groups", "optimizer_state_dict") if stage == 3 else (
        "single_partition_of_fp32_groups", "base_optimizer_state")
    optimizers = [{"optimizer_state_dict": {"zero_stage": stage, "partition_count": 2, key: [torch.arange(3.0) + 3 * rank],
                                            base: {"state": {0: {"step": 1, "exp_avg": torch.zeros(3)}},
                                                   "param_groups": [{"lr": 0.5}]}}} for rank in range(2)]
    return model, optimizers


def save(folder, model, optimizers, stage=2):
    for rank, optimizer in enumerate(optimizers):
        torch.save(optimizer, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        if stage == 3 or rank == 0:
            torch.save(model, folder / (f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3
                                        else "mp_rank_00_model_states.pt"))


# Changes to a good folder's values (the model, the first rank's and last rank's optimizer files), and the words that
# the error line must contain.
BAD = {
    "another stage": (lambda m, a, b: a.update(zero_stage=4), ["rank_0_", "unknown ZeRO stage 4"]),
    "no stage": (lambda m, a, b: a.update(zero_stage="two"), ["rank_0_", "zero_stage"]),
    "ranks of two stages": (lambda m, a, b: b.update(zero_stage=1), ["rank_1_", "zero_stage", "different saves"]),
    "many ranks": (lambda m, a, b: a.update(partition_count=10**15), ["rank_2_", "missing"]),
    "no ranks": (lambda m, a, b: a.update(partition_count=0), ["rank_0_", "partition_count"]),
    "less than no ranks": (lambda m, a, b: a.update(partition_count=-3), ["rank_0_", "partition_count"]),
    "a longer part": (lambda m, a, b: b.update(single_partition_of_fp32_groups=[torch.zeros(4)]),
                      ["rank_1_", "part of group 0", "3", "4"]),
    "another number of groups": (lambda m, a, b: b.update(single_partition_of_fp32_groups=[torch.zeros(3)] * 2),
                                 ["rank_1_", "number of parameter groups"]),
    "a part that is no list": (lambda m, a, b: a.update(single_partition_of_fp32_groups=[torch.zeros(3, 1)]),
                               ["rank_0_", "flat buffer"]),
    "steps that differ": (lambda m, a, b: b["base_optimizer_state"]["state"][0].update(step=2),
                          ["rank_1_", "state.0.step", "different saves"]),
    "settings that differ": (lambda m, a, b: b["base_optimizer_state"]["param_groups"][0].update(lr=0.25),
                             ["rank_1_", "param_groups.0.lr", "different saves"]),
    "a larger parameter": (lambda m, a, b: m.update(param_shapes=[{"w": torch.Size([2, 4])}]),
                           ["model_states", "w", "8 elements", "6 in the flat"]),
    "a smaller parameter": (lambda m, a, b: m.update(param_shapes=[{"w": torch.Size([1, 1])}]),
                            ["model_states", "1 element,", "6 in the flat"]),
    "a huge parameter": (lambda m, a, b: m.update(param_shapes=[{"w": (1 << 40, 1 << 40)}]), ["model_states", "w", "64 bits"]),
    "huge parameters": (lambda m, a, b: m.update(param_shapes=[{"v": (1 << 62,), "w": (1 << 62,)}]), ["model_states", "v"]),
    "a negative size": (lambda m, a, b: m.update(param_shapes=[{"w": (-2, -3)}]), ["model_states", "w", "sizes"]),
    "many dimensions": (lambda m, a, b: m.update(param_shapes=[{"w": (1,) * 40}]), ["model_states", "w", "dimensions"]),
    "a name for a size": (lambda m, a, b: m.update(param_shapes=[{"w": "2x3"}]), ["model_states", "w", "another kind"]),
    "a group of nothing": (lambda m, a, b: m.update(param_shapes=[{"w": torch.Size([2, 3])}, None]),
                           ["model_states", "param_shapes.1", "not a mapping"]),
    "one group too many": (lambda m, a, b: m.update(param_shapes=[{"w": torch.Size([2, 3])}, {"v": (2,)}]),
                           ["model_states", "numbers of parameter groups"]),
    "a name in two groups": (lambda m, a, b: m.update(param_shapes=[{"w": (1, 3)}, {"w": (1, 3)}]) or [
        x.update(single_partition_of_fp32_groups=[torch.zeros(2), torch.zeros(2)]) for x in (a, b)],
        ["model_states", "w", "two parameters"]),
    "paddings of others": (lambda m, a, b: a.update(param_alignment_paddings=[[0, 0]]), ["rank_0_", "paddings"]),
    "a negative padding": (lambda m, a, b: a.update(param_alignment_paddings=[[-6]]), ["w", "padding"]),
    "frozen without elements": (lambda m, a, b: m.update(frozen_param_shapes={"f": (2,)}), ["model_states", "f", "frozen"]),
    "frozen of another shape": (lambda m, a, b: m.update(frozen_param_shapes={"f": (2,)},
                                                         frozen_param_fragments={"f": torch.zeros(3)}),
                                ["model_states", "f", "shape"]),
    "tied to a number": (lambda m, a, b: m.update(shared_params={"t": 3}), ["model_states", "t", "another kind"]),
    "no names of buffers": (lambda m, a, b: m.pop("buffer_names"), ["model_states", "buffer_names"]),
    "no module": (lambda m, a, b: m.pop("module"), ["model_states", "module"]),
    "layers in other files": (lambda m, a, b: m.update(module=None), ["model_states", "other files"]),
    "other ranks of tensor parallelism": (lambda m, a, b: m.update(mp_world_size=2),
                                          ["model_states", "tensor parallelism", "mp_world_size"]),
    "experts over ranks": (lambda m, a, b: m.update(ds_autoep_layers=[{"checkpoint_format": "zero3_partitioned"}]),
                           ["model_states", "experts"]),
}


def refused(oracle):
    for name, (change, words) in BAD.items():
        folder = oracle.work / "bad" / name.replace(" ", "_")
        target = folder.with_suffix(".safetensors")
        model, optimizers = simple(folder)
        change(model, *(o["optimizer_state_dict"] for o in optimizers))
        save(folder, model, optimizers)
        for arguments in (("inspect", folder), ("convert", folder, target, "--to", "safetensors")):
            status, _, err = oracle.run(*arguments, timeout=20)
            oracle.check(status == 1 and len(err.strip().splitlines()) == 1 and all(word in err for word in words), name,
                         f"{arguments[0]} exits {status} and says {err.strip()!r}, expected {words}")
        oracle.check(not target.exists(), name, "something was written")


def write_universal(folder, dice):
    """A universal checkpoint of a random model; returns its weights and states, and its steps."""
    stages = dice.choice([1, 1, 2, 3])  # pipeline stages: one model file each, without a module in it
    is_3 = stages == 1 and dice.random() < 0.4
    old = {"_use_new_zipfile_serialization": dice.random() < 0.8}
    wanted, steps, shapes = {}, {}, [[] for _ in range(stages)]
    for number in range(dice.randint(1, 6)):
        name, shape = f"layer{number}.weight", random_shape(dice, True)
        place = folder / "zero" / name
        place.mkdir(parents=True)
        said, extra = shape, {}
        if not is_3 and len(shape) == 2 and dice.random() < 0.3:  # its padding was removed
            said, extra = torch.Size([shape[0] + 2, shape[1]]), {"cat_dim": 0, "vocab_tensor": True}
        shapes[number % stages].append((name, said))
        for state in ("fp32", "exp_avg", "exp_avg_sq")[:dice.choice([1, 3, 3])]:
            tensor = torch.randn(shape, dtype=dice.choice([torch.float32, torch.float32, torch.bfloat16]))
            wanted[name if state == "fp32" else f"optimizer.state.{state}.{name}"] = tensor
            held = tensor.reshape(-1) if is_3 else {"param": tensor, **extra}
            torch.save(held, place / f"{state}.pt", **old)
        if not is_3:
            torch.save(number, place / "step.pt", **old)
            steps[f"optimizer.state.step.{name}"] = number
    torch.save({"overflow": False, "param_groups": [{"lr": 0.5}],
                "fp32_flat_groups": [torch.zeros(3)]}, folder / "zero/optimizer_state.pt")
    for stage, listed in enumerate(shapes):
        model = {"module": None if stages > 1 else {"half": torch.ones(3).half()}, "buffer_names": ["half"],
                 "param_shapes": [dict(listed[:1]), dict(listed[1:])], "shared_params": {}, "global_steps": 7}
        torch.save(model, folder / f"{'zero_pp_rank_0_' if is_3 else ''}mp_rank_{stage:02}_model_states.pt", **old)
    if stages == 1:
        wanted["half"] = torch.ones(3)
    return wanted, steps


def universal(oracle):
    """Output of ds_to_universal.py: random shapes, pipeline stages, padded vocabularies."""
    dice = random.Random(SEED)
    for number in range(2 * CASES):
        case, folder = f"universal {number} of seed {SEED}", oracle.work / f"universal{number}"
        wanted, steps = write_universal(folder, dice)
        target = oracle.work / f"universal{number}.safetensors"
        if oracle.succeeds(case, "convert", folder, target) is None:
            continue
        compare(oracle, case, read_safetensors(target)[0], wanted)
        shown = json.loads(oracle.succeeds(case, "inspect", "--json", folder) or "{}").get("objects", {})
        found = {key: value["value"] for key, value in shown.items() if key.startswith("optimizer.state.")}
        oracle.check(found == steps and shown["global_steps"]["value"] == 7, case, f"steps {found}")
        oracle.succeeds(case, "convert", folder, oracle.work / f"universal{number}.dcp", "--to", "dcp")
        oracle.succeeds(case, "diff", folder, oracle.work / f"universal{number}.dcp")
    # Only rank 0 wrote the data that tensor-parallel ranks had beside their parameters.
    folder = oracle.work / "unmerged"
    (folder / "zero/w").mkdir(parents=True)
    (folder / "zero/frozen").mkdir()
    torch.save({"param": torch.zeros(2, 3), "cat_dim": 0}, folder / "zero/w/fp32.pt")
    torch.save({"param": torch.zeros(2)}, folder / "zero/frozen/fp32.pt")
    torch.save({"overflow": False}, folder / "zero/optimizer_state.pt")
    for rank in range(2):
        torch.save({"module": {"b": torch.ones(1)}, "buffer_names": ["b"], "param_shapes": [{"w": (1, 3)}], "shared_params": {}},
                   folder / f"mp_rank_{rank:02}_model_states.pt")
    status, out, err = oracle.run("inspect", folder)
    oracle.check(status == 0 and "only the part of rank 0" in out + err and "frozen" in err, "unmerged", f"{out}{err}")


def many_names(oracle):
    """A million names of one tensor would be written a million times; refused, as in a torch.save file."""
    folder = oracle.work / "names"
    model, optimizers = simple(folder)
    for rank, optimizer in enumerate(optimizers):
        optimizer["optimizer_state_dict"]["single_partition_of_fp32_groups"] = [torch.zeros(1 << 20)]
    model.update(param_shapes=[{"w": (1 << 21,)}], shared_params={f"t{i}": "w" for i in range(2000)})
    save(folder, model, optimizers)
    status, _, err = oracle.run("convert", folder, oracle.work / "never", "--to", "dcp", timeout=60)
    oracle.check(status == 1 and "limit" in err and len(err.strip().splitlines()) == 1, "many names",
                 f"exits {status} and says {err.strip()!r}")


def tensor_parallel(oracle):
    """Files of two tensor-parallel ranks: merged over data parallelism, under the rank's name."""
    folder = oracle.work / "parallel"
    model, optimizers = simple(folder)
    for tensor_rank in range(2):
        for rank, optimizer in enumerate(optimizers):
            optimizer["optimizer_state_dict"]["single_partition_of_fp32_groups"] = [
                torch.arange(3.0) + 3 * rank + 6 * tensor_rank]
            torch.save(optimizer, folder / f"zero_pp_rank_{rank}_mp_rank_{tensor_rank:02}_optim_states.pt")
        torch.save(dict(model, mp_world_size=2), folder / f"mp_rank_{tensor_rank:02}_model_states.pt")
    target = oracle.work / "parallel.safetensors"
    if oracle.succeeds("tensor parallel", "convert", folder, target, "--to", "safetensors", "--no-optimizer") is not None:
        found = read_safetensors(target)[0]
        compare(oracle, "tensor parallel", found, {f"mp_rank_{r:02}.w": torch.arange(6.0).reshape(2, 3) + 6 * r
                                                   for r in range(2)})
    (folder / "mp_rank_01_model_states.pt").unlink()
    status, _, err = oracle.run("inspect", folder)
    oracle.check(status == 1 and "mp_rank_01_model_states.pt: the file is missing" in err, "tensor parallel", err)


RULES = {"replicated": "tp_replicated_parameter_patterns", "row": "parameter_with_row_parallelism_patterns",
         "words": "vocabulary_parameter_patterns", "gated": "parameter_with_2_sub_params_cat_dim_0"}


def cut(kind, whole, ranks):
    """The parts of ranks, as merge_tp_slices takes them."""
    if kind == "replicated":
        return [whole] * ranks
    if kind == "gated":
        return [torch.cat([half.chunk(ranks)[r] for half in whole.chunk(2)]) for r in range(ranks)]
    if kind == "words":
        padding = torch.full((-whole.shape[0] % ranks + ranks, *whole.shape[1:]), 9.0)
        return list(torch.cat([whole, padding]).chunk(ranks))
    return list(whole.split([whole.shape[kind == "row"] // ranks] * ranks, dim=int(kind == "row")))


def split_parameters(oracle):
    """Tensor-parallel ranks whose model files describe how parameters were split: whole parameters and states."""
    dice = random.Random(SEED)
    for number in range(2 * CASES):
        case, folder = f"split {number} of seed {SEED}", oracle.work / f"split{number}"
        ranks, world, stage = dice.choice([2, 3]), dice.choice([1, 2, 3]), dice.choice([1, 2, 3])
        vocabulary, wanted, parts, states = dice.choice([5, 7, 8]), {}, {}, {}
        for i in range(dice.randint(1, 6)):
            kind = dice.choice([*RULES, "column"])
            name = f"{kind}{i}.weight"
            shape = [dice.choice([1, 2, 5]) for _ in range(dice.randint(2, 4))]
            shape[kind == "row"] *= 2 * ranks if kind == "gated" else ranks
            if kind == "words":
                shape[0] = vocabulary
            wanted[name], wanted["optimizer.state.exp_avg." + name] = torch.randn(shape), torch.randn(shape)
            parts[name] = cut(kind, wanted[name], ranks)
            states[name] = cut(kind, wanted["optimizer.state.exp_avg." + name], ranks)
        folder.mkdir()
        info = {key: [rf"{kind}\d+\."] for kind, key in RULES.items()}
        info["original_vocab_size"] = vocabulary
        for r in range(ranks):
            mine = {name: values[r] for name, values in parts.items()}
            if stage == 3:
                shared = [share_over_groups([group], world)[0] for group in (mine, {n: v[r] for n, v in states.items()})]
            else:
                shared = [[part for _, part in share_over_ranks([group], world, random.Random(1))[0][0]]
                          for group in (mine, {n: v[r] for n, v in states.items()})]
                shared = [[padded(part, 1) for part in rank_parts] for rank_parts in shared]
            paddings = None if stage == 3 else share_over_ranks([mine], world, random.Random(1))[1]
            model = {"module": {"b": torch.ones(1)}, "buffer_names": ["b"], "shared_params": {}, "global_steps": 1,
                     "param_shapes": [{name: part.shape for name, part in mine.items()}], "mp_world_size": ranks,
                     "universal_checkpoint_info": info}
            key, base = ("fp32_flat_groups", "optimizer_state_dict") if stage == 3 else (
                "single_partition_of_fp32_groups", "base_optimizer_state")
            for data in range(world):
                optimizer = {"zero_stage": stage, "partition_count": world, key: [shared[0][data]],
                             base: {"state": {0: {"step": 1, "exp_avg": shared[1][data]}}, "param_groups": [{"lr": 0.5}]}}
                if paddings is not None:
                    optimizer["param_alignment_paddings"] = paddings
                torch.save({"optimizer_state_dict": optimizer},
                           folder / f"zero_pp_rank_{data}_mp_rank_{r:02}_optim_states.pt")
                if stage == 3 or data == 0:
                    torch.save(model, folder / (f"zero_pp_rank_{data}_" * (stage == 3) + f"mp_rank_{r:02}_model_states.pt"))
        target = oracle.work / f"split{number}.safetensors"
        if oracle.succeeds(case, "convert", folder, target) is not None:
            compare(oracle, case, read_safetensors(target)[0], {**wanted, "b": torch.ones(1)})


def split_otherwise(oracle):
    """Unsupported rules leave parameters under their ranks' names; parts that do not fit are refused."""
    def saved(name, info, shape=(2, 3), steps=1):
        folder = oracle.work / f"rules-{name}"
        model, (optimizer, _) = simple(folder)
        for rank in range(2):
            sizes = torch.Size(shape if rank else (2, 3))
            optimizer["optimizer_state_dict"]["single_partition_of_fp32_groups"] = [torch.arange(float(sizes.numel()))]
            optimizer["optimizer_state_dict"]["base_optimizer_state"]["state"][0]["exp_avg"] = torch.zeros(sizes.numel())
            optimizer["optimizer_state_dict"]["partition_count"] = 1
            torch.save(optimizer, folder / f"zero_pp_rank_0_mp_rank_{rank:02}_optim_states.pt")
            torch.save(dict(model, mp_world_size=2, param_shapes=[{"w": sizes}], universal_checkpoint_info=info,
                            global_steps=steps if rank else 1), folder / f"mp_rank_{rank:02}_model_states.pt")
        return folder

    row = {"parameter_with_row_parallelism_patterns": ["w"]}
    for name, info, says in (
            ("average", {**row, "parameter_to_average_patterns": ["w"]}, "parameter_to_average_patterns"),
            ("parts", {**row, "parameter_with_sub_params": [{"patterns": ["w"], "shape": (2, 3), "partition_dim": 0}]},
             "parameter_with_sub_params"),
            ("pattern", {**row, "tp_replicated_parameter_patterns": ["w(?=x)"]}, "not supported"),
            ("vocabulary", {"vocabulary_parameter_patterns": ["w"]}, "original_vocab_size"),
            ("none", {"universal_checkpoint_version": 0.2}, "no file says how"),
            ("many", {**row, "tp_replicated_parameter_patterns": ["x"] * 1001}, "1001 patterns")):
        folder = saved(name, info)
        shown = json.loads(oracle.succeeds(name, "inspect", "--json", folder) or "{}")["tensors"]
        oracle.check({"mp_rank_00.w", "mp_rank_01.w"} <= set(shown) and "w" not in shown, name, f"{sorted(shown)}")
        err = oracle.run("inspect", folder)[2]
        oracle.check(says in err and "mp_rank_00.KEY" in err, name, err)
    for name, folder, says in (("shapes", saved("shapes", row, (3, 3)), ["w", "do not match", "[2, 3]", "[3, 3]"]),
                               ("ranks", saved("ranks", row, (2, 3, 1)), ["w", "do not match"]),
                               ("saves", saved("saves", row, steps=2), ["mp_rank_01_model_states.pt", "global_steps"])):
        for command in (("inspect", folder), ("convert", folder, oracle.work / "never", "--to", "hf")):
            status, _, err = oracle.run(*command)
            oracle.check(status == 1 and len(err.strip().splitlines()) == 1 and all(word in err for word in says), name,
                         f"{command[0]} exits {status}: {err}")
    oracle.check(not (oracle.work / "never").exists(), "rules", "something was written")


def main():
    oracle = Oracle(__doc__, syncs=False)
    refused(oracle)
    many_names(oracle)
    tensor_parallel(oracle)
    split_parameters(oracle)
    split_otherwise(oracle)
    universal(oracle)
    dice, asked = random.Random(SEED), 0
    for number in range(CASES):
        stage, world = dice.choice([1, 2, 3]), dice.choice([1, 2, 3, 4, 5, 7, 8])
        case = f"case {number} of seed {SEED}: ZeRO {stage}, {world} ranks"
        folder = oracle.work / f"run{number}" / "global_step4"
        wanted, model_names = write(folder, stage, world, dice)
        asked += ask_deepspeed(oracle, case, folder, {name: wanted[name] for name in model_names})
        target = oracle.work / f"{number}.safetensors"
        if oracle.succeeds(case, "convert", folder.parent, target, "--to", "safetensors") is not None:
            found = {n: v for n, v in read_safetensors(target)[0].items() if not n.startswith("optimizer.group_state.")}
            compare(oracle, case, found, wanted)
        if oracle.succeeds(case, "convert", folder, oracle.work / f"{number}.pt", "--to", "pt", "--no-optimizer",
                           "--skip-objects") is not None:
            loaded = torch.load(oracle.work / f"{number}.pt", weights_only=True)
            compare(oracle, case, {n: ("", list(v.shape), data_of(v)) for n, v in loaded.items()},
                    {name: wanted[name] for name in model_names})
        oracle.succeeds(case, "verify", folder)
    print(f"zero_to_fp32.py was asked about {asked} of {CASES} cases")
    oracle.finish()


if __name__ == "__main__":
    main()
