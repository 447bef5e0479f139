# What tensors of TensorFlow and tf.function have of their own: gradients, dynamic shapes, slices,
# tapes, variables. The collectives themselves are in conformance_test.py. Each runs eagerly and in
# a function that TensorFlow traces.
import pickle

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import hvd.tensorflow as hvd  # noqa: E402 - it needs TensorFlow

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture(params=["eager", "graph"])
def compiled(request):
    """Makes of a function what is tested."""
    return tf.function if request.param == "graph" else lambda function: function


def sum_of_ranks():
    return sum(range(1, hvd.size() + 1))


def mine(*shape):
    """Elements that differ from rank to rank."""
    return tf.constant((np.arange(np.prod(shape)) % 3 + hvd.rank() + 1.0).reshape(shape))


def total(*shape):
    return sum((np.arange(np.prod(shape)) % 3 + r + 1.0).reshape(shape) for r in range(hvd.size()))


def gradient_of(function, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(*tensors)
        loss = tf.reduce_sum(result * tf.cast(hvd.rank_op() + 1, result.dtype))
    return tape.gradient(loss, tensors)


# --- gradients of the collectives --------------------------------------------------------------


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_gradient_of_allreduce(compiled, op):
    reduce = compiled(
        lambda x: gradient_of(lambda y: hvd.allreduce(y, op=op, postscale_factor=2.0), x)
    )
    factor = 2 * sum_of_ranks() / (hvd.size() if op == hvd.Average else 1)
    np.testing.assert_allclose(reduce(mine(3, 2))[0], np.full((3, 2), factor))


def test_gradient_of_a_group(compiled):
    def both(x, y):
        one, two = hvd.grouped_allreduce([x, y], op=hvd.Sum)
        return tf.concat([tf.reshape(one, [-1]), 3 * two], 0)

    first, second = compiled(lambda x, y: gradient_of(both, x, y))(mine(2, 2), mine(3))
    np.testing.assert_allclose(first, np.full((2, 2), sum_of_ranks()))
    np.testing.assert_allclose(second, np.full(3, 3 * sum_of_ranks()))


def test_second_derivative_of_allreduce(compiled):
    @compiled
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                cube = hvd.allreduce(x, op=hvd.Sum) ** 3
            first = inner.gradient(cube, x)
        return outer.gradient(first, x)

    # 3 n s ** 2 with s the sum over n ranks, and then 6 n ** 2 s.
    np.testing.assert_allclose(second(mine(2)), 6 * hvd.size() ** 2 * total(2))


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product, hvd.Adasum])
def test_what_cannot_be_differentiated_says_so(compiled, op):
    with pytest.raises(NotImplementedError, match=f"{op.name} cannot be differentiated"):
        compiled(lambda x: gradient_of(lambda y: hvd.allreduce(y, op=op), x))(mine(2))


def test_gradient_of_allgather(compiled):
    rows = hvd.rank() + 1
    x = tf.ones([rows, 2], tf.float64)
    gradient = compiled(lambda x: gradient_of(hvd.allgather, x))(x)[0]
    np.testing.assert_allclose(gradient, np.full((rows, 2), sum_of_ranks() / hvd.size()))


def test_gradient_of_allgather_is_of_the_own_rows(compiled):
    count = sum_of_ranks()
    weights = tf.range(count, dtype=tf.float64)
    x = tf.ones([hvd.rank() + 1], tf.float64)

    @compiled
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allgather(x) * weights)
        return tape.gradient(loss, x)

    first = sum(range(1, hvd.rank() + 1))
    np.testing.assert_allclose(gradient(x), np.arange(first, first + hvd.rank() + 1))


def test_gradient_of_broadcast(compiled):
    root = hvd.size() - 1
    gradient = compiled(lambda x: gradient_of(lambda y: hvd.broadcast(y, root), x))(mine(3))[0]
    wanted = sum_of_ranks() / hvd.size() if hvd.rank() == root else 0.0
    np.testing.assert_allclose(gradient, np.full(3, wanted))


