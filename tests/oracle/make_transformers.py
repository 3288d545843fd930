# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/transformers: models that transformers 4.57.6 saved as pytorch_model*.bin.

Needs: pip install transformers==4.57.6, and torch. Usage: make_transformers.py FOLDER
Each case is CASE/checkpoint and CASE/expected.json: {KEY: {"dtype", "shape", "sha256"}} of model.state_dict().
"""
import hashlib
import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def described(state):
    """Describes a state dict with plain PyTorch: dtype, shape, and the bytes' SHA-256 of every tensor."""
    def one(tensor):
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                "sha256": hashlib.sha256(data).hexdigest()}
    return {key: one(value) for key, value in state.items()}


def save(folder, model, **options):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder / "checkpoint", safe_serialization=False, **options)
    (folder / "checkpoint/generation_config.json").unlink()  # says only which version made it
    (folder / "expected.json").write_text(json.dumps(described(model.state_dict()), indent=1) + "\n")


def main():
    top = Path(sys.argv[1])
    torch.manual_seed(7)
    llama = LlamaConfig(vocab_size=13, hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2,
                        num_key_value_heads=1, max_position_embeddings=8)
    # Three files and an index.
    save(top / "sharded", LlamaForCausalLM(llama).to(torch.bfloat16), max_shard_size=250)
    # One file; lm_head.weight is the embedding.
    gpt2 = GPT2Config(vocab_size=11, n_positions=5, n_embd=4, n_layer=1, n_head=2)
    save(top / "whole", GPT2LMHeadModel(gpt2))


main()
