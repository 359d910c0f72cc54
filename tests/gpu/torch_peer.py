#!/usr/bin/env python3
"""Speed of a training step with PyTorch on a GPU: the peer of `trimtab profile`.

Usage: torch_peer.py MODEL MICRO_BATCH SEQUENCE [--attention cudnn|flash] [--steps N]
                     [--accumulate N]

MODEL is gpt2-124m or llama2-7b. The model is compiled (torch.compile), runs in bf16 with bf16
weights, and is updated by the fused AdamW once per --accumulate micro batches; random tokens and
weights. Prints one JSON object: tokens_per_s is the median over steps, timed by CUDA events.

Needs PyTorch 2.5 or later (cuDNN as a backend of scaled_dot_product_attention).
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MODELS = {
    "gpt2-124m": dict(vocab=50304, hidden=768, layers=12, heads=12, ffn=3072, llama=False),
    "llama2-7b": dict(vocab=32000, hidden=4096, layers=32, heads=32, ffn=11008, llama=True),
}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Layer(torch.nn.Module):
    def __init__(self, hidden, heads, ffn, llama, **_):
        super().__init__()
        norm = torch.nn.RMSNorm if llama else torch.nn.LayerNorm
        bias = not llama
        self.heads, self.llama = heads, llama
        self.norm1, self.norm2 = norm(hidden, eps=1e-5), norm(hidden, eps=1e-5)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=bias)
        self.proj = torch.nn.Linear(hidden, hidden, bias=bias)
        self.fc1 = torch.nn.Linear(hidden, ffn * (2 if llama else 1), bias=bias)
        self.fc2 = torch.nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x, rotary):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        if self.llama:
            q, k = rotate(q, rotary), rotate(k, rotary)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(out.transpose(1, 2).reshape(b, t, c))
        y = self.fc1(self.norm2(x))
        if self.llama:
            gate, up = y.chunk(2, dim=-1)
            return x + self.fc2(F.silu(gate) * up)
        return x + self.fc2(F.gelu(y, approximate="tanh"))


def rotate(x, rotary):
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rotary_table(sequence, head_size):
    frequency = 10000.0 ** (-torch.arange(0, head_size, 2, device="cuda").float() / head_size)
    angle = torch.outer(torch.arange(sequence, device="cuda").float(), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().bfloat16(), angle.sin().bfloat16()


class Model(torch.nn.Module):
    def __init__(self, sequence, **config):
        super().__init__()
        hidden, vocab, llama = config["hidden"], config["vocab"], config["llama"]
        self.tokens = torch.nn.Embedding(vocab, hidden)
        self.positions = None if llama else torch.nn.Embedding(sequence, hidden)
        self.layers = torch.nn.ModuleList(Layer(**config) for _ in range(config["layers"]))
        self.norm = (torch.nn.RMSNorm if llama else torch.nn.LayerNorm)(hidden, eps=1e-5)
        self.head = torch.nn.Linear(hidden, vocab, bias=False)
        if not llama:
            self.head.weight = self.tokens.weight

    def forward(self, ids, targets, rotary):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, rotary)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("micro_batch", type=int)
    parser.add_argument("sequence", type=int)
    parser.add_argument("--attention", choices=BACKENDS, default="cudnn")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()

    config = MODELS[options.model]
    torch.manual_seed(1)
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    model = Model(options.sequence, **config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step_model = torch.compile(model)
    rotary = rotary_table(options.sequence, config["hidden"] // config["heads"])
    shape = (options.micro_batch, options.sequence)

    def step():
        for _ in range(options.accumulate):
            ids = torch.randint(0, config["vocab"], shape)
            targets = torch.randint(0, config["vocab"], shape)
            with sdpa_kernel(BACKENDS[options.attention]):
                (step_model(ids, targets, rotary) / options.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    for _ in range(options.warmup):
        step()
    times = []
    for _ in range(options.steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    median = statistics.median(times)
    tokens = options.micro_batch * options.sequence * options.accumulate
    print(
        json.dumps(
            {
                "model": options.model,
                "attention": options.attention,
                "torch": torch.__version__,
                "device": torch.cuda.get_device_name(),
                "step_time_s": median,
                "tokens_per_s": tokens / median,
                "peak_mem_bytes": torch.cuda.max_memory_allocated(),
            }
        )
    )


if __name__ == "__main__":
    main()
