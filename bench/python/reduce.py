# The gradients of ResNet-50, 161 tensors of 102 MB together, reduced by hvd and by torch's gloo in
# turns, in the same processes; then a backward pass with each. See ./run.
#
#   reduce.py [--rounds 15] [--json]    --json: all times, in ms, as JSON
import torch
import torch.distributed as dist
import turns
from resnet50 import shapes_of_resnet50

import hvd.torch as hvd


class Sum(torch.nn.Module):
    """Uses every parameter once, in the order of their use in a network."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.ones(shape)) for shape in shapes_of_resnet50()
        )

    def forward(self):
        total = torch.zeros(())
        for weight in self.weights:
            total = total * 0.5 + weight.sum()
        return total


def buckets_of(tensors, size=25 << 20):
    flat, own, count = [], [], 0
    for tensor in tensors:
        own.append(tensor)
        count += 4 * tensor.numel()
        if count >= size:
            flat.append(torch.cat([one.reshape(-1) for one in own]))
            own, count = [], 0
    return [*flat, torch.cat([one.reshape(-1) for one in own])] if own else flat


def main():
    given = turns.arguments(rounds=15)
    hvd.init()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    tensors = [torch.ones(shape) for shape in shapes_of_resnet50()]
    names = [f"gradient.{index}" for index in range(len(tensors))]
    flat = buckets_of(tensors)

    def by_hvd():
        handles = [
            hvd.allreduce_async_(one, name=name, op=hvd.Sum, prescale_factor=0.5)
            for one, name in zip(tensors, names)
        ]
        for handle in handles:
            handle.wait()

    def by_gloo():
        works = [dist.all_reduce(one, async_op=True) for one in flat]
        for work in works:
            work.wait()
        for one in flat:
            one.fill_(1)

    alone = Sum()
    hooked = Sum()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(hooked.parameters(), lr=0.0), hooked.named_parameters()
    )
    parallel = torch.nn.parallel.DistributedDataParallel(Sum())
    group = dist.new_group(backend="hvd")
    parallel_by_hvd = torch.nn.parallel.DistributedDataParallel(Sum(), process_group=group)

    def backward_alone():
        alone.zero_grad(set_to_none=False)
        alone().backward()

    def backward_by_hvd():
        optimizer.zero_grad(set_to_none=False)
        hooked().backward()
        optimizer.synchronize()

    def backward_by_ddp():
        parallel.zero_grad(set_to_none=False)
        parallel().backward()

    def backward_by_ddp_on_hvd():
        parallel_by_hvd.zero_grad(set_to_none=False)
        parallel_by_hvd().backward()

    small = torch.ones(1024)

    def small_by_hvd():
        for _ in range(20):
            hvd.allreduce_(small, name="small", op=hvd.Max)

    def small_by_gloo():
        for _ in range(20):
            dist.all_reduce(small, op=dist.ReduceOp.MAX)

    cases = {
        "reduce, hvd": by_hvd,
        "reduce, gloo in flat buffers": by_gloo,
        "4 KB 20 times, hvd": small_by_hvd,
        "4 KB 20 times, gloo": small_by_gloo,
        "backward alone": backward_alone,
        "backward, hvd's optimizer": backward_by_hvd,
        "backward, DDP on gloo": backward_by_ddp,
        "backward, DDP on hvd": backward_by_ddp_on_hvd,
    }
    medians = turns.report(turns.measure(cases, given.rounds), given.json)
    if hvd.rank() == 0 and not given.json:
        ratio = medians["reduce, hvd"] / medians["reduce, gloo in flat buffers"]
        print(f"reduction, hvd / gloo: {ratio:.2f}")
        most = medians["backward alone"] + medians["reduce, hvd"]
        ratio = medians["backward, hvd's optimizer"] / most
        print(f"backward with hvd / (alone + reduction): {ratio:.2f}")
        gloo, ours = (
            medians[f"backward, DDP on {name}"] - medians["backward alone"]
            for name in ("gloo", "hvd")
        )
        print(f"communication of DDP, hvd / gloo: {ours / gloo:.2f}")
    hvd.barrier()
    dist.destroy_process_group()


main()
