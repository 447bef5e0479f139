# Every collective, for every framework, type, operation, shape and process set: the results are
# compared with those of NumPy in float64. What only one framework has is in its own tests.
import adapters
import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")
SHAPES = [(), (17,), (5, 3), (2, 3, 4), (0,), (0, 3)]
REDUCTIONS = [(hvd.Sum, "sum"), (hvd.Min, "min"), (hvd.Max, "max"), (hvd.Product, "prod")]
FRAMEWORKS = adapters.installed()


def with_types(*kinds):
    """A test for each framework and each of its types."""
    pairs = [
        pytest.param(framework, dtype, id=f"{framework}-{dtype}")
        for framework in FRAMEWORKS
        for kind in kinds
        for dtype in getattr(framework, kind)
    ]
    return pytest.mark.parametrize("framework, dtype", pairs)


with_frameworks = pytest.mark.parametrize("framework", FRAMEWORKS, ids=repr)


def of_rank(shape, rank=None):
    """Small whole numbers that differ from rank to rank, exact in every type."""
    rank = hvd.rank() if rank is None else rank
    return (np.arange(np.prod(shape)) % 3 + rank + 1.0).reshape(shape)


def of_ranks(shape, ranks=None):
    ranks = range(hvd.size()) if ranks is None else ranks
    return np.stack([of_rank(shape, rank) for rank in ranks])