def test_gradient_of_alltoall(compiled):
    size = hvd.size()
    x = tf.ones([2 * size, 3], tf.float64)
    wanted = np.repeat(np.arange(1.0, size + 1), 2)
    for splits in (None, [2] * size):

        def exchange(y, splits=splits):
            return hvd.alltoall(y) if splits is None else hvd.alltoall(y, splits)[0]

        gradient = compiled(lambda x, exchange=exchange: gradient_of(exchange, x))(x)[0]
        np.testing.assert_allclose(gradient[:, 0], wanted)


def test_gradient_of_alltoall_with_uneven_splits(compiled):
    splits = [rank + 1 for rank in range(hvd.size())]
    x = tf.ones([sum(splits)], tf.float64)
    gradient = compiled(lambda x: gradient_of(lambda y: hvd.alltoall(y, splits)[0], x))(x)[0]
    np.testing.assert_allclose(gradient, np.repeat(np.arange(1.0, hvd.size() + 1), splits))


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_gradient_of_reducescatter(compiled, op):
    rows = 2 * hvd.size() + 1
    x = tf.ones([rows, 2], tf.float64)
    gradient = compiled(lambda x: gradient_of(lambda y: hvd.reducescatter(y, op=op), x))(x)[0]
    own = [3 if rank == 0 else 2 for rank in range(hvd.size())]
    wanted = np.repeat(np.arange(1.0, hvd.size() + 1), own)
    factor = hvd.size() if op == hvd.Sum else 1
    np.testing.assert_allclose(gradient[:, 1], wanted * factor)


def test_gradients_within_a_process_set(compiled, even_and_odd):
    ranks = even_and_odd.ranks
    factor = sum(rank + 1 for rank in ranks)

    def reduced(x):
        return hvd.allreduce(x, op=hvd.Sum, process_set=even_and_odd)

    def gathered(x):
        return hvd.allgather(x, process_set=even_and_odd)

    gradients = [
        compiled(lambda x, call=call: gradient_of(call, x))(mine(2))[0]
        for call in (reduced, gathered)
    ]
    np.testing.assert_allclose(gradients[0], [factor] * 2)
    np.testing.assert_allclose(gradients[1], [factor / len(ranks)] * 2)


def test_adasum_and_splits_that_are_no_whole_numbers(compiled):
    same = tf.constant([1.0, 2.0, 3.0])
    result = compiled(lambda: hvd.allreduce(same, op=hvd.Adasum))()
    np.testing.assert_allclose(result, same, rtol=1e-6)
    with pytest.raises(ValueError, match="splits are whole numbers"):
        compiled(lambda: hvd.alltoall(mine(2 * hvd.size()), [1.5] * hvd.size()))()


# --- functions ---------------------------------------------------------------------------------


def test_shapes_that_are_not_known_when_a_function_is_traced():
    any_rows = tf.TensorSpec([None, 3], tf.float64)
    any_rank = tf.TensorSpec(None, tf.float64)
    traces = []

    @tf.function(input_signature=[any_rows, any_rank])
    def all_kinds(rows, anything):
        traces.append(1)
        reduced = hvd.allreduce(rows, op=hvd.Sum)
        assert reduced.shape.as_list() == [None, 3]
        gathered = hvd.allgather(rows)
        assert gathered.shape.as_list() == [None, 3]
        return reduced, gathered, hvd.allreduce(anything, op=hvd.Max)

    for rows in (1, 4):
        for shape in ((), (2, 2)):
            reduced, gathered, most = all_kinds(mine(rows, 3), mine(*shape))
            np.testing.assert_allclose(reduced, total(rows, 3))
            assert gathered.shape == (rows * hvd.size(), 3)
            np.testing.assert_allclose(most, mine(*shape).numpy() + hvd.size() - 1 - hvd.rank())
    assert len(traces) == 1


def test_calls_in_branches_and_loops():
    @tf.function
    def run(x, count):
        for _ in tf.range(count):
            x = hvd.allreduce(x, op=hvd.Sum)
        if tf.reduce_sum(x) > 0:
            x = hvd.allreduce(x, op=hvd.Max)
        return x

    for count in (0, 1, 3):
        wanted = (
            total(2) * hvd.size() ** (count - 1)
            if count
            else mine(2).numpy() + (hvd.size() - 1 - hvd.rank())
        )
        np.testing.assert_allclose(run(mine(2), tf.constant(count)), wanted)


