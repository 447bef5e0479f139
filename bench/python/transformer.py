# Steps of a Transformer of 8.5 million parameters in 76 tensors, alone and reduced in three ways.
# They take turns in the same processes. See ./run.
#
#   transformer.py [--rounds 15] [--json]    --json: all times, in ms, as JSON
import math

import torch
import torch.distributed as dist
import turns

import hvd.torch as hvd

CHARACTERS, WIDTH, INNER, LAYERS, CONTEXT, BATCH = 256, 384, 1024, 6, 16, 2


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.characters = torch.nn.Embedding(CHARACTERS, WIDTH)
        self.places = torch.nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 6, INNER, 0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS)
        self.last = torch.nn.Linear(WIDTH, CHARACTERS)
        self.register_buffer("future", torch.full((CONTEXT, CONTEXT), -math.inf).triu(1))

    def forward(self, context):
        return self.last(self.layers(self.characters(context) + self.places, self.future))


def main():
    given = turns.arguments(rounds=15)
    hvd.init()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    context = torch.randint(CHARACTERS, (BATCH, CONTEXT))
    next_ones = torch.randint(CHARACTERS, (BATCH * CONTEXT,))

    def step_of(model, optimizer):
        def step():
            loss = torch.nn.functional.cross_entropy(model(context).flatten(0, 1), next_ones)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()

        return step

    def optimizer_of(model):
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def made():
        torch.manual_seed(1)
        return Transformer()

    alone, hooked = made(), made()
    parallel = torch.nn.parallel.DistributedDataParallel
    on_gloo = parallel(made())
    on_hvd = parallel(made(), process_group=dist.new_group(backend="hvd"))
    distributed = hvd.DistributedOptimizer(optimizer_of(hooked), hooked.named_parameters())
    cases = {
        "step alone": step_of(alone, optimizer_of(alone)),
        "step, hvd's optimizer": step_of(hooked, distributed),
        "step, DDP on gloo": step_of(on_gloo, optimizer_of(on_gloo)),
        "step, DDP on hvd": step_of(on_hvd, optimizer_of(on_hvd)),
    }
    medians = turns.report(turns.measure(cases, given.rounds), given.json)
    if hvd.rank() == 0 and not given.json:
        tensors = list(alone.parameters())
        count = sum(one.numel() for one in tensors)
        print(f"{len(tensors)} tensors of {count:,} parameters")
        gloo, ours, hooks = (
            medians[f"step, {name}"] - medians["step alone"]
            for name in ("DDP on gloo", "DDP on hvd", "hvd's optimizer")
        )
        print(f"communication of DDP, hvd / gloo: {ours / gloo:.2f}")
        print(f"communication, hvd's optimizer / DDP on gloo: {hooks / gloo:.2f}")
    for one, other in zip(hooked.parameters(), on_gloo.parameters()):
        assert torch.allclose(one, other, atol=1e-4), "the results differ"
    hvd.barrier()
    dist.destroy_process_group()


main()
