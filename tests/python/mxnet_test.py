# Gluon's trainer, an optimizer and parameters of MXNet, beside one process with all batches, and
# arrays that MXNet's engine has not computed yet.
import numpy as np
import pytest
from whole_jobs import program_of

mx = pytest.importorskip("mxnet")

import hvd.mxnet as hvd  # noqa: E402 - it needs MXNet

pytestmark = pytest.mark.usefixtures("world")


def batch(step, rank=None):
    numbers = np.random.default_rng([step, hvd.rank() if rank is None else rank])
    x = numbers.normal(size=(8, 4)).astype("float32")
    return mx.nd.array(x), mx.nd.array(x.sum(1, keepdims=True))


def batch_of_all(step):
    parts = [batch(step, rank) for rank in range(hvd.size())]
    return [mx.nd.concat(*column, dim=0) for column in zip(*parts)]


def make_net(seed=3):
    mx.random.seed(seed)
    net = mx.gluon.nn.Sequential()
    net.add(mx.gluon.nn.Dense(5, activation="tanh"), mx.gluon.nn.Dense(1))
    net.initialize(mx.init.Uniform(0.5))
    return net


def train(net, trainer, batches, rows):
    loss = mx.gluon.loss.L2Loss()
    for step in range(6):
        x, y = batches(step)
        with mx.autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(rows)
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_trainer_is_as_one_process_with_all_batches(kind):
    net = make_net(seed=3 + hvd.rank())  # with other weights at first
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), kind, {"learning_rate": 0.1})
    ours = train(net, trainer, batch, 8)

    alone = make_net()
    plain = mx.gluon.Trainer(alone.collect_params(), kind, {"learning_rate": 0.1}, kvstore=None)
    wanted = train(alone, plain, batch_of_all, 8 * hvd.size())
    for one, other in zip(ours, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_optimizer_reduces_before_it_updates():
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
    weight = mx.nd.zeros(3)
    optimizer.update(0, weight, mx.nd.full(3, hvd.rank() + 1.0), optimizer.create_state(0, weight))
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    np.testing.assert_allclose(weight.asnumpy(), [-mean] * 3, rtol=1e-6)
    assert optimizer.learning_rate == 1.0
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(TypeError, match="an optimizer of MXNet is needed, not str"):
        hvd.DistributedOptimizer("sgd")
    with pytest.warns(UserWarning, match="it takes the optimizer alone"):
        trainer = hvd.DistributedTrainer(make_net().collect_params(), optimizer)
    assert isinstance(trainer.optimizer, mx.optimizer.SGD)


class Halves:
    """A compression of a program's own."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, 2

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * ctx


@pytest.mark.parametrize(
    "options",
    [
        {"num_groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"compression": Halves, "num_groups": 3},
    ],
    ids=repr,
)
def test_each_way_of_a_trainer_to_reduce(options):
    net = make_net(seed=3 + hvd.rank())
    hvd.broadcast_parameters(net.collect_params(), prefix="one")
    rate = {"learning_rate": 0.1}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", rate, prefix="one", **options)
    ours = train(net, trainer, batch, 8)
    alone = make_net()
    plain = mx.gluon.Trainer(alone.collect_params(), "sgd", rate, kvstore=None)
    for one, other in zip(ours, train(alone, plain, batch_of_all, 8 * hvd.size())):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)


def test_a_rank_outside_of_the_process_set_takes_its_own_gradients():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    members = hvd.add_process_set(range(hvd.size() - 1))
    own = hvd.rank() + 1.0
    wanted = np.mean(members.ranks) + 1 if members.included() else own
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=members)
    weight = mx.nd.zeros(3)
    optimizer.update(0, weight, mx.nd.full(3, own), optimizer.create_state(0, weight))
    np.testing.assert_allclose(weight.asnumpy(), [-wanted] * 3, rtol=1e-6)
    hvd.remove_process_set(members)


def test_what_horovod_has_besides():
    tensor = mx.nd.ones(3, dtype="float64") * (hvd.rank() + 1)
    narrow, context = hvd.Compression.fp16.compress(tensor)
    assert (narrow.dtype, context) == (np.float16, np.float64)
    assert hvd.Compression.fp16.decompress(narrow, context).dtype == np.float64
    whole = mx.nd.ones(3, dtype="int32")
    assert hvd.Compression.fp16.compress(whole)[0] is whole
    total = hvd.allreduce_(tensor, op=hvd.Sum, priority=-1)
    assert (total == sum(range(1, hvd.size() + 1))).asnumpy().all()
    with pytest.raises(ValueError, match="splits are whole numbers, not of type float32"):
        hvd.alltoall(mx.nd.ones(hvd.size()), mx.nd.ones(hvd.size()))
    with pytest.raises(ValueError):
        hvd.reducescatter(mx.nd.array(1.0))


def test_arrays_that_are_still_being_computed_are_waited_for():
    for round in range(10):
        square = mx.nd.ones((300, 300)) * (hvd.rank() + 1)
        product = mx.nd.dot(square, square)  # begins later, on a thread of the engine
        result = hvd.allreduce(product, op=hvd.Sum)
        wanted = sum(300.0 * (rank + 1) ** 2 for rank in range(hvd.size()))
        assert (result == wanted).asnumpy().all()
        reader = product * 2
        hvd.allreduce_(product, op=hvd.Sum)
        assert (product == wanted).asnumpy().all()
        assert (reader == 600.0 * (hvd.rank() + 1) ** 2).asnumpy().all()
        del round


def test_a_dict_of_arrays_is_broadcast():
    arrays = {"a": mx.nd.full(2, hvd.rank()), "b": mx.nd.full((2, 2), hvd.rank() + 1.0)}
    hvd.broadcast_parameters(arrays, root_rank=hvd.size() - 1)
    assert arrays["a"].asnumpy().tolist() == [hvd.size() - 1] * 2
    assert (arrays["b"].asnumpy() == hvd.size()).all()
    with pytest.raises(ValueError, match="a dict of parameters is needed, not list"):
        hvd.broadcast_parameters([mx.nd.ones(1)])


def test_what_is_no_dense_array_is_refused():
    with pytest.raises(TypeError, match="an NDArray is needed, not list"):
        hvd.allreduce([1.0])
    with pytest.raises(ValueError, match="a dense NDArray is needed, not one of type row_sparse"):
        hvd.allreduce(mx.nd.ones((2, 2)).tostype("row_sparse"))


def test_the_program_of_the_page_runs_as_it_stands(capsys):
    exec(compile(program_of("docs/mxnet.md"), "mxnet.md", "exec"), {})
    assert capsys.readouterr().out == ("[1.0, 2.0, 3.0] 4.0\n" if hvd.rank() == 0 else "")
