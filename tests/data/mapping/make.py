# SPDX-License-Identifier: Apache-2.0
"""Writes the names and shapes of real models, against which the shipped mappings are tested.

There is one file per convention: that of hf.llama is hf/llama.json.

Run it with Transformers, safetensors, gguf, and torchtitan installed; each file names the versions. Models are built on
PyTorch's meta device, without memory:

- hf.*: Transformers' classes. Experts have the names and shapes that save_pretrained gives; the script compares both
  for a small model of each family.
- torchtitan.*: torchtitan's own models of these sizes.
- gguf.*: the names are those of gguf's TensorNameMap; the shapes follow from the operations of llama.cpp's converter.
- megatron.*, vllm.*, meta.*: written here from the projects' sources, since their models need a GPU, or are not
  packages.

Tensors whose names differ in numbers only are one entry: {"name": "layers.{}.w", "ranges": [[first, last, step]]}.
"""

import itertools
import json
import logging
import pathlib
import re
import tempfile
from importlib.metadata import version

import gguf
import torch
import transformers
from safetensors import safe_open

logging.disable(logging.WARNING)
HERE = pathlib.Path(__file__).parent
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|(?<=weight)\d+$|(?<=bias)\d+$")


def compressed(tensors):
    """Joins the names that differ in numbers only, where the numbers are a product of ranges and the shapes agree."""
    groups = {}
    for name, shape in tensors.items():
        numbers = tuple(int(n) for n in NUMBER.findall(name))
        groups.setdefault((NUMBER.sub("{}", name), tuple(shape)), []).append(numbers)
    made = []
    for (name, shape), numbers in groups.items():
        ranges = []
        for values in zip(*numbers):
            values = sorted(set(values))
            step = values[1] - values[0] if len(values) > 1 else 1
            assert values == list(range(values[0], values[-1] + 1, step)), (name, values)
            ranges.append([values[0], values[-1], step])
        product = itertools.product(*(range(a, b + 1, s) for a, b, s in ranges))
        assert set(product) == set(numbers), name
        made.append({"name": name, "ranges": ranges, "shape": list(shape)})
    return made


