# SPDX-License-Identifier: Apache-2.0
"""redistribute and dcp.save with a mapping on real ranks: random models of two conventions in random layouts, there and
back, compared with numpy's tensors bit for bit. Ties, optimizer state, and errors that every rank gets."""
import json
import random

import common

common.need_torch()
import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed._shard.sharded_tensor import ShardedTensor  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from common import raw  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from rank_redistribute import distributed, mesh_over, part, random_mesh, random_placements  # noqa: E402

ROUNDS = 60 if common.long_runs() else 8

RULES = """
left = "parts"
right = "fused"
[sizes]
{sizes}
[captures]
layer = "layers"
expert = "experts"
[optimizer]
values = "keep"
[rename]
"layers.{{layer}}.norm" = "blocks.{{layer}}.norm"
[[rule]]
name = "qkv"
left.q = "layers.{{layer}}.q"
left.k = "layers.{{layer}}.k"
left.v = "layers.{{layer}}.v"
right = "blocks.{{layer}}.qkv"
index = "{qkv}"
[[rule]]
left.gate = "layers.{{layer}}.gate"
left.up = "layers.{{layer}}.up"
right = "blocks.{{layer}}.gate_up"
index = "{gate_up}"
[[rule]]
left = "layers.{{layer}}.experts.{{expert}}"
right = "blocks.{{layer}}.experts"
index = "one: f h -> all: expert h f"
[[rule]]
left = "layers.{{layer}}.scale"
right = "blocks.{{layer}}.scale"
values = ["x + 1"]
[[rule]]
left = "embed"
right = "embedding"
index = "stored: vocab h -> padded: [stored:vocab | _:pad] h"
[[tie]]
side = "left"
name = "head"
same_as = "embed"
"""

QKV = {
    True: "q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h",
    False: "q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: [q:(g r d) | k:(g d) | v:(g d)] h",
}
GATE_UP = {True: "gate: f h, up: f h -> both: (f [gate | up]) h", False: "gate: f h, up: f h -> both: h [gate:f | up:f]"}


class Model:
    """A random model: the tensors of both conventions, and the mapping between them."""

    def __init__(self, draw):
        self.sizes = {name: draw.randrange(1, 5) for name in ("layers", "experts", "g", "r", "d", "h", "f", "vocab", "pad")}
        self.by_group, self.by_row, self.is_tied = (draw.random() < 0.5 for _ in range(3))
        self.left, self.right = {}, {}
        self._next = 1
        self._fill()
        self.rules = RULES.format(sizes="\n".join(f"{name} = {size}" for name, size in self.sizes.items()),
                                  qkv=QKV[self.by_group], gate_up=GATE_UP[self.by_row])

    def _new(self, *shape):
        count = int(numpy.prod(shape))
        made = numpy.arange(self._next, self._next + count, dtype=numpy.float32).reshape(shape)
        self._next += count
        return made

    def _fill(self):
        g, r, d, h, f = (self.sizes[name] for name in "grdhf")
        for layer in range(self.sizes["layers"]):
            old, new = f"layers.{layer}.", f"blocks.{layer}."
            q, k, v = self._new(g * r * d, h), self._new(g * d, h), self._new(g * d, h)
            gate, up, norm, scale = self._new(f, h), self._new(f, h), self._new(h), self._new(h)
            experts = [self._new(f, h) for _ in range(self.sizes["experts"])]
            self.left |= {f"{old}{name}": one for name, one in
                          {"q": q, "k": k, "v": v, "gate": gate, "up": up, "norm": norm, "scale": scale}.items()}
            self.left |= {f"{old}experts.{number}": one for number, one in enumerate(experts)}
            if self.by_group:
                rows = [one.reshape(g, -1, h) for one in (q, k, v)]
                self.right[f"{new}qkv"] = numpy.concatenate(rows, axis=1).reshape(-1, h)
            else:
                self.right[f"{new}qkv"] = numpy.concatenate([q, k, v])
            self.right[f"{new}gate_up"] = (numpy.stack([gate, up], axis=1).reshape(-1, h) if self.by_row
                                           else numpy.concatenate([gate, up]).T)
            self.right[f"{new}experts"] = numpy.stack([one.T for one in experts])
            self.right |= {f"{new}norm": norm, f"{new}scale": scale + 1}
        self.left["embed"] = self._new(self.sizes["vocab"], h)
        self.right["embedding"] = numpy.concatenate([self.left["embed"], numpy.zeros((self.sizes["pad"], h), numpy.float32)])
        if self.is_tied:
            self.left["head"] = self.left["embed"]

    def new_name(self, key):
        """The right tensor that has the elements of a left one; None for a tied tensor."""
        if key in ("embed", "head"):
            return "embedding" if key == "embed" else None
        _, layer, name = key.split(".")[:3]
        fused = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
        return f"blocks.{layer}.{fused.get(name, name)}"

    def segments(self, key):
        """The lengths of the parts that lie one after another in the first dimension of a right tensor, if any."""
        g, r, d = (self.sizes[name] for name in "grd")
        return (g * r * d, g * d, g * d) if key.endswith(".qkv") and not self.by_group else None


