# SPDX-License-Identifier: Apache-2.0
"""Optimizer state that follows renamed parameters, against PyTorch. A model and its AdamW are saved, parameters are
renamed with --optimizer-follows, and PyTorch loads all of it into a model with the new names. That model then steps
like the first one, bit for bit."""
import json
import tarfile
import warnings

from common import Oracle, need_torch, read_safetensors

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict)

RENAMES = [r"model\.encoder\.(.*)=model.body.first.\1", r"model\.state\.exp_avg=model.state.moment"]


class Hostile(torch.nn.Module):
    """A module and a parameter named like parts of an optimizer's keys."""

    def __init__(self, name):
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.full((5,), 0.5)))

    def forward(self, x):
        return x * next(self.parameters())


def module(renamed):
    torch.manual_seed(3)
    first, second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 5)
    made = torch.nn.Module()
    if renamed:
        made.body = torch.nn.ModuleDict({"first": first})
    else:
        made.encoder = first
    made.encoder2 = second
    made.state = Hostile("moment" if renamed else "exp_avg")
    made.run = lambda x: made.state(second(first(x)))
    return made


def optimizer(model):
    groups = [{"params": [p for n, p in model.named_parameters() if n.endswith("weight")], "weight_decay": 0.25},
              {"params": [p for n, p in model.named_parameters() if not n.endswith("weight")], "lr": 0.0625}]
    return torch.optim.AdamW(groups, lr=0.125, amsgrad=True)


def train(model, optim, steps, seed):
    torch.manual_seed(seed)
    for _ in range(steps):
        optim.zero_grad()
        model.run(torch.randn(2, 3)).square().sum().backward()
        optim.step()


def state(model, optim, flat):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    return {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optim, options=options)}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def flags(renames):
    return [part for rule in renames for part in ("--rename", rule)]


def check_round_trip(oracle, flat, command):
    case = f"{'flattened' if flat else 'nested'}, {command[0]}"
    home = oracle.work / case.replace(", ", "_")
    model = module(renamed=False)
    optim = optimizer(model)
    train(model, optim, 3, seed=1)
    dcp.save(state(model, optim, flat), checkpoint_id=home / "saved", no_dist=True)
    oracle.succeeds(case, *command, home / "saved", home / "renamed", "--optimizer-follows", *flags(RENAMES))
    oracle.succeeds(case, "verify", home / "renamed", "--strict")

    other = module(renamed=True)
    other_optim = optimizer(other)
    train(other, other_optim, 1, seed=2)  # different from the values to load
    loaded = state(other, other_optim, flat)
    dcp.load(loaded, checkpoint_id=home / "renamed", no_dist=True)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    set_model_state_dict(other, loaded["model"])
    set_optimizer_state_dict(other, other_optim, loaded["optim"], options=options)
    wanted = optim.state_dict()
    oracle.check(same(wanted["state"], other_optim.state_dict()["state"]), case, "the optimizer's state differs")
    oracle.check(same(wanted["param_groups"], other_optim.state_dict()["param_groups"]), case, "param_groups differ")
    for each, its in ((model, optim), (other, other_optim)):
        train(each, its, 2, seed=4)
    oracle.check(all(map(torch.equal, model.parameters(), other.parameters())), case, "steps after it differ")

    # No entry keeps an old name, and none is new.
    expected = set(FileSystemReader(home / "saved").read_metadata().state_dict_metadata)
    dcp.save(state(other, other_optim, flat), checkpoint_id=home / "wanted", no_dist=True)
    held = set(FileSystemReader(home / "renamed").read_metadata().state_dict_metadata)
    names = set(FileSystemReader(home / "wanted").read_metadata().state_dict_metadata)
    oracle.check(held == names and held != expected, case, f"keys: {sorted(held ^ names)}")


def check_skipped(oracle):
    """Without a part of the model: PyTorch loads the rest into a smaller one."""
    case = "skip"
    home = oracle.work / case
    model = module(renamed=False)
    optim = optimizer(model)
    train(model, optim, 2, seed=1)
    dcp.save(state(model, optim, False), checkpoint_id=home / "saved", no_dist=True)
    status, _, err = oracle.run("convert", home / "saved", home / "less", "--to", "dcp", "--optimizer-follows", "--skip",
                                r"model\.(encoder2|state)\..*")
    oracle.check(status == 0 and "note: 12 entries of optimizer state follow the parameters: 0 renamed, 12 left out" in
                 err, case, f"{status}: {err}")
    part = torch.nn.Module()
    part.encoder = torch.nn.Linear(3, 4)
    part.run = lambda x: part.encoder(x)
    part_optim = optimizer(part)
    train(part, part_optim, 1, seed=5)
    loaded = state(part, part_optim, False)
    held = set(FileSystemReader(home / "less").read_metadata().state_dict_metadata)
    dcp.save(loaded, checkpoint_id=home / "wanted", no_dist=True)
    names = set(FileSystemReader(home / "wanted").read_metadata().state_dict_metadata)
    oracle.check(held == names, case, f"keys: {sorted(held ^ names)}")
    dcp.load(loaded, checkpoint_id=home / "less", no_dist=True)
    lists = [group["params"] for group in loaded["optim"]["param_groups"]]
    oracle.check(lists == [["encoder.weight"], ["encoder.bias"]], case, f"lists of parameters: {lists}")
    set_optimizer_state_dict(part, part_optim, loaded["optim"])
    for name in ("weight", "bias"):
        mine, theirs = getattr(part.encoder, name), getattr(model.encoder, name)
        oracle.check(same(part_optim.state[mine], optim.state[theirs]), case, f"state of {name} differs")


