# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders become GGUF files with the hyper-parameters and the tokenizer that llama.cpp needs: every metadata
field of small folders of each architecture, with its type, is compared with literals that were written by hand from the
rules of llama.cpp's converter. Wrong files are named. With --release, llama-cpp-python loads such a file and runs it, if
it is installed. Needs the packages gguf, NumPy, and safetensors."""
import json
import math
import struct

from common import Oracle, need_torch, read_safetensors, skip, seed as common_seed
from range_server import Server

need_torch()
try:
    import numpy as np
    import safetensors.numpy
    from gguf import GGUFReader
    from mapping_families import D, E, F, GROUPS, H, HEADS, LAYERS, V, attention, deepseek, gemma, gpt2, gpt_oss, llama4, make
    from mapping_families import mlp, outer, phi3
except Exception as error:
    skip(f"the packages gguf, numpy, and safetensors are needed ({type(error).__name__}: {error})")


def u32(value):
    return ["UINT32"], value


def f32(value):
    return ["FLOAT32"], float(np.float32(value))


def text(value):
    return ["STRING"], value


def flag(value):
    return ["BOOL"], value


def listed(kind, values):
    return ["ARRAY", kind], values


def fields(path):
    """{key: (types, value)} of a file's metadata."""
    return {name: ([kind.name for kind in field.types], field.contents()) for name, field in GGUFReader(path).fields.items()
            if not name.startswith("GGUF.")}


# Tokenizers. Each returns the files of the folder and the expected fields.

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|"
          r"\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
            " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def split(*expressions):
    steps = [{"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False} for one in expressions]
    return {"type": "Sequence", "pretokenizers": [*steps, {"type": "ByteLevel", "add_prefix_space": False,
                                                           "trim_offsets": True, "use_regex": False}]}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def byte_level(pre, name, ignores_merges=False):
    tokenizer = {"added_tokens": [{"id": 3, "content": "<|begin|>", "special": True},
                                  {"id": 4, "content": "<tool>", "special": False}],
                 "pre_tokenizer": pre, "post_processor": {
                     "type": "TemplateProcessing",
                     "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                     "pair": [{"SpecialToken": {"id": "<|begin|>"}}, {"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}]},
                 "model": {"type": "BPE", "ignore_merges": ignores_merges, "vocab": {"a": 0, "b": 1, "ab": 2},
                           "merges": [["a", "b"]]}}
    settings = {"bos_token": "<|begin|>", "eos_token": {"content": "<|begin|>"}, "chat_template": "{{ messages }}"}
    files = {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(settings)}
    return files, {
        "tokenizer.ggml.model": text("gpt2"), "tokenizer.ggml.pre": text(name),
        "tokenizer.ggml.tokens": listed("STRING", ["a", "b", "ab", "<|begin|>", "<tool>", "[PAD5]", "[PAD6]"]),
        "tokenizer.ggml.token_type": listed("INT32", [1, 1, 1, 3, 4, 5, 5]),
        "tokenizer.ggml.merges": listed("STRING", ["a b"]), "tokenizer.ggml.bos_token_id": u32(3),
        "tokenizer.ggml.eos_token_id": u32(3), "tokenizer.ggml.add_bos_token": flag(True),
        "tokenizer.chat_template": text("{{ messages }}")}


def varint(number):
    made = b""
    while number >= 128:
        made, number = made + bytes([number & 127 | 128]), number >> 7
    return made + bytes([number])


def message(name, data):
    return varint(name << 3 | 2) + varint(len(data)) + data


def piece(content, score, kind):
    number = varint(2 << 3 | 5) + struct.pack("<f", score)
    return message(1, message(1, content.encode()) + number + varint(3 << 3) + varint(kind))


