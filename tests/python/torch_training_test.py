# Training over the backend "hvd" of torch.distributed: pipelines, DistributedDataParallel, FSDP.
import pytest
import torch
import torch.distributed as dist
from torch_backend import VERSION, changing, of_ranks, rank, reconfigure, size

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("schedule", ["fill_drain", "one_forward_one_backward"])
def test_a_pipeline_learns_as_the_whole_model(schedule):
    """Each rank holds one layer. Activations travel forward, their gradients back."""
    first, last, batches = rank() == 0, rank() == size() - 1, 6
    torch.manual_seed(5)
    layers = [torch.nn.Linear(8, 8) for _ in range(size())]
    samples = torch.randn(batches, 4, 8)
    whole = [torch.nn.Linear(8, 8) for _ in layers]
    for copy, layer in zip(whole, layers):
        copy.load_state_dict(layer.state_dict())
    outputs = samples.reshape(-1, 8)
    for layer in whole:
        outputs = layer(outputs).tanh()
    (outputs.pow(2).sum()).backward()

    layer, inputs, results, sends = layers[rank()], [], [], []

    def forward(batch):
        given = samples[batch].clone() if first else torch.empty(4, 8)
        if not first:
            dist.recv(given, rank() - 1)
            given.requires_grad_()
        result = layer(given).tanh()
        inputs.append(given)
        results.append(result)
        if not last:
            sends.append((result, dist.isend(result.detach(), rank() + 1)))

    def backward(batch):
        if last:
            results[batch].pow(2).sum().backward()
        else:
            gradient = torch.empty(4, 8)
            dist.recv(gradient, rank() + 1)
            results[batch].backward(gradient)
        if not first:
            sends.append((inputs[batch], dist.isend(inputs[batch].grad, rank() - 1)))

    if schedule == "fill_drain":
        steps = [(forward, b) for b in range(batches)] + [(backward, b) for b in range(batches)]
    else:
        ahead = min(size() - rank(), batches)
        steps = [(forward, b) for b in range(ahead)]
        for b in range(batches):
            steps.append((backward, b))
            if b + ahead < batches:
                steps.append((forward, b + ahead))
    for step, batch in steps:
        step(batch)
    for _, work in sends:
        work.wait()
    for own, alone in zip(layer.parameters(), whole[rank()].parameters()):
        assert torch.allclose(own.grad, alone.grad, atol=1e-5)


def sample(of_rank):
    return torch.arange(12, dtype=torch.float64).reshape(3, 4) + of_rank


def model():
    torch.manual_seed(7)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    return torch.nn.Sequential(*layers).double()


# So small a bucket makes several of them.
@pytest.mark.parametrize("arguments", [{}, {"bucket_cap_mb": 0.0001}, {"static_graph": True}])
def test_distributed_data_parallel_trains_as_one_process_on_all_samples(arguments):
    parallel = torch.nn.parallel.DistributedDataParallel(model(), **arguments)
    alone = model()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (parallel, alone)]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(sample(rank() + step)).mean().backward()
        (sum(alone(sample(r + step)).mean() for r in range(size())) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    for ours, theirs in zip(parallel.module.parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_distributed_data_parallel_with_sparse_gradients():
    def embedding():
        torch.manual_seed(3)
        return torch.nn.EmbeddingBag(10, 3, sparse=True).double()

    parallel, alone = torch.nn.parallel.DistributedDataParallel(embedding()), embedding()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (parallel, alone)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(torch.tensor([[rank(), 5 + step]])).pow(2).sum().backward()
        losses = of_ranks(lambda r, s=step: alone(torch.tensor([[r, 5 + s]])).pow(2).sum())
        (sum(losses) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(parallel.module.weight, alone.weight, rtol=1e-12, atol=1e-12)


def test_distributed_data_parallel_starts_from_the_weights_of_rank_zero():
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, float(rank()))
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    assert parallel.module.weight.tolist() == [[0.0, 0.0]] * 2


def test_distributed_data_parallel_sends_low_ranks_by_powersgd():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.ones(2, 16)).sum().backward()
    # The gradient is of rank one, and the same on all ranks.
    assert torch.allclose(model.module.weight.grad, torch.full((16, 16), 8.0), rtol=1e-3)


def test_distributed_data_parallel_joins_with_parameters_that_some_do_not_use():
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(4, 2), find_unused_parameters=True
    )
    with model.join():
        for _ in range(1 + rank()):
            model(torch.ones(3, 4)).sum().backward()


def test_distributed_data_parallel_without_synchronization():
    layer = torch.nn.Linear(2, 1, bias=False)
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    with parallel.no_sync():
        parallel(torch.full((1, 2), rank() + 1.0)).sum().backward()
    assert layer.weight.grad.tolist() == [[rank() + 1.0] * 2]
    parallel(torch.zeros(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[sum(of_ranks(lambda r: r + 1)) / size()] * 2]


def test_distributed_data_parallel_with_parameters_that_some_do_not_use():
    torch.manual_seed(1)
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False) for _ in range(2)])

    class Either(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, tensor):
            return self.layers[rank() % 2](tensor)

    parallel = torch.nn.parallel.DistributedDataParallel(Either(), find_unused_parameters=True)
    parallel(torch.ones(1, 2)).sum().backward()
    share = len(range(0, size(), 2)) / size()
    assert torch.allclose(layers[0].weight.grad, torch.full((1, 2), share))
    if size() > 1:
        assert torch.allclose(layers[1].weight.grad, torch.full((1, 2), 1 - share))


@pytest.mark.skipif(VERSION < (2, 15), reason="FSDP needs a backend, in Python from 2.15 on")
@pytest.mark.parametrize("kind", ["fully_shard", "FullyShardedDataParallel"])
def test_fully_sharded_training_is_that_of_one_process_on_all_samples(kind):
    from torch.distributed import fsdp

    sharded, alone = model(), model()
    if kind == "fully_shard":
        mesh = dist.init_device_mesh("cpu", (size(),))
        for layer in sharded:
            if isinstance(layer, torch.nn.Linear):
                fsdp.fully_shard(layer, mesh=mesh)
        fsdp.fully_shard(sharded, mesh=mesh)
    else:
        sharded = fsdp.FullyShardedDataParallel(sharded, device_id=torch.device("cpu"))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (sharded, alone)]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        sharded(sample(rank() + step)).mean().backward()
        (sum(alone(sample(r + step)).mean() for r in range(size())) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    inputs = sample(100)
    assert torch.allclose(sharded(inputs), alone(inputs), rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(VERSION < (2, 15), reason="FSDP needs a backend, in Python from 2.15 on")
def test_fully_sharded_gradients_are_divided_by_a_factor_of_the_program():
    from torch.distributed import fsdp

    layer = torch.nn.Linear(4, 4, bias=False)
    fsdp.fully_shard(layer, mesh=dist.init_device_mesh("cpu", (size(),)))
    layer.set_gradient_divide_factor(3.0)
    layer(torch.ones(1, 4)).sum().backward()
    assert torch.allclose(layer.weight.grad.full_tensor(), torch.full((4, 4), size() / 3))


@changing
def test_distributed_data_parallel_trains_over_a_reconfigured_group(group):
    reconfigure()
    arguments = {"init_sync": False, "find_unused_parameters": True, "bucket_cap_mb": 0.0001}
    test_distributed_data_parallel_trains_as_one_process_on_all_samples(arguments)
    test_distributed_data_parallel_trains_as_one_process_on_all_samples({})


@changing
def test_fully_sharded_training_over_a_reconfigured_group(group):
    reconfigure()
    test_fully_sharded_training_is_that_of_one_process_on_all_samples("fully_shard")
