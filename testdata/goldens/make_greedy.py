#!/usr/bin/python3
"""Makes greedy.json: how PyTorch continues prompts with the golden models, token by token.

Usage: ./make_greedy.py           (Debian packages python3-torch and python3-numpy)

Of each NAME.safetensors beside this script, the first weights and the first tokens of two samples
are read; the model of models.py then appends its likeliest token, again and again, each time from
the whole text anew. A token is kept as long as it is clearly the likeliest, so that rounding has no
say: a text may end early. Writes {NAME: [{"prompt": [...], "tokens": [...]}, ...]}.
"""

import glob
import json
import os
import struct

import numpy
import torch

from experts import Router, has_experts
from models import logits_of

PROMPTS = (5, 9)  # tokens
MARGIN = 1e-3  # of the likeliest logit before the next one


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], dtype=numpy.float32).reshape(entry["shape"])
        tensors[name] = torch.tensor(array, dtype=torch.float64)
    return tensors


def continue_greedily(model, weights, prompt):
    layers = range(model["num_layers"])
    text = list(prompt)
    while len(text) < model["max_sequence_length"]:
        routers = {i: Router(model["moe"]) for i in layers if has_experts(model, i)}
        with torch.no_grad():
            logits, _ = logits_of(model, weights, torch.tensor([text]), routers)
        best = torch.topk(logits[0, -1], 2)
        if best.values[0] - best.values[1] < MARGIN:
            break
        text.append(int(best.indices[0]))
    return text[len(prompt) :]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    texts = {}
    for path in sorted(glob.glob(os.path.join(here, "*.safetensors"))):
        stem = path.removesuffix(".safetensors")
        with open(stem + ".json") as file:
            model = json.load(file)["model"]
        tensors = read_safetensors(path)
        prefix = "weights."
        weights = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
        name = os.path.basename(stem)
        texts[name] = []
        for sample, length in enumerate(PROMPTS):
            prompt = [int(token) for token in tensors["tokens"][sample, :length]]
            tokens = continue_greedily(model, weights, prompt)
            texts[name].append({"prompt": prompt, "tokens": tokens})
        print(name, [len(each["tokens"]) for each in texts[name]])
    with open(os.path.join(here, "greedy.json"), "w") as file:
        file.write("{\n")
        file.write(",\n".join(f' "{name}": {json.dumps(each)}' for name, each in texts.items()))
        file.write("\n}\n")


if __name__ == "__main__":
    main()
