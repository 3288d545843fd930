# SPDX-License-Identifier: Apache-2.0
"""`convert --map` for the families whose tensors other programs fuse, split, or transpose in their own ways (GPT-OSS,
DeepSeek-V3, Llama 4, Gemma, GPT-2, Phi 3), against NumPy, bit for bit, and back. Odd numbers of experts and heads. The
expected tensors are written by hand from the projects' converters. Needs PyTorch, NumPy, and safetensors."""
import json
import re

from common import Oracle, need_torch, read_safetensors, skip, seed as common_seed

need_torch()
try:
    import numpy as np
    import safetensors.numpy
except ImportError as missing:
    skip(str(missing))

LAYERS, HEADS, GROUPS, D, H, F, E, V = 2, 6, 3, 4, 10, 6, 5, 7  # D: rows of a head; E: experts; V: tokens
BASE = {"hidden_size": H, "intermediate_size": F, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "head_dim": D, "vocab_size": V, "tie_word_embeddings": False}
GGUF = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk",
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
MEGATRON = {"model.embed_tokens": "embedding.word_embeddings", "model.norm": "decoder.final_layernorm",
            "lm_head": "output_layer", "model.layers": "decoder.layers", "self_attn.o_proj": "self_attention.linear_proj",
            "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
            "post_attention_layernorm": "pre_mlp_layernorm"}


def make(dice, shapes):
    return {key: dice.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def outer():
    shapes = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,), "lm_head.weight": (V, H)}
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{norm}.weight"] = (H,)
    return shapes


def attention(layer, has_biases=False):
    base, rows = f"model.layers.{layer}.self_attn.", {"q": HEADS * D, "k": GROUPS * D, "v": GROUPS * D}
    shapes = {f"{base}{one}_proj.weight": (size, H) for one, size in rows.items()} | {base + "o_proj.weight": (H, HEADS * D)}
    if has_biases:
        shapes |= {f"{base}{one}_proj.bias": (size,) for one, size in rows.items()} | {base + "o_proj.bias": (H,)}
    return shapes


def mlp(base, width, hidden=H):
    return {base + "gate_proj.weight": (width, hidden), base + "up_proj.weight": (width, hidden),
            base + "down_proj.weight": (hidden, width)}


def renamed(state, names, left_out=()):
    """The state under other names, without the tensors that the caller makes itself."""
    made = {}
    for key, value in state.items():
        if any(re.search(text, key) for text in left_out):
            continue
        for old, new in names.items():
            key = key.replace(old, new)
        made[key] = value
    return made


def padded(array):
    return np.concatenate([array, np.zeros((-len(array) % 64, array.shape[1]), array.dtype)])


def by_groups(q, k, v):
    """For each group: the rows of its queries, of its key, and of its value."""
    each, rows = HEADS // GROUPS * D, []
    for group in range(GROUPS):
        rows += [q[group * each:(group + 1) * each], k[group * D:(group + 1) * D], v[group * D:(group + 1) * D]]
    return np.concatenate(rows)


