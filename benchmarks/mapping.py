# SPDX-License-Identifier: Apache-2.0
"""The benchmarks mapping_*: conversions of a Llama of 1 GiB to Megatron's fused tensors beside the same conversions
without a mapping, one rank's load of fused tensors, and Q8_0 beside the package gguf."""
import importlib.util
import json
import os
import random
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
MAPPING = "hf.llama:megatron.gpt"
RANKS = 8
CONFIG = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 9, "num_attention_heads": 32,
          "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": False}
AIM = 1.15  # the time of a conversion with a mapping, relative to one without


def shapes():
    h, f, vocabulary = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    kv = h // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    made = {"model.embed_tokens.weight": (vocabulary, h), "model.norm.weight": (h,), "lm_head.weight": (vocabulary, h)}
    for layer in range(CONFIG["num_hidden_layers"]):
        base = f"model.layers.{layer}."
        made |= {base + "input_layernorm.weight": (h,), base + "post_attention_layernorm.weight": (h,),
                 base + "self_attn.q_proj.weight": (h, h), base + "self_attn.k_proj.weight": (kv, h),
                 base + "self_attn.v_proj.weight": (kv, h), base + "self_attn.o_proj.weight": (h, h),
                 base + "mlp.gate_proj.weight": (f, h), base + "mlp.up_proj.weight": (f, h),
                 base + "mlp.down_proj.weight": (h, f)}
    return made


def write_safetensors(path, tensors, item, dtype, block):
    """Writes tensors of these shapes, whose bytes repeat `block`."""
    header, at = {}, 0
    for key, shape in tensors.items():
        size = item
        for length in shape:
            size *= length
        header[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    staged = path.with_suffix(".part")
    with open(staged, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, at, len(block)):
            file.write(block[:at - begin])
    staged.rename(path)


def llama(bench):
    """A Llama in BF16 under Hugging Face's names, with its configuration."""
    file = bench.work / "llama" / "model.safetensors"
    if not file.exists():
        print("# writing a Llama of 1 GiB", file=sys.stderr, flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "config.json").write_text(json.dumps(CONFIG))
        write_safetensors(file, shapes(), 2, "BF16", os.urandom(MIB))
    return file


def fused(bench):
    """The same model under Megatron's names."""
    file = bench.work / "llama" / "megatron.safetensors"
    if not file.exists():
        bench.shardmesh("convert", llama(bench), file, "--map", MAPPING)
    return file


def ours(bench, case, path, *rest):
    program = bench.build / "bin" / "shardmesh_mapping_bench"
    return lambda repeat: bench.json_of([program, case, path, MAPPING, "--repeat", repeat, "--threads", bench.threads, *rest])


def judge(bench, medians):
    if bench.only_counts:
        return
    ratio = medians[0] / medians[1]
    print(f"  with a mapping: x{ratio:.2f} of the time without (aim: at most x{AIM}): {'ok' if ratio <= AIM else 'TOO LONG'}")


def convert_cached(bench):
    file = llama(bench)
    judge(bench, bench.compare(
        f"a Llama of 1 GiB to {MAPPING.split(':')[1]}, checksums, warm cache, without fsync", file, {
            f"shardmesh::convert of map_checkpoint, {bench.threads} threads": ours(bench, "convert", file),
            "the same without a mapping": ours(bench, "convert_same", file),
            f"plain pread + pwrite, {bench.threads} threads": bench.ours("plain_copy_cached", file)}))


def convert(bench):
    file, target = llama(bench), bench.work / "mapped.safetensors"

    def command(*options):
        def run(repeat):
            times = [bench.shardmesh("convert", file, target, "--force", "--threads", bench.threads, *options)[0]
                     for _ in range(repeat)]
            return {"bytes": file.stat().st_size, "seconds": times}
        return run
    judge(bench, bench.compare(f"a Llama of 1 GiB, durably, to {MAPPING.split(':')[1]}", file, {
        "shardmesh convert --map (whole process)": command("--map", MAPPING),
        "the same without --map": command()}))
    target.unlink(missing_ok=True)


def load(bench):
    file, other = llama(bench), fused(bench)
    said = {}

    def counted(name, run):
        def side(repeat):
            said[name] = run(repeat)
            return said[name]
        return side
    bench.compare(f"the rows of one rank of {RANKS} of all fused tensors, warm cache", file.parent, {
        f"shardmesh::load, mapped, {bench.threads} threads":
            counted("mapped", ours(bench, "load_fused", file, "--ranks", RANKS)),
        f"shardmesh::load of the converted file, {bench.threads} threads":
            counted("converted", ours(bench, "load_same", other, "--ranks", RANKS))})
    for name, one in said.items():
        print(f"  {name}: {one['read'] / one['bytes']:.3f} bytes read for each that is needed "
              f"({one['read'] / MIB:.0f} of {one['bytes'] / MIB:.0f} MiB; headers included)", flush=True)


def quantize(bench):
    file = bench.work / "floats.safetensors"
    if not file.exists():
        draw = random.Random(1)
        block = struct.pack(f"<{MIB // 4}f", *(draw.gauss(0, 0.02) for _ in range(MIB // 4)))
        write_safetensors(file, {f"layers.{i}.weight": (4096, 4096) for i in range(4)}, 4, "F32", block)
    sides = {f"shardmesh::convert to GGUF, Q8_0, {bench.threads} threads": ours(bench, "quantize", file)}
    if importlib.util.find_spec("gguf"):
        sides["gguf.quants.quantize, blocks to a file"] = lambda repeat: bench.json_of(
            [sys.executable, HERE / "gguf_side.py", file, bench.work / "blocks.bin", "--repeat", repeat])
    else:
        print("\n# the package gguf is not installed: its side is left out")
    bench.compare("256 MiB of float32 to Q8_0, read and written, warm cache, without fsync", file, sides)


CASES = {"mapping_convert": convert, "mapping_convert_cached": convert_cached, "mapping_load": load,
         "mapping_quantize": quantize}