def per_expert(tensors, gate="gate_proj", up="up_proj", down="down_proj"):
    """Returns the names of checkpoints for the fused experts of Transformers 5's modules."""
    made = {}
    for name, shape in tensors.items():
        folder, _, last = name.rpartition(".")
        if not folder.endswith("experts") or last not in ("gate_up_proj", "down_proj"):
            made[name] = shape
            continue
        for expert in range(shape[0]):
            if last == "down_proj":
                made[f"{folder}.{expert}.{down}.weight"] = shape[1:]
            else:
                for one in (gate, up):
                    made[f"{folder}.{expert}.{one}.weight"] = [shape[1] // 2, shape[2]]
    return made


def mixtral_names(tensors):
    return {n.replace(".mlp.", ".block_sparse_moe."): s for n, s in per_expert(tensors, "w1", "w3", "w2").items()}


def config_of(settings):
    kept = r"hidden|head|layer|_size|expert|_dim|rank|dense|step|tie|^n_|norm_topk"
    left_out = ("output_hidden_states", "chunk_size_feed_forward")
    numbers = {k: v for k, v in settings.items() if isinstance(v, int)}
    return {k: v for k, v in numbers.items() if re.search(kept, k) and k not in left_out}


def shapes_of(module):
    return {name: list(tensor.shape) for name, tensor in module.state_dict().items()}


def built(kind, **settings):
    """Returns the configuration, and the names and shapes of the module without a tied output layer."""
    config = getattr(transformers, CONFIGS[kind])(**settings)
    with torch.device("meta"):
        tensors = shapes_of(getattr(transformers, CLASSES[kind])(config))
    if config.tie_word_embeddings:
        tensors.pop("lm_head.weight")
    return config_of(config.to_dict()), tensors


def saved(kind, **settings):
    """Returns what save_pretrained writes for a small model."""
    model = getattr(transformers, CLASSES[kind])(getattr(transformers, CONFIGS[kind])(**settings))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for file in pathlib.Path(folder).glob("*.safetensors"):
            with safe_open(file, "pt") as opened:
                found.update({name: list(opened.get_slice(name).get_shape()) for name in opened.keys()})
    return found


FAMILIES = ("Llama", "Mixtral", "Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe", "Gemma2", "Phi3", "GptOss", "DeepseekV3")
CONFIGS = {f: f + "Config" for f in FAMILIES} | {
    "Gemma3": "Gemma3TextConfig",
    "Llama4": "Llama4TextConfig",
    "GPT2": "GPT2Config",
}
CLASSES = {f: f + "ForCausalLM" for f in (*FAMILIES, "Gemma3", "Llama4")} | {"GPT2": "GPT2LMHeadModel"}
CHECKPOINT = {"Mixtral": mixtral_names, "Qwen2Moe": per_expert, "Qwen3Moe": per_expert, "DeepseekV3": per_expert}


def sizes(hidden, inner, layers, heads, kv, vocab, **more):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    more.setdefault("tie_word_embeddings", False)
    return dict(zip(names, (hidden, inner, layers, heads, kv))) | {"vocab_size": vocab} | more


MLA = dict(q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)
SMALL_MLA = dict(
    n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2
) | dict(kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=6, first_k_dense_replace=1)
# Per convention of Hugging Face: the model's name, its class, its sizes, and the conventions to which mappings lead.
LLAMA = ["gguf.llama", "megatron.gpt", "meta.llama", "torchtitan.llama3", "vllm.llama"]
QWEN3 = ["gguf.qwen3", "megatron.gpt", "torchtitan.qwen3", "vllm.llama"]
QWEN2_MOE = ["hf.qwen2-moe-fused", "megatron.qwen2-moe", "vllm.qwen2-moe"]
MODELS = {
    "hf.llama": [
        ("Llama-3-8B", "Llama", sizes(4096, 14336, 32, 32, 8, 128256), LLAMA),
        ("Llama-3-70B", "Llama", sizes(8192, 28672, 80, 64, 8, 128256), LLAMA),
        ("Llama-3.2-1B", "Llama", sizes(2048, 8192, 16, 32, 8, 128256, tie_word_embeddings=True), LLAMA),
        ("Qwen2.5-7B", "Qwen2", sizes(3584, 18944, 28, 28, 4, 152064), ["gguf.qwen3", "megatron.gpt", "vllm.llama"]),
        ("Qwen3-0.6B", "Qwen3", sizes(1024, 3072, 28, 16, 8, 151936, head_dim=128, tie_word_embeddings=True), QWEN3),
        ("Qwen3-8B", "Qwen3", sizes(4096, 12288, 36, 32, 8, 151936, head_dim=128), QWEN3),
    ],
    "hf.mixtral": [
        (
            "Mixtral-8x7B",
            "Mixtral",
            sizes(4096, 14336, 32, 32, 8, 32000, num_local_experts=8),
            ["gguf.mixtral", "hf.mixtral-fused", "megatron.mixtral", "megatron.mixtral-sequential", "vllm.mixtral"],
        ),
    ],
    "hf.qwen2-moe": [
        (
            "Qwen1.5-MoE-A2.7B",
            "Qwen2Moe",
            sizes(2048, 5632, 24, 16, 16, 151936, num_experts=60, moe_intermediate_size=1408)
            | dict(shared_expert_intermediate_size=5632),
            [*QWEN2_MOE, "gguf.qwen2-moe"],
        ),
        (
            "every second layer with experts",
            "Qwen2Moe",
            sizes(32, 48, 4, 4, 2, 40, num_experts=4, moe_intermediate_size=20, decoder_sparse_step=2)
            | dict(shared_expert_intermediate_size=24),
            QWEN2_MOE,
        ),
    ],
    "hf.qwen3-moe": [
        (
            "Qwen3-30B-A3B",
            "Qwen3Moe",
            sizes(2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, moe_intermediate_size=768),
            ["gguf.qwen3-moe", "hf.qwen3-moe-fused", "megatron.qwen3-moe", "megatron.qwen3-moe-sequential"]
            + ["torchtitan.qwen3-moe", "vllm.qwen3-moe"],
        ),
        (
            "small",
            "Qwen3Moe",
            sizes(32, 48, 2, 4, 2, 40, num_experts=4, moe_intermediate_size=20, head_dim=12),
            ["gguf.qwen3-moe", "hf.qwen3-moe-fused", "megatron.qwen3-moe", "megatron.qwen3-moe-sequential"]
            + ["torchtitan.qwen3-moe", "vllm.qwen3-moe"],
        ),
    ],
    "hf.gemma3": [
        (
            "Gemma-2-9B",
            "Gemma2",
            sizes(3584, 14336, 42, 16, 8, 256000, head_dim=256, tie_word_embeddings=True),
            ["gguf.gemma3", "megatron.gemma3", "vllm.gemma3"],
        ),
        (
            "Gemma-3-1B",
            "Gemma3",
            sizes(1152, 6912, 26, 4, 1, 262144, head_dim=256, tie_word_embeddings=True),
            ["gguf.gemma3", "megatron.gemma3", "vllm.gemma3"],
        ),
    ],
    "hf.phi3": [
        ("Phi-4", "Phi3", sizes(5120, 17920, 40, 40, 10, 100352, pad_token_id=0), ["gguf.phi3", "hf.llama"]),
    ],
    "hf.gpt2": [
        ("GPT-2", "GPT2", {}, ["gguf.gpt2", "megatron.gpt2", "vllm.gpt2"]),
    ],
    "hf.gpt-oss": [
        (
            "GPT-OSS-20B",
            "GptOss",
            sizes(2880, 2880, 24, 64, 8, 201088, head_dim=64, num_local_experts=32),
            ["gguf.gpt-oss", "megatron.gpt-oss", "torchtitan.gpt-oss", "vllm.gpt-oss"],
        ),
    ],
    "hf.deepseek-v3": [
        (
            "DeepSeek-V3",
            "DeepseekV3",
            sizes(7168, 18432, 61, 128, 128, 129280, n_routed_experts=256, n_group=8, topk_group=4)
            | dict(num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3)
            | MLA,
            ["gguf.deepseek-v3", "hf.deepseek-v3-fused", "megatron.deepseek-v3", "megatron.deepseek-v3-sequential"]
            + ["torchtitan.deepseek-v3", "vllm.deepseek-v3"],
        ),
        (
            "small",
            "DeepseekV3",
            sizes(32, 48, 3, 4, 4, 40) | SMALL_MLA | dict(q_lora_rank=24),
            ["gguf.deepseek-v3", "hf.deepseek-v3-fused", "megatron.deepseek-v3", "megatron.deepseek-v3-sequential"]
            + ["torchtitan.deepseek-v3", "vllm.deepseek-v3"],
        ),
        (
            "without q_lora",
            "DeepseekV3",
            sizes(32, 48, 3, 4, 4, 40) | SMALL_MLA | dict(q_lora_rank=None),
            ["gguf.deepseek-v3", "hf.deepseek-v3-fused", "megatron.deepseek-v3", "megatron.deepseek-v3-sequential"]
            + ["torchtitan.deepseek-v3", "vllm.deepseek-v3"],
        ),
    ],
    "hf.llama4": [
        (
            "Llama-4-Scout",
            "Llama4",
            sizes(5120, 8192, 48, 40, 8, 202048, head_dim=128, num_local_experts=16, intermediate_size_mlp=16384)
            | dict(interleave_moe_layer_step=1),
            ["gguf.llama4", "torchtitan.llama4", "vllm.llama4"],
        ),
        (
            "Llama-4-Maverick",
            "Llama4",
            sizes(5120, 8192, 48, 40, 8, 202048, head_dim=128, num_local_experts=128, intermediate_size_mlp=16384)
            | dict(interleave_moe_layer_step=2),
            ["gguf.llama4", "torchtitan.llama4", "vllm.llama4"],
        ),
    ],
}
SMALL = {
    "Mixtral": sizes(32, 48, 2, 4, 2, 40, num_local_experts=4),
    "Qwen2Moe": sizes(32, 48, 2, 4, 2, 40, num_experts=4, moe_intermediate_size=20, shared_expert_intermediate_size=24),
    "Qwen3Moe": sizes(32, 48, 2, 4, 2, 40, num_experts=4, moe_intermediate_size=20, head_dim=12),
    "DeepseekV3": sizes(32, 48, 2, 4, 4, 40) | SMALL_MLA | dict(q_lora_rank=24),
}


# --- GGUF: names of the gguf package, shapes by the operations of llama.cpp's converter.
GGUF_ARCHITECTURES = {
    "gguf.llama": "LLAMA",
    "gguf.qwen3": "QWEN3",
    "gguf.mixtral": "LLAMA",
    "gguf.qwen2-moe": "QWEN2MOE",
    "gguf.qwen3-moe": "QWEN3MOE",
    "gguf.gemma3": "GEMMA3",
    "gguf.phi3": "PHI3",
    "gguf.gpt2": "GPT2",
    "gguf.gpt-oss": "GPT_OSS",
    "gguf.deepseek-v3": "DEEPSEEK2",
    "gguf.llama4": "LLAMA4",
}


def gguf_tensors(target, tensors, config):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[GGUF_ARCHITECTURES[target]], config.get("num_hidden_layers", 64))
    stacked = {}  # with one name per layer for all its experts
    for name, shape in tensors.items():
        found = re.fullmatch(r"(.*experts)\.(\d+)\.(\w+)\.weight", name)
        if not found:
            stacked[name] = shape
            continue
        one = f"{found[1]}.{found[3]}.weight"
        one = re.sub(r"^model\.(.*)block_sparse_moe\.", r"\1feed_forward.", one)
        count = stacked.get(one, [0])[0]
        stacked[one] = [count + 1, *shape]
    made = {}

    def add(name, shape):
        mapped = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert mapped is not None, name
        assert mapped not in made, name
        made[mapped] = shape

    for name, shape in stacked.items():
        if re.search(r"\.c_(attn|proj|fc)\.weight$", name):
            add(name, shape[::-1])
        elif name.endswith("kv_b_proj.weight"):
            heads, nope, value = (config[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
            assert shape[0] == heads * (nope + value)
            add(name.replace("kv_b", "k_b"), [heads, shape[1], nope])
            add(name.replace("kv_b", "v_b"), [heads, value, shape[1]])
        elif name.endswith("experts.gate_up_proj"):
            for part in ("gate", "up"):
                add(name.replace("gate_up_proj", f"{part}_proj.weight"), [shape[0], shape[2] // 2, shape[1]])
        elif name.endswith("experts.gate_up_proj_bias"):
            for part in ("gate", "up"):
                add(name.replace("gate_up_proj_bias", f"{part}_proj.bias"), [shape[0], shape[1] // 2])
        elif name.endswith("experts.down_proj"):
            add(name + ".weight", [shape[0], shape[2], shape[1]])
        elif name.endswith("experts.down_proj_bias"):
            add(name.replace("_bias", ".bias"), shape)
        elif name.endswith("sinks"):
            add(name + ".weight", shape)
        else:
            add(name.replace("e_score_correction_bias", "e_score_correction.bias"), shape)
    return made


# --- vLLM 0.33.0: fused parameters, by model_executor/models/*.py
def vllm_tensors(target, tensors, config):
    made, joined = {}, {}

    def join(name, shape, axis=0):
        if name in joined:
            joined[name][axis] += shape[axis]
        else:
            joined[name] = made[name] = list(shape)

    for name, shape in tensors.items():
        found = re.fullmatch(r"(.*experts)\.(\d+)\.(\w+)\.weight", name)
        if found:
            fused = "w2" if found[3] in ("w2", "down_proj") else "w13"
            key = f"{found[1]}.routed_experts.{fused}_weight"
            entry = made.setdefault(key, [0, 0 if fused == "w13" else shape[0], shape[1]])
            entry[0] = max(entry[0], int(found[2]) + 1)
            if fused == "w13" and found[2] == "0":
                entry[1] += shape[0]
        elif ".experts." in name:
            last = name.rpartition(".")[2].replace("gate_up_proj", "w13").replace("down_proj", "w2")
            weight = last if last.endswith("_bias") else last + "_weight"
            shape = shape if last.endswith("_bias") else [shape[0], shape[2], shape[1]]
            made[f"{name.rpartition('.')[0]}.routed_experts.{weight}"] = shape
        elif re.search(r"\.c_(attn|proj|fc)\.weight$", name):
            made[name] = shape[::-1]
        elif re.search(r"self_attn\.[qkv]_proj\.", name) and config.get("kv_lora_rank") is None:
            join(re.sub(r"\.[qkv]_proj", ".qkv_proj", name), shape)
        elif re.search(r"(q_a_proj|kv_a_proj_with_mqa)\.", name) and config.get("q_lora_rank"):
            join(re.sub(r"q_a_proj|kv_a_proj_with_mqa", "fused_qkv_a_proj", name), shape)
        elif re.search(r"\.(gate|up)_proj\.weight", name):
            join(re.sub(r"(gate|up)_proj", "gate_up_proj", name), shape)
        elif re.search(r"(embed_tokens|lm_head|wte)\.weight$", name):
            made[name] = [-(-shape[0] // 64) * 64, shape[1]]
        else:
            made[name] = shape
    if target == "vllm.gpt-oss":
        made = {n.replace("embed_tokens", "embedding").replace("self_attn", "attn"): s for n, s in made.items()}
    return made


# --- megatron-core 0.16.1: GPTModel with Transformer Engine's layers, by transformer/*.py
def megatron_tensors(target, tensors, config):
    gpt2, gemma = target == "megatron.gpt2", target == "megatron.gemma3"
    deepseek, oss = target.startswith("megatron.deepseek-v3"), target == "megatron.gpt-oss"
    sequential = target.endswith("-sequential")
    hidden = config.get("hidden_size") or config["n_embd"]
    layers = config.get("num_hidden_layers") or config["n_layer"]
    heads = config.get("num_attention_heads") or config["n_head"]
    groups = config.get("num_key_value_heads") or heads
    channels = config.get("head_dim") or hidden // heads
    inner = config.get("intermediate_size") or 4 * hidden
    experts = next((config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in config), 0)
    gated = 1 if gpt2 else 2
    vocabulary = tensors.get("model.embed_tokens.weight") or tensors["transformer.wte.weight"]
    made = {"embedding.word_embeddings.weight": vocabulary, "decoder.final_layernorm.weight": [hidden]}
    if "lm_head.weight" in tensors and not gpt2:
        made["output_layer.weight"] = tensors["lm_head.weight"]
    if gpt2:
        made["embedding.position_embeddings.weight"] = [config["n_positions"], hidden]
        made["decoder.final_layernorm.bias"] = [hidden]
    for layer in range(layers):
        at = f"decoder.layers.{layer}."
        attention = at + "self_attention."
        if deepseek:
            query = heads * (config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
            rank, rope, value = (config[k] for k in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim"))
            made[at + "input_layernorm.weight"] = [hidden]
            if config.get("q_lora_rank"):
                made[attention + "linear_q_down_proj.weight"] = [config["q_lora_rank"], hidden]
                made[attention + "linear_q_up_proj.weight"] = [query, config["q_lora_rank"]]
                made[attention + "linear_q_up_proj.layer_norm_weight"] = [config["q_lora_rank"]]
            else:
                made[attention + "linear_q_proj.weight"] = [query, hidden]
            made[attention + "linear_kv_down_proj.weight"] = [rank + rope, hidden]
            made[attention + "linear_kv_up_proj.weight"] = [heads * (config["qk_nope_head_dim"] + value), rank]
            made[attention + "linear_kv_up_proj.layer_norm_weight"] = [rank]
            made[attention + "linear_proj.weight"] = [hidden, heads * value]
        else:
            made[attention + "linear_qkv.layer_norm_weight"] = [hidden]
            made[attention + "linear_qkv.weight"] = [(heads + 2 * groups) * channels, hidden]
            made[attention + "linear_proj.weight"] = [hidden, heads * channels]
            if gpt2 or oss or "model.layers.0.self_attn.q_proj.bias" in tensors:
                made[attention + "linear_qkv.bias"] = [(heads + 2 * groups) * channels]
            if gpt2 or oss:
                made[attention + "linear_proj.bias"] = [hidden]
            if "model.layers.0.self_attn.q_norm.weight" in tensors:
                made[attention + "q_layernorm.weight"] = made[attention + "k_layernorm.weight"] = [channels]
            if oss:
                made[attention + "core_attention.softmax_offset"] = [heads]
        if gpt2:
            made[attention + "linear_qkv.layer_norm_bias"] = made[at + "mlp.linear_fc1.layer_norm_bias"] = [hidden]
            made[at + "mlp.linear_fc1.bias"], made[at + "mlp.linear_fc2.bias"] = [inner], [hidden]
        if gemma:
            made[attention + "linear_proj.post_layernorm.weight"] = [hidden]
            made[at + "mlp.linear_fc2.post_layernorm.weight"] = [hidden]
        is_dense = layer < config.get("first_k_dense_replace", 0) or (layer + 1) % config.get("decoder_sparse_step", 1)
        if not experts or is_dense:
            made[at + "mlp.linear_fc1.layer_norm_weight"] = [hidden]
            made[at + "mlp.linear_fc1.weight"] = [gated * inner, hidden]
            made[at + "mlp.linear_fc2.weight"] = [hidden, inner]
            continue
        expert = config.get("moe_intermediate_size") or inner
        made[at + "pre_mlp_layernorm.weight"] = [hidden]
        made[at + "mlp.router.weight"] = [experts, hidden]
        for e in range(experts):
            names = [f"linear_fc{i}.weight{e}" for i in (1, 2)]
            if sequential:
                names = [f"local_experts.{e}.linear_fc{i}.weight" for i in (1, 2)]
            made[f"{at}mlp.experts.{names[0]}"] = [2 * expert, hidden]
            made[f"{at}mlp.experts.{names[1]}"] = [hidden, expert]
            if oss:
                made[f"{at}mlp.experts.linear_fc1.bias{e}"] = [2 * expert]
                made[f"{at}mlp.experts.linear_fc2.bias{e}"] = [hidden]
        if oss:
            made[at + "mlp.router.bias"] = [experts]
        if deepseek:
            made[at + "mlp.router.expert_bias"] = [experts]
        shared = config.get("shared_expert_intermediate_size") or config.get("n_shared_experts", 0) * expert
        if shared:
            made[at + "mlp.shared_experts.linear_fc1.weight"] = [2 * shared, hidden]
            made[at + "mlp.shared_experts.linear_fc2.weight"] = [hidden, shared]
        if target == "megatron.qwen2-moe":
            made[at + "mlp.shared_experts.gate_weight"] = [1, hidden]
    return made


# --- Meta's Llama 3, by llama/model.py of meta-llama/llama3
def meta_tensors(target, tensors, config):
    dim, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv = dim // heads * config["num_key_value_heads"]
    vocabulary = tensors["model.embed_tokens.weight"]
    made = {"tok_embeddings.weight": vocabulary, "norm.weight": [dim]}
    if not config["tie_word_embeddings"]:
        made["output.weight"] = vocabulary
    for layer in range(config["num_hidden_layers"]):
        shapes = {"attention.wq": [dim, dim], "attention.wk": [kv, dim], "attention.wv": [kv, dim]}
        shapes |= {"attention.wo": [dim, dim], "attention_norm": [dim], "ffn_norm": [dim]}
        shapes |= {"feed_forward.w1": [inner, dim], "feed_forward.w2": [dim, inner], "feed_forward.w3": [inner, dim]}
        made |= {f"layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}
    return made


# --- torchtitan's models of the same sizes
TITAN = {
    ("torchtitan.llama3", "Llama-3-8B"): ("llama3", "8B"),
    ("torchtitan.llama3", "Llama-3-70B"): ("llama3", "70B"),
    ("torchtitan.llama3", "Llama-3.2-1B"): ("llama3", "1B"),
    ("torchtitan.qwen3", "Qwen3-0.6B"): ("qwen3", "0.6B"),
    ("torchtitan.qwen3", "Qwen3-8B"): ("qwen3", "8B"),
    ("torchtitan.qwen3-moe", "Qwen3-30B-A3B"): ("qwen3", "30B-A3B"),
    ("torchtitan.gpt-oss", "GPT-OSS-20B"): ("gpt_oss", "20b"),
    ("torchtitan.deepseek-v3", "DeepSeek-V3"): ("deepseek_v3", "671B"),
}


def titan_tensors(family, flavour):
    import importlib
    import inspect

    module = importlib.import_module(f"torchtitan.models.{family}")
    flavours = next(v for k, v in vars(module).items() if k.endswith("_configs") and isinstance(v, dict))
    make = flavours[flavour]
    choices = {"attn_backend": "flex", "moe_comm_backend": "standard"}
    with torch.device("meta"):
        built = make(**{k: v for k, v in choices.items() if k in inspect.signature(make).parameters}).build()
    return {name: shape for name, shape in shapes_of(built).items() if not name.startswith("mtp_layers.")}


# --- DeepSeek-V3's layer of multi-token prediction, as in the published index
def with_mtp(tensors, config):
    last = config["num_hidden_layers"] - 1
    hidden, layer = config["hidden_size"], f"model.layers.{last + 1}."
    made = dict(tensors)
    for name, shape in tensors.items():
        if name.startswith(f"model.layers.{last}."):
            made[name.replace(f"model.layers.{last}.", layer)] = shape
    made |= {layer + f"{name}.weight": [hidden] for name in ("enorm", "hnorm", "shared_head.norm")}
    made[layer + "eh_proj.weight"] = [hidden, 2 * hidden]
    made[layer + "embed_tokens.weight"] = made[layer + "shared_head.head.weight"] = tensors["lm_head.weight"]
    return made


def main():
    for kind, settings in SMALL.items():
        assert CHECKPOINT[kind](built(kind, **settings)[1]) == saved(kind, **settings), kind
    of = {}  # per convention: its models

    def add(convention, name, config, tensors, mappings=()):
        of.setdefault(convention, []).append(
            {"name": name, "config": config, "mappings": sorted(mappings), "tensors": compressed(tensors)}
        )

    for convention, models in MODELS.items():
        for name, kind, settings, mappings in models:
            config, fused = built(kind, **settings)
            tensors = CHECKPOINT.get(kind, dict)(fused)
            if kind == "GPT2":
                tensors.pop("lm_head.weight", None)
                base = {n.removeprefix("transformer."): s for n, s in tensors.items()}
                add("hf.gpt2-base", name, config, base, ["hf.gpt2"])
            add(convention, name, config, tensors, mappings)
            if kind == "DeepseekV3" and config.get("q_lora_rank"):
                mtp = config | {"num_nextn_predict_layers": 1}
                add("hf.deepseek-v3-mtp", name, mtp, with_mtp(tensors, config), ["hf.deepseek-v3"])
            if kind == "GptOss":
                published = {  # as --dequantize shows them
                    n + "_blocks" if n.endswith("_proj") else n: [s[0], s[2], s[1]] if n.endswith("_proj") else s
                    for n, s in tensors.items()
                }
                add("hf.gpt-oss-mxfp4", name, config, published, ["hf.gpt-oss"])
            if kind in CHECKPOINT:
                add(convention + "-fused", name, config, fused)
            for target in mappings:
                project = target.partition(".")[0]
                by = {"gguf": gguf_tensors, "vllm": vllm_tensors, "megatron": megatron_tensors, "meta": meta_tensors}
                if project in by:
                    add(target, name, config, by[project](target, tensors, config))
                elif target == "hf.llama":
                    add(target, name, config, built("Llama", **settings)[1])
                elif (target, name) in TITAN:
                    add(target, name, config, titan_tensors(*TITAN[target, name]))
    versions = ", ".join(f"{p} {version(p)}" for p in ("transformers", "torch", "gguf"))
    versions += ", torchtitan 0.3.0; from the sources of megatron-core 0.16.1 and vllm 0.33.0"
    for convention, models in of.items():
        lines = ",\n".join(
            "  {\n"
            + ",\n".join(f'   "{k}": {json.dumps(v)}' for k, v in model.items() if k != "tensors")
            + ',\n   "tensors": [\n'
            + ",\n".join("    " + json.dumps(tensor) for tensor in model["tensors"])
            + "\n   ]\n  }"
            for model in models
        )
        text = f'{{\n "convention": "{convention}",\n "made_with": "{versions}",\n "models": [\n{lines}\n ]\n}}\n'
        json.loads(text)
        project, _, model = convention.partition(".")
        (HERE / project).mkdir(exist_ok=True)
        (HERE / project / f"{model}.json").write_text(text)


if __name__ == "__main__":
    main()
