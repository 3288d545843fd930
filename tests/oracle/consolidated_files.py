# SPDX-License-Identifier: Apache-2.0
"""Meta's folders (consolidated.NN.pth and params.json): models that PyTorch cuts as fairscale's layers do are read
whole, bit for bit, and convert to Hugging Face's names. Files that do not belong together are refused in one line that
names key and file. Needs PyTorch and NumPy."""
import io
import json
import shutil

from common import Oracle, need_torch, read_safetensors, skip, seed as common_seed
from writer_answers import refused, same_tensors, tensors_of

need_torch()
try:
    import numpy as np
except ImportError as missing:
    skip(str(missing))
import torch  # noqa: E402

import mapping_layouts as layouts  # noqa: E402

# The formula of Llama 1 to 3: int(8 / 3 * 24) = 64, a multiple of 32.
CONFIG = {"hidden_size": 24, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 16,
          "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6}
COLUMNS = ("attention.wo.weight", "feed_forward.w2.weight")
COPIES = ("norm.weight", "rope.freqs")


def params_of(config, vocabulary):
    return {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"],
            "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"],
            "head_dim": config["head_dim"], "multiple_of": 32, "norm_eps": 1e-05, "vocab_size": vocabulary}


def tensor_of(array):
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made.view(torch.bfloat16) if array.dtype == np.uint16 else made


def make_model(seed, dtype):
    """The state dicts of Hugging Face and of Meta."""
    state = layouts.make_llama(CONFIG, dtype, seed)
    meta = {key: tensor_of(array) for key, array in layouts.to_meta(CONFIG, state).items()}
    meta["rope.freqs"] = torch.arange(3, dtype=torch.float32)
    return {key: tensor_of(array) for key, array in state.items()}, meta


def part_of(key, tensor, rank, ranks, embedding):
    """The part of one rank, as fairscale's ColumnParallelLinear, RowParallelLinear, and embeddings have it."""
    if key.endswith(COPIES):
        return tensor
    dim = embedding if key == "tok_embeddings.weight" else int(key.endswith(COLUMNS))
    return tensor.chunk(ranks, dim)[rank].clone()


def write_folder(oracle, name, whole, ranks, embedding):
    folder = oracle.work / name
    folder.mkdir()
    for rank in range(ranks):
        torch.save({key: part_of(key, tensor, rank, ranks, embedding) for key, tensor in whole.items()},
                   folder / f"consolidated.{rank:02}.pth")
    params = params_of(CONFIG, CONFIG["vocab_size"] if embedding == 0 else -1)
    (folder / "params.json").write_text(json.dumps(params))
    (folder / "checklist.chk").write_text("0123456789abcdef  consolidated.00.pth\n")
    return folder


