# SPDX-License-Identifier: Apache-2.0
"""Models of transformers, converted by `convert --map hf.llama:megatron.gpt` and loaded by megatron-core's GPTModel on
1, 2, and 4 tensor-parallel ranks (gloo, CPU): the logits are those of transformers' model. On the way back, Megatron's
own state dict becomes the tensors of transformers. Needs transformers and megatron-core (mapping_fresh.py)."""
import contextlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

from common import Oracle, need_torch, skip

need_torch()
warnings.filterwarnings("ignore")
try:
    import megatron.core
    import transformers  # noqa: F401
except ImportError as missing:
    skip(f"{missing}: ./dev test --release installs it and runs this test (mapping_fresh.py)")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import mapping_models as models  # noqa: E402

TOLERANCE = 1e-5
WORLDS = (1, 2, 4)
# Each tensor-parallel rank has a group of query heads, at least.
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 4}
# Megatron's layers without Transformer Engine have the norms as modules of their own.
LOCAL_NAMES = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
               "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight"}


def local_name(key):
    for fused, alone in LOCAL_NAMES.items():
        if key.endswith(fused):
            return key.removesuffix(fused) + alone
    return key


def fused_name(key):
    for fused, alone in LOCAL_NAMES.items():
        if key.endswith("." + alone):
            return key.removesuffix(alone) + fused
    return key


def part_of(key, tensor, rank, world):
    """What Megatron's column- and row-parallel layers hold of a whole tensor."""
    if "norm" in key:
        return tensor
    if key.endswith("linear_fc1.weight"):  # each rank has rows of gate, then rows of up
        return torch.cat([half.chunk(world)[rank] for half in tensor.chunk(2)])
    dim = 1 if key.endswith(("linear_proj.weight", "linear_fc2.weight")) else 0
    return tensor.chunk(world, dim)[rank].contiguous()


def without_gpu():
    """megatron-core asks for the current GPU, and for its random state of dropout, which is 0 here."""
    from megatron.core.tensor_parallel import random as states
    torch.cuda.current_device = lambda: torch.device("cpu")
    states.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()


def make_megatron(config):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    norms = config.model_type == "qwen3"
    own = TransformerConfig(
        num_layers=config.num_hidden_layers, hidden_size=config.hidden_size, ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads, num_query_groups=config.num_key_value_heads,
        kv_channels=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        normalization="RMSNorm", layernorm_epsilon=config.rms_norm_eps, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False, add_qkv_bias=config.model_type == "qwen2",
        qk_layernorm=norms, hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, tensor_model_parallel_size=dist.get_world_size(),
        params_dtype=torch.float32, pipeline_dtype=torch.float32)
    return GPTModel(own, get_gpt_layer_local_spec(qk_layernorm=norms, normalization="RMSNorm"), config.vocab_size, 64,
                    parallel_output=False, share_embeddings_and_output_weights=bool(config.tie_word_embeddings),
                    position_embedding_type="rope", rotary_base=int(models.THETA)).eval()


def run_rank(rank, world, folder):
    """Loads a rank's parts of each converted file, and compares the logits. Rank 0 of 1 saves Megatron's state dict."""
    from megatron.core import parallel_state
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store_{world}", rank=rank, world_size=world)
    without_gpu()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    failures = 0
    for file in sorted(folder.glob("*.megatron.safetensors")):
        name = file.name.split(".")[0]
        known = torch.load(folder / f"{name}.expected.pt", weights_only=False)
        whole = {local_name(key): tensor for key, tensor in safetensors.torch.load_file(file).items()}
        model = make_megatron(known["config"])
        found = model.load_state_dict({key: part_of(key, tensor, rank, world) for key, tensor in whole.items()}, strict=False)
        missing = [key for key in found.missing_keys if not key.endswith("_extra_state")]
        tokens, length = known["tokens"][None], len(known["tokens"])
        future = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]  # True: not attended to
        with torch.no_grad():
            logits = model(tokens, torch.arange(length)[None], future)[0]
        difference = models.largest_difference(logits, known["logits"])
        good = difference < TOLERANCE and not missing and not found.unexpected_keys
        failures += not good
        print(f"{'ok' if good else 'FAILED'} {name}, rank {rank} of {world}: logits differ by {difference:.1e}, missing "
              f"{missing}, unexpected {found.unexpected_keys}")
        if world == 1:
            own = {fused_name(key): value for key, value in model.state_dict().items()}
            torch.save(own, folder / f"{name}.own.pt")
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return failures


def main():
    oracle = Oracle(__doc__)
    seed = int(torch.seed() % 2**31)
    print(f"megatron-core {megatron.core.__version__}, transformers {transformers.__version__}, seed {seed}")
    names = [name for name in models.MODELS if name != "mixtral" and oracle.args.only in name]
    for name in names:
        model, tokens = models.make(name, seed, **SIZES), models.tokens_of(seed)
        model.save_pretrained(oracle.work / name)
        torch.save({"config": model.config, "tokens": tokens, "logits": models.logits_of(model, tokens)},
                   oracle.work / f"{name}.expected.pt")
        oracle.succeeds(name, "convert", oracle.work / name, oracle.work / f"{name}.megatron.safetensors", "--map",
                        "hf.llama:megatron.gpt")
    for world in WORLDS:
        ranks = [subprocess.Popen([sys.executable, "-B", __file__, "--rank", str(rank), str(world), oracle.work],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(world)]
        for number, rank in enumerate(ranks):
            said = rank.communicate(timeout=600)[0]
            oracle.check(rank.returncode == 0 and said.count("ok ") >= len(names), f"rank {number} of {world}", said[-3000:])
            if number == 0:
                print("\n".join(line for line in said.splitlines() if line.startswith("ok ")))
    for name in names:
        back, source = oracle.work / f"{name}.back.safetensors", oracle.work / name
        if oracle.succeeds(name, "convert", oracle.work / f"{name}.own.pt", back, "--map", "megatron.gpt:hf.llama",
                           "--config", source / "config.json") is None:
            continue
        found, saved = safetensors.torch.load_file(back), safetensors.torch.load_file(source / "model.safetensors")
        differ = sorted(found.keys() ^ saved.keys()) or [key for key in saved if not torch.equal(found[key], saved[key])]
        oracle.check(not differ, name, f"Megatron's state dict becomes other tensors: {differ[:5]}")
    oracle.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        sys.exit(run_rank(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
    main()