def check_other_formats(oracle):
    """The names in param_groups for destinations other than DCP folders."""
    case = "formats"
    home = oracle.work / case
    model = module(renamed=False)
    optim = optimizer(model)
    train(model, optim, 1, seed=1)
    dcp.save(state(model, optim, False), checkpoint_id=home / "saved", no_dist=True)
    torch.save(state(model, optim, False), home / "saved.pt")
    wanted = [["body.first.weight", "encoder2.weight"], ["body.first.bias", "encoder2.bias", "state.moment"]]
    for source in ("saved", "saved.pt"):
        out = home / f"{source}.safetensors"
        oracle.succeeds(case, "convert", home / source, out, "--optimizer-follows", *flags(RENAMES))
        objects = json.loads(out.with_suffix(".objects.json").read_text())["objects"]
        lists = [objects[f"optim.param_groups.{i}.params"]["value"] for i in range(2)]
        oracle.check(lists == wanted, case, f"{source}: objects.json lists {lists}")
        tensors, _ = read_safetensors(out)
        oracle.check("optim.state.body.first.weight.exp_avg" in tensors and "optim.state.encoder.weight.exp_avg" not in
                     tensors, case, f"{source}: {sorted(tensors)}")
        oracle.succeeds(case, "convert", home / source, home / f"{source}_again.pt", "--optimizer-follows",
                        *flags(RENAMES))
        loaded = torch.load(home / f"{source}_again.pt", weights_only=True)
        lists = [group["params"] for group in loaded["optim"]["param_groups"]]
        oracle.check(lists == wanted, case, f"{source}: .pt lists {lists}")


def check_megatron(oracle, archive):
    case = archive.name.removesuffix(".tar.xz")
    home = oracle.work / case
    with tarfile.open(archive) as stored:
        stored.extractall(home)
    source = home / "checkpoint"
    expected = json.loads((home / "expected.json").read_text())["tensors"]
    status, _, err = oracle.run("convert", source, home / "new.safetensors", "--optimizer-follows", "--rename",
                                r"decoder\.layers\.(.*)=decoder.blocks.\1")
    oracle.check(status == 0 and "entries of optimizer state follow" in err, case, f"{status}: {err}")
    tensors, _ = read_safetensors(home / "new.safetensors")
    wanted = {key.replace("decoder.layers.", "decoder.blocks."): bytes.fromhex(entry["hex"])
              for key, entry in expected.items()}
    held = {key: tensor[2] for key, tensor in tensors.items() if key != "grad_scale"}
    oracle.check(held == wanted, case, f"other tensors: {sorted(held.keys() ^ wanted.keys())}")
    oracle.check(sum("blocks" in key for key in held) > 2, case, "nothing followed")


def check_refused(oracle):
    case = "refused"
    home = oracle.work / case
    dcp.save({"model": {"a": torch.zeros(1)}, "optim": {"state": {"a": {"step": torch.zeros(1)}}}},
             checkpoint_id=home / "saved", no_dist=True)
    status, _, err = oracle.run("convert", home / "saved", home / "out", "--to", "dcp", "--optimizer-follows", "--rename",
                                "model.a=net.b")
    oracle.check(status != 0 and not (home / "out").exists() and len(err.splitlines()) <= 2 and
                 "optim.state.a.step: its parameter model.a becomes net.b" in err, case, f"{status}: {err}")
    model = module(renamed=False)
    dcp.save(state(model, optimizer(model), False), checkpoint_id=home / "listed", no_dist=True)
    status, _, err = oracle.run("convert", home / "listed", home / "out", "--to", "dcp", "--optimizer-follows", "--rename",
                                b"model.encoder.bias=model.\xff".decode("utf-8", "surrogateescape"))
    oracle.check(status != 0 and not (home / "out").exists() and "optim.param_groups.1.params" in err and
                 "is not UTF-8" in err, case, f"a name of bytes: {status}: {err}")
    status, out, _ = oracle.run("reshard", home / "saved", home / "out", "--mesh", "2", "--dry-run", "--json",
                                "--optimizer-follows", "--rename", "model.a=model.b")
    oracle.check(status == 0 and "1 entry of optimizer state follows" in out, case, f"dry run: {status}: {out}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    for flat in (False, True):
        check_round_trip(oracle, flat, ("convert", "--to", "dcp"))
        check_round_trip(oracle, flat, ("reshard", "--mesh", "2", "--place", r"model\.encoder2\.weight=S(0)"))
    check_skipped(oracle)
    check_other_formats(oracle)
    for archive in sorted((oracle.data / "writers" / "megatron").glob("*.tar.xz")):
        check_megatron(oracle, archive)
    check_refused(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
