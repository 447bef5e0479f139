"""A small Transformer under torch's DDP or FSDP, over the backend of hvd.

    hvdrun -np 2 python3 transformer.py --parallel ddp TEXT...

It learns to predict the next character of a text. Only two lines are not plain torch: the import of
hvd.torch, and the name of the backend. FSDP needs torch 2.15.
"""

import argparse
import math

import torch
import torch.distributed as dist

import hvd.torch  # noqa: F401 - makes the backend known

CONTEXT = 32  # characters
BATCH = 16


class Transformer(torch.nn.Module):
    def __init__(self, characters: int, width: int = 64) -> None:
        super().__init__()
        self.characters = torch.nn.Embedding(characters, width)
        self.places = torch.nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.last = torch.nn.Linear(width, characters)
        future = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)
        self.register_buffer("future", future)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(self.characters(context) + self.places, self.future))


def parallel(model: torch.nn.Module, kind: str) -> torch.nn.Module:
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    text = "".join(open(path, encoding="utf-8").read() for path in arguments.texts)
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    data = torch.tensor([numbers[character] for character in text])

    dist.init_process_group("hvd")
    torch.manual_seed(1)
    model = parallel(Transformer(len(characters)), arguments.parallel)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    torch.manual_seed(dist.get_rank())  # each rank draws other parts of the text
    loss = torch.zeros(())
    for _ in range(arguments.steps):
        begins = torch.randint(len(data) - CONTEXT, (BATCH, 1))
        context = data[begins + torch.arange(CONTEXT)]
        next_ones = data[begins + torch.arange(CONTEXT) + 1]
        loss = torch.nn.functional.cross_entropy(model(context).flatten(0, 1), next_ones.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        bits = float(mean) / dist.get_world_size() / math.log(2)
        print(f"step {arguments.steps}: {bits:.2f} bits for each character")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
