#!/usr/bin/python3
"""Makes tiny models as Hugging Face folders, and what PyTorch computes with them.

Usage: ./make_goldens.py          (Debian packages python3-torch and python3-numpy)

Writes NAME/config.json and NAME/*.safetensors, as Hugging Face's transformers would save the model,
and NAME/expected.safetensors, computed in double precision:
  tokens   [B, T + 1]
  logits   [B * T, V] of all tokens but the last of each sequence
  loss     mean cross-entropy of predicting the next token
Each model is written out with plain tensor operations over tensors of Hugging Face's names and
shapes, from its modeling_*.py in transformers, and not from the engine.
"""

import json
import math
import os
import struct

import torch
import torch.nn.functional as F

BATCH, SEQUENCE = 4, 12
HERE = os.path.dirname(os.path.abspath(__file__))


class Weights:
    """Makes each tensor when it is first asked for: at random, spread so that each one matters."""

    def __init__(self, dtype):
        self.generator = torch.Generator().manual_seed(30)
        self.dtype = dtype
        self.tensors = {}

    def __call__(self, name, *shape):
        if name not in self.tensors:
            values = torch.randn(shape, generator=self.generator, dtype=torch.float64)
            is_norm = len(shape) == 1 and name.endswith("weight")
            values = 1.0 + 0.1 * values if is_norm else 0.15 * values
            self.tensors[name] = values.to(self.dtype)
        assert self.tensors[name].shape == shape, name
        return self.tensors[name].double()


def linear(w, name, x, rows, bias):
    weight = w(name + ".weight", rows, x.shape[-1])
    return F.linear(x, weight, w(name + ".bias", rows) if bias else None)


def conv1d(w, name, x, columns):
    return x @ w(name + ".weight", x.shape[-1], columns) + w(name + ".bias", columns)


def layer_norm(w, name, x, epsilon):
    width = x.shape[-1]
    return F.layer_norm(x, (width,), w(name + ".weight", width), w(name + ".bias", width), epsilon)


def rms_norm(w, name, x, epsilon):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * scale * w(name + ".weight", x.shape[-1])


def heads(x, count):
    """[B, T, count * D] to [B, count, T, D]."""
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def rotate(x, theta):
    """Rotary positions in halves, on [B, heads, T, D]."""
    t, d = x.shape[-2:]
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(torch.arange(t, dtype=torch.float64), frequency)
    cos, sin = torch.cos(angle), torch.sin(angle)
    first, second = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attend(q, k, v):
    """Causal attention of [B, heads, T, D]; [B, T, heads * D]."""
    k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], dim=1) for y in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    t = scores.shape[-1]
    future = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
    out = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2)


def gpt2(w, c, tokens):
    width, epsilon = c["n_embd"], c["layer_norm_epsilon"]
    table = w("wte.weight", c["vocab_size"], width)
    x = table[tokens] + w("wpe.weight", c["n_positions"], width)[: tokens.shape[1]]
    for i in range(c["n_layer"]):
        p = f"h.{i}."
        y = conv1d(w, p + "attn.c_attn", layer_norm(w, p + "ln_1", x, epsilon), 3 * width)
        y = attend(*(heads(part, c["n_head"]) for part in y.split(width, dim=-1)))
        x = x + conv1d(w, p + "attn.c_proj", y, width)
        y = conv1d(w, p + "mlp.c_fc", layer_norm(w, p + "ln_2", x, epsilon), 4 * width)
        x = x + conv1d(w, p + "mlp.c_proj", F.gelu(y, approximate="tanh"), width)
    return F.linear(layer_norm(w, "ln_f", x, epsilon), table)


def llama(w, c, tokens):
    width, epsilon = c["hidden_size"], c["rms_norm_eps"]
    count, kv = c["num_attention_heads"], c["num_key_value_heads"]
    size = width // count
    x = w("model.embed_tokens.weight", c["vocab_size"], width)[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        q, k, v = (
            heads(linear(w, p + f"self_attn.{part}_proj", n, number * size, False), number)
            for part, number in (("q", count), ("k", kv), ("v", kv))
        )
        y = attend(rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"]), v)
        x = x + linear(w, p + "self_attn.o_proj", y, width, False)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        gate, up = (
            linear(w, p + f"mlp.{part}_proj", n, c["intermediate_size"], False)
            for part in ("gate", "up")
        )
        x = x + linear(w, p + "mlp.down_proj", F.silu(gate) * up, width, False)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"], False)


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        same_size = torch.int16 if tensor.dtype == torch.bfloat16 else tensor.dtype
        raw = tensor.contiguous().view(same_size).numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def make_golden(name, model, config, dtype=torch.float32, shards=1, extra=lambda w: {}):
    weights = Weights(dtype)
    tokens = torch.randint(
        config["vocab_size"], (BATCH, SEQUENCE + 1), generator=weights.generator
    )
    logits = model(weights, config, tokens[:, :-1]).flatten(0, 1)
    loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"), config)
    tensors = {**weights.tensors, **extra(weights.tensors)}
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    else:
        names = list(tensors)
        weight_map = {}
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
            write_safetensors(os.path.join(folder, file), {k: tensors[k] for k in part})
            weight_map.update({k: file for k in part})
        total = sum(tensor.nelement() * tensor.element_size() for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(os.path.join(folder, "model.safetensors.index.json"), index)
    expected = {"tokens": tokens, "logits": logits, "loss": loss.reshape(1)}
    write_safetensors(
        os.path.join(folder, "expected.safetensors"), {k: v.float() for k, v in expected.items()}
    )
    print(f"{name}: loss {loss.item():.6f}")


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 16,
    "vocab_size": 61,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 61,
}


def main():
    # The published file: no prefix, a buffer in each layer.
    make_golden(
        "gpt2",
        gpt2,
        GPT2,
        extra=lambda w: {f"h.{i}.attn.bias": torch.ones(1, 1, 4, 4).tril() for i in range(2)},
    )
    make_golden("llama", llama, LLAMA, dtype=torch.bfloat16, shards=2)


if __name__ == "__main__":
    main()