def gpt_oss(dice):
    shapes = outer()
    for layer in range(LAYERS):
        moe = f"model.layers.{layer}.mlp."
        shapes |= attention(layer, True) | {
            f"model.layers.{layer}.self_attn.sinks": (HEADS,), moe + "router.weight": (E, H), moe + "router.bias": (E,),
            moe + "experts.gate_up_proj": (E, H, 2 * F), moe + "experts.gate_up_proj_bias": (E, 2 * F),
            moe + "experts.down_proj": (E, F, H), moe + "experts.down_proj_bias": (E, H)}
    state = make(dice, shapes)
    gguf = renamed(state, {**GGUF, "post_attention_layernorm": "post_attention_norm", "self_attn.sinks": "attn_sinks.weight",
                           "mlp.router": "ffn_gate_inp"}, ["experts"])
    megatron = renamed(state, {**MEGATRON, "self_attn.sinks": "self_attention.core_attention.softmax_offset"},
                       ["experts", "[qkv]_proj"])
    vllm = renamed(state, {"embed_tokens": "embedding", "self_attn": "attn"},
                   ["experts", "[qkv]_proj", "lm_head", "embed_tokens"])
    vllm |= {"model.embedding.weight": padded(state["model.embed_tokens.weight"]),
             "lm_head.weight": padded(state["lm_head.weight"])}
    for layer in range(LAYERS):
        old, blk = f"model.layers.{layer}.", f"blk.{layer}."
        gate_up, bias, down, down_bias = (state[f"{old}mlp.experts.{name}"] for name in
                                          ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"))
        gguf |= {blk + "ffn_gate_exps.weight": gate_up[:, :, ::2].transpose(0, 2, 1), blk + "ffn_gate_exps.bias": bias[:, ::2],
                 blk + "ffn_up_exps.weight": gate_up[:, :, 1::2].transpose(0, 2, 1), blk + "ffn_up_exps.bias": bias[:, 1::2],
                 blk + "ffn_down_exps.weight": down.transpose(0, 2, 1), blk + "ffn_down_exps.bias": down_bias}
        new = f"decoder.layers.{layer}."
        for kind in ("weight", "bias"):
            q, k, v = (state[f"{old}self_attn.{one}_proj.{kind}"] for one in "qkv")
            megatron[f"{new}self_attention.linear_qkv.{kind}"] = by_groups(q, k, v)
            vllm[f"{old}attn.qkv_proj.{kind}"] = np.concatenate([q, k, v])
        for expert in range(E):
            fc1, fc2 = f"{new}mlp.experts.linear_fc1.", f"{new}mlp.experts.linear_fc2."
            megatron |= {f"{fc1}weight{expert}": np.concatenate([gate_up[expert, :, ::2].T, gate_up[expert, :, 1::2].T]),
                         f"{fc1}bias{expert}": np.concatenate([bias[expert, ::2], bias[expert, 1::2]]),
                         f"{fc2}weight{expert}": down[expert].T, f"{fc2}bias{expert}": down_bias[expert]}
        experts = f"{old}mlp.experts.routed_experts."
        vllm |= {experts + "w13_weight": gate_up.transpose(0, 2, 1), experts + "w13_bias": bias,
                 experts + "w2_weight": down.transpose(0, 2, 1), experts + "w2_bias": down_bias}
    return {**BASE, "num_local_experts": E}, state, {"gguf.gpt-oss": gguf, "megatron.gpt-oss": megatron, "vllm.gpt-oss": vllm}


def deepseek(dice):
    lora, c, rope, nope, vd, width = 3, 6, 2, 4, 5, 3
    shapes = outer()
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= {base + "self_attn.q_a_proj.weight": (lora, H), base + "self_attn.q_a_layernorm.weight": (lora,),
                   base + "self_attn.q_b_proj.weight": (HEADS * (nope + rope), lora),
                   base + "self_attn.kv_a_proj_with_mqa.weight": (c + rope, H),
                   base + "self_attn.kv_a_layernorm.weight": (c,),
                   base + "self_attn.kv_b_proj.weight": (HEADS * (nope + vd), c),
                   base + "self_attn.o_proj.weight": (H, HEADS * vd)}
        if layer == 0:
            shapes |= mlp(base + "mlp.", F)
            continue
        shapes |= {base + "mlp.gate.weight": (E, H), base + "mlp.gate.e_score_correction_bias": (E,)}
        for expert in range(E):
            shapes |= mlp(f"{base}mlp.experts.{expert}.", width)
        shapes |= mlp(base + "mlp.shared_experts.", 2 * width)
    state = make(dice, shapes)
    gguf = renamed(state, {**GGUF, "post_attention_layernorm": "ffn_norm", "self_attn.q_a_proj": "attn_q_a",
                           "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
                           "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
                           "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
                           "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
                           "mlp.shared_experts.down_proj": "ffn_down_shexp", "mlp.gate_proj": "ffn_gate",
                           "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}, ["kv_b_proj", r"\.experts\."])
    for layer in range(LAYERS):
        heads = state[f"model.layers.{layer}.self_attn.kv_b_proj.weight"].reshape(HEADS, nope + vd, c)
        gguf |= {f"blk.{layer}.attn_k_b.weight": heads[:, :nope].transpose(0, 2, 1),
                 f"blk.{layer}.attn_v_b.weight": heads[:, nope:]}
    for name in ("gate", "up", "down"):
        gguf[f"blk.1.ffn_{name}_exps.weight"] = np.stack(
            [state[f"model.layers.1.mlp.experts.{expert}.{name}_proj.weight"] for expert in range(E)])
    config = {**BASE, "q_lora_rank": lora, "kv_lora_rank": c, "qk_rope_head_dim": rope, "qk_nope_head_dim": nope,
              "v_head_dim": vd, "n_routed_experts": E, "n_shared_experts": 2, "moe_intermediate_size": width,
              "first_k_dense_replace": 1}
    return config, state, {"gguf.deepseek-v3": gguf}


def llama4(dice):
    shapes = outer()
    for layer in range(LAYERS):
        base = f"model.layers.{layer}.feed_forward."
        shapes |= attention(layer)
        if layer == 0:
            shapes |= mlp(base, F + 2)
            continue
        shapes |= {base + "router.weight": (E, H), base + "experts.gate_up_proj": (E, H, 2 * F),
                   base + "experts.down_proj": (E, F, H)} | mlp(base + "shared_expert.", F)
    state = make(dice, shapes)
    base = "model.layers.1.feed_forward."
    gate_up, down = state[base + "experts.gate_up_proj"], state[base + "experts.down_proj"]
    gguf = renamed(state, {**GGUF, "post_attention_layernorm": "ffn_norm", "feed_forward.router": "ffn_gate_inp",
                           "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp", "feed_forward.gate_proj": "ffn_gate",
                           "feed_forward.shared_expert.up_proj": "ffn_up_shexp", "feed_forward.up_proj": "ffn_up",
                           "feed_forward.shared_expert.down_proj": "ffn_down_shexp", "feed_forward.down_proj": "ffn_down"},
                   [r"\.experts\."])
    gguf |= {"blk.1.ffn_gate_exps.weight": gate_up[:, :, :F].transpose(0, 2, 1),
             "blk.1.ffn_up_exps.weight": gate_up[:, :, F:].transpose(0, 2, 1),
             "blk.1.ffn_down_exps.weight": down.transpose(0, 2, 1)}
    vllm = renamed(state, {}, [r"\.experts\.", "[qkv]_proj", "gate_proj", "up_proj"])
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        vllm[key] = padded(state[key])
    for layer in range(LAYERS):
        q, k, v = (state[f"model.layers.{layer}.self_attn.{one}_proj.weight"] for one in "qkv")
        halves = [np.concatenate([part.reshape(-1, D, H)[:, ::2], part.reshape(-1, D, H)[:, 1::2]], 1).reshape(-1, H)
                  for part in (q, k)]  # elements 0, 2, ... of a head, then 1, 3, ...
        vllm[f"model.layers.{layer}.self_attn.qkv_proj.weight"] = np.concatenate([*halves, v])
    for prefix in ("model.layers.0.feed_forward.", base + "shared_expert."):
        vllm[prefix + "gate_up_proj.weight"] = np.concatenate(
            [state[prefix + "gate_proj.weight"], state[prefix + "up_proj.weight"]])
    vllm |= {base + "experts.routed_experts.w13_weight": gate_up.transpose(0, 2, 1),
             base + "experts.routed_experts.w2_weight": down.transpose(0, 2, 1)}
    config = {**BASE, "num_local_experts": E, "interleave_moe_layer_step": 2, "intermediate_size_mlp": F + 2}
    return config, state, {"gguf.llama4": gguf, "vllm.llama4": vllm}


def gemma(dice):
    shapes = {key: shape for key, shape in outer().items() if key != "lm_head.weight"}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= attention(layer) | mlp(base + "mlp.", F) | {
            base + "pre_feedforward_layernorm.weight": (H,), base + "post_feedforward_layernorm.weight": (H,),
            base + "self_attn.q_norm.weight": (D,), base + "self_attn.k_norm.weight": (D,)}
    # Multiples of 2^-8 below 4, so that adding 1 and subtracting it again is exact.
    state = {key: np.round(np.clip(value, -3, 3) * 256).astype(np.float32) / 256 for key, value in make(dice, shapes).items()}
    names = {**GGUF, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down"}
    gguf = renamed({key: value + 1 if value.ndim == 1 else value for key, value in state.items()}, names)
    return {**BASE, "tie_word_embeddings": True}, state, {"gguf.gemma3": gguf}


def gpt2(dice):
    h = HEADS * D
    shapes = {"wte.weight": (V, h), "wpe.weight": (9, h), "ln_f.weight": (h,), "ln_f.bias": (h,)}
    for layer in range(LAYERS):
        base = f"h.{layer}."
        shapes |= {f"{base}{norm}.{kind}": (h,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
        for name, rows, columns in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, 4 * h),
                                    ("mlp.c_proj", 4 * h, h)):
            shapes |= {f"{base}{name}.weight": (rows, columns), f"{base}{name}.bias": (columns,)}
    state = {"transformer." + key: value for key, value in make(dice, shapes).items()}
    turned = {key: value.T if ".c_" in key and value.ndim == 2 else value for key, value in state.items()}
    megatron = renamed(turned, {
        "transformer.wte": "embedding.word_embeddings", "transformer.wpe": "embedding.position_embeddings",
        "transformer.ln_f": "decoder.final_layernorm", "transformer.h.": "decoder.layers.",
        "ln_1.": "self_attention.linear_qkv.layer_norm_", "ln_2.": "mlp.linear_fc1.layer_norm_",
        "attn.c_proj": "self_attention.linear_proj", "mlp.c_fc": "mlp.linear_fc1", "mlp.c_proj": "mlp.linear_fc2"}, ["c_attn"])
    for layer in range(LAYERS):
        for kind in ("weight", "bias"):
            fused = turned[f"transformer.h.{layer}.attn.c_attn.{kind}"]
            heads = fused.reshape(3, HEADS, D, *fused.shape[1:]).swapaxes(0, 1)  # by head: its query, key, and value
            megatron[f"decoder.layers.{layer}.self_attention.linear_qkv.{kind}"] = heads.reshape(fused.shape)
    gguf = renamed(turned, {"transformer.wte": "token_embd", "transformer.wpe": "position_embd",
                            "transformer.ln_f": "output_norm", "transformer.h.": "blk.", "ln_1": "attn_norm",
                            "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
                            "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
    config = {"n_embd": h, "n_head": HEADS, "n_layer": LAYERS, "vocab_size": V, "n_inner": None}
    return config, state, {"megatron.gpt2": megatron, "gguf.gpt2": gguf}


def phi3(dice):
    shapes = outer()
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= {base + "self_attn.qkv_proj.weight": ((HEADS + 2 * GROUPS) * D, H),
                   base + "self_attn.o_proj.weight": (H, HEADS * D),
                   base + "mlp.gate_up_proj.weight": (2 * F, H), base + "mlp.down_proj.weight": (H, F)}
    state = make(dice, shapes)
    llama = renamed(state, {}, ["qkv_proj", "gate_up_proj"])
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        fused = np.split(state[base + "self_attn.qkv_proj.weight"], [HEADS * D, (HEADS + GROUPS) * D])
        llama |= {f"{base}self_attn.{one}_proj.weight": part for one, part in zip("qkv", fused)}
        llama |= {f"{base}mlp.{one}_proj.weight": part for one, part in
                  zip(("gate", "up"), np.split(state[base + "mlp.gate_up_proj.weight"], 2))}
    return BASE, state, {"hf.llama": llama}


FAMILIES = {"hf.gpt-oss": gpt_oss, "hf.deepseek-v3": deepseek, "hf.llama4": llama4, "hf.gemma3": gemma, "hf.gpt2": gpt2,
            "hf.phi3": phi3}


def described(state):
    return {key: ("F32", list(array.shape), np.ascontiguousarray(array).tobytes()) for key, array in state.items()}


def check(oracle, case, source, mapping, config, expected):
    made = oracle.work / f"{case.replace(':', '_to_')}.safetensors"
    if oracle.succeeds(case, "convert", source, made, "--map", mapping, "--config", config, "--force") is None:
        return None
    found, wanted = read_safetensors(made)[0], described(expected)
    differ = [key for key in sorted(found.keys() | wanted.keys()) if found.get(key) != wanted.get(key)]
    oracle.check(not differ, case, f"differs from NumPy's: {differ[:5]}")
    return made


def main():
    oracle = Oracle(__doc__, syncs=False)
    seed = common_seed()
    for number, (left, family) in enumerate(FAMILIES.items()):
        if oracle.args.only not in left:
            continue
        config, state, others = family(np.random.default_rng(seed + number))
        source, file = oracle.work / f"{left}.safetensors", oracle.work / f"{left}.json"
        safetensors.numpy.save_file(state, source)
        file.write_text(json.dumps(config))
        for right, expected in others.items():
            made = check(oracle, f"{left}:{right}", source, f"{left}:{right}", file, expected)
            if made is not None:
                check(oracle, f"{right}:{left}", made, f"{right}:{left}", file, state)
    oracle.finish()


if __name__ == "__main__":
    main()
