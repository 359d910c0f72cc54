#!/usr/bin/python3
"""Makes optimizers.json: how PyTorch trains some of the goldens' models with other optimizers.

Usage: ./make_optimizers.py       (Debian packages python3-torch and python3-numpy)

A row has a family, whose golden has the weights and the tokens, the optimizer of the run, the type
of its moments, and the losses and gradient norms of ten steps in double precision. SGD is
torch.optim.SGD; Muon and 8-bit moments are written from their papers and published code: Jordan et
al., "Muon: An optimizer for hidden layers", scaled as in arXiv:2502.16982; arXiv:2110.02861.
"""

import json
import os

import torch
import torch.nn.functional as F

from experts import Router, has_experts
from families import FAMILIES
from make_goldens import OPTIMIZER, STEPS, learning_rate
from models import logits_of, make_weights

SEQUENCE, MICRO_BATCH, MICRO_BATCHES = 20, 2, 2
BLOCK = 128  # elements of 8-bit moments that share a scale


def dynamic_map(signed):
    """bitsandbytes' create_dynamic_map(signed), with -1 for its smallest negative number."""
    values = []
    for i in range(7):
        boundaries = torch.linspace(0.1, 1, 2 ** (i + (0 if signed else 1)) + 1).double()
        means = (boundaries[:-1] + boundaries[1:]) / 2
        values += (10.0 ** (i - 6) * means).tolist()
    positive = sorted(values) + [1.0]
    negative = [-v for v in positive[1:]] if signed else []
    codes = torch.tensor(sorted(negative + [0.0] + positive), dtype=torch.float64)
    assert len(codes) == 256
    return codes


CODES = {signed: dynamic_map(signed) for signed in (False, True)}


def rounded(moment, signed):
    """The moment as 8 bits store it."""
    flat = moment.flatten()
    padded = F.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)
    scale = padded.abs().amax(1, keepdim=True)
    stored = padded / torch.where(scale > 0, scale, torch.ones_like(scale))
    codes = CODES[signed]
    middles = (codes[:-1] + codes[1:]) / 2
    return (codes[torch.bucketize(stored, middles)] * scale).flatten()[: len(flat)].view_as(moment)


class AdamW:
    """Algorithm 2 of arXiv:1711.05101, with moments stored in 8 bits if asked."""

    def __init__(self, values, settings, int8):
        self.values, self.settings, self.int8, self.steps = values, settings, int8, 0
        self.m = [torch.zeros_like(v) for v in values]
        self.v = [torch.zeros_like(v) for v in values]

    def step(self, rate):
        self.steps += 1
        b1, b2 = self.settings["beta1"], self.settings["beta2"]
        for i, value in enumerate(self.values):
            self.m[i] = b1 * self.m[i] + (1 - b1) * value.grad
            self.v[i] = b2 * self.v[i] + (1 - b2) * value.grad**2
            m_hat = self.m[i] / (1 - b1**self.steps)
            v_hat = self.v[i] / (1 - b2**self.steps)
            decay = self.settings["weight_decay"] if value.dim() == 2 else 0.0
            update = m_hat / (v_hat.sqrt() + self.settings["epsilon"])
            value.data -= rate * (update + decay * value.data)
            if self.int8:
                self.m[i] = rounded(self.m[i], signed=True)
                self.v[i] = rounded(self.v[i], signed=False)


class Sgd:
    """torch.optim.SGD, with weight decay beside it as in AdamW."""

    def __init__(self, values, settings):
        self.settings = settings
        self.matrices = [v for v in values if v.dim() == 2]
        self.torch = torch.optim.SGD(
            values, lr=1.0, momentum=settings["momentum"], nesterov=settings["nesterov"]
        )

    def step(self, rate):
        for matrix in self.matrices:
            matrix.data *= 1 - rate * self.settings["weight_decay"]
        self.torch.param_groups[0]["lr"] = rate
        self.torch.step()


