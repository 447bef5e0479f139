# The rows that torch_ops_test.py and torch_optimizer_test.py leave out.
import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")


def linear(value=0.5):
    """A layer whose weights, like all gradients below, are exact in binary."""
    layer = torch.nn.Linear(4, 2, bias=False)
    torch.nn.init.constant_(layer.weight, value)
    return layer


def distributed(layer, lr=0.25, **arguments):
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr)
    return hvd.DistributedOptimizer(optimizer, layer.named_parameters(), **arguments)


def backward(layer, rank=None, factor=1.0):
    """Each weight's gradient is size * (rank + 1) * factor: the mean over ranks is whole."""
    rank = hvd.rank() if rank is None else rank
    (layer(torch.ones(1, 4)) * (hvd.size() * (rank + 1) * factor)).sum().backward()


def mean_gradient():
    return float(sum(range(1, hvd.size() + 1)))


@pytest.mark.parametrize("call", ["allreduce", "allgather", "alltoall", "reducescatter"])
@pytest.mark.parametrize("wanted", [False, True])
def test_results_require_gradients_as_their_inputs_do(call, wanted):
    tensor = torch.ones(hvd.size(), 2, requires_grad=wanted)
    assert getattr(hvd, call)(tensor).requires_grad == wanted
    assert hvd.broadcast(tensor, 0).requires_grad == wanted


def test_gradients_within_a_process_set(even_and_odd):
    size = even_and_odd.size()
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    result = hvd.allreduce(tensor, op=hvd.Sum, process_set=even_and_odd)
    (result * (hvd.rank() + 1.0)).sum().backward()
    assert tensor.grad.tolist() == [float(sum(r + 1 for r in even_and_odd.ranks))] * 3
    tensor = torch.ones(size, 1, dtype=torch.float64, requires_grad=True)
    received = hvd.alltoall(tensor, process_set=even_and_odd)
    (received * (hvd.rank() + 1.0)).sum().backward()
    assert tensor.grad[:, 0].tolist() == [r + 1.0 for r in even_and_odd.ranks]


@pytest.mark.parametrize("requires", [False, True])
def test_sgd_is_bit_equal_to_the_mean(requires):
    layer = linear()
    layer.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=requires)  # in no loss
    optimizer = distributed(layer)
    for _ in range(3):
        optimizer.zero_grad()
        backward(layer)
        optimizer.step()
    wanted = torch.full((2, 4), 0.5 - 3 * 0.25 * mean_gradient())
    assert torch.equal(layer.weight.detach(), wanted)
    assert torch.equal(layer.frozen.detach(), torch.ones(3))


@pytest.mark.parametrize("op, factor", [(hvd.Average, 1), (hvd.Sum, None)])
def test_the_optimizer_sums_or_averages(op, factor):
    layer = linear()
    optimizer = distributed(layer, op=op)
    backward(layer)
    optimizer.synchronize()
    factor = hvd.size() if factor is None else factor
    assert torch.equal(layer.weight.grad, torch.full((2, 4), mean_gradient() * factor))
    with optimizer.skip_synchronize():
        optimizer.step()


def test_the_number_of_backward_passes_can_change_between_steps():
    layer = linear()
    optimizer = distributed(layer)
    steps = 0
    for passes in (1, 2, 3):
        optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for _ in range(passes):
            backward(layer)
        optimizer.step()
        steps += passes
    wanted = torch.full((2, 4), 0.5 - steps * 0.25 * mean_gradient())
    assert torch.equal(layer.weight.detach(), wanted)


def test_options_of_different_types_reach_all_ranks():
    layer = linear()
    first = hvd.rank() == 0
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.5 if first else 1)
    group = optimizer.param_groups[0]
    group["betas"] = (0.5, 0.75) if first else (0.25, 0.25)
    group["amsgrad"] = first
    group["eps"] = 0.125 if first else 1
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    assert (group["lr"], tuple(group["betas"]), group["eps"]) == (0.5, (0.5, 0.75), 0.125)
    assert group["amsgrad"] is True


def test_collectives_of_different_kinds_may_have_one_name():
    handles = [
        hvd.allreduce_async(torch.ones(2), name="same", op=hvd.Sum),
        hvd.allgather_async(torch.ones(1), name="same"),
        hvd.broadcast_async(torch.ones(2), 0, name="same"),
        hvd.alltoall_async(torch.ones(hvd.size()), name="same"),
    ]
    reduced, gathered, sent, (exchanged, splits) = [hvd.synchronize(one) for one in handles]
    assert reduced.tolist() == [hvd.size()] * 2
    assert gathered.tolist() == exchanged.tolist() == [1.0] * hvd.size()
    assert sent.tolist() == [1.0, 1.0]
    assert splits.tolist() == [1] * hvd.size()