def test_many_calls_in_one_function_are_told_apart():
    @tf.function
    def run(tensors):
        return [hvd.allreduce(one, op=hvd.Sum) for one in tensors]

    for step in range(10):
        results = run([tf.fill([100], 10.0 * index + step) for index in range(30)])
        for index, result in enumerate(results):
            assert (result.numpy() == (10.0 * index + step) * hvd.size()).all()


def test_a_function_that_one_rank_has_traced_before_has_the_same_names():
    def step(x):
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(2 * x, op=hvd.Sum)

    if hvd.rank() == 0:  # as one that was there before the others
        tf.function(step).get_concrete_function(tf.TensorSpec([5], tf.float64))
        tf.function(lambda: tf.constant(1))()
    np.testing.assert_allclose(tf.function(step)(mine(3)), 3 * total(3))


def test_what_is_given_stays_as_it_is():
    @tf.function
    def run(x):
        doubled = 2 * x
        reduced = hvd.allreduce(doubled, op=hvd.Sum)  # in the memory of `doubled`, if nobody has it
        return doubled, reduced, hvd.allreduce(x, op=hvd.Sum)

    x, variable = mine(1000), tf.Variable(mine(1000))
    for _ in range(3):
        doubled, reduced, plain = run(x)
        np.testing.assert_array_equal(doubled, 2 * mine(1000))
        np.testing.assert_allclose(reduced, 2 * total(1000))
        np.testing.assert_allclose(plain, total(1000))
        np.testing.assert_allclose(
            tf.function(lambda: hvd.allreduce(variable, op=hvd.Sum))(), total(1000)
        )
    np.testing.assert_array_equal(x, mine(1000))
    np.testing.assert_array_equal(variable, mine(1000))


def test_places_are_those_of_the_execution(compiled):
    @compiled
    def places():
        return [
            hvd.size_op(),
            hvd.rank_op(),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.process_set_included_op(),
        ]

    wanted = [hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank(), 1]
    assert [int(place) for place in places()] == wanted


def test_places_in_a_process_set(compiled, even_and_odd):
    number = even_and_odd.process_set_id
    here = compiled(lambda: [hvd.size_op(number), hvd.process_set_included_op(number)])()
    assert [int(one) for one in here] == [even_and_odd.size(), 1]


def test_errors_of_a_function_are_those_of_hvd():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    reduce = tf.function(lambda x: hvd.allreduce(x, name="sizes"))
    different = tf.ones(2 + hvd.rank())
    with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched"):
        reduce(different)
    with pytest.raises(hvd.HorovodInternalError, match=r"^Mismatched .*sizes") as caught:
        hvd.elastic.raises_failures_of_hvd(reduce)(different)
    assert caught.value.code == -7
    assert "\n" not in str(caught.value)
    assert reduce(tf.ones(2)).numpy().tolist() == [1.0] * 2


def not_of_mine():
    """A process set of the other ranks."""
    return [hvd.add_process_set([rank]) for rank in (0, 1)][1 - min(hvd.rank(), 1)]


def uneven(name, *arguments):
    """A call whose tensors differ from rank to rank where they must not."""
    shape = [2 * hvd.size(), hvd.rank() + 1]
    return lambda: getattr(hvd, name)(tf.ones(shape), *arguments)


def other_types(name, *arguments):
    dtype = tf.int32 if hvd.rank() else tf.float32
    return lambda: getattr(hvd, name)(tf.ones([hvd.size()], dtype), *arguments)


CALLS = [("allreduce",), ("allgather",), ("broadcast", 0), ("alltoall",), ("reducescatter",)]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_what_the_ranks_say_differently_is_a_failed_precondition(compiled, call):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    for make in (uneven, other_types):
        with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched"):
            compiled(make(*call))()


def test_different_roots_are_a_failed_precondition(compiled):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(tf.errors.FailedPreconditionError):
        compiled(lambda: hvd.broadcast(tf.ones(2), hvd.rank()))()


