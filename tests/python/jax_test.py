# Allreduce in functions that JAX traces: compiled, differentiated, batched, and many at once.
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import hvd.jax as hvd  # noqa: E402 - it needs JAX

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("world")
FLOATS = ["float16", "bfloat16", "float32", "float64"]
TYPES = ["bool", "uint8", "int8", "uint16", "int16", "int32", "int64", *FLOATS]


def of_rank(shape, rank=None):
    rank = hvd.rank() if rank is None else rank
    return (np.arange(np.prod(shape)) % 3 + rank + 1.0).reshape(shape)


def total(shape):
    return sum(of_rank(shape, rank) for rank in range(hvd.size()))


def sum_of_ranks():
    return sum(range(1, hvd.size() + 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (0,)])
def test_a_compiled_allreduce_of_each_type(dtype, shape):
    reduce = jax.jit(lambda array: hvd.allreduce(array, op=hvd.Max))
    given = jnp.asarray(of_rank(shape) if dtype != "bool" else np.ones(shape), dtype)
    result = reduce(given)
    assert result.dtype == given.dtype and result.shape == shape
    wanted = of_rank(shape, hvd.size() - 1) if dtype != "bool" else np.ones(shape)
    np.testing.assert_array_equal(np.asarray(result, np.float64), wanted)
    np.testing.assert_array_equal(given, jnp.asarray(given))


def test_a_pytree_is_one_group():
    tree = {"weights": jnp.asarray(of_rank((3, 2))), "rest": [jnp.ones(4), jnp.float32(2)]}
    for reduce in (hvd.allreduce, jax.jit(hvd.allreduce)):
        result = reduce(tree)
        np.testing.assert_allclose(result["weights"], total((3, 2)) / hvd.size())
        np.testing.assert_array_equal(result["rest"][0], np.ones(4))
        assert result["rest"][1].dtype == jnp.float32 and result["rest"][1] == 2
    assert hvd.allreduce({}) == {} and jax.jit(hvd.allreduce)([]) == []


def test_operations_factors_and_compression():
    given = jnp.asarray(of_rank((5,)), "float32")

    @jax.jit
    def all_kinds(array):
        return {
            "sum": hvd.allreduce(array, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
            "least": hvd.allreduce(array, op=hvd.Min),
            "product": hvd.allreduce(array, op=hvd.Product),
            "narrow": hvd.allreduce(array, op=hvd.Sum, compression=hvd.Compression.fp16),
        }

    result = all_kinds(given)
    np.testing.assert_allclose(result["sum"], total((5,)) * 2)
    np.testing.assert_array_equal(result["least"], of_rank((5,), 0))
    every = np.stack([of_rank((5,), rank) for rank in range(hvd.size())])
    np.testing.assert_array_equal(result["product"], every.prod(0))
    np.testing.assert_allclose(result["narrow"], total((5,)), rtol=1e-2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_the_gradient_is_reduced_in_the_same_way(op, compiled):
    def loss(tree):
        reduced = hvd.allreduce(tree, op=op, postscale_factor=2.0)
        return sum((leaf * (hvd.rank() + 1.0)).sum() for leaf in jax.tree.leaves(reduced))

    tree = [jnp.asarray(of_rank((3,))), jnp.asarray(of_rank((2, 2)))]
    gradient = jax.jit(jax.grad(loss)) if compiled else jax.grad(loss)
    factor = 2 * sum_of_ranks() / (hvd.size() if op == hvd.Average else 1)
    for leaf in gradient(tree):
        np.testing.assert_allclose(leaf, np.full(leaf.shape, factor))


def test_second_derivatives_and_tangents():
    def loss(x):
        return (hvd.allreduce(x, op=hvd.Sum) ** 3).sum()

    x = jnp.ones(2)
    second = jax.jit(jax.grad(lambda x: jax.grad(loss)(x).sum()))(x)
    assert second.shape == (2,) and (second > 0).all()
    _, tangent = jax.jvp(lambda x: hvd.allreduce(x, op=hvd.Sum), (x,), (x,))
    np.testing.assert_allclose(tangent, np.full(2, hvd.size()))


def test_what_cannot_be_differentiated_says_so():
    with pytest.raises(NotImplementedError, match="MAX cannot be differentiated"):
        jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())(jnp.ones(2))


def test_vmap_reduces_the_whole_batch():
    batch = jnp.asarray(of_rank((4, 3)))
    result = jax.jit(jax.vmap(lambda row: hvd.allreduce(row, op=hvd.Sum)))(batch)
    np.testing.assert_array_equal(result, total((4, 3)))


def test_calls_that_are_alike_in_one_program_are_told_apart():
    @jax.jit
    def program(arrays):
        return [hvd.allreduce(array, op=hvd.Sum) for array in arrays]

    for round in range(20):
        arrays = [jnp.full(1000, 10.0 * index + round) for index in range(30)]
        for index, result in enumerate(program(arrays)):
            assert (result == (10.0 * index + round) * hvd.size()).all()


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_needed_after_its_reduction_keeps_its_value(nested):
    def program(given):
        def both(array):
            double = array * 2
            again = hvd.allreduce([double, double, array], op=hvd.Sum)
            return double, *again, double + array, array

        return (jax.jit(both) if nested else both)(given)

    def looped(given):
        def step(sums, _):
            reduced = hvd.allreduce(sums, op=hvd.Sum)
            return reduced, sums

        return jax.lax.scan(step, given, length=3)

    given = jnp.asarray(of_rank((50,)))
    own, everyone = of_rank((50,)), total((50,))
    wanted = [2 * own, 2 * everyone, 2 * everyone, everyone, 3 * own, own]
    for _ in range(2):
        for found, right in zip(jax.jit(program)(given), wanted):
            np.testing.assert_array_equal(found, right)
        last, sums = jax.jit(looped)(given)
        np.testing.assert_array_equal(last, everyone * hvd.size() ** 2)
        np.testing.assert_array_equal(sums, [own, everyone, everyone * hvd.size()])
        np.testing.assert_array_equal(given, own)


def test_executions_that_overlap_are_told_apart():
    reduce = jax.jit(lambda array: hvd.allreduce(array, op=hvd.Sum))
    results = [reduce(jnp.full(20_000, float(index))) for index in range(200)]
    for index, result in enumerate(results):
        assert (result == index * hvd.size()).all()


def test_a_function_that_is_traced_by_one_rank_first_has_the_same_name():
    if hvd.rank() == 0:  # as one that was there before the others
        jax.jit(lambda array: hvd.allreduce(array)).lower(jnp.ones(3)).compile()
    reduce = jax.jit(lambda array: hvd.allreduce(array, op=hvd.Sum))
    assert reduce(jnp.ones(3)).tolist() == [hvd.size()] * 3


def test_a_training_step():
    def loss(params, batch):
        return ((batch @ params["w"] + params["b"]) ** 2).mean()

    @jax.jit
    def step(params, batch):
        gradients = hvd.allreduce(jax.grad(loss)(params, batch))
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients)

    params = {"w": jnp.full((8, 3), 1.0 + hvd.rank()), "b": jnp.zeros(3)}
    params = hvd.broadcast_parameters(params, root_rank=0)
    alone = params
    for index in range(10):
        batches = [jnp.asarray(of_rank((4, 8), rank) + index) for rank in range(hvd.size())]
        params = step(params, batches[hvd.rank()])
        gradients = [jax.grad(loss)(alone, batch) for batch in batches]
        alone = jax.tree.map(lambda p, *g: p - 0.01 * sum(g) / len(g), alone, *gradients)
    np.testing.assert_allclose(params["w"], alone["w"], rtol=1e-12)
    np.testing.assert_allclose(params["b"], alone["b"], rtol=1e-12)


