# SPDX-License-Identifier: Apache-2.0
"""Megatron's older format with a file for each rank (mp_rank_TT_PPP/model_optim_rng.pt): models that PyTorch cuts as
Megatron's tensor and pipeline parallelism do are read whole, bit for bit, and convert to Hugging Face's names. Files that
do not fit together are refused in one line that names key and file. Needs PyTorch and NumPy."""
import argparse
import io
import json
import shutil

from common import Oracle, need_torch, skip, seed as common_seed
from writer_answers import refused, same_tensors

need_torch()
try:
    import numpy as np
except ImportError as missing:
    skip(str(missing))
import torch  # noqa: E402

import mapping_layouts as layouts  # noqa: E402

CONFIG = {"hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 4, "vocab_size": 16, "num_attention_heads": 8,
          "num_key_value_heads": 4, "head_dim": 6}
ROWS = ("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias")
COLUMNS = ("linear_proj.weight", "linear_fc2.weight")
LAYERS = "decoder.layers."


def tensor_of(array):
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made.view(torch.bfloat16) if array.dtype == np.uint16 else made


def part_of(key, tensor, rank, ranks):
    """The part of a tensor-parallel rank. linear_fc1 has rows of gate, then of up, in each part."""
    if key.endswith("linear_fc1.weight"):
        return torch.cat([half.chunk(ranks)[rank] for half in tensor.chunk(2)])
    if key.endswith(ROWS + COLUMNS):
        return tensor.chunk(ranks, int(key.endswith(COLUMNS)))[rank].clone()
    return tensor


def stage_of(key, chunks, stages):
    """(chunk, pipeline rank, key in the file): chunk c of rank p has the layers of stage c * stages + p."""
    if key.startswith(LAYERS):
        number, rest = key[len(LAYERS):].split(".", 1)
        each = CONFIG["num_hidden_layers"] // (chunks * stages)
        stage, layer = divmod(int(number), each)
        return stage // stages, stage % stages, f"{LAYERS}{layer}.{rest}"
    return (0, 0, key) if key.startswith("embedding.") else (chunks - 1, stages - 1, key)


def write_folder(oracle, name, whole, ranks, stages, chunks=1, change=lambda rank, stage, state: None):
    folder = oracle.work / name
    shutil.rmtree(folder, ignore_errors=True)
    for stage in range(stages):
        for rank in range(ranks):
            state = {"args": argparse.Namespace(rank=rank, swiglu=True), "checkpoint_version": 3.0, "iteration": 7,
                     "optimizer": {"state": {0: {"exp_avg": torch.full((2,), float(10 * stage + rank))}}}}
            roots = ["model"] if chunks == 1 else [f"model{chunk}" for chunk in range(chunks)]
            state |= {root: {} for root in roots}
            for key, tensor in whole.items():
                chunk, of, stored = stage_of(key, chunks, stages)
                if of == stage:
                    state[roots[chunk]][stored] = part_of(key, tensor, rank, ranks)
            change(rank, stage, state)
            of_rank = folder / (f"mp_rank_{rank:02}" + (f"_{stage:03}" if stages > 1 else ""))
            of_rank.mkdir(parents=True)
            torch.save(state, of_rank / "model_optim_rng.pt")
    return folder


def expected_of(whole, ranks, stages):
    made = {"model." + key: tensor for key, tensor in whole.items()}
    for stage in range(stages):
        for rank in range(ranks):
            name = f"mp_rank_{rank:02}" + (f"_{stage:03}" if stages > 1 else "")
            made[name + ".optimizer.state.0.exp_avg"] = torch.full((2,), float(10 * stage + rank))
    return made


