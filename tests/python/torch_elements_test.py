# Elements and operations that hvd itself does not have, over its backend of torch.distributed.
import functools

import pytest
import torch
import torch.distributed as dist
from torch_backend import VERSION, around, into_tensor, of_ranks, rank, size

pytestmark = pytest.mark.usefixtures("backend")


def complex_of(r, length=2):
    return torch.complex(torch.arange(1.0, length + 1), torch.full((length,), r + 1.0))


def sum_of_all():
    return sum(of_ranks(complex_of))


def call(function, output, *arguments):
    function(output, *arguments)
    return output


def on_root(given):
    return given if rank() == 0 else None


# Calls that get this rank's tensor, an empty one, and one empty tensor for each rank; and their
# results.
COMPLEX = {
    "all_reduce": (lambda own, one, each: call(dist.all_reduce, own), sum_of_all),
    "broadcast": (
        lambda own, one, each: call(dist.broadcast, own, size() - 1),
        lambda: complex_of(size() - 1),
    ),
    "reduce": (
        lambda own, one, each: call(dist.reduce, own, 0),
        lambda: sum_of_all() if rank() == 0 else complex_of(rank()),
    ),
    "all_gather": (
        lambda own, one, each: torch.stack(call(dist.all_gather, each, own)),
        lambda: torch.stack(of_ranks(complex_of)),
    ),
    "all_gather_into_tensor": (
        lambda own, one, each: call(into_tensor("gather"), torch.cat(each), own),
        lambda: torch.cat(of_ranks(complex_of)),
    ),
    "gather": (
        lambda own, one, each: (dist.gather(own, on_root(each)), torch.stack(each))[1],
        lambda: torch.stack(of_ranks(complex_of)) * (rank() == 0),
    ),
    "scatter": (
        lambda own, one, each: call(
            dist.scatter, one, on_root(of_ranks(lambda r: complex_of(r).to(one.dtype)))
        ),
        lambda: complex_of(rank()),
    ),
    "reduce_scatter": (
        lambda own, one, each: call(dist.reduce_scatter, one, [own] * size()),
        sum_of_all,
    ),
    "reduce_scatter_tensor": (
        lambda own, one, each: call(into_tensor("scatter"), one, own.repeat(size())),
        sum_of_all,
    ),
    "all_to_all": (
        lambda own, one, each: torch.stack(call(dist.all_to_all, each, [own] * size())),
        lambda: torch.stack(of_ranks(complex_of)),
    ),
    "all_to_all_single": (
        lambda own, one, each: call(dist.all_to_all_single, torch.cat(each), own.repeat(size())),
        lambda: torch.cat(of_ranks(complex_of)),
    ),
}


@pytest.mark.parametrize("what", COMPLEX)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tensors(what, dtype):
    run, expected = COMPLEX[what]
    outputs = [torch.zeros(2, dtype=dtype) for _ in range(size() + 1)]
    result = run(complex_of(rank()).to(dtype), outputs[0], outputs[1:])
    assert result.dtype == dtype
    assert torch.equal(result, expected().to(dtype))


def test_complex_tensors_that_are_conjugated_lazily():
    own = complex_of(rank()).repeat(size())
    output = torch.zeros(2, dtype=own.dtype)
    into_tensor("scatter")(output, own.conj())
    assert torch.equal(output, sum_of_all().conj())


@pytest.mark.parametrize("op", ["PRODUCT", "MIN", "MAX"])
def test_complex_tensors_have_no_order(op):
    own = complex_of(rank())
    with pytest.raises(ValueError, match="complex tensor"):
        dist.reduce(own, 0, getattr(dist.ReduceOp, op))
    with pytest.raises((ValueError, RuntimeError), match="complex tensor"):
        dist.all_reduce(own, getattr(dist.ReduceOp, op))
    assert torch.equal(own, complex_of(rank()))


def test_send_and_receive_complex_tensors():
    if size() == 1:
        pytest.skip("it takes two")
    after, before = around()
    sent = dist.isend(complex_of(rank()), after)
    received = torch.zeros(2, dtype=torch.complex64)
    dist.recv(received, before)
    sent.wait()
    assert torch.equal(received, complex_of(before))


BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


@pytest.mark.parametrize("op", BITWISE)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_bitwise_operations(op, dtype):
    def of(r):
        return torch.tensor([[r, r + 1, 6], [5, 3 * r, 0]]).to(dtype)

    whole = functools.reduce(BITWISE[op], of_ranks(of))
    named = getattr(dist.ReduceOp, op)
    own = of(rank())
    dist.all_reduce(own, named)
    assert torch.equal(own, whole)
    own = of(rank())
    dist.reduce(own, size() - 1, named)
    assert torch.equal(own, whole if rank() == size() - 1 else of(rank()))
    for scattered in (
        call(dist.reduce_scatter, torch.zeros_like(own), [of(rank())] * size(), named),
        call(into_tensor("scatter"), torch.zeros_like(own), of(rank()).repeat(size(), 1), named),
    ):
        assert torch.equal(scattered, whole)


def test_bitwise_operations_are_of_integers():
    with pytest.raises(ValueError, match="BAND, BOR and BXOR are of integers and booleans"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="a complex tensor"):
        dist.reduce(complex_of(rank()), 0, dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="a sparse tensor"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32).to_sparse(), dist.ReduceOp.BAND)


def scaled_sum(factor):
    return torch._C._distributed_c10d._make_nccl_premul_sum(factor)


@pytest.mark.skipif(VERSION < (2, 15), reason="this torch does not tell the factor")
@pytest.mark.parametrize("factor", [0.25, torch.tensor([0.25])])
def test_sums_that_are_scaled_before(factor):
    total = float(sum(range(1, size() + 1))) / 4
    for dtype in (torch.float32, torch.complex64):
        own = torch.full((2,), rank() + 1.0).to(dtype)
        scattered = call(into_tensor("scatter"), own * 0, own.repeat(size()), scaled_sum(factor))
        assert scattered.tolist() == [total] * 2
        dist.all_reduce(own, scaled_sum(factor))
        assert own.tolist() == [total] * 2


@pytest.mark.skipif(VERSION >= (2, 15), reason="this torch tells the factor")
def test_a_scaled_sum_whose_factor_is_not_told_is_an_error():
    if not hasattr(dist.ReduceOp, "PREMUL_SUM"):
        pytest.skip("torch does not have it")
    with pytest.raises(ValueError, match=r"hvd reduces by SUM, .*, BXOR, not by .* of torch"):
        dist.reduce(torch.ones(2), 0, scaled_sum(0.5))