def test_tensors_that_hvd_cannot_send_are_named():
    with pytest.raises(ValueError, match=r"dense tensor.*sparse_allreduce_async"):
        hvd.allreduce(torch.eye(3).to_sparse())
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="complex64"):
            hvd.allreduce(torch.ones(2, dtype=torch.complex64))
    for splits in (torch.ones(hvd.size()), torch.ones(hvd.size(), dtype=torch.bool)):
        with pytest.raises(ValueError, match="whole numbers"):
            hvd.alltoall(torch.ones(hvd.size()), splits=splits)


def test_splits_are_not_rounded():
    with pytest.raises(ValueError, match="whole numbers"):
        hvd.alltoall(torch.ones(2 * hvd.size()), splits=[1.5] * hvd.size())
    received = hvd.alltoall(torch.ones(hvd.size()), splits=[1.0] * hvd.size())[1]
    assert received.tolist() == [1] * hvd.size()


def test_a_lazily_negated_tensor_is_sent_as_it_reads():
    negated = torch._neg_view(torch.ones(3))
    assert negated.is_neg()
    assert hvd.allreduce(negated, op=hvd.Sum).tolist() == [-hvd.size()] * 3
    assert hvd.broadcast(negated, 0).tolist() == [-1] * 3
    hvd.allreduce_(negated, op=hvd.Sum)
    assert negated.tolist() == [-hvd.size()] * 3


@pytest.mark.parametrize(
    "call",
    [
        hvd.allreduce,
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        lambda tensor: hvd.broadcast(tensor, 0),
        lambda tensor: hvd.grouped_allgather([tensor])[0],
    ],
)
def test_ranks_may_differ_in_what_they_differentiate(call):
    tensor = torch.ones(hvd.size(), 2, requires_grad=hvd.rank() == 0)
    assert call(tensor).requires_grad == (hvd.rank() == 0)
    with torch.set_grad_enabled(hvd.rank() == 0):
        assert call(torch.ones(hvd.size(), 2, requires_grad=True)).sum() > 0


def test_horovods_module_of_operations_has_the_names():
    from hvd.torch import mpi_ops

    assert mpi_ops.allreduce_async_ is hvd.allreduce_async_
    assert mpi_ops.Average is hvd.Average


def test_horovods_modules_of_elastic_training_have_the_names():
    from hvd.torch.elastic import sampler, state

    assert sampler.ElasticSampler is hvd.elastic.ElasticSampler
    assert state.TorchState is hvd.elastic.TorchState


def test_communicators_are_refused():
    with pytest.raises(ValueError, match="process_sets"):
        hvd.init([0])


def test_objects_with_tensors():
    mine = {"tensor": torch.full((2,), hvd.rank()), "text": "x" * hvd.rank(), "none": None}
    every = hvd.allgather_object(mine)
    assert [one["tensor"].tolist() for one in every] == [[r, r] for r in range(hvd.size())]
    for root in range(hvd.size()):
        assert hvd.broadcast_object(mine, root_rank=root)["text"] == "x" * root


def test_a_state_dict_takes_the_sampler_to_the_middle_of_an_epoch():
    data = range(4 * hvd.size())
    one = hvd.elastic.ElasticSampler(data, seed=3)
    one.set_epoch(2)
    before = list(one)
    one.record_batch(0, 1)
    assert list(one) == before  # a loop that runs is not disturbed
    other = hvd.elastic.ElasticSampler(data, seed=3)
    other.load_state_dict(one.state_dict())
    assert other.epoch == 2 and len(other) == 3
    assert list(other) == before[1:]
    one.set_epoch(3)
    assert len(one) == 4
    with pytest.raises(ValueError, match="negative epoch -1"):
        one.set_epoch(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_tensors_in_shared_memory_are_as_others(dtype):
    for tensor in (hvd.empty(300, 400, dtype=dtype), hvd.empty((300, 400), dtype=dtype)):
        assert tensor.shape == (300, 400) and tensor.dtype == dtype and not tensor.any()
        tensor.fill_(hvd.rank() + 1)
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
        assert (tensor == sum(range(1, hvd.size() + 1))).all()
    assert hvd.empty(2).dtype == torch.get_default_dtype()
    assert hvd.empty(0, 3).shape == (0, 3) and hvd.empty(()).shape == ()


def test_types_and_shapes_that_shared_memory_cannot_have_are_named():
    with pytest.raises(hvd.HvdError, match="complex64"):
        hvd.empty(2, dtype=torch.complex64)
    with pytest.raises(RuntimeError):
        hvd.empty(-1)


def test_gradients_may_be_views_of_shared_memory():
    layer = linear()
    optimizer = distributed(layer)
    layer.weight.grad = hvd.empty(*layer.weight.shape)
    address = layer.weight.grad.data_ptr()
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        backward(layer)
        optimizer.synchronize()
        assert layer.weight.grad.data_ptr() == address
        assert (layer.weight.grad == mean_gradient()).all()
        with optimizer.skip_synchronize():
            optimizer.step()