@pytest.mark.parametrize(
    "call",
    [
        lambda: hvd.alltoall(tf.ones(hvd.size() + 1)),
        lambda: hvd.alltoall(tf.ones(hvd.size() - 1), [1] * hvd.size()),
        lambda: hvd.reducescatter(tf.constant(1.0)),
        lambda: hvd.grouped_reducescatter([tf.ones((2, 1)), tf.constant(1.0)]),
        lambda: hvd.allreduce(tf.ones(2), process_set=not_of_mine()),
    ],
    ids=["rows", "splits", "scalar", "scalar in a group", "process set"],
)
def test_what_a_rank_gets_wrong_is_an_invalid_argument(compiled, call):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    before = hvd.process_set_ids()
    with pytest.raises(tf.errors.InvalidArgumentError):
        compiled(call)()
    hvd.barrier()
    for number in set(hvd.process_set_ids()) - set(before):
        added = hvd.ProcessSet([])
        added.process_set_id = number
        hvd.remove_process_set(added)


def test_errors_outside_of_functions_are_also_those_of_hvd():
    with pytest.raises(ValueError) as caught:
        hvd.reducescatter(tf.constant(1.0))
    copy = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, copy):
        assert isinstance(error, hvd.HvdError)
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert (error.code, error.message) == (-7, str(caught.value))


def test_a_function_that_fails_elsewhere_lets_go_of_what_it_has_started():
    @tf.function
    def run(x, is_wrong):
        reduced = hvd.allreduce(x, op=hvd.Sum)
        with tf.control_dependencies([tf.debugging.assert_equal(is_wrong, False)]):
            other = tf.identity(x)
        return reduced + hvd.allreduce(other, op=hvd.Sum)

    for _ in range(5):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(mine(1000), tf.constant(True))
    hvd.barrier()
    np.testing.assert_allclose(run(mine(1000), tf.constant(False)), 2 * total(1000))


def test_xla_and_sessions_are_refused():
    with pytest.raises(RuntimeError, match="leave jit_compile=True out"):
        tf.function(lambda x: hvd.allreduce(x), jit_compile=True)(mine(2))
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="a session of TensorFlow 1"):
        hvd.allreduce(tf.constant(1.0))
    with pytest.raises(NotImplementedError, match="no global variables"):
        hvd.broadcast_global_variables(0)
    compiled_parts = tf.function(lambda x: x * 2, jit_compile=True)
    result = tf.function(lambda x: hvd.allreduce(compiled_parts(x), op=hvd.Sum))(mine(2))
    np.testing.assert_allclose(result, 2 * total(2))


def test_tensors_that_hvd_cannot_send_are_refused(compiled):
    for given in (tf.constant("text"), tf.ones(2, tf.complex64), tf.ones(2, tf.uint32)):
        with pytest.raises(TypeError, match="cannot send elements of type"):
            compiled(hvd.allreduce)(given)


def test_async_calls_are_refused_in_functions():
    with pytest.raises(TypeError, match="not one that TensorFlow traces"):
        tf.function(lambda x: hvd.allreduce_async(x).wait(), autograph=False)(mine(2))


# --- slices ------------------------------------------------------------------------------------


def slices():
    """Two rows of rank 0, three of rank 1, and so on."""
    count = hvd.rank() + 2
    values = tf.fill([count, 2], hvd.rank() + 1.0)
    return tf.IndexedSlices(
        values, tf.range(count) + hvd.rank(), dense_shape=tf.constant([hvd.size() * 3, 2])
    )


def dense_of_all():
    wanted = np.zeros((hvd.size() * 3, 2))
    for rank in range(hvd.size()):
        for row in range(rank + 2):
            wanted[row + rank] += rank + 1.0
    return wanted


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_slices_are_put_together(compiled, op):
    reduced = compiled(lambda: hvd.allreduce(slices(), op=op))()
    assert isinstance(reduced, tf.IndexedSlices)
    wanted = dense_of_all() / (hvd.size() if op == hvd.Average else 1)
    np.testing.assert_allclose(tf.convert_to_tensor(reduced), wanted, rtol=1e-6)
    dense, other = compiled(lambda: hvd.grouped_allreduce([mine(2), slices()], op=op))()
    np.testing.assert_allclose(tf.convert_to_tensor(other), wanted, rtol=1e-6)
    np.testing.assert_allclose(dense, total(2) / (hvd.size() if op == hvd.Average else 1))


