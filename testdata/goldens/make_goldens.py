#!/usr/bin/python3
"""Makes the golden files: a tiny model of each family trained by PyTorch in double precision.

Usage: ./make_goldens.py          (Debian packages python3-torch and python3-numpy)

Writes NAME.json, a run configuration, and NAME.safetensors beside this script. The latter holds
  weights.P     each parameter P before the first step, named as in the engine
  tokens        [steps * global batch, T + 1]: the samples, in the order they are consumed
  logits        [N, V] of the first micro batch
  grad.P        gradient of each parameter after the first step's backward pass, before clipping
  losses        mean loss of ten optimizer steps
  grad_norms    global gradient norm of those steps, before clipping
  router_losses what the routers' losses add to these losses, of models with experts
families.py lists the models; models.py and what it imports write them out with plain tensor
operations, from the papers and not from the engine, so that the two agree only if both are right.
"""

import json
import math
import os
import struct

import numpy
import torch
import torch.nn.functional as F

from experts import Router, has_experts
from families import FAMILIES
from models import logits_of, make_weights

STEPS = 10
OPTIMIZER = {
    "learning_rate": 1e-2,
    "min_learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "clip_grad": 1.0,
    "warmup_steps": 3,
    "decay_steps": 0,
}


def learning_rate(step):
    top, low, warmup = (
        OPTIMIZER[k] for k in ("learning_rate", "min_learning_rate", "warmup_steps")
    )
    if step < warmup:
        return top * (step + 1) / warmup
    progress = min((step - warmup) / (STEPS - warmup), 1.0)
    return low + 0.5 * (1 + math.cos(math.pi * progress)) * (top - low)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    kinds = {"float32": "F32"}
    for name, array in tensors.items():
        header[name] = {
            "dtype": kinds[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).tobytes())


def make_golden(stem, model, sequence, micro_batch, micro_batches):
    generator = torch.Generator().manual_seed(20)
    weights = make_weights(model, generator)
    batch = micro_batch * micro_batches
    tokens = torch.randint(
        model["vocab_size"], (STEPS * batch, sequence + 1), generator=generator
    )
    tensors = {"weights." + k: v.detach().float().numpy().copy() for k, v in weights.items()}
    tensors["tokens"] = tokens.float().numpy()

    matrices = [v for v in weights.values() if v.dim() == 2]
    vectors = [v for v in weights.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": OPTIMIZER["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
    )
    layers = range(model["num_layers"])
    routers = {i: Router(model["moe"]) for i in layers if has_experts(model, i)}
    losses, norms, router_losses = [], [], []
    for step in range(STEPS):
        samples = tokens[step * batch : (step + 1) * batch]
        logits, router_loss = logits_of(model, weights, samples[:, :-1], routers)
        loss = F.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())
        optimizer.zero_grad()
        (loss + router_loss).backward()
        if step == 0:
            tensors["logits"] = logits[:micro_batch].detach().flatten(0, 1).float().numpy()
            for name, value in weights.items():
                tensors["grad." + name] = value.grad.float().numpy().copy()
        losses.append(loss.item())
        router_losses.append(router_loss.item())
        norm_before = torch.nn.utils.clip_grad_norm_(weights.values(), OPTIMIZER["clip_grad"])
        norms.append(norm_before.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        for router in routers.values():
            router.end_step()
    tensors["losses"] = numpy.array(losses, dtype=numpy.float32)
    tensors["grad_norms"] = numpy.array(norms, dtype=numpy.float32)
    if routers:
        tensors["router_losses"] = numpy.array(router_losses, dtype=numpy.float32)
    write_safetensors(stem + ".safetensors", tensors)
    run = {
        "model": model,
        "layout": {"tp": 1, "dp": 1, "mbs": micro_batch},
        "optimizer": OPTIMIZER,
        "global_batch": batch,
        "sequence_length": sequence,
        "steps": STEPS,
    }
    with open(stem + ".json", "w") as file:
        json.dump(run, file, indent=2)
        file.write("\n")
    print(stem, "losses", " ".join(f"{x:.5f}" for x in losses))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    for family in FAMILIES:
        stem = family["name"].removeprefix("golden-").replace("-", "_")
        make_golden(os.path.join(here, stem), family, sequence=20, micro_batch=2, micro_batches=2)
