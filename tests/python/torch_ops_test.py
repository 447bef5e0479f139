# What only PyTorch's tensors have: scattered and sparse ones, compressors, and gradients.
import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")


def of_rank(shape, dtype, rank=None):
    rank = hvd.rank() if rank is None else rank
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) % 5 + rank + 1).to(dtype).reshape(shape)


def total(shape, factor=1.0):
    ranks = range(hvd.size())
    return sum(of_rank(shape, torch.float64, rank) for rank in ranks) * factor


def same(left, right, tolerance=0.0):
    assert left.shape == right.shape
    assert torch.allclose(left.to(torch.float64), right.to(torch.float64), rtol=tolerance, atol=0)


def test_allreduce_in_place_of_scattered_elements():
    wide = torch.zeros(4, 3)
    wide[:, 1] = of_rank((4,), torch.float32)
    hvd.allreduce_(wide[:, 1], op=hvd.Sum)
    same(wide[:, 1], total((4,)))
    assert wide[:, 0].sum() == 0 and wide[:, 2].sum() == 0
    parameter = torch.nn.Parameter(of_rank((4,), torch.float32))
    hvd.allreduce_(parameter, op=hvd.Sum)
    same(parameter.detach(), total((4,)))


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression(compression):
    result = hvd.allreduce(of_rank((40,), torch.float32), op=hvd.Sum, compression=compression)
    assert result.dtype == torch.float32
    same(result, total((40,)), 1e-2)
    small, context = compression.compress(torch.ones(3))
    assert small.element_size() == 2
    assert compression.decompress(small, context).dtype == torch.float32
    assert compression.compress(torch.ones(3, dtype=torch.int32))[0].dtype == torch.int32


def test_a_compressor_of_the_users_own():
    class Halves(hvd.Compression.none):
        built_in = None

        @staticmethod
        def compress(tensor):
            return tensor / 2, tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return (tensor * 2).to(ctx)

    result = hvd.allreduce(of_rank((4,), torch.float32), op=hvd.Sum, compression=Halves)
    same(result, total((4,)))


def test_sparse_allreduce():
    rows = torch.tensor([[0, hvd.rank() + 1]])
    mine = torch.sparse_coo_tensor(rows, torch.ones(2, 3), (hvd.size() + 1, 3))
    result = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Sum)().to_dense()
    assert (result[0] == hvd.size()).all() and (result[1:] == 1).all()
    average = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Average)().to_dense()
    same(average, result / hvd.size(), 1e-6)


# --- gradients -----------------------------------------------------------------------------------


def leaf(shape, dtype=torch.float64):
    return of_rank(shape, dtype).requires_grad_()


def weights(shape):
    """Gradients that differ from rank to rank."""
    return torch.full(shape, float(hvd.rank() + 1), dtype=torch.float64)


def sum_of_ranks():
    return float(sum(range(1, hvd.size() + 1)))


@pytest.mark.parametrize("op, factor", [(hvd.Sum, 1.0), (hvd.Average, None)])
def test_gradient_of_allreduce(op, factor):
    factor = 1 / hvd.size() if factor is None else factor
    tensor = leaf((5, 2))
    (hvd.allreduce(tensor, op=op) * weights((5, 2))).sum().backward()
    same(tensor.grad, torch.full((5, 2), sum_of_ranks() * factor), 1e-12)
    scaled = leaf((5,))
    result = hvd.allreduce(scaled, op=op, prescale_factor=2.0, postscale_factor=3.0)
    (result * weights((5,))).sum().backward()
    same(scaled.grad, torch.full((5,), 6 * sum_of_ranks() * factor), 1e-12)


def test_gradient_of_grouped_allreduce():
    tensors = [leaf((4,)), leaf((2, 3))]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    sum((one * weights(one.shape)).sum() for one in results).backward()
    for tensor in tensors:
        same(tensor.grad, torch.full(tensor.shape, sum_of_ranks()))


def test_gradient_of_allgather_is_the_average():
    tensor = leaf((hvd.rank() + 1, 2))
    gathered = hvd.allgather(tensor)
    # Row i belongs to rank owner[i], and counts owner + 1.
    owner = torch.cat([torch.full((r + 1,), r + 1.0) for r in range(hvd.size())])
    (gathered * owner.unsqueeze(1)).sum().backward()
    same(tensor.grad, torch.full(tensor.shape, hvd.rank() + 1.0), 1e-12)
    own = [leaf((2,)), leaf((hvd.rank() + 1,))]
    sum(one.sum() for one in hvd.grouped_allgather(own)).backward()
    for one in own:
        same(one.grad, torch.ones(one.shape), 1e-12)


def test_gradient_of_broadcast_is_the_average_at_the_root():
    for root in range(hvd.size()):
        tensor = leaf((3,))
        (hvd.broadcast(tensor, root) * weights((3,))).sum().backward()
        mean = sum_of_ranks() / hvd.size() if hvd.rank() == root else 0.0
        same(tensor.grad, torch.full((3,), mean), 1e-12)


def test_gradient_of_alltoall():
    size = hvd.size()
    tensor = leaf((size, 2))
    (hvd.alltoall(tensor) * (hvd.rank() + 1.0)).sum().backward()
    same(tensor.grad[:, 0], torch.arange(1.0, size + 1))
    splits = [rank + 1 for rank in range(size)]
    uneven = leaf((sum(splits),))
    received, _ = hvd.alltoall(uneven, splits=splits)
    (received * (hvd.rank() + 1.0)).sum().backward()
    wanted = torch.arange(1.0, size + 1).repeat_interleave(torch.tensor(splits))
    same(uneven.grad, wanted)


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_gradient_of_reducescatter(op):
    size = hvd.size()
    tensor = leaf((2 * size, 3))
    (hvd.reducescatter(tensor, op=op) * (hvd.rank() + 1.0)).sum().backward()
    factor = size if op == hvd.Sum else 1
    wanted = torch.arange(1.0, size + 1).repeat_interleave(2) * factor
    same(tensor.grad[:, 0], wanted)


def test_second_derivatives():
    tensor = leaf((3,))
    (gradient,) = torch.autograd.grad(
        (hvd.allreduce(tensor, op=hvd.Sum) ** 3).sum(), tensor, create_graph=True
    )
    gradient.sum().backward()
    assert tensor.grad.shape == (3,) and (tensor.grad > 0).all()
