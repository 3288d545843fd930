# SPDX-License-Identifier: Apache-2.0
"""`convert --map` of training checkpoints, against PyTorch. A model with separate q, k, and v and its AdamW are saved
as DCP folders. The mapped folder is loaded into a model with fused qkv, whose optimizer must then hold the joined
moments, and the inverse restores every bit. Parameters that cannot be joined are refused."""
import warnings

from common import Oracle, need_torch, read_safetensors

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict)

MAPPING = """
left = "parts"
right = "fused"
[sizes]
q = 4
kv = 2
h = 3
[captures]
layer = 2
[rename]
"norm.weight" = "final.weight"
[[rule]]
name = "qkv"
left.q = "layers.{layer}.q.weight"
left.k = "layers.{layer}.k.weight"
left.v = "layers.{layer}.v.weight"
right.qkv = "blocks.{layer}.qkv.weight"
index = "q: q h, k: kv h, v: kv h -> qkv: [q:q | k:kv | v:kv] h"
"""


def model(fused):
    made = torch.nn.Module()
    torch.manual_seed(5)
    layers = []
    for _ in range(2):
        layer = torch.nn.Module()
        for name, rows in (("qkv", 8),) if fused else (("q", 4), ("k", 2), ("v", 2)):
            setattr(layer, name, torch.nn.Linear(3, rows, bias=False))
        layers.append(layer)
    setattr(made, "blocks" if fused else "layers", torch.nn.ModuleList(layers))
    norm = torch.nn.Linear(3, 1, bias=False)
    setattr(made, "final" if fused else "norm", norm)
    return made


def trained(made, steps, seed, groups=None):
    optim = torch.optim.AdamW(groups or made.parameters(), lr=0.125, amsgrad=True)
    torch.manual_seed(seed)
    for _ in range(steps):
        for parameter in made.parameters():
            parameter.grad = torch.randn_like(parameter)
        optim.step()
    return optim


def state(made, optim, flat):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    return {**made.state_dict(), "optim": get_optimizer_state_dict(made, optim, options=options)}


def joined(of):
    """qkv of each layer, from {name: tensor} of the parts."""
    return {f"blocks.{layer}.qkv.weight": torch.cat([of[f"layers.{layer}.{name}.weight"] for name in "qkv"])
            for layer in range(2)} | {"final.weight": of["norm.weight"]}


def moments(made, optim, name):
    return {key: optim.state[parameter][name] for key, parameter in made.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def check_joined(oracle, flat, rules):
    case = "flattened" if flat else "nested"
    home = oracle.work / case
    parts = model(fused=False)
    optim = trained(parts, 3, seed=1)
    dcp.save(state(parts, optim, flat), checkpoint_id=home / "parts", no_dist=True)
    status, _, err = oracle.run("convert", home / "parts", home / "fused", "--to", "dcp", "--map", rules)
    good = status == 0 and "entries of optimizer state follow the parameters" in err
    if not oracle.check(good, case, f"{status}: {err}"):
        return
    oracle.succeeds(case, "verify", home / "fused", "--strict")

    fused = model(fused=True)
    fused_optim = trained(fused, 1, seed=2)  # different from the values to load
    loaded = state(fused, fused_optim, flat)
    dcp.load(loaded, checkpoint_id=home / "fused", no_dist=True)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    set_optimizer_state_dict(fused, fused_optim, loaded.pop("optim"), options=options)
    oracle.check(same(loaded, joined(parts.state_dict())), case, "parameters differ")
    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
        found = moments(fused, fused_optim, name)
        oracle.check(same(found, joined(moments(parts, optim, name))), case, f"{name} differs")
    steps = moments(fused, fused_optim, "step")
    oracle.check(all(step == 3 for step in steps.values()), case, f"steps: {steps}")
    groups = fused_optim.state_dict()["param_groups"]
    oracle.check(groups[0]["params"] == [0, 1, 2] and groups[0]["lr"] == 0.125, case, f"groups: {groups}")

    oracle.succeeds(case, "convert", home / "fused", home / "back", "--to", "dcp", "--map", rules, "--inverse")
    oracle.succeeds(case, "diff", home / "back", home / "parts")
    oracle.succeeds(case, "diff", home / "parts", home / "fused", "--map", rules)


def check_shown(oracle, rules):
    """map show names the tensors that it reads: the state of the parameters, not the parameters."""
    home = oracle.work / "shown"
    parts = model(fused=False)
    dcp.save(state(parts, trained(parts, 1, seed=1), False), checkpoint_id=home, no_dist=True)
    for kind, prefix, suffix in (("parameter", "", ""), ("moments", "optim.state.", ".exp_avg"),
                                 ("step", "optim.state.", ".step")):
        out = oracle.succeeds(kind, "map", "show", home, f"{prefix}blocks.1.qkv.weight{suffix}", "--map", rules)
        named = [line.split()[0] for line in (out or "").splitlines()[2:]]
        oracle.check(named == [f"{prefix}layers.1.{name}.weight{suffix}" for name in "qkv"], kind, f"map show: {out}")


def check_one_command(oracle, rules):
    """--no-optimizer leaves out the state that has followed."""
    case = "no optimizer"
    home = oracle.work / "no_optimizer"
    parts = model(fused=False)
    dcp.save(state(parts, trained(parts, 1, seed=1), False), checkpoint_id=home / "parts", no_dist=True)
    if oracle.succeeds(case, "convert", home / "parts", home / "out.safetensors", "--map", rules,
                       "--no-optimizer") is None:
        return
    tensors, _ = read_safetensors(home / "out.safetensors")
    oracle.check(sorted(tensors) == sorted(joined(parts.state_dict())), case, f"tensors: {sorted(tensors)}")


def check_refused(oracle, rules):
    parts = model(fused=False)
    optim = trained(parts, 1, seed=1)
    optim.state[parts.layers[1].k.weight]["step"] += 1
    home = oracle.work / "refused"
    dcp.save(state(parts, optim, False), checkpoint_id=home / "steps", no_dist=True)
    status, _, err = oracle.run("convert", home / "steps", home / "out", "--to", "dcp", "--map", rules)
    oracle.check(status != 0 and not (home / "out").exists() and "1 of optim.state.layers.1.q.weight.step" in err and
                 "2 of optim.state.layers.1.k.weight.step" in err, "steps", f"{status}: {err}")

    other = model(fused=False)
    groups = [{"params": [p for n, p in other.named_parameters() if not n.endswith("k.weight")]},
              {"params": [p for n, p in other.named_parameters() if n.endswith("k.weight")], "lr": 0.5}]
    optim = trained(other, 1, seed=1, groups=groups)
    for flat, told in ((False, "joins parameters of different groups"), (True, "have different values")):
        source = home / f"groups_{flat}"
        dcp.save(state(other, optim, flat), checkpoint_id=source, no_dist=True)
        status, _, err = oracle.run("convert", source, home / "out", "--to", "dcp", "--map", rules)
        oracle.check(status != 0 and not (home / "out").exists() and told in err, "groups", f"{status}: {err}")


def main():
    oracle = Oracle(__doc__, syncs=False)
    rules = oracle.work / "qkv.toml"
    rules.write_text(MAPPING)
    for flat in (False, True):
        check_joined(oracle, flat, rules)
    check_shown(oracle, rules)
    check_one_command(oracle, rules)
    check_refused(oracle, rules)
    oracle.finish()


if __name__ == "__main__":
    main()