def models(oracle, seed):
    grids = ((2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (1, 4, 1), (2, 2, 2))
    for number, (ranks, stages, chunks) in enumerate(grids):
        case = f"{ranks} x {stages} ranks, {chunks} chunks"
        state = layouts.make_llama(CONFIG, (np.float32, np.uint16)[number % 2], seed + number, bias=True)
        whole = {key: tensor_of(array) for key, array in layouts.to_megatron(CONFIG, state).items()}
        folder = write_folder(oracle, f"model_{number}", whole, ranks, stages, chunks)
        same_tensors(oracle, case, folder, expected_of(whole, ranks, stages), "--skip-objects", "--skip-unsupported")
        oracle.succeeds(case, "verify", folder)
        shown = json.loads(oracle.succeeds(case, "inspect", folder, "--json") or "{}")
        oracle.check(shown.get("format") == "torch-files", case, f"the format is {shown.get('format')}")
        objects = set(shown.get("objects", {}))
        oracle.check({"iteration", "checkpoint_version"} <= objects and ("args" in objects) == (ranks == 1), case, f"objects: {objects}")
        # The model alone, and under Hugging Face's names.
        model = oracle.work / f"model_{number}.safetensors"
        if oracle.succeeds(case, "convert", folder, model, "--only", r"model\..*", "--strip-prefix", "model.") is not None:
            (oracle.work / "config.json").write_text(json.dumps(CONFIG))
            hf = {key: tensor_of(array) for key, array in state.items()}
            same_tensors(oracle, case, model, hf, "--map", "megatron.gpt:hf.llama", "--config", oracle.work / "config.json")


def run_folder(oracle, seed):
    """The folder of a run means the ranks of its latest iteration."""
    whole = {key: tensor_of(array) for key, array in
             layouts.to_megatron(CONFIG, layouts.make_llama(CONFIG, np.float32, seed)).items()}
    write_folder(oracle, "run/iter_0000007", whole, 2, 1)
    (oracle.work / "run/latest_checkpointed_iteration.txt").write_text("7\n")
    same_tensors(oracle, "run", oracle.work / "run", expected_of(whole, 2, 1), "--skip-objects", "--skip-unsupported")


def states(oracle, seed):
    """Transformer Engine's states differ between the ranks; the distributed optimizer's files are named, not read."""
    whole = {key: tensor_of(array) for key, array in
             layouts.to_megatron(CONFIG, layouts.make_llama(CONFIG, np.float32, seed)).items()}

    def change(rank, stage, state):
        state["model"][LAYERS + "1.mlp.linear_fc1._extra_state"] = io.BytesIO(bytes([rank]))
        state["model"][LAYERS + "1.mlp.linear_fc2._extra_state"] = None
        state["model"][LAYERS + "2.mlp.linear_fc1._extra_state"] = torch.full((rank + 1,), rank, dtype=torch.uint8)
        state["model"][LAYERS + "2.mlp.linear_fc2._extra_state"] = torch.ones(3, dtype=torch.uint8)

    folder = write_folder(oracle, "states", whole, 2, 1, change=change)
    (folder / "mp_rank_01/distrib_optim.pt").write_bytes(b"")
    expected = expected_of(whole, 2, 1)
    expected[f"model.{LAYERS}2.mlp.linear_fc2._extra_state"] = torch.ones(3, dtype=torch.uint8)
    for rank in range(2):
        key = f"model.{LAYERS}2.mlp.linear_fc1._extra_state.rank_{rank}"
        expected[key] = torch.full((rank + 1,), rank, dtype=torch.uint8)
    same_tensors(oracle, "states", folder, expected, "--skip-objects", "--skip-unsupported")
    shown = json.loads(oracle.succeeds("states", "inspect", folder, "--json") or "{}")
    wanted = {f"model.{LAYERS}1.mlp.linear_fc1._extra_state.rank_{rank}" for rank in range(2)}
    oracle.check(wanted <= set(shown.get("objects", {})), "states", f"objects: {sorted(shown.get('objects', {}))}")
    status, _, err = oracle.run("convert", folder, oracle.work / "states.safetensors", "--skip-objects",
                                "--skip-unsupported")
    said = ("distrib_optim.pt of 1 rank", "outside of the model", "merged: 2 ranks of tensor parallelism, and 1 rank of")
    oracle.check(status == 0 and all(text in err for text in said), "states", f"exits {status}: {err[-500:]}")


def refusals(oracle, seed):
    whole = {key: tensor_of(array) for key, array in
             layouts.to_megatron(CONFIG, layouts.make_llama(CONFIG, np.float32, seed)).items()}
    norm, qkv = "decoder.final_layernorm.weight", LAYERS + "0.self_attention.linear_qkv.weight"

    def case(name, parts, change, ranks=2, stages=1):
        refused(oracle, name, write_folder(oracle, "refused", whole, ranks, stages, change=change), *parts)

    def second(edit):
        return lambda rank, stage, state: edit(state["model"]) if (rank, stage) == (1, 0) else None

    case("other norm", ["model." + norm, "mp_rank_01"], second(lambda model: model.update({norm: torch.zeros(24)})))
    case("missing", ["model." + qkv, "mp_rank_01"], second(lambda model: model.pop(qkv)))
    case("dtype", ["model." + qkv, "mp_rank_01"], second(lambda model: model.update({qkv: model[qkv].double()})))
    case("shape", ["model." + qkv, "mp_rank_01"], second(lambda model: model.update({qkv: model[qkv][:-1].clone()})))
    folder = write_folder(oracle, "refused", whole, 2, 2)
    shutil.rmtree(folder / "mp_rank_01_000")
    refused(oracle, "missing rank", folder, "rank 1 of pipeline rank 0")
    folder = write_folder(oracle, "refused", whole, 1, 2)
    shutil.copytree(folder / "mp_rank_00_001", folder / "mp_rank_00_002")
    refused(oracle, "expert parallelism", folder, norm, "expert parallelism")
    folder = write_folder(oracle, "refused", whole, 2, 1)
    (folder / "mp_rank_01").rename(folder / "mp_rank_01_backup")
    refused(oracle, "other name", folder, "mp_rank_01_backup", "not that of a rank")


def main():
    oracle = Oracle(__doc__, syncs=False)
    seed = common_seed()
    for part in (models, run_folder, states, refusals):
        if oracle.args.only in part.__name__:
            part(oracle, seed)
    oracle.finish()


if __name__ == "__main__":
    main()