def test_other_operations_on_slices_are_refused():
    with pytest.raises(NotImplementedError, match="a sum or an average, not MAX"):
        hvd.allreduce(slices(), op=hvd.Max)


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_a_tape_reduces_slices(compiled, sparse_as_dense):
    table = tf.Variable(tf.ones([hvd.size() + 2, 2]))

    @compiled
    def step():
        with tf.GradientTape() as tape:
            rows = tf.gather(table, tf.range(2) + hvd.rank())
            loss = tf.reduce_sum(rows) * (hvd.rank() + 1.0)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        return tape.gradient(loss, table)

    gradient = step()
    assert isinstance(gradient, tf.IndexedSlices) != sparse_as_dense
    wanted = np.zeros((hvd.size() + 2, 2))
    for rank in range(hvd.size()):
        wanted[rank : rank + 2] += (rank + 1.0) / hvd.size()
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), wanted, rtol=1e-6)


# --- tapes -------------------------------------------------------------------------------------


def losses(variables):
    scale = tf.cast(hvd.rank_op() + 1, tf.float32)
    return scale * tf.add_n([tf.reduce_sum(one) for one in variables])


@pytest.mark.parametrize("groups", [None, 1, 2, "lists"])
@pytest.mark.parametrize(
    "options", [{}, {"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}, {"compression": 1}]
)
def test_a_tape_gives_the_gradients_of_all(compiled, options, groups):
    variables = [tf.Variable(tf.ones(shape)) for shape in ((2,), (3, 2), ())]
    unused = tf.Variable(1.0)
    given = [variables[:2]] if groups == "lists" else groups

    @compiled
    def step():
        with tf.GradientTape() as tape:
            loss = losses(variables)
        tape = hvd.DistributedGradientTape(tape, groups=given, **options)
        return tape.gradient(loss, {"used": variables, "unused": [unused]})

    for _ in range(3):
        gradients = step()
        assert gradients["unused"] == [None]
        factor = sum_of_ranks() / (1 if options.get("op") == hvd.Sum else hvd.size())
        for gradient, variable in zip(gradients["used"], variables):
            np.testing.assert_allclose(gradient, np.full(variable.shape, factor), rtol=1e-3)


def test_a_tape_that_is_entered_later_and_asked_twice():
    x = tf.Variable([1.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = tf.reduce_sum(x * x) * (hvd.rank() + 1.0)
    for _ in range(2):
        gradient = tape.gradient(loss, x)
        np.testing.assert_allclose(gradient, np.array([2.0, 4.0]) * sum_of_ranks() / hvd.size())
    assert isinstance(tape, tf.GradientTape)
    assert [one is x for one in tape.watched_variables()] == [True]


@pytest.mark.parametrize("scale", [False, True])
def test_local_sources_keep_their_gradients(compiled, scale):
    shared, local = tf.Variable(1.0), tf.Variable(tf.ones([2]))

    @compiled
    def step():
        with tf.GradientTape() as tape:
            loss = losses([shared, local])
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(local)
        return tape.gradient(loss, [shared, local])

    first, second = step()
    np.testing.assert_allclose(first, sum_of_ranks() / hvd.size(), rtol=1e-6)
    wanted = (hvd.rank() + 1.0) / (hvd.size() if scale else 1)
    np.testing.assert_allclose(second, [wanted] * 2, rtol=1e-6)


def test_the_layers_of_a_partial_tape_are_local():
    shared, local = (tf.keras.layers.Dense(1, use_bias=False) for _ in range(2))
    x = tf.fill([1, 2], hvd.rank() + 1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(shared(x)) + tf.reduce_sum(local(x))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=local, scale_local_gradients=False)
    variables = [*shared.trainable_weights, *local.trainable_weights]
    first, second = tape.gradient(loss, variables)
    np.testing.assert_allclose(first, np.full((2, 1), sum_of_ranks() / hvd.size()), rtol=1e-6)
    np.testing.assert_allclose(second, np.full((2, 1), hvd.rank() + 1.0))


def test_local_and_global_gradients_can_be_told_apart(compiled):
    shared, local = tf.Variable(1.0), tf.Variable(2.0)

    @compiled
    def step():
        with tf.GradientTape() as tape:
            loss = losses([shared, local])
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=False)
        tape.register_local_source(local)
        ours, theirs = tape.get_local_and_global_gradients(loss, [shared, local])
        assert ([one is local for one, _ in ours], [one is shared for one, _ in theirs]) == (
            [True],
            [True],
        )
        return ours[0][1], theirs[0][1]

    own, mean = step()
    np.testing.assert_allclose(own, hvd.rank() + 1.0)
    np.testing.assert_allclose(mean, sum_of_ranks() / hvd.size(), rtol=1e-6)


def test_a_tape_within_a_process_set(compiled, even_and_odd):
    x = tf.Variable(1.0)

    @compiled
    def step():
        with tf.GradientTape() as tape:
            loss = losses([x])
        return hvd.DistributedGradientTape(tape, process_set=even_and_odd).gradient(loss, x)

    wanted = np.mean([rank + 1.0 for rank in even_and_odd.ranks])
    np.testing.assert_allclose(step(), wanted, rtol=1e-6)


def test_a_tape_on_a_rank_outside_of_its_process_set(compiled):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    members = hvd.add_process_set(range(hvd.size() - 1))
    x = tf.Variable(1.0)

    @compiled
    def step():
        with tf.GradientTape() as tape:
            loss = losses([x])
        return hvd.DistributedGradientTape(tape, process_set=members).gradient(loss, x)

    wanted = np.mean(members.ranks) + 1 if members.included() else hvd.size()
    np.testing.assert_allclose(step(), wanted, rtol=1e-6)
    hvd.remove_process_set(members)


class Halves:
    """A compression of a program's own."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, 2

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * ctx


def test_compressions(compiled):
    for dtype in (tf.float16, tf.float32, tf.float64, tf.int32, tf.bool):
        given = tf.cast(tf.ones(3), dtype)
        narrow, context = hvd.Compression.fp16.compress(given)
        assert narrow.dtype == (tf.float16 if dtype.is_floating else dtype)
        assert hvd.Compression.fp16.decompress(narrow, context).dtype == dtype
    for compression in (hvd.Compression.none, hvd.Compression.bf16, Halves):
        one, two = compiled(
            lambda compression=compression: hvd.grouped_allreduce(
                [mine(2), mine(3)], op=hvd.Sum, compression=compression
            )
        )()
        np.testing.assert_allclose(one, total(2))
        np.testing.assert_allclose(two, total(3))
        tape = tf.GradientTape()
        with tape:
            loss = losses([x := tf.Variable(1.0)])
        gradient = hvd.DistributedGradientTape(tape, compression=compression).gradient(loss, x)
        np.testing.assert_allclose(gradient, sum_of_ranks() / hvd.size(), rtol=1e-2)


def test_batch_normalization_over_all_ranks(compiled):
    given = [
        tf.constant(np.random.default_rng(r).normal(size=(4, 3)), tf.float32)
        for r in range(hvd.size())
    ]
    alone = tf.keras.layers.BatchNormalization()
    ours = hvd.SyncBatchNormalization()
    x, everything = tf.Variable(given[hvd.rank()]), tf.concat(given, 0)
    wanted = alone(everything, training=True)[4 * hvd.rank() : 4 * hvd.rank() + 4]
    ours.build(x.shape)
    np.testing.assert_allclose(
        compiled(lambda: ours(x, training=True))(), wanted, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(ours.moving_mean, alone.moving_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.moving_variance, alone.moving_variance, rtol=1e-4)
    still = ours(x, training=False)  # of this rank alone
    assert still.shape == x.shape
    gradient = compiled(lambda: gradient_of(lambda y: ours(y, training=True) ** 2, x))()[0]
    assert np.isfinite(gradient).all()


def test_wrong_arguments_of_a_tape():
    tape = tf.GradientTape()
    with pytest.raises(ValueError, match="op is Average, Sum or Adasum"):
        hvd.DistributedGradientTape(tape, op=hvd.Max)
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported"):
        hvd.DistributedGradientTape(tape, op=hvd.Sum, gradient_predivide_factor=2.0)
    for groups in (-1, "two"):
        with pytest.raises(ValueError, match="a non-negative integer or a list of lists"):
            hvd.DistributedGradientTape(tape, groups=groups)


# --- variables and models ----------------------------------------------------------------------


def test_variables_are_broadcast(compiled):
    root = hvd.size() - 1
    dtypes = [tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.bfloat16]
    variables = [tf.Variable(tf.cast(tf.fill([2, 3], hvd.rank()), one)) for one in dtypes]
    variables.append(tf.Variable(float(hvd.rank())))
    compiled(lambda: hvd.broadcast_variables(variables, root_rank=root))()
    for variable in variables:
        wanted = tf.cast(tf.fill(variable.shape, root), variable.dtype)
        assert (variable.numpy() == wanted.numpy()).all()
    assert hvd.broadcast_(variables[:1], 0)[0] is variables[0]


def test_objects():
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=0) == {"rank": 0}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def test_optimizers_and_states_of_keras():
    keras = pytest.importorskip("keras")
    if int(keras.__version__.split(".")[0]) < 3:
        with pytest.raises(ImportError, match="is for Keras 3, and this is Keras 2"):
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD())
        return
    import hvd.keras as ours
    import hvd.tensorflow.keras as same

    assert same.DistributedOptimizer is ours.DistributedOptimizer
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((2, 1))])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
    optimizer.apply([tf.fill([2, 1], hvd.rank() + 1.0)], model.trainable_variables)
    wanted = np.full((2, 1), -(hvd.size() + 1) / 2)
    np.testing.assert_allclose(model.get_weights()[0], wanted, rtol=1e-6)
    state.save()
    model.set_weights([np.ones((2, 1))])
    state.restore()
    np.testing.assert_allclose(model.get_weights()[0], wanted, rtol=1e-6)


def test_a_state_is_restored_and_synced():
    vector, number = tf.Variable(mine(2)), tf.Variable(tf.cast(hvd.rank(), tf.bfloat16))
    state = hvd.elastic.TensorFlowState([vector, number], step=hvd.rank())
    state.save()
    vector.assign([7.0, 7.0])
    number.assign(7)
    state.step = 7
    state.restore()
    np.testing.assert_array_equal(vector, mine(2))
    assert (float(number.value()), state.step) == (hvd.rank(), hvd.rank())
    state.sync()
    np.testing.assert_array_equal(vector, [1.0, 2.0])
    assert (float(number.value()), state.step) == (0, 0)
    state.variables.pop()
    with pytest.raises(ValueError, match="there are 1 variables here, and 2 values"):
        state.restore()
    with pytest.raises(ValueError, match="sessions of TensorFlow 1"):
        hvd.elastic.TensorFlowState(session=object())


class Line(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1.0], [-1.0], [0.5]])
        self.b = tf.Variable(float(hvd.rank()))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x):
        return x @ self.w + self.b


def batch(step, rank):
    numbers = np.random.default_rng([step, rank])
    x = tf.constant(numbers.normal(size=(8, 3)), tf.float32)
    return x, x @ tf.constant([[1.0], [2.0], [3.0]]) + 4


def train(model, distributed, batches):
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        if distributed:
            tape = hvd.DistributedGradientTape(tape)
        for variable, gradient in zip((model.w, model.b), tape.gradient(loss, [model.w, model.b])):
            variable.assign_sub(0.1 * gradient)

    for one in batches:
        step(*one)
    return [model.w.numpy(), model.b.numpy()]


def test_training_is_as_that_of_one_process_with_all_batches(tmp_path):
    model, alone = Line(), Line()
    hvd.broadcast_variables([model.w, model.b], root_rank=0)
    alone.b.assign(0.0)
    ours = train(model, True, [batch(step, hvd.rank()) for step in range(10)])
    every = [[batch(step, rank) for rank in range(hvd.size())] for step in range(10)]
    wanted = train(alone, False, [[tf.concat(part, 0) for part in zip(*one)] for one in every])
    for one, other in zip(ours, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    # What is saved needs no hvd.
    tf.saved_model.save(model, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded(batch(0, 0)[0]), model(batch(0, 0)[0]))
    saved = (tmp_path / "model" / "saved_model.pb").read_bytes()
    assert b"Hvd" not in saved


def test_join_while_others_go_on(compiled):
    reduce = compiled(lambda x: hvd.allreduce(x, name="uneven"))
    for _ in range(hvd.rank()):
        reduce(mine(4))
    assert hvd.join() in range(hvd.size())