def neighbours():
    return (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()


def check(framework, tensor, wanted, dtype=None, rtol=0.0):
    wanted = np.asarray(wanted)
    assert tuple(tensor.shape) == wanted.shape
    assert dtype is None or framework.type_of(tensor) == dtype
    np.testing.assert_allclose(framework.array_of(tensor), wanted, rtol=rtol)


# --- allreduce ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@with_types("integers", "floats")
def test_allreduce(framework, dtype, shape):
    given = framework.make(of_rank(shape), dtype)
    wanted = of_ranks(shape).sum(0)
    check(framework, framework.hvd.allreduce(given, op=hvd.Sum), wanted, dtype)
    check(framework, given, of_rank(shape))
    handle = framework.hvd.allreduce_async(given, op=hvd.Sum)
    check(framework, framework.hvd.synchronize(handle), wanted, dtype)


@pytest.mark.parametrize("op, reduce", REDUCTIONS)
@with_types("integers", "floats")
def test_each_operation(framework, dtype, op, reduce):
    result = framework.hvd.allreduce(framework.make(of_rank((9,)), dtype), op=op)
    check(framework, result, getattr(of_ranks((9,)), reduce)(0), dtype)


@with_types("floats")
def test_averages_and_factors(framework, dtype):
    given = framework.make(of_rank((8,)), dtype)
    mean = of_ranks((8,)).mean(0)
    for arguments in ({}, {"op": hvd.Average}, {"average": True}):
        check(framework, framework.hvd.allreduce(given, **arguments), mean, dtype, 1e-2)
    total = framework.hvd.allreduce(given, average=False)
    check(framework, total, mean * hvd.size(), dtype, 1e-2)
    scaled = framework.hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    check(framework, scaled, mean * hvd.size() * 2, dtype, 1e-2)


def in_type(values, dtype):
    """The values as elements of a type hold them; bfloat16, which NumPy lacks, as they are."""
    return (
        values
        if dtype == "bfloat16"
        else np.trunc(values).astype(dtype)
        if "int" in dtype
        else values.astype(dtype)
    )


@with_types("integers", "floats")
def test_factors_are_applied_in_a_wider_type(framework, dtype):
    size, factor = hvd.size(), 0.3
    wide = {"float16": np.float32, "float32": np.float32}.get(dtype, np.float64)
    values = np.arange(1, 10 * size + 1).astype(wide) % 30
    given = framework.make(values, dtype)
    before = in_type(values * wide(factor), dtype) * size
    after = in_type(values * size * wide(factor), dtype)
    own = slice(10 * hvd.rank(), 10 * (hvd.rank() + 1))
    rtol = 1e-2 if dtype == "bfloat16" else 0
    for options, wanted in (
        ({"prescale_factor": factor}, before),
        ({"postscale_factor": factor}, after),
    ):
        result = framework.hvd.allreduce(given, op=hvd.Sum, **options)
        check(framework, result, wanted, dtype, rtol)
        share = framework.hvd.reducescatter(given, op=hvd.Sum, **options)
        check(framework, share, wanted[own], dtype, rtol)


@with_frameworks
def test_allreduce_of_booleans(framework):
    mine = framework.make([True, False, hvd.rank() == 0])
    check(framework, framework.hvd.allreduce(mine, op=hvd.Max), [1, 0, 1], "bool")
    check(framework, framework.hvd.allreduce(mine, op=hvd.Min), [1, 0, hvd.size() == 1], "bool")


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@with_frameworks
def test_compression(framework, name):
    module = framework.hvd
    given = framework.make(of_rank((40,)), "float32")
    kind = getattr(module.Compression, name)
    result = module.allreduce(given, op=hvd.Sum, compression=kind)
    check(framework, result, of_ranks((40,)).sum(0), "float32", 1e-2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op, reduce", REDUCTIONS)
@with_frameworks
def test_allreduce_in_place(framework, op, reduce, shape):
    if not framework.can_change:
        pytest.skip("its tensors do not change")
    tensor = framework.make(of_rank(shape))
    once = getattr(of_ranks(shape), reduce)(0)
    assert framework.hvd.allreduce_(tensor, op=op) is tensor
    check(framework, tensor, once)
    handle = framework.hvd.allreduce_async_(tensor, op=hvd.Average)
    assert framework.hvd.synchronize(handle) is tensor
    check(framework, tensor, once, rtol=1e-12)


@with_frameworks
def test_a_group_is_reduced_together(framework):
    module = framework.hvd
    shapes = [(4,), (2, 2), (3,)]
    types = ["float32", "float64", "int32"]
    group = [framework.make(of_rank(shape), dtype) for shape, dtype in zip(shapes, types)]
    handle = module.grouped_allreduce_async(group, op=hvd.Sum)
    for results in (module.grouped_allreduce(group, op=hvd.Sum), module.synchronize(handle)):
        for result, shape, dtype in zip(results, shapes, types):
            check(framework, result, of_ranks(shape).sum(0), dtype)
    if framework.can_change:
        handle = module.grouped_allreduce_async_(group, op=hvd.Sum)
        assert all(a is b for a, b in zip(module.synchronize(handle), group))
        assert all(a is b for a, b in zip(module.grouped_allreduce_(group), group))
        check(framework, group[1], of_ranks((2, 2)).sum(0), "float64", 1e-12)


@with_frameworks
def test_calls_in_flight_complete_in_any_order(framework):
    module = framework.hvd
    handles = [
        module.allreduce_async(framework.make(np.full(100, index)), op=hvd.Sum, name=f"any.{index}")
        for index in range(50)
    ]
    for index, handle in reversed(list(enumerate(handles))):
        result = module.synchronize(handle)
        assert module.poll(handle)
        check(framework, result, np.full(100, index * hvd.size()))
        assert module.synchronize(handle) is result


@with_frameworks
def test_a_name_serves_again_and_again(framework):
    module = framework.hvd
    for step in range(20):
        result = module.allreduce(framework.make(np.full(3, step)), op=hvd.Sum, name="again")
        check(framework, result, [step * hvd.size()] * 3)
    # Another shape and another type under the same name: what was agreed before is forgotten.
    for shape, dtype in (((2, 2), "float64"), ((2,), "int32")):
        given = framework.make(np.ones(shape), dtype)
        result = module.allreduce(given, op=hvd.Sum, name="again")
        check(framework, result, np.full(shape, hvd.size()), dtype)


# --- the others --------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [(), (3,), (2, 2)])
@with_types("integers", "floats")
def test_allgather_of_different_lengths(framework, dtype, row):
    mine = framework.make(np.full((hvd.rank() + 1, *row), hvd.rank() % 2), dtype)
    wanted = np.concatenate([np.full((r + 1, *row), r % 2) for r in range(hvd.size())])
    check(framework, framework.hvd.allgather(mine), wanted, dtype)
    one, two = framework.hvd.grouped_allgather([mine, mine[:0]])
    check(framework, one, wanted, dtype)
    check(framework, two, wanted[:0], dtype)
    handle = framework.hvd.grouped_allgather_async([mine])
    check(framework, framework.hvd.synchronize(handle)[0], wanted, dtype)


@with_frameworks
def test_allgather_where_ranks_have_nothing(framework):
    first = framework.make(np.ones((1 if hvd.rank() == 0 else 0, 4)))
    check(framework, framework.hvd.allgather(first), np.ones((1, 4)))
    handle = framework.hvd.allgather_async(framework.make(np.ones((0, 4))))
    check(framework, framework.hvd.synchronize(handle), np.ones((0, 4)))


@pytest.mark.parametrize("shape", SHAPES)
@with_types("integers", "floats")
def test_broadcast_from_every_root(framework, dtype, shape):
    module = framework.hvd
    for root in range(hvd.size()):
        given = framework.make(of_rank(shape), dtype)
        wanted = of_rank(shape, root)
        check(framework, module.broadcast(given, root), wanted, dtype)
        check(framework, given, of_rank(shape), dtype)
        check(framework, module.synchronize(module.broadcast_async(given, root)), wanted, dtype)
        if framework.can_change:
            assert module.broadcast_(given, root_rank=root) is given
            check(framework, given, wanted, dtype)
            again = framework.make(of_rank(shape), dtype)
            assert module.synchronize(module.broadcast_async_(again, root)) is again
            check(framework, again, wanted, dtype)


@with_types("integers", "floats")
def test_alltoall(framework, dtype):
    module, size = framework.hvd, hvd.size()
    mine = framework.make(np.full((2 * size, 3), hvd.rank()), dtype)
    wanted = np.repeat(np.arange(size), 2)
    check(framework, module.alltoall(mine)[:, 0], wanted, dtype)
    nothing = framework.make(np.zeros((size, 0)), dtype)
    check(framework, module.alltoall(nothing), np.zeros((size, 0)), dtype)
    splits = [rank + 1 for rank in range(size)]
    mine = framework.make(np.full((sum(splits), 2), hvd.rank()), dtype)
    result, received = module.alltoall(mine, splits)
    check(framework, received, [hvd.rank() + 1] * size, "int32")
    check(framework, result[:, 1], np.repeat(np.arange(size), hvd.rank() + 1), dtype)
    result, received = module.synchronize(module.alltoall_async(mine, splits=splits))
    check(framework, received, [hvd.rank() + 1] * size, "int32")
    check(framework, result[:, 0], np.repeat(np.arange(size), hvd.rank() + 1), dtype)


@with_frameworks
def test_alltoall_where_only_one_rank_gets_something(framework):
    last = hvd.size() - 1
    splits = [2 if rank == last else 0 for rank in range(hvd.size())]
    given = framework.make(np.full((2, 3), hvd.rank()))
    result, received = framework.hvd.alltoall(given, splits)
    is_last = hvd.rank() == last
    check(framework, received, [2 if is_last else 0] * hvd.size())
    senders = np.repeat(np.arange(hvd.size() if is_last else 0), 2)
    check(framework, result, np.repeat(senders[:, None], 3, axis=1))
    result, received = framework.hvd.alltoall(given[:0], [0] * hvd.size())
    check(framework, result, np.ones((0, 3)))
    check(framework, received, [0] * hvd.size())


@with_types("integers", "floats")
def test_reducescatter(framework, dtype):
    module, size = framework.hvd, hvd.size()
    rows = 2 * size + 1  # the first rank has one more
    own = 3 if hvd.rank() == 0 else 2
    given = framework.make(np.full((rows, 2), hvd.rank() + 1), dtype)
    wanted = np.full((own, 2), sum(range(1, size + 1)))
    check(framework, module.reducescatter(given, op=hvd.Sum), wanted, dtype)
    handle = module.grouped_reducescatter_async([given, given[:size]], op=hvd.Sum)
    for one, two in (
        module.grouped_reducescatter([given, given[:size]], op=hvd.Sum),
        module.synchronize(handle),
    ):
        check(framework, one, wanted, dtype)
        check(framework, two, wanted[:1], dtype)


@with_types("floats")
def test_reducescatter_averages_and_scales(framework, dtype):
    module, size = framework.hvd, hvd.size()
    own = slice(4 * hvd.rank(), 4 * (hvd.rank() + 1))
    given = framework.make(of_rank((4 * size, 3)), dtype)
    mean = of_ranks((4 * size, 3)).mean(0)[own]
    check(framework, module.reducescatter(given, op=hvd.Average), mean, dtype, 1e-2)
    handle = module.reducescatter_async(
        given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
    )
    check(framework, module.synchronize(handle), mean * size * 2, dtype, 1e-2)


@with_frameworks
def test_reducescatter_of_fewer_rows_than_ranks(framework):
    result = framework.hvd.reducescatter(framework.make(np.ones((1, 3))), op=hvd.Sum)
    check(framework, result, np.full((1 if hvd.rank() == 0 else 0, 3), hvd.size()))


@pytest.mark.parametrize("shape", SHAPES)
@with_types("integers", "floats")
def test_send_and_recv(framework, dtype, shape):
    if hvd.size() == 1:
        pytest.skip("it takes two")
    if not framework.can_change:
        pytest.skip("its tensors do not change")
    after, before = neighbours()
    sent = framework.hvd.send_async(framework.make(of_rank(shape), dtype), after)
    received = framework.make(np.zeros(shape), dtype)
    assert framework.hvd.recv(received, before) is received
    check(framework, received, of_rank(shape, before), dtype)
    assert sent.wait() is None


# --- process sets and join ---------------------------------------------------------------------


@pytest.mark.parametrize("op, reduce", [*REDUCTIONS, (hvd.Average, "mean")])
@with_frameworks
def test_allreduce_within_a_process_set(even_and_odd, framework, op, reduce):
    given = framework.make(of_rank((5, 2)))
    result = framework.hvd.allreduce(given, op=op, process_set=even_and_odd)
    wanted = getattr(of_ranks((5, 2), even_and_odd.ranks), reduce)(0)
    check(framework, result, wanted, rtol=1e-12)


@with_frameworks
def test_the_other_operations_within_a_process_set(even_and_odd, framework):
    module = framework.hvd
    ranks, size = even_and_odd.ranks, even_and_odd.size()
    mine = np.full((size, 2), hvd.rank())
    given = framework.make(mine)
    check(framework, module.alltoall(given, process_set=even_and_odd)[:, 0], ranks)
    scattered = module.reducescatter(given, op=hvd.Sum, process_set=even_and_odd)
    check(framework, scattered, [[sum(ranks)] * 2])
    group = module.grouped_allreduce(
        [given, framework.make(mine * 2)], op=hvd.Sum, process_set=even_and_odd
    )
    check(framework, group[0], np.full((size, 2), sum(ranks)))
    check(framework, group[1], np.full((size, 2), 2 * sum(ranks)))
    parts = module.grouped_allgather([given[:1], given[:0]], process_set=even_and_odd)
    check(framework, parts[0][:, 0], ranks)
    check(framework, parts[1], np.ones((0, 2)))
    for root in ranks:
        check(
            framework,
            module.broadcast(given, root, process_set=even_and_odd),
            np.full((size, 2), root),
        )


@with_frameworks
def test_join_leaves_an_average_to_the_ranks_that_have_data(framework):
    for _ in range(hvd.rank()):
        framework.hvd.allreduce(framework.make(np.ones(4)), name="before.join")
    if hvd.rank() == hvd.size() - 1:
        alone = framework.hvd.allreduce(framework.make(np.full(4, 5.0)), name="alone")
        check(framework, alone, [5.0] * 4)
    assert framework.hvd.join() in range(hvd.size())


# --- errors ------------------------------------------------------------------------------------


@with_frameworks
def test_wrong_arguments_of_this_rank_fail_at_the_call(framework):
    module = framework.hvd
    ones = framework.make(np.ones(4))
    with pytest.raises(ValueError, match="splits"):
        module.alltoall(ones, splits=[5] * hvd.size())
    with pytest.raises(ValueError):
        module.alltoall(ones, splits=[1] * (hvd.size() + 1))
    with pytest.raises(ValueError, match="root"):
        module.broadcast(ones, hvd.size())
    with pytest.raises(ValueError):
        module.allgather(framework.make(1.0))
    with pytest.raises(ValueError, match="both"):
        module.allreduce(ones, average=True, op=hvd.Sum)
    with pytest.raises(ValueError):
        module.allreduce(ones, op=17)
    with pytest.raises(ValueError, match="neither"):
        module.allreduce(ones, process_set=hvd.ProcessSet([0]))
    if framework.strange is not None:
        with pytest.raises(TypeError):
            module.allreduce(framework.make(np.ones(3, framework.strange)))
    hvd.barrier()


def _odd(even, odd):
    return odd if hvd.rank() % 2 else even


DISAGREEMENTS = {
    "shapes": lambda f: f.hvd.allreduce(f.make(np.ones(4 + hvd.rank())), name="shapes"),
    "types": lambda f: f.hvd.allreduce(
        f.make(np.ones(4), _odd("float32", "float64")), name="types"
    ),
    "ops": lambda f: f.hvd.allreduce(f.make(np.ones(4)), op=_odd(hvd.Sum, hvd.Max), name="ops"),
    "rows": lambda f: f.hvd.allgather(f.make(np.ones((2, 2 + hvd.rank()))), name="rows"),
    "roots": lambda f: f.hvd.broadcast(f.make(np.ones(4)), _odd(0, 1), name="roots"),
    "sizes": lambda f: f.hvd.broadcast(f.make(np.ones(4 + hvd.rank())), 0, name="sizes"),
}


@pytest.mark.parametrize("word", DISAGREEMENTS)
@with_frameworks
def test_arguments_that_differ_between_ranks_fail_on_all(framework, word):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(hvd.HorovodInternalError, match=word) as caught:
        DISAGREEMENTS[word](framework)
    assert isinstance(caught.value, (hvd.DisagreementError, ValueError))
    after = framework.hvd.allreduce(framework.make(np.ones(1)), op=hvd.Sum)
    check(framework, after, [hvd.size()])  # the world is as it was


@with_frameworks
def test_an_error_comes_from_synchronize_not_from_the_call(framework):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    module = framework.hvd
    handle = module.allreduce_async(framework.make(np.ones(3 + hvd.rank())), name="later")
    with pytest.raises(hvd.HorovodInternalError, match="later"):
        module.synchronize(handle)
    result = module.allreduce(framework.make(np.ones(3)), op=hvd.Sum, name="later")
    check(framework, result, [hvd.size()] * 3)
