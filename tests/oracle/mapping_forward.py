# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a small dense decoder in plain PyTorch, from the tensors of Meta's or Megatron's convention as
they are: rotary embeddings and fused layers as these conventions define them. For mapping_transformers.py."""
import torch
from torch.nn.functional import linear, silu


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def angles(length, d, theta):
    return torch.outer(torch.arange(length).float(), theta ** (-torch.arange(0, d, 2).float() / d))


def rotate_neighbours(x, theta):
    """Meta's convention: elements 2 i and 2 i + 1 of a head are a complex number. `x` is [position, head, d]."""
    turn = torch.polar(torch.ones(1), angles(x.shape[0], x.shape[-1], theta))[:, None]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


def rotate_halves(x, theta):
    """Megatron's default and Hugging Face's convention: elements i and i + d / 2 of a head rotate together."""
    angle = angles(x.shape[0], x.shape[-1], theta)[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, k, v):
    """Causal attention of [position, head, d]; each head of k and v serves q's heads of its group."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    scores += torch.full(scores.shape[-2:], float("-inf")).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def meta_logits(w, tokens, heads, groups, layers, theta, eps):
    x = w["tok_embeddings.weight"][tokens]
    for layer in range(layers):
        at = f"layers.{layer}."
        y = norm(x, w[at + "attention_norm.weight"], eps)
        q, k, v = (linear(y, w[f"{at}attention.w{name}.weight"]).unflatten(-1, (count, -1))
                   for name, count in (("q", heads), ("k", groups), ("v", groups)))
        x = x + linear(attend(rotate_neighbours(q, theta), rotate_neighbours(k, theta), v), w[at + "attention.wo.weight"])
        y = norm(x, w[at + "ffn_norm.weight"], eps)
        y = silu(linear(y, w[at + "feed_forward.w1.weight"])) * linear(y, w[at + "feed_forward.w3.weight"])
        x = x + linear(y, w[at + "feed_forward.w2.weight"])
    return linear(norm(x, w["norm.weight"], eps), w.get("output.weight", w["tok_embeddings.weight"]))


def megatron_logits(w, tokens, heads, groups, layers, theta, eps):
    x = w["embedding.word_embeddings.weight"][tokens]
    for layer in range(layers):
        at = f"decoder.layers.{layer}."
        attention, mlp = at + "self_attention.", at + "mlp."
        y = norm(x, w[attention + "linear_qkv.layer_norm_weight"], eps)
        y = linear(y, w[attention + "linear_qkv.weight"], w.get(attention + "linear_qkv.bias"))
        # [position, group, the group's queries, then its key, then its value, d]
        q, k, v = y.unflatten(-1, (groups, heads // groups + 2, -1)).split([heads // groups, 1, 1], 2)
        q, k, v = q.flatten(1, 2), k.squeeze(2), v.squeeze(2)
        if attention + "q_layernorm.weight" in w:
            q = norm(q, w[attention + "q_layernorm.weight"], eps)
            k = norm(k, w[attention + "k_layernorm.weight"], eps)
        x = x + linear(attend(rotate_halves(q, theta), rotate_halves(k, theta), v), w[attention + "linear_proj.weight"])
        gate, up = linear(norm(x, w[mlp + "linear_fc1.layer_norm_weight"], eps), w[mlp + "linear_fc1.weight"]).chunk(2, -1)
        x = x + linear(silu(gate) * up, w[mlp + "linear_fc2.weight"])
    x = norm(x, w["decoder.final_layernorm.weight"], eps)
    return linear(x, w.get("output_layer.weight", w["embedding.word_embeddings.weight"]))