def zeropower(matrix):
    """zeropower_via_newtonschulz5 of the published code, in double precision."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


class Muon:
    """Muon for the matrices of layers; `parts` says into which matrices each is cut."""

    def __init__(self, values, parts, settings):
        self.values, self.parts, self.settings = values, parts, settings
        self.momentum = [torch.zeros_like(v) for v in values]

    def step(self, rate):
        mu = self.settings["momentum"]
        for value, rows, momentum in zip(self.values, self.parts, self.momentum):
            momentum.mul_(mu).add_(value.grad)
            update = value.grad + mu * momentum if self.settings["nesterov"] else momentum
            value.data *= 1 - rate * self.settings["weight_decay"]
            for part, moved in zip(value.data.split(rows), update.split(rows)):
                part -= rate * 0.2 * max(part.shape) ** 0.5 * zeropower(moved)


def matrices_of(model, name, value):
    """Rows of the matrices that stand below each other in a parameter."""
    if name.endswith("linear_qkv.weight"):
        head = model["hidden_size"] // model["num_heads"]
        return [head * model["num_heads"]] + 2 * [head * model["num_kv_heads"]]
    experts = model["moe"]["num_experts"] if ".experts." in name else 1
    gated = model["activation"] == "swiglu" and "linear_fc1" in name
    blocks = experts * (2 if gated else 1)
    return blocks * [value.size(0) // blocks]


def optimizers_of(model, weights, settings, moments):
    kind, values = settings.get("kind", "adamw"), list(weights.values())
    if kind == "sgd":
        return [Sgd(values, settings)]
    if kind == "adamw":
        return [AdamW(values, settings, moments == "int8")]
    mine = {
        k: v
        for k, v in weights.items()
        if v.dim() == 2 and "embedding" not in k and "output_layer" not in k
    }
    rest = [v for k, v in weights.items() if k not in mine]
    parts = [matrices_of(model, k, v) for k, v in mine.items()]
    return [Muon(list(mine.values()), parts, settings), AdamW(rest, settings, False)]


def train(model, settings, moments):
    generator = torch.Generator().manual_seed(20)
    weights = make_weights(model, generator)
    batch = MICRO_BATCH * MICRO_BATCHES
    tokens = torch.randint(
        model["vocab_size"], (STEPS * batch, SEQUENCE + 1), generator=generator
    )
    layers = range(model["num_layers"])
    routers = {i: Router(model["moe"]) for i in layers if has_experts(model, i)}
    optimizers = optimizers_of(model, weights, settings, moments)
    losses, norms = [], []
    for step in range(STEPS):
        samples = tokens[step * batch : (step + 1) * batch]
        logits, router_loss = logits_of(model, weights, samples[:, :-1], routers)
        loss = F.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())
        for value in weights.values():
            value.grad = None
        (loss + router_loss).backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), settings["clip_grad"]).item())
        for optimizer in optimizers:
            optimizer.step(learning_rate(step))
        for router in routers.values():
            router.end_step()
    return losses, norms


if __name__ == "__main__":
    families = {f["name"].removeprefix("golden-").replace("-", "_"): f for f in FAMILIES}
    cases = [
        ({"kind": "sgd", "momentum": 0.9, "nesterov": True}, "fp32"),
        ({"kind": "sgd", "momentum": 0.9, "nesterov": False, "clip_grad": 0.5}, "fp32"),
        ({"kind": "muon", "momentum": 0.95, "nesterov": True}, "fp32"),
        ({"kind": "muon", "momentum": 0.9, "nesterov": False}, "fp32"),
        ({}, "int8"),
    ]
    rows = []
    for family in ("gpt2", "llama", "mixtral"):
        for changes, moments in cases:
            settings = {**OPTIMIZER, **changes}
            losses, norms = train(families[family], settings, moments)
            rows.append(
                {
                    "family": family,
                    "optimizer": settings,
                    "moments": moments,
                    "losses": losses,
                    "grad_norms": norms,
                }
            )
            print(family, changes, moments, " ".join(f"{x:.5f}" for x in losses))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "optimizers.json"), "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