def placing(draw, shape, world, segments=None, with_pairs=True):
    """Draws a layout, and returns the function that gives this rank's value of a whole tensor."""
    kinds = ["dtensor", "dtensor", "whole"] + (["pair"] if with_pairs else [])
    kinds += ["sharded"] if shape[0] % world == 0 else []
    kind = "segments" if segments and with_pairs and draw.random() < 0.5 else draw.choice(kinds)
    everyone = mesh_over(range(world), (world,))
    if kind == "whole":
        return lambda full: full.clone()
    if kind == "sharded":
        return lambda full: shardmesh.Shards.of(distributed(full.clone(), everyone, [Shard(0)])).sharded_tensor()
    if kind == "segments":
        layout = shardmesh.Layout(shape, (world,), tuple(range(world)), f"SG(0,{':'.join(map(str, segments))})")
        return lambda full: (layout, segments_of(full, segments, world))
    mesh = random_mesh(draw, world)
    placements = random_placements(draw, len(shape), mesh)
    if kind == "dtensor":
        return lambda full: distributed(full.clone(), mesh, placements)
    layout = shardmesh.Layout.on(mesh, placements, shape)
    return lambda full: (layout, part(full.clone(), mesh, placements))


def segments_of(full, segments, world):
    rank = torch.distributed.get_rank()
    cut = [torch.chunk(one, world) for one in torch.split(full, segments)]
    mine = [one[rank] for one in cut if rank < len(one)]
    return torch.cat(mine).clone() if mine else full[:0].clone()


def locals_of(value):
    if isinstance(value, tuple):
        return [raw(value[1])]
    if isinstance(value, ShardedTensor):
        return [raw(shard.tensor) for shard in value.local_shards()]
    return [raw(value._local_tensor if isinstance(value, DTensor) else value)]


def tensors_of(arrays):
    return {key: torch.from_numpy(array.copy()) for key, array in arrays.items()}


def rules_file(folder, rank, text):
    path = f"{folder}/{rank}.toml"
    with open(path, "w") as file:
        file.write(text)
    return path


def between_conventions(rank, world, seed, folder):
    draw, wrong = random.Random(seed), []
    for number in range(ROUNDS):
        model = Model(draw)
        file = rules_file(folder, rank, model.rules)
        for before, after, inverse in ((model.left, model.right, False), (model.right, model.left, True)):
            old, new = tensors_of(before), tensors_of(after)
            places = {key: placing(draw, tuple(one.shape), world, model.segments(key)) for key, one in {**old, **new}.items()}
            if "head" in new and draw.random() < 0.5:
                places["head"] = places["embed"]  # the same layout, and below also the same memory
            given = {key: places[key](one) for key, one in old.items()}
            into = {key: places[key](torch.full_like(one, -9)) for key, one in new.items()}
            if "head" in new and places["head"] is places["embed"] and draw.random() < 0.5:
                into["head"] = into["embed"]
            kept = {key: locals_of(one) for key, one in given.items()}
            report = shardmesh.redistribute(given, into=into, map=file, map_inverse=inverse,
                                            memory_bytes=draw.choice((0, 4096)))
            expected = {key: locals_of(places[key](one)) for key, one in new.items()}
            found = {key: locals_of(one) for key, one in into.items()}
            if found != expected or kept != {key: locals_of(one) for key, one in given.items()}:
                wrong.append((number, inverse, [key for key in expected if found[key] != expected[key]], model.sizes))
            if world == 1 and report.received_bytes:
                wrong.append((number, "received bytes of no other rank"))
    return wrong