def models(oracle, seed):
    """Every number of files, the embedding of Llama 1 and 2 and that of Llama 3, two dtypes."""
    for number, (ranks, embedding) in enumerate((ranks, embedding) for ranks in (1, 2, 4) for embedding in (0, 1)):
        case = f"{ranks} files, embedding {embedding}"
        state, whole = make_model(seed + number, (np.float32, np.uint16)[number % 2])
        folder = write_folder(oracle, f"model_{number}", whole, ranks, embedding)
        same_tensors(oracle, case, folder, whole)
        oracle.succeeds(case, "verify", folder)
        shown = json.loads(oracle.succeeds(case, "inspect", folder, "--json") or "{}")
        oracle.check(shown.get("format") == "torch-files", case, f"the format is {shown.get('format')}")
        chunks = shown["tensors"]["layers.1.attention.wo.weight"]["chunks"]
        oracle.check([(chunk["offsets"][1], chunk["file"]) for chunk in chunks] ==
                     [(48 // ranks * rank, f"consolidated.{rank:02}.pth") for rank in range(ranks)], case, f"{chunks}")
        # The sizes come from params.json.
        same_tensors(oracle, case, folder, state, "--map", "meta.llama:hf.llama")
        for to in ("dcp", "pt", "hf"):
            made = oracle.work / f"model_{number}.{to}"
            oracle.succeeds(case, "convert", folder, made, "--to", to)
            oracle.succeeds(case, "diff", folder, made)
        oracle.succeeds(case, "diff", folder, oracle.work / f"model_{number}.dcp", "--all")


def llama_4(oracle):
    """Fused tensors, experts, statistics, and TransformerEngine's states, by the rules of llama-models."""
    ranks, dim, heads, key_heads, width, experts = 2, 8, 4, 2, 6, 3
    q, kv = dim, dim // heads * key_heads
    torch.manual_seed(5)
    base = "layers.0."
    wq, wk, wv = torch.randn(q, dim), torch.randn(kv, dim), torch.randn(kv, dim)
    w1, w3 = torch.randn(width, dim), torch.randn(width, dim)
    w_in, w_out = torch.randn(experts, dim, width), torch.randn(experts, width, dim)
    plain = {base + "attention.wqkv.layer_norm_weight": torch.randn(dim),
             base + "feed_forward.router_DE": torch.randn(dim, experts)}
    files = []
    for rank in range(ranks):
        cut = [part.chunk(ranks)[rank] for part in (wq, wk, wv, w1, w3)]
        files.append({**plain, base + "attention.wqkv.weight": torch.cat(cut[:3]),
                      base + "feed_forward.mlp.fc1_weight": torch.cat(cut[3:]),
                      base + "feed_forward.experts.moe_w_in_eD_F": w_in.chunk(ranks, 2)[rank].reshape(3 * dim, -1),
                      base + "feed_forward.experts.moe_w_out_eF_D": w_out.chunk(ranks, 1)[rank].reshape(-1, dim),
                      base + "feed_forward.global_gate_stats_3E": torch.full((3, 3), float(rank)),
                      base + "attention.wqkv._extra_state": io.BytesIO(b"state")})
    folder = oracle.work / "llama_4"
    folder.mkdir()
    for rank, state in enumerate(files):
        torch.save(state, folder / f"consolidated.{rank:02}.pth")
    params = {"dim": dim, "n_heads": heads, "n_kv_heads": key_heads, "vocab_size": 4, "ffn_exp": 4.0, "multiple_of": 8,
              "moe_args": {"num_experts": experts}}
    (folder / "params.json").write_text(json.dumps(params))
    expected = {**plain, base + "attention.wqkv.weight": torch.cat((wq, wk, wv)),
                base + "feed_forward.mlp.fc1_weight": torch.cat((w1, w3)),
                base + "feed_forward.experts.moe_w_in_eD_F": w_in.reshape(experts * dim, -1),
                base + "feed_forward.experts.moe_w_out_eF_D": w_out.reshape(-1, dim)}
    for rank in range(ranks):
        expected[f"{base}feed_forward.global_gate_stats_3E.rank_{rank}"] = torch.full((3, 3), float(rank))
    same_tensors(oracle, "Llama 4", folder, expected, "--skip-objects")


def mixtral(oracle):
    """Files of which each has other tensors."""
    folder = oracle.work / "mixtral"
    folder.mkdir()
    torch.save({"a": torch.ones(2, 3)}, folder / "consolidated.00.pt")
    torch.save({"b": torch.zeros(4)}, folder / "consolidated.01.pt")
    same_tensors(oracle, "files without a common tensor", folder, {"a": torch.ones(2, 3), "b": torch.zeros(4)})


def mistral(oracle, seed):
    """A safetensors file with Meta's names beside params.json."""
    state, whole = make_model(seed, np.float32)
    del whole["rope.freqs"]
    source = write_folder(oracle, "mistral_source", whole, 2, 0)
    folder = oracle.work / "mistral"
    folder.mkdir()
    oracle.succeeds("Mistral", "convert", source, folder / "consolidated.safetensors")
    shutil.copy(source / "params.json", folder)
    same_tensors(oracle, "Mistral", folder, whole)
    same_tensors(oracle, "Mistral", folder, state, "--map", "meta.llama:hf.llama")


def contradictions(oracle, seed):
    _, whole = make_model(seed, np.float32)
    good = write_folder(oracle, "good", whole, 4, 0)

    def copy(name):
        folder = oracle.work / name
        shutil.copytree(good, folder)
        return folder, folder / "consolidated.02.pth"

    def edited(name, edit):
        folder, file = copy(name)
        state = torch.load(file, weights_only=True)
        edit(state)
        torch.save(state, file)
        return folder

    folder, file = copy("hole")
    file.unlink()
    refused(oracle, "a missing file", folder, "number 02 is missing", "expected 4 files, found 3")
    folder, file = copy("cut")
    (folder / "consolidated.03.pth").unlink()
    file.unlink()
    refused(oracle, "the last files missing", folder, "consolidated.00.pth", "parts in 2 files", "all files")
    folder, file = copy("twice")
    shutil.copy(file, folder / "consolidated.02.pt")
    refused(oracle, "a number twice", folder, "consolidated.02.pt", "has the number of")
    folder, file = copy("broken")
    file.write_bytes(file.read_bytes()[:1000])
    refused(oracle, "a damaged file", folder, "consolidated.02.pth")
    folder, _ = copy("no params")
    (folder / "params.json").unlink()
    refused(oracle, "no params.json", folder, "params.json", "does not exist")
    for name, text in (("text", "{"), ("list", "[]"), ("deep", "[" * 100000), ("empty", "")):
        folder, _ = copy(f"params_{name}")
        (folder / "params.json").write_text(text)
        refused(oracle, f"params.json with {name}", folder, "params.json", "not a JSON object")
    for name, change, *parts in (("kv", {"n_kv_heads": 2}, "n_kv_heads", "a multiple of 4", "found 2"),
                                 ("dim", {"dim": 48}, "expected", "found"),
                                 ("vocab", {"vocab_size": 17}, ".weight", "[17, 24]", "[16, 24]"),
                                 ("width", {"multiple_of": 60}, "feed_forward.w", "120", "64"),
                                 ("huge", {"dim": 2**70}, "dim", "positive integer"),
                                 ("text", {"n_heads": "8"}, "n_heads", "positive integer")):
        folder, _ = copy(f"size_{name}")
        params = {**json.loads((folder / "params.json").read_text()), **change}
        (folder / "params.json").write_text(json.dumps(params))
        refused(oracle, f"another {name}", folder, *parts)
    refused(oracle, "a key of one file", edited("more", lambda state: state.update(more=torch.ones(2))),
            "consolidated.00.pth: more", "consolidated.02.pth")
    refused(oracle, "a key that one file lacks", edited("less", lambda state: state.pop("norm.weight")),
            "consolidated.02.pth: norm.weight", "consolidated.00.pth")
    refused(oracle, "a tensor and a number", edited("kind", lambda state: state.update({"norm.weight": 1})),
            "consolidated.02.pth: norm.weight", "is a tensor in consolidated.00.pth, but not in this file")
    refused(oracle, "another copy", edited("copy", lambda state: state["rope.freqs"].fill_(0.5)),
            "consolidated.02.pth: rope.freqs", "differ from those of consolidated.00.pth")
    # Norms of published models differ a little: the first file's are read, with a warning.
    folder = edited("norm", lambda state: state["layers.1.ffn_norm.weight"].fill_(0.5))
    same_tensors(oracle, "another norm", folder, whole)
    status, out, err = oracle.run("verify", folder)
    said = out + err
    oracle.check(status == 0 and "different copies of 1 tensor" in said and "layers.1.ffn_norm.weight" in said,
                 "another norm", f"{status}: {said}")
    oracle.check(oracle.run("verify", folder, "--strict")[0] == 1, "another norm", "the warning is none")
    refused(oracle, "another dtype",
            edited("dtype", lambda state: state.update({"output.weight": state["output.weight"].double()})),
            "consolidated.02.pth: output.weight", "expected float32, found float64")
    refused(oracle, "another shape",
            edited("shape", lambda state: state.update({"output.weight": state["output.weight"][:2]})),
            "consolidated.02.pth: output.weight", "expected [4, 24], found [2, 24]")
    # Each file opens, alone and as a part of its folder.
    folder = oracle.work / "copy"
    file = torch.load(folder / "consolidated.02.pth", weights_only=True)
    same_tensors(oracle, "one of four files", folder / "consolidated.02.pth", file)
    parts = tensors_of(oracle, "separate parts", folder, "--all")
    heads = sorted({key[:len("consolidated.00")] for key in parts})
    oracle.check(heads == [f"consolidated.{rank:02}" for rank in range(4)] and len(parts) == 4 * len(file),
                 "separate parts", f"{heads}, {len(parts)} tensors")
    status, _, err = oracle.run("inspect", folder, "--all")
    oracle.check(status == 0 and "rope.freqs: the consolidated files become separate parts" in err, "separate parts",
                 f"{status}: {err}")


def quantized(oracle, seed):
    """A tensor with its own representation, whose shape the file's description does not state."""
    _, whole = make_model(seed, np.float32)
    key = "layers.0.attention.wq.weight"
    for ranks in (1, 2):
        folder = write_folder(oracle, f"quantized_{ranks}", whole, ranks, 0)
        for file in folder.glob("*.pth"):
            state = torch.load(file, weights_only=True)
            state[key] = torch.quantize_per_tensor(state[key], 0.1, 0, torch.qint8)
            torch.save(state, file)
        if ranks == 1:
            oracle.succeeds("a quantized tensor", "verify", folder)
        else:
            refused(oracle, "quantized parts", folder, f"consolidated.00.pth: {key}", "is not one plain tensor cannot be merged")


def unknown(oracle):
    """Shards of a tensor with an unknown name."""
    folder = oracle.work / "unknown"
    folder.mkdir()
    for rank in range(2):
        torch.save({"adapter.weight": torch.full((2, 3), float(rank))}, folder / f"consolidated.{rank:02}.pth")
    (folder / "params.json").write_text(json.dumps({"dim": 6, "n_heads": 2}))
    refused(oracle, "an unknown tensor", folder, "consolidated.01.pth: adapter.weight", "no rule says how it is cut")


def beside(oracle, seed):
    """Hugging Face's files of the same folder are read; Meta's are a part with a name."""
    state, whole = make_model(seed, np.float32)
    folder = write_folder(oracle, "beside", whole, 2, 0)
    made = oracle.work / "made.safetensors"
    oracle.succeeds("beside", "convert", folder, made, "--map", "meta.llama:hf.llama")
    shutil.move(made, folder / "model.safetensors")
    same_tensors(oracle, "beside", folder, state)
    same_tensors(oracle, "beside", folder / "consolidated", whole)
    oracle.check(len(read_safetensors(folder / "model.safetensors")[0]) == len(state), "beside", "other tensors")


def main():
    oracle = Oracle(__doc__, syncs=False)
    seed = common_seed()
    models(oracle, seed)
    llama_4(oracle)
    mixtral(oracle)
    mistral(oracle, seed)
    contradictions(oracle, seed)
    quantized(oracle, seed)
    unknown(oracle)
    beside(oracle, seed)
    oracle.finish()


if __name__ == "__main__":
    main()