def test_other_collectives_are_refused_in_traced_functions():
    with pytest.raises(TypeError, match=r"only allreduce\(\) may be in a function under jit"):
        jax.jit(lambda array: hvd.allgather(array))(jnp.ones(2))


def test_errors_come_out_of_compiled_functions():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(RuntimeError, match="Mismatched"):
        jax.block_until_ready(
            jax.jit(lambda array: hvd.allreduce(array, name="sizes"))(jnp.ones(2 + hvd.rank()))
        )
    result = jax.jit(lambda array: hvd.allreduce(array, op=hvd.Sum))(jnp.ones(2))
    assert result.tolist() == [hvd.size()] * 2


def test_elements_that_hvd_cannot_send_are_refused():
    with pytest.raises(RuntimeError, match="cannot send elements"):
        jax.block_until_ready(jax.jit(hvd.allreduce)(jnp.ones(2, jnp.complex64)))


def test_process_sets(even_and_odd):
    reduce = jax.jit(lambda array: hvd.allreduce(array, op=hvd.Sum, process_set=even_and_odd))
    assert reduce(jnp.asarray([float(hvd.rank())]))[0] == sum(even_and_odd.ranks)


def tree_sum(values):
    """As one process adds them up: split at the largest power of two that is less than all."""
    if len(values) == 1:
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return tree_sum(values[:left]) + tree_sum(values[left:])


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("shards", [1, 5, 16])
def test_a_pytree_becomes_that_of_all_shards(shards, deterministic):
    @jax.jit
    def of(shard):
        return {
            "w": jax.random.normal(jax.random.key(shard), (40,), "float32"),
            "n": (shard * 1.0,),
        }

    reducer = hvd.ShardReducer(of(0), shards, deterministic=deterministic)
    for _ in range(2):
        for shard in reducer.shards():
            with pytest.raises(RuntimeError, match="at its end"):
                reducer.result()
            reducer.add(of(shard))
        result = reducer.result()
        expected = tree_sum([np.asarray(of(shard)["w"]) for shard in range(shards)])
        expected = expected / np.float32(shards)
        if deterministic:
            np.testing.assert_array_equal(result["w"], expected)
        np.testing.assert_allclose(result["w"], expected, atol=1e-6)
        np.testing.assert_allclose(result["n"][0], (shards - 1) / 2)
    with pytest.raises(ValueError, match="the pytree is"):
        reducer.add({"w": 1})
    with pytest.raises(ValueError, match="a leaf has the shape"):
        reducer.add({"w": jnp.ones(3), "n": (1.0,)})
