# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random bits, and their conversions between naming conventions, written by hand in NumPy row by row:
the expected data of mapping_numpy.py. A state is {key: array}; bfloat16 is its bits in uint16. Needs NumPy."""
import numpy as np

# 4 query heads in 2 groups; head_dim is not hidden_size / num_attention_heads.
LLAMA = {"model_type": "llama", "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "vocab_size": 7,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": False,
         "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "dtype": "bfloat16", "eos_token_id": [1, 2]}
# Several MiB per tensor.
WIDE = {**LLAMA, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 1, "vocab_size": 33,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
MIXTRAL = {"model_type": "mixtral", "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "vocab_size": 5,
           "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 3}


def sizes_of(config):
    heads = config["num_attention_heads"]
    return heads, config["num_key_value_heads"], config.get("head_dim") or config["hidden_size"] // heads


def random_bits(dice, shape, dtype):
    """Any bits: NaNs with payloads, infinities, and denormal numbers are among them."""
    made = dice.integers(0, 256, size=(*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    return made.reshape(-1).view(dtype).reshape(shape)


def shapes_outside_mlp(config):
    heads, groups, d = sizes_of(config)
    h = config["hidden_size"]
    made = {"model.embed_tokens.weight": (config["vocab_size"], h), "model.norm.weight": (h,),
            "lm_head.weight": (config["vocab_size"], h)}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        made |= {f"{base}.input_layernorm.weight": (h,), f"{base}.post_attention_layernorm.weight": (h,),
                 f"{base}.self_attn.q_proj.weight": (heads * d, h), f"{base}.self_attn.k_proj.weight": (groups * d, h),
                 f"{base}.self_attn.v_proj.weight": (groups * d, h), f"{base}.self_attn.o_proj.weight": (h, heads * d)}
    return made


def make_llama(config, dtype, seed, bias=False, norms=False):
    heads, groups, d = sizes_of(config)
    h, f = config["hidden_size"], config["intermediate_size"]
    shapes = shapes_outside_mlp(config)
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        shapes |= {f"{base}.mlp.gate_proj.weight": (f, h), f"{base}.mlp.up_proj.weight": (f, h),
                   f"{base}.mlp.down_proj.weight": (h, f)}
        if bias:
            shapes |= {f"{base}.self_attn.{name}_proj.bias": (count * d,) for name, count in
                       (("q", heads), ("k", groups), ("v", groups))}
        if norms:
            shapes |= {f"{base}.self_attn.{name}_norm.weight": (d,) for name in "qk"}
    dice = np.random.default_rng(seed)
    return {key: random_bits(dice, shape, dtype) for key, shape in shapes.items()}


def make_mixtral(config, dtype, seed):
    h, f = config["hidden_size"], config["intermediate_size"]
    shapes = shapes_outside_mlp(config)
    for layer in range(config["num_hidden_layers"]):
        moe = f"model.layers.{layer}.block_sparse_moe"
        shapes[f"{moe}.gate.weight"] = (config["num_local_experts"], h)
        for expert in range(config["num_local_experts"]):
            shapes |= {f"{moe}.experts.{expert}.{name}.weight": (h, f) if name == "w2" else (f, h)
                       for name in ("w1", "w2", "w3")}
    dice = np.random.default_rng(seed)
    return {key: random_bits(dice, shape, dtype) for key, shape in shapes.items()}


def to_megatron(config, state):
    """linear_qkv has, group after group, the query heads of the group, its key head, and its value head."""
    heads, groups, d = sizes_of(config)
    per_group = heads // groups
    made = {"embedding.word_embeddings.weight": state["model.embed_tokens.weight"],
            "decoder.final_layernorm.weight": state["model.norm.weight"], "output_layer.weight": state["lm_head.weight"]}
    for layer in range(config["num_hidden_layers"]):
        old, new = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        made[new + "self_attention.linear_qkv.layer_norm_weight"] = state[old + "input_layernorm.weight"]
        made[new + "self_attention.linear_proj.weight"] = state[old + "self_attn.o_proj.weight"]
        made[new + "mlp.linear_fc1.layer_norm_weight"] = state[old + "post_attention_layernorm.weight"]
        made[new + "mlp.linear_fc2.weight"] = state[old + "mlp.down_proj.weight"]
        made[new + "mlp.linear_fc1.weight"] = np.concatenate(
            [state[old + "mlp.gate_proj.weight"], state[old + "mlp.up_proj.weight"]])
        for kind in ("weight", "bias"):
            if f"{old}self_attn.q_proj.{kind}" not in state:
                continue
            q, k, v = (state[f"{old}self_attn.{name}_proj.{kind}"] for name in "qkv")
            rows = []
            for group in range(groups):
                for head in range(group * per_group, (group + 1) * per_group):
                    rows += [q[row] for row in range(head * d, (head + 1) * d)]
                rows += [k[row] for row in range(group * d, (group + 1) * d)]
                rows += [v[row] for row in range(group * d, (group + 1) * d)]
            made[f"{new}self_attention.linear_qkv.{kind}"] = np.stack(rows)
        for name in "qk":
            if f"{old}self_attn.{name}_norm.weight" in state:
                made[f"{new}self_attention.{name}_layernorm.weight"] = state[f"{old}self_attn.{name}_norm.weight"]
    return made


META = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3"}


def to_meta(config, state):
    """Rows i and i + d / 2 of a head, which rotate together, become the neighbours 2 i and 2 i + 1."""
    _, _, d = sizes_of(config)
    made = {"tok_embeddings.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"],
            "output.weight": state["lm_head.weight"]}
    for layer in range(config["num_hidden_layers"]):
        for old, new in META.items():
            tensor = state[f"model.layers.{layer}.{old}.weight"]
            if new in ("attention.wq", "attention.wk"):
                permuted = np.empty_like(tensor)
                for head in range(tensor.shape[0] // d):
                    for i in range(d // 2):
                        permuted[head * d + 2 * i] = tensor[head * d + i]
                        permuted[head * d + 2 * i + 1] = tensor[head * d + d // 2 + i]
                tensor = permuted
            made[f"layers.{layer}.{new}.weight"] = tensor
    return made


def to_vllm(config, state):
    """qkv_proj has all queries, all keys, and all values; gate_up_proj has gate, then up. The vocabulary is filled up with
    zeros to a multiple of 64."""
    made = dict(state)
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        rows, columns = made[key].shape
        made[key] = np.concatenate([made[key], np.zeros((-rows % 64, columns), made[key].dtype)])
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            if f"{base}self_attn.q_proj.{kind}" in state:
                parts = [made.pop(f"{base}self_attn.{name}_proj.{kind}") for name in "qkv"]
                made[f"{base}self_attn.qkv_proj.{kind}"] = np.concatenate(parts)
        parts = [made.pop(f"{base}mlp.{name}_proj.weight") for name in ("gate", "up")]
        made[f"{base}mlp.gate_up_proj.weight"] = np.concatenate(parts)
    return made


def to_fused_experts(config, state):
    """gate_up_proj [expert, 2 f, h] has the rows of w1, then those of w3; down_proj [expert, h, f] is w2."""
    made = {key: value for key, value in state.items() if "block_sparse_moe" not in key}
    f = config["intermediate_size"]
    for layer in range(config["num_hidden_layers"]):
        old, new = f"model.layers.{layer}.block_sparse_moe.", f"model.layers.{layer}.mlp."
        made[new + "gate.weight"] = state[old + "gate.weight"]
        experts, h = range(config["num_local_experts"]), config["hidden_size"]
        dtype = state[old + "gate.weight"].dtype
        gate_up, down = np.empty((len(experts), 2 * f, h), dtype), np.empty((len(experts), h, f), dtype)
        for expert in experts:
            gate_up[expert, :f] = state[f"{old}experts.{expert}.w1.weight"]
            gate_up[expert, f:] = state[f"{old}experts.{expert}.w3.weight"]
            down[expert] = state[f"{old}experts.{expert}.w2.weight"]
        made[new + "experts.gate_up_proj"], made[new + "experts.down_proj"] = gate_up, down
    return made