def to_the_same_names(rank, world, seed):
    """Without a mapping: a state dict in other layouts, in one call; nested dicts, and another dtype."""
    draw, wrong = random.Random(seed), []
    whole = {key: torch.arange(6.0 * rows).reshape(rows, 6) for key, rows in {"a": 4, "b.c": 3, "b.d": 5}.items()}
    for _ in range(ROUNDS):
        old, new = ({key: placing(draw, tuple(one.shape), world) for key, one in whole.items()} for _ in range(2))
        given = {"a": old["a"](whole["a"]), "b": {name: old[f"b.{name}"](whole[f"b.{name}"]) for name in "cd"}}
        into = {key: new[key](torch.full_like(one, -9)) for key, one in whole.items()}
        into["a"] = torch.full((4, 6), -9.0, dtype=torch.float64)
        shardmesh.redistribute(given, into=into)
        if {key: locals_of(one) for key, one in into.items()} != {
                **{key: locals_of(new[key](one)) for key, one in whole.items()}, "a": [raw(whole["a"].double())]}:
            wrong.append("other elements")
    return wrong


def with_state(model, side):
    """The tensors with a moment of each, whose elements are the negative ones, and a step."""
    made = dict(side)
    for key, one in side.items():
        unchanged = one - 1 if key.endswith("scale") and side is model.right else one
        made[f"optim.state.{key}.exp_avg"] = 0 - unchanged  # filler is 0, not -0
        made[f"optim.state.{key}.step"] = numpy.array(3, numpy.float32)
    return made


