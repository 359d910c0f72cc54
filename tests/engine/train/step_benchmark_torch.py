#!/usr/bin/python3
"""Speed of a full GPT-2 124M training step in fp32 with PyTorch: the peer of step_benchmark.cc.

Usage: step_benchmark_torch.py [batch] [sequence] [threads] [steps]

Debian packages: python3-torch, and libopenblas0-pthread instead of the slow reference BLAS.

Debian's OpenBLAS mistakes some processors for very old ones; OPENBLAS_CORETYPE=SkylakeX in the
environment mends that on a machine with AVX-512, and is worth a factor of several.
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, LAYERS, HEADS, POSITIONS = 50257, 768, 12, 12, 1024


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(HIDDEN)
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN)
        self.proj = torch.nn.Linear(HIDDEN, HIDDEN)
        self.norm2 = torch.nn.LayerNorm(HIDDEN)
        self.fc1 = torch.nn.Linear(HIDDEN, 4 * HIDDEN)
        self.fc2 = torch.nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x, future):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(HIDDEN, dim=2)
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in parts)
        scores = (q @ k.transpose(-1, -2)) * (c // HEADS) ** -0.5
        out = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.proj(out.transpose(1, 2).reshape(b, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCAB, HIDDEN)
        self.positions = torch.nn.Embedding(POSITIONS, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(HIDDEN)

    def forward(self, ids):
        t = ids.shape[1]
        future = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        x = self.tokens(ids) + self.positions.weight[:t]
        for layer in self.layers:
            x = layer(x, future)
        return F.linear(self.norm(x), self.tokens.weight)


def main():
    arguments = [int(x) for x in sys.argv[1:]]
    batch, sequence, threads, steps = arguments + [4, 64, 2, 5][len(arguments) :]
    torch.set_num_threads(threads)
    torch.manual_seed(1234)
    model = Gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    times = []
    for step in range(steps + 1):
        ids = torch.randint(VOCAB, (batch, sequence + 1))
        begin = time.perf_counter()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step > 0:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    print(
        f"PyTorch {torch.__version__} GPT-2 124M fp32 B={batch} T={sequence} threads={threads}: "
        f"{seconds * 1e3:.1f} ms a step, {batch * sequence / seconds:.0f} tokens/s"
    )


if __name__ == "__main__":
    main()