def pieces(add_prefix_space=None, **more):
    model = (piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0x0A>", 0, 6) + piece("▁a", -0.5, 1)
             + message(2, b"\x18\x02") + message(3, b"\x18\x01"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": False,
                "add_prefix_space": add_prefix_space,
                "added_tokens_decoder": {"2": {"content": "</s>", "special": True}, "5": {"content": "x▁y", "special": False}}}
    files = {"tokenizer.model": model, "tokenizer_config.json": json.dumps(settings)}
    expected = {
        "tokenizer.ggml.model": text("llama"), "tokenizer.ggml.pre": text("default"),
        "tokenizer.ggml.tokens": listed("STRING", ["<unk>", "<s>", "</s>", "<0x0A>", "▁a", "x y", "[PAD6]"]),
        "tokenizer.ggml.scores": listed("FLOAT32", [0.0, 0.0, -1000.0, 0.0, -0.5, -1000.0, -10000.0]),
        "tokenizer.ggml.token_type": listed("INT32", [2, 3, 3, 6, 1, 4, 5]), "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2), "tokenizer.ggml.add_bos_token": flag(True),
        "tokenizer.ggml.add_eos_token": flag(False)}
    return files, {**expected, **more}


# Models. Each has its configuration, its tensors, and the expected fields.

SIZES = {"vocab_size": V, "hidden_size": H, "intermediate_size": F, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "num_key_value_heads": GROUPS, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def core(name, **more):
    """The fields that most architectures have; `more` is added, or replaces them."""
    made = {"block_count": u32(LAYERS), "context_length": u32(64), "embedding_length": u32(H), "feed_forward_length": u32(F),
            "attention.head_count": u32(HEADS), "attention.head_count_kv": u32(GROUPS),
            "attention.layer_norm_rms_epsilon": f32(1e-5)}
    made.update({key.replace("__", "."): value for key, value in more.items()})
    return {f"{name}.{key}": value for key, value in made.items() if value is not None}


HEAD = {"attention__key_length": u32(D), "attention__value_length": u32(D)}


def llama_state(dice, bias=(), norms=False):
    shapes = outer()
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= attention(layer) | mlp(base + "mlp.", F)
        shapes |= {f"{base}self_attn.{one}_proj.bias": ((HEADS if one == "q" else GROUPS) * D,) for one in bias}
        shapes |= {f"{base}self_attn.{one}_norm.weight": (D,) for one in "qk" if norms}
    return make(dice, shapes)


def expert_state(dice, block, names, norms=False, shared=False):
    shapes = outer()
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= attention(layer) | {f"{base}{block}.gate.weight": (E, H)}
        gate, up, down = names
        for expert in range(E):
            of_expert = f"{base}{block}.experts.{expert}."
            shapes |= {f"{of_expert}{gate}.weight": (F, H), f"{of_expert}{up}.weight": (F, H),
                       f"{of_expert}{down}.weight": (H, F)}
        shapes |= {f"{base}self_attn.{one}_norm.weight": (D,) for one in "qk" if norms}
        if shared:
            shapes |= mlp(f"{base}{block}.shared_expert.", F) | {f"{base}{block}.shared_expert_gate.weight": (1, H)}
    return make(dice, shapes)


def llama3_factors(base, size, scaling):
    """The divisors of the frequencies of Llama 3.1."""
    made = []
    for i in range(0, size, 2):
        length = 2 * math.pi * base ** (i / size)
        low, high, context = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["original_max_position_embeddings"]
        smooth = min(1.0, max(0.0, (context / length - low) / (high - low)))
        made.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return made


def models(dice):
    """(name, mapping, configuration, tensors, tokenizer, expected fields, computed tensors)"""
    bpe = byte_level(split(LLAMA3), "llama-bpe", True)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
    of_llama = {"rope__dimension_count": u32(D), "vocab_size": u32(V), "rope__freq_base": f32(10000)}
    yield ("llama", "hf.llama:gguf.llama",
           {**SIZES, "model_type": "llama", "head_dim": D, "rope_theta": 10000.0, "rope_scaling": scaling},
           llama_state(dice), bpe, {"general.architecture": text("llama"), **core("llama", **of_llama, **HEAD)},
           {"rope_freqs.weight": llama3_factors(10000, D, scaling)})
    yield ("mistral", "hf.llama:gguf.llama",
           {**SIZES, "model_type": "mistral", "head_dim": D, "rope_theta": 1e6, "sliding_window": 4096},
           llama_state(dice), pieces(True, **{"tokenizer.ggml.add_space_prefix": flag(True)}),
           {"general.architecture": text("llama"), **core("llama", **{**of_llama, "rope__freq_base": f32(1e6)}, **HEAD)}, {})
    yield ("mixtral", "hf.mixtral:gguf.mixtral", {**SIZES, "model_type": "mixtral", "head_dim": D, "rope_theta": 1e6,
                                                  "num_local_experts": E, "num_experts_per_tok": 2},
           expert_state(dice, "block_sparse_moe", ("w1", "w3", "w2")), pieces(),
           {"general.architecture": text("llama"),
            **core("llama", **{**of_llama, "rope__freq_base": f32(1e6)}, **HEAD, expert_count=u32(E),
                   expert_used_count=u32(2))}, {})
    qwen = byte_level(split(QWEN2), "qwen2")
    yield ("qwen2", "hf.llama:gguf.qwen3", {**SIZES, "model_type": "qwen2", "rope_theta": 1e6, "hidden_size": H},
           llama_state(dice, bias="qkv"), qwen,
           {"general.architecture": text("qwen2"), **core("qwen2", rope__freq_base=f32(1e6))}, {})
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
    of_yarn = {"rope__scaling__type": text("yarn"), "rope__scaling__factor": f32(4),
               "rope__scaling__original_context_length": u32(16), "rope__scaling__yarn_beta_fast": f32(32),
               "rope__scaling__yarn_beta_slow": f32(1)}
    yield ("qwen3", "hf.llama:gguf.qwen3",
           {**SIZES, "model_type": "qwen3", "rope_theta": 1e6, "head_dim": D, "rope_scaling": yarn},
           llama_state(dice, norms=True), qwen,
           {"general.architecture": text("qwen3"), **core("qwen3", rope__freq_base=f32(1e6), **HEAD, **of_yarn)}, {})
    experts = {"expert_count": u32(E), "expert_used_count": u32(2), "expert_feed_forward_length": u32(F)}
    yield ("qwen2-moe", "hf.qwen2-moe:gguf.qwen2-moe",
           {**SIZES, "model_type": "qwen2_moe", "rope_theta": 1e6, "num_experts": E, "num_experts_per_tok": 2,
            "moe_intermediate_size": F, "shared_expert_intermediate_size": F},
           expert_state(dice, "mlp", ("gate_proj", "up_proj", "down_proj"), shared=True), qwen,
           {"general.architecture": text("qwen2moe"), **core("qwen2moe", rope__freq_base=f32(1e6), **experts,
                                                             expert_shared_feed_forward_length=u32(F))}, {})
    yield ("qwen3-moe", "hf.qwen3-moe:gguf.qwen3-moe",
           {**SIZES, "model_type": "qwen3_moe", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "num_experts": E,
            "num_experts_per_tok": 2, "moe_intermediate_size": F, "head_dim": D},
           expert_state(dice, "mlp", ("gate_proj", "up_proj", "down_proj"), norms=True), qwen,
           {"general.architecture": text("qwen3moe"), **core("qwen3moe", rope__freq_base=f32(1e6), **HEAD, **experts)}, {})
    gemma_pieces = pieces(**{"tokenizer.ggml.add_space_prefix": flag(False)})
    config, state, _ = gemma(dice)
    yield ("gemma2", "hf.gemma3:gguf.gemma3",
           {**SIZES, **config, "model_type": "gemma2", "sliding_window": 16, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0},
           {key: value for key, value in state.items() if "q_norm" not in key and "k_norm" not in key}, gemma_pieces,
           {"general.architecture": text("gemma2"), **core("gemma2", **HEAD, attention__sliding_window=u32(16),
                                                           attn_logit_softcapping=f32(50), final_logit_softcapping=f32(30))}, {})
    omitted = ("max_position_embeddings", "rms_norm_eps")
    nested = {key: value for key, value in {**SIZES, **config}.items() if key not in omitted}
    yield ("gemma3", "hf.gemma3:gguf.gemma3",
           {**nested, "model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "sliding_window": 16},
            "rope_theta": 1e6, "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
           state, gemma_pieces,
           {"general.architecture": text("gemma3"),
            **core("gemma3", **HEAD, context_length=u32(131072), attention__layer_norm_rms_epsilon=f32(1e-6),
                   attention__sliding_window=u32(16), rope__freq_base=f32(1e6), rope__freq_base_swa=f32(10000),
                   rope__scaling__type=text("linear"), rope__scaling__factor=f32(8))}, {})
    config, state, _ = phi3(dice)
    # A head has hidden_size / num_attention_heads elements here: 10 / 6 is 1, so that one element is rotated.
    yield ("phi3", "hf.phi3:gguf.phi3",
           {**SIZES, **config, "model_type": "phi3", "rope_theta": 10000.0, "original_max_position_embeddings": 16,
            "rope_scaling": None},
           state, byte_level(split(LLAMA3), "dbrx"),
           {"general.architecture": text("phi3"),
            **core("phi3", rope__dimension_count=u32(H // HEADS), rope__freq_base=f32(10000),
                   rope__scaling__original_context_length=u32(16), attention__sliding_window=u32(0))}, {})
    config, state, _ = gpt2(dice)
    yield ("gpt2", "hf.gpt2:gguf.gpt2", {**config, "model_type": "gpt2", "n_ctx": 9, "layer_norm_epsilon": 1e-5}, state,
           byte_level(BYTES, "gpt-2"),
           {"general.architecture": text("gpt2"), "gpt2.block_count": u32(LAYERS), "gpt2.context_length": u32(9),
            "gpt2.embedding_length": u32(HEADS * D), "gpt2.feed_forward_length": u32(4 * HEADS * D),
            "gpt2.attention.head_count": u32(HEADS), "gpt2.attention.layer_norm_epsilon": f32(1e-5)}, {})
    config, state, _ = gpt_oss(dice)
    yield ("gpt-oss", "hf.gpt-oss:gguf.gpt-oss",
           {**SIZES, **config, "model_type": "gpt_oss", "rope_theta": 150000, "sliding_window": 8, "num_experts_per_tok": 2,
            "rope_scaling": {**yarn, "rope_type": "yarn", "truncate": False}}, state, byte_level(split(GPT4O), "gpt-4o"),
           {"general.architecture": text("gpt-oss"),
            **core("gpt-oss", **HEAD, **experts, **of_yarn, rope__freq_base=f32(150000), attention__sliding_window=u32(8))}, {})
    config, state, _ = deepseek(dice)
    yield ("deepseek-v3", "hf.deepseek-v3:gguf.deepseek-v3",
           {**SIZES, **config, "model_type": "deepseek_v3", "rope_theta": 10000, "first_k_dense_replace": 1,
            "scoring_func": "sigmoid",
            "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 3, "n_shared_experts": 2,
            "routed_scaling_factor": 2.5, "norm_topk_prob": True,
            "rope_scaling": {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}},
           state, byte_level(split(*DEEPSEEK), "deepseek-v3"),
           {"general.architecture": text("deepseek2"),
            **core("deepseek2", **{**of_yarn, **experts}, attention__head_count_kv=u32(1), attention__q_lora_rank=u32(3),
                   attention__kv_lora_rank=u32(6), attention__key_length=u32(8), attention__value_length=u32(6),
                   attention__key_length_mla=u32(6), attention__value_length_mla=u32(5), rope__dimension_count=u32(2),
                   vocab_size=u32(V), leading_dense_block_count=u32(1), expert_shared_count=u32(2), expert_group_count=u32(1),
                   expert_group_used_count=u32(1), expert_weights_scale=f32(2.5), expert_weights_norm=flag(True),
                   expert_gating_func=u32(2), rope__freq_base=f32(10000), rope__scaling__yarn_log_multiplier=f32(0.1))
            | {"deepseek2.expert_feed_forward_length": u32(3)}}, {})
    config, state, _ = llama4(dice)
    yield ("llama4", "hf.llama4:gguf.llama4",
           {**SIZES, **config, "model_type": "llama4_text", "rope_theta": 500000.0, "num_experts_per_tok": 1}, state,
           byte_level(split(GPT4O), "llama4"),
           {"general.architecture": text("llama4"),
            **core("llama4", **HEAD, feed_forward_length=u32(F + 2), rope__dimension_count=u32(D), vocab_size=u32(V),
                   interleave_moe_layer_step=u32(2), expert_count=u32(E), expert_used_count=u32(1),
                   expert_feed_forward_length=u32(F), rope__freq_base=f32(500000))}, {})


def write_folder(folder, config, state, files):
    folder.mkdir()
    safetensors.numpy.save_file({key: np.ascontiguousarray(value) for key, value in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def check_models(oracle):
    for name, mapping, config, state, (files, tokenizer), expected, tensors in models(np.random.default_rng(common_seed())):
        if oracle.args.only not in name:
            continue
        folder, made = oracle.work / name, oracle.work / f"{name}.gguf"
        write_folder(folder, config, state, files)
        status, _, err = oracle.run("convert", folder, made, "--map", mapping)
        if not oracle.check(status == 0, name, f"exits {status}: {err}"):
            continue
        oracle.check("missing" not in err, name, f"notes: {err}")
        wanted = {**expected, **tokenizer, "general.type": text("model"), "general.name": text(name)}
        found = fields(made)
        for key in sorted(found.keys() | wanted.keys()):
            oracle.check(found.get(key) == wanted.get(key), name, f"{key} is {found.get(key)}, expected {wanted.get(key)}")
        held = {one.name: one for one in GGUFReader(made).tensors}
        for key, values in tensors.items():
            good = key in held and np.allclose(held[key].data, np.array(values, np.float32), rtol=1e-6, atol=0)
            oracle.check(good, name, f"{key} is {held[key].data if key in held else 'missing'}, expected {values}")
        # The way back ignores the computed tensors.
        back = oracle.work / f"{name}.safetensors"
        inverse = ":".join(reversed(mapping.split(":")))
        if oracle.succeeds(name, "convert", made, back, "--map", inverse, "--config", folder / "config.json"):
            returned = read_safetensors(back)[0]
            same = {key: ("F32", list(value.shape), np.ascontiguousarray(value).tobytes()) for key, value in state.items()}
            for key in same if name.startswith("gemma") else ():  # w + 1 - 1 is w up to the rounding of float32
                if key.endswith("norm.weight") and key in returned:
                    values = np.frombuffer(returned[key][2], np.float32).reshape(returned[key][1])
                    good = values.shape == state[key].shape and np.allclose(values, state[key], rtol=0, atol=2e-7)
                    oracle.check(good, name, f"{key} comes back as {values}")
                    returned[key] = same[key]
            oracle.check(returned == same, name, "the way back gives other tensors")


def check_other_ways(oracle):
    """The values pass through safetensors and DCP with their types; quantizing keeps them; selections leave them out."""
    name, mapping, config, state, (files, _), _, _ = next(models(np.random.default_rng(1)))
    folder, direct = oracle.work / "other", oracle.work / "direct.gguf"
    write_folder(folder, config, state, {**files, "generation_config.json": '{"top_k": 20, "temperature": 0.5}'})
    if not oracle.succeeds("other", "convert", folder, direct, "--map", mapping):
        return
    wanted = fields(direct)
    oracle.check(wanted.get("general.sampling.top_k") == (["INT32"], 20), "sampling", f"{wanted.get('general.sampling.top_k')}")
    oracle.check(wanted.get("general.sampling.temp") == f32(0.5), "sampling", f"{wanted.get('general.sampling.temp')}")
    for to, suffix in (("safetensors", ".safetensors"), ("dcp", "")):
        middle, last = oracle.work / f"middle_{to}{suffix}", oracle.work / f"{to}.gguf"
        if (oracle.succeeds(to, "convert", folder, middle, "--to", to, "--map", mapping)
                and oracle.succeeds(to, "convert", middle, last)):
            oracle.check(fields(last) == wanted, to, "the fields differ")
    bare = oracle.work / "bare.gguf"
    if oracle.succeeds("skip", "convert", folder, bare, "--map", mapping, "--skip", r"(general|tokenizer|llama)\..*"):
        oracle.check(fields(bare) == {}, "skip", f"{fields(bare)}")
    alone, config_elsewhere = oracle.work / "alone.safetensors", oracle.work / "elsewhere.gguf"
    alone.write_bytes((folder / "model.safetensors").read_bytes())
    if oracle.succeeds("config", "convert", alone, config_elsewhere, "--map", mapping, "--config", folder / "config.json"):
        oracle.check(fields(config_elsewhere) == wanted, "config", "the fields differ")
    with Server(oracle.work) as server:
        remote = oracle.work / "remote.gguf"
        status, _, err = oracle.run("convert", f"{server.url}/other/model.safetensors", remote, "--map", mapping)
        if status == 0:
            oracle.check(fields(remote) == wanted, "URL", f"{fields(remote)}, expected {wanted}")
        else:  # a build without room remote
            oracle.check(not server.seen, "URL", f"exits {status}: {err}")


def check_wrong_files(oracle):
    name, mapping, config, state, (files, _), _, _ = next(models(np.random.default_rng(1)))
    tokenizer = json.loads(files["tokenizer.json"])
    twice = {**tokenizer["model"], "vocab": {"a": 0, "b": 0}}
    changes = {
        "a duplicate id": ("tokenizer.json", {**tokenizer, "model": twice}, "two tokens have the same id"),
        "an id out of range": ("tokenizer.json", {**tokenizer, "added_tokens": [{"id": V, "content": "c"}]},
                               "has no row in the embedding"),
        "a deep document": ("tokenizer.json", "[" * 5000 + "]" * 5000, "the tokenizer is missing"),
        "an unknown pre-tokenizer": ("tokenizer.json", {**tokenizer, "pre_tokenizer": split("[a-z]+")},
                                     "tokenizer.ggml.pre is missing"),
        "no number": ("config.json", {**config, "rms_norm_eps": "small"}, "llama.attention.layer_norm_rms_epsilon"),
        "another model": ("config.json", {**config, "model_type": "granite"}, "'model_type' is 'granite'"),
    }
    for number, (case, (file, content, said)) in enumerate(changes.items()):
        folder, made = oracle.work / f"wrong_{number}", oracle.work / f"wrong_{number}.gguf"
        write_folder(folder, config, state, files)
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
        status, _, err = oracle.run("convert", folder, made, "--map", mapping)
        oracle.check(status == 0 and said in err, case, f"exits {status}: {err}")


def loadable(dice):
    """A Llama model that is large enough for llama.cpp, with a token for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = [chr(one) for one in shown] + [chr(256 + one) for one in range(256 - len(shown))]
    vocabulary = {one: number for number, one in enumerate(characters)} | {"ab": 256}
    tokenizer = {"model": {"type": "BPE", "ignore_merges": True, "vocab": vocabulary, "merges": ["a b"]},
                 "pre_tokenizer": split(LLAMA3),
                 "added_tokens": [{"id": 257, "content": "<|begin|>", "special": True},
                                  {"id": 258, "content": "<|end|>", "special": True}]}
    rows, hidden, width = 260, 64, 96
    config = {**SIZES, "model_type": "llama", "vocab_size": rows, "hidden_size": hidden, "intermediate_size": width,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rope_theta": 10000.0,
              "bos_token_id": 257, "eos_token_id": 258}
    shapes = {"model.embed_tokens.weight": (rows, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (rows, hidden)}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes |= mlp(base + "mlp.", width, hidden)
        shapes |= {f"{base}{norm}.weight": (hidden,) for norm in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{base}self_attn.{one}_proj.weight": (size, hidden)
                   for one, size in zip("qkvo", (hidden, hidden // 2, hidden // 2, hidden))}
    return config, make(dice, shapes), {"tokenizer.json": json.dumps(tokenizer)}


def check_llama_cpp(oracle):
    try:
        from llama_cpp import Llama
    except Exception as error:
        print(f"llama.cpp does not load a file: llama-cpp-python cannot be imported ({type(error).__name__}: {error})")
        return
    config, state, files = loadable(np.random.default_rng(2))
    folder = oracle.work / "loadable"
    write_folder(folder, config, state, files)
    for kind in ((), ("--quantize", "Q8_0")):
        made = oracle.work / f"loadable{len(kind)}.gguf"
        if not oracle.succeeds("llama.cpp", "convert", folder, made, "--map", "hf.llama:gguf.llama", *kind):
            continue
        model = Llama(model_path=str(made), n_ctx=32, verbose=False)
        oracle.check(model.n_vocab() == 260, "llama.cpp", f"{model.n_vocab()} tokens")
        found = model.tokenize(b"ab<|end|>", add_bos=True, special=True)
        oracle.check(found == [257, 256, 258], "llama.cpp", f"tokens {found}")
        oracle.check(bool(model.create_completion("ab", max_tokens=2)["choices"]), "llama.cpp", "no completion")


def main():
    oracle = Oracle(__doc__, extra=lambda parser: parser.add_argument("--release", action="store_true"), syncs=False)
    check_models(oracle)
    if not oracle.args.only:
        check_other_ways(oracle)
        check_wrong_files(oracle)
    if oracle.args.release:
        check_llama_cpp(oracle)
    oracle.finish()


if __name__ == "__main__":
    main()