def saved(rank, world, seed, folder):
    """Saves of random models with optimizer state, loaded by PyTorch under the other names."""
    draw, wrong = random.Random(seed), []
    for number in range(max(2, ROUNDS // 4)):
        model = Model(draw)
        file = rules_file(folder, rank, model.rules)
        old, new = tensors_of(with_state(model, model.left)), tensors_of(with_state(model, model.right))
        state = {key: placing(draw, tuple(one.shape), world, with_pairs=False)(one) if one.dim() else one
                 for key, one in old.items()}
        names = list(model.left)
        draw.shuffle(names)
        state["optim.param_groups.0.params"] = names
        state["optim.param_groups.0.lr"] = 0.5
        state["epoch"] = {"number": 3, "seen": [1, 2]}
        path = f"{folder}/parents/{number}"
        plans = shardmesh.SavePlanCache()
        for _ in range(2):
            metadata = shardmesh.dcp.save(state, checkpoint_id=path, map=file, overwrite=True, plan_cache=plans)
        if plans.reuses != 1:
            wrong.append((number, plans.reuses))
        objects = {"optim.param_groups.0.params", "optim.param_groups.0.lr"}
        others = {key for key in metadata.state_dict_metadata if key.startswith("epoch")}
        if set(metadata.state_dict_metadata) != set(new) | objects | others or not others:
            wrong.append((number, sorted(metadata.state_dict_metadata)))
        loaded = {key: torch.full_like(one, -9) for key, one in new.items()}
        torch_checkpoint.load(loaded, checkpoint_id=path)
        wrong += [(number, key) for key in new if raw(loaded[key]) != raw(new[key])]
        stored = shardmesh.open(path)
        renamed = [one for one in dict.fromkeys(model.new_name(name) for name in names) if one is not None]
        if stored.load("optim.param_groups.0.params") != renamed or stored.load("optim.param_groups.0.lr") != 0.5:
            wrong.append((number, stored.load("optim.param_groups.0.params"), renamed))
    return wrong


def told(call):
    try:
        call()
        return "no error", ""
    except shardmesh.Error as problem:
        return problem.code, str(problem)


TIED = ("left = 'a'\nright = 'b'\n[rename]\n'embed' = 'e'\n'norm' = 'n'\n[[tie]]\nside = 'left'\nname = 'head'\n"
        "same_as = 'embed'\n")


def refused(rank, world, folder):
    """The errors of every rank, each followed by a call that works."""
    mesh = mesh_over(range(world), (world,))
    file = rules_file(folder, rank, TIED)
    whole = {"embed": torch.arange(8.0).reshape(4, 2), "norm": torch.arange(3.0)}
    state = {key: distributed(one, mesh, [Shard(0)]) for key, one in whole.items()}
    into = {"e": torch.zeros(4, 2), "n": torch.zeros(3)}
    said = []

    def move(given=state, to=into, **options):
        said.append(told(lambda: shardmesh.redistribute(given, into=to, **{"map": file, **options})))
        for one in into.values():
            one.zero_()
        shardmesh.redistribute(state, into=into, map=file)
        said.append((raw(into["e"]), raw(into["n"])) == (raw(whole["embed"]), raw(whole["norm"])))

    move(map=f"{folder}/missing.toml" if rank == world - 1 else file)
    move(given={**state, "epoch": 3})
    move(to={"e": into["e"]})
    move(to={**into, "x": torch.zeros(2)})
    move(given={**state, "head": distributed(whole["embed"] + (rank == 0), mesh, [Replicate()])})
    move(to={**into, "e": torch.zeros(4, 2, dtype=torch.bfloat16)})
    move(sizes={"nothing": 3})
    move(progress=3 if rank == 1 else False)
    path = f"{folder}/none/saved"
    partial = {**state, "norm": distributed(whole["norm"], mesh, [Partial()])}
    for broken, options in ((partial, {}), ({**state, "head": whole["embed"] + 1}, {}),
                            (state, {"no_dist": rank == 1}), (state, {"sizes": {"h": "x"} if rank == 2 else None}),
                            (state, {"progress": 3 if rank == 0 else False}),
                            (state, {"map": f"{folder}/missing.toml" if rank == 0 else file})):
        said.append(told(lambda: shardmesh.dcp.save(broken, checkpoint_id=path, **{"map": file, **options})))
    return said


def notes_of_a_save(rank, world, folder):
    state = {"embed": torch.arange(8.0).reshape(4, 2), "head": torch.arange(8.0).reshape(4, 2), "norm": torch.ones(3)}
    saved = shardmesh.dcp.save(state, checkpoint_id=f"{folder}/noted", map=rules_file(folder, rank, TIED))
    return saved.notes, isinstance(saved, torch_checkpoint.Metadata), sorted(saved.state_dict_metadata)


def local_of(value):
    return value._local_tensor if isinstance(value, DTensor) else value


def saved_in_background(rank, world, seed, folder):
    """Two saves in the background while the state changes and other calls move tensors; then the errors of every rank."""
    draw, wrong = random.Random(seed), []
    model = Model(draw)
    file = rules_file(folder, rank, model.rules)
    old, new = tensors_of(model.left), tensors_of(model.right)
    everyone = mesh_over(range(world), (world,))
    state = {key: distributed(one.clone(), everyone, [Shard(0)]) for key, one in old.items()}
    saves = [shardmesh.dcp.async_save(state, checkpoint_id=f"{folder}/background/0", map=file)]
    for one in state.values():
        local_of(one).add_(1)
    saves.append(shardmesh.dcp.async_save(state, checkpoint_id=f"{folder}/background/1", map=file))
    into = {key: torch.zeros_like(one) for key, one in new.items()}
    shardmesh.redistribute({key: one + 0 for key, one in old.items()}, into=into, map=file)
    for one in state.values():
        local_of(one).zero_()
    wrong += [("moved", key) for key in new if raw(into[key]) != raw(new[key])]
    kept = [save.result() for save in saves]
    blocking = shardmesh.dcp.save({key: one.clone() for key, one in old.items()}, checkpoint_id=f"{folder}/blocking", map=file)
    wrong += [("notes", save.notes, blocking.notes) for save in kept if save.notes != blocking.notes]
    for number in range(2):
        loaded = {key: torch.full_like(one, -9) for key, one in new.items()}
        torch_checkpoint.load(loaded, checkpoint_id=f"{folder}/background/{number}")
        shown = {key: one + number for key, one in old.items()}
        expected = {key: torch.zeros_like(one) for key, one in new.items()}
        shardmesh.redistribute(shown, into=expected, map=file)
        wrong += [(number, key) for key in new if raw(loaded[key]) != raw(expected[key])]
    said = []
    for broken, options in ((state, {"map": f"{folder}/missing.toml" if rank == 0 else file}),
                            (state, {"async_stager": object()}),
                            (state, {"no_dist": True}), (state, {"map": None, "sizes": {"n": 1}}),
                            ({**state, "more": torch.zeros(2)}, {}), (state, {"sizes": {"hh": 1}})):
        said.append(told(lambda: shardmesh.dcp.async_save(
            broken, checkpoint_id=f"{folder}/background/none", **{"map": file, **options}).result()))
    return wrong, said


class RankMappings(common.WorkTest):
    def none_wrong(self, world, function, *arguments):
        for rank, wrong in enumerate(run_ranks(world, function, *arguments)):
            self.assertEqual(wrong, [], f"rank {rank} of {world}, SHARDMESH_SEED={common.seed()}")

    def test_random_models_move_from_one_convention_to_the_other_and_back(self):
        for world in (1, 2, 3, 5):
            with self.subTest(world=world):
                self.none_wrong(world, between_conventions, common.seed(), str(self.work))

    def test_a_state_dict_moves_into_one_of_the_same_names(self):
        self.none_wrong(3, to_the_same_names, common.seed())

    def test_a_save_under_other_names_is_what_pytorch_loads(self):
        for world in (1, 3):
            with self.subTest(world=world):
                (self.work / str(world)).mkdir()
                self.none_wrong(world, saved, common.seed(), str(self.work / str(world)))

    def test_every_rank_gets_the_notes_of_a_save(self):
        (self.work / "one").mkdir()
        shardmesh.save({"embed": torch.zeros(4, 2), "head": torch.zeros(4, 2), "norm": torch.ones(3)}, self.work / "one/x")
        rules = rules_file(self.work, 0, TIED)
        expected = shardmesh.open(self.work / "one/x", map=rules).notes
        self.assertEqual([note for note in expected if note.startswith("head ")], expected[-1:])
        for said in run_ranks(3, notes_of_a_save, str(self.work)):
            self.assertEqual(said, (expected, True, ["e", "n"]))

    def test_a_save_in_the_background_has_the_state_of_its_call(self):
        for world in (1, 3):
            (self.work / str(world)).mkdir()
            for wrong, said in run_ranks(world, saved_in_background, common.seed(), str(self.work / str(world))):
                self.assertEqual(wrong, [], f"{world} ranks, SHARDMESH_SEED={common.seed()}")
                for (code, text), word in zip(said, ("missing.toml", "async_stager", "no_dist", "sizes", "more", "hh"),
                                              strict=True):
                    self.assertNotEqual(code, "no error", word)
                    self.assertIn(word, text)
            self.assertFalse((self.work / str(world) / "background/none").exists())

    def test_every_rank_gets_an_error_and_the_next_call_works(self):
        for said in run_ranks(3, refused, str(self.work)):
            moves, saves = said[:16], said[16:]
            self.assertEqual(moves[1::2], [True] * 8)
            answers = moves[0::2] + saves
            self.assertNotIn("no error", [code for code, _ in answers])
            for (code, text), words in zip(answers, (
                    ("missing.toml",), ("only tensors move between ranks",), ("n: the mapping makes this tensor",),
                    ("x: the mapping does not make this target",), ("head: the mapping ties this tensor to embed",),
                    ("e: ", "bfloat16"), ("nothing",), ("progress",), ("norm", "terms that are still to be combined"),
                    ("head: the mapping ties this tensor to embed",), ("no_dist",), ("sizes",), ("progress",),
                    ("missing.toml",))):
                for word in words:
                    self.assertIn(word, text, code)
        self.assertFalse((self.work / "none").exists())

    def test_arguments_that_do_not_belong_together(self):
        state = {"a": torch.zeros(2)}
        for call, word in ((lambda: shardmesh.redistribute(state), "into"),
                           (lambda: shardmesh.redistribute(state, into=state, placements=[Shard(0)]), "placements"),
                           (lambda: shardmesh.redistribute(state["a"], into=state), "state dicts"),
                           (lambda: shardmesh.redistribute(state, into=state, config="c.json"), "config")):
            code, text = told(call)
            self.assertEqual(code, "invalid_argument", text)
            self.assertIn(word, text)

    def test_the_mapping_of_the_test_is_what_one_process_applies(self):
        """The numpy model of this file against `open`, which other tests compare with other programs."""
        draw = random.Random(common.seed())
        for number in range(ROUNDS):
            model = Model(draw)
            (self.work / "rules.toml").write_text(model.rules)
            (self.work / "config.json").write_text(json.dumps({}))
            shardmesh.save(tensors_of(model.left), self.work / str(number))
            shown = shardmesh.open(self.work / str(number), map=self.work / "rules.toml")
            self.assertEqual(set(shown), set(model.right))
            for key, array in model.right.items():
                self.assertEqual(raw(shown.load(key)), array.tobytes(), f"{key}, SHARDMESH_SEED={common.seed()}")


if __name__ == "__main__":
    common.main()
