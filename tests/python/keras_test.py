# Keras 3 on the backend that KERAS_BACKEND names: the optimizer in fit() and by hand, and the
# callbacks, beside one process that sees the batches of all ranks.
import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3.0")

import hvd.keras as hvd  # noqa: E402 - it needs Keras

pytestmark = pytest.mark.usefixtures("world")
ROWS = 8  # of each rank in a batch


def data(batches, rank=None):
    rank = hvd.rank() if rank is None else rank
    numbers = np.random.default_rng([7, rank])
    x = numbers.normal(size=(batches * ROWS, 4)).astype("float32")
    return x, (x @ np.array([[1.0], [2.0], [3.0], [4.0]]) + 1).astype("float32")


def data_of_all(batches):
    """The batches of all ranks, put together batch by batch."""
    every = [data(batches, rank) for rank in range(hvd.size())]
    return [
        np.concatenate([part[i * ROWS : (i + 1) * ROWS] for i in range(batches) for part in parts])
        for parts in zip(*every)
    ]


def make_model(seed=0, **options):
    keras.utils.set_random_seed(3 + seed)
    layers = [keras.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse", metrics=["mae"], **options)
    return model


def weights(model):
    return [np.array(value) for value in model.get_weights()]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
def test_fit_is_as_that_of_one_process_with_all_batches(kind):
    make = getattr(keras.optimizers, kind)
    optimizer = hvd.DistributedOptimizer(make(learning_rate=0.05))
    model = make_model(seed=hvd.rank(), optimizer=optimizer)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*data(6), batch_size=ROWS, epochs=2, shuffle=False, callbacks=[start], verbose=0)

    alone = make_model(optimizer=make(learning_rate=0.05))
    alone.fit(*data_of_all(6), batch_size=ROWS * hvd.size(), epochs=2, shuffle=False, verbose=0)
    for ours, wanted in zip(weights(model), weights(alone)):
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=2e-5)


def test_the_optimizer_stays_of_its_class_and_loads_without_hvd(tmp_path):
    model = make_model(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    model.fit(*data(1), batch_size=ROWS, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer) is type(keras.optimizers.Adam())
    again = hvd.load_model(path)
    assert isinstance(again.optimizer, keras.optimizers.Adam)
    again.fit(*data(1), batch_size=ROWS, verbose=0)
    for ours, wanted in zip(weights(plain), weights(model)):
        np.testing.assert_array_equal(ours, wanted)


def test_metrics_are_averaged():
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    model = make_model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    before = Look()
    model.fit(
        *data(2),
        batch_size=ROWS,
        verbose=0,
        callbacks=[before, hvd.callbacks.MetricAverageCallback(), Look()],
    )
    own, averaged = seen
    for name in ("loss", "mae"):
        every = hvd.allgather_object(own[name])
        assert averaged[name] == pytest.approx(sum(every) / len(every), rel=1e-6)


def test_the_rate_warms_up_and_follows_a_schedule():
    rates = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    model = make_model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
        hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.1, start_epoch=2),
        Look(),
    ]
    model.fit(*data(3), batch_size=ROWS, epochs=3, verbose=0, callbacks=callbacks)
    size = hvd.size()
    warm = [0.1 / size * ((step + 1) / 3 * (size - 1) / 2 + 1) for step in range(6)]
    np.testing.assert_allclose(rates, [*warm, 0.01, 0.01, 0.01], rtol=1e-5)
    assert model.optimizer.momentum == 0.9


def test_only_rank_0_keeps_the_best_model(tmp_path):
    path = tmp_path / "best.keras"
    model = make_model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    checkpoint = hvd.callbacks.BestModelCheckpoint(str(path), monitor="loss")
    model.fit(*data(2), batch_size=ROWS, epochs=2, verbose=0, callbacks=[checkpoint])
    assert path.exists() == (hvd.rank() == 0)


def test_wrong_arguments():
    optimizer = keras.optimizers.SGD()
    with pytest.raises(TypeError, match="an optimizer of Keras is needed, not str"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="op is Average or Sum"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Max)
    hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="must be built"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


class Halves:
    """A compression of a program's own."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, 2.0

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * ctx


def moved(model, optimizer, times=1):
    """How far steps go of which each rank has a gradient of its own: its rank and one."""
    before = weights(model)
    own = [np.full(one.shape, hvd.rank() + 1.0, "float32") for one in before]
    for _ in range(times):
        tensors = [keras.ops.convert_to_tensor(one) for one in own]
        optimizer.apply(tensors, model.trainable_variables)
    distances = [old - new for old, new in zip(before, weights(model))]
    for distance in distances:
        np.testing.assert_allclose(distance, distance.flat[0], rtol=1e-5)
    return pytest.approx([float(distance.flat[0]) for distance in distances], rel=1e-5)


def mean(ranks=None):
    return np.mean([rank + 1.0 for rank in (range(hvd.size()) if ranks is None else ranks)])


@pytest.mark.parametrize(
    "options",
    [
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"compression": Halves},
        {"groups": 2, "sparse_as_dense": True},
        {"num_groups": 3, "device_dense": "/cpu:0", "device_sparse": ""},
    ],
    ids=repr,
)
def test_each_way_to_reduce(options):
    model = make_model()
    wanted = mean() * (hvd.size() if options.get("op") == hvd.Sum else 1)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options)
    assert moved(model, optimizer) == [wanted] * 4


@pytest.mark.parametrize("average", [False, True])
def test_several_batches_for_a_step(average):
    model = make_model()
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(1.0),
        backward_passes_per_step=2,
        average_aggregated_gradients=average,
        local_layers=[model.layers[0]],
    )
    steps = 2 if average else 4
    own = (hvd.rank() + 1.0) / hvd.size()
    assert moved(model, optimizer, times=4) == [steps * own] * 2 + [steps * mean()] * 2
    with pytest.raises(ValueError, match="an optimizer that is not built yet"):
        plain = keras.optimizers.SGD()
        plain.build(model.trainable_variables)
        hvd.DistributedOptimizer(plain, backward_passes_per_step=2)


@pytest.mark.parametrize("scale", [False, True])
def test_local_variables_keep_their_gradients(scale):
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), scale_local_gradients=scale)
    optimizer.register_local_var(model.layers[0].kernel)
    own = (hvd.rank() + 1.0) / (hvd.size() if scale else 1)
    assert moved(model, optimizer) == [own] + [mean()] * 3
    with pytest.raises(ValueError, match="local_layers are layers of Keras, not int"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[3])


def test_local_variables_are_not_broadcast():
    model = make_model(optimizer="sgd")
    model.set_weights([np.full(one.shape, hvd.rank() + 1.0) for one in weights(model)])
    root = hvd.size() - 1
    local = [model.layers[0].kernel]
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(root, local_variables=local)
    model.optimizer.learning_rate = 0.0
    model.fit(*data(1), batch_size=ROWS, callbacks=[start], verbose=0)
    kernel, *others = weights(model)
    assert (kernel == hvd.rank() + 1.0).all()
    assert all((one == root + 1.0).all() for one in others)


def test_a_rank_outside_of_the_process_set_takes_its_own_gradients():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    members = hvd.add_process_set(range(hvd.size() - 1))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=members)
    wanted = mean(members.ranks) if members.included() else hvd.size()
    assert moved(make_model(), optimizer) == [wanted] * 4
    hvd.remove_process_set(members)


class OwnOptimizer(keras.optimizers.SGD):
    pass


def test_an_optimizer_of_a_configuration_is_distributed_too(tmp_path):
    optimizer = hvd.DistributedOptimizer(OwnOptimizer(1.0))
    for copy in (
        optimizer.from_config(optimizer.get_config()),
        type(optimizer).from_config(optimizer.get_config()),
    ):
        assert copy.get_config() == optimizer.get_config()
        assert moved(make_model(), copy) == [mean()] * 4
    make_model(optimizer=optimizer).save(tmp_path / "model.keras")
    for known in (
        {"custom_optimizers": [OwnOptimizer]},
        {"custom_objects": {"OwnOptimizer": OwnOptimizer}},
    ):
        loaded = hvd.load_model(tmp_path / "model.keras", **known)
        assert isinstance(loaded.optimizer, OwnOptimizer)
        assert moved(loaded, loaded.optimizer) == [mean()] * 4


def test_slices_of_an_embedding():
    for sparse_as_dense in (False, True):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), sparse_as_dense=sparse_as_dense
        )
        layer = keras.layers.Embedding(9, 2, embeddings_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(loss="mse", optimizer=optimizer, jit_compile=False)
        model.train_on_batch(np.array([[hvd.rank()]]), np.ones((1, 1, 2), "float32"))
        wanted = np.zeros((9, 2))
        wanted[: hvd.size()] = 1 / hvd.size()
        np.testing.assert_allclose(weights(model)[0], wanted, rtol=1e-5)


class Commits(hvd.elastic.CommitStateCallback):
    def commit(self):
        self.state.commits += 1
        super().commit()


def test_epochs_and_commits_are_counted_however_fit_counts():
    model = make_model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    state = hvd.elastic.KerasState(model, epoch=0, batch=0, commits=0)
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        Commits(state, 2),
    ]
    for options, epochs in (
        ({"epochs": 2}, 2),
        ({"epochs": 1}, 3),  # as programs for Horovod, from 0
        ({"initial_epoch": 3, "epochs": 5}, 5),
    ):
        model.fit(*data(3), batch_size=ROWS, callbacks=callbacks, verbose=0, **options)
        # After the second batch of three, and at the end of each epoch.
        assert (state.epoch, state.batch, state.commits) == (epochs, 0, 2 * epochs)


def test_collectives_of_values():
    size, rank = hvd.size(), hvd.rank()
    value = keras.ops.convert_to_tensor(np.arange(2.0 * size) + rank)
    total = np.arange(2.0 * size) * size + sum(range(size))
    np.testing.assert_allclose(hvd.allreduce(value, "value", average=False), total)
    np.testing.assert_allclose(hvd.allreduce(value, prescale_factor=0.5), total / size / 2)
    np.testing.assert_allclose(hvd.allgather(value, "rows")[2 * size * rank], rank)
    np.testing.assert_allclose(hvd.broadcast(3.0 + rank, 0, "number"), 3.0)
    share = hvd.reducescatter(value, "share", op=hvd.Sum)
    np.testing.assert_allclose(share, total[2 * rank : 2 * rank + 2])


def test_frozen_layers_and_process_sets(even_and_odd):
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=even_and_odd)
    model = make_model(optimizer=optimizer)
    model.layers[0].trainable = False
    model.compile(loss="mse", optimizer=optimizer)
    frozen = np.array(model.layers[0].get_weights()[0])
    model.fit(*data(2), batch_size=ROWS, shuffle=False, verbose=0)
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], frozen)
    every = hvd.allgather_object(weights(model)[2], process_set=even_and_odd)
    for one in every:
        np.testing.assert_array_equal(one, every[0])


@pytest.mark.parametrize("deterministic", [False, True])
def test_batches_are_shards_of_a_step(deterministic):
    shards, steps = 5, 4
    own = [hvd.shards_of(shards, rank, hvd.size()) for rank in range(hvd.size())][hvd.rank()]
    every = [data(steps, shard) for shard in range(shards)]  # a shard has ROWS rows of a step

    def batches(of):
        return [
            np.concatenate(
                [
                    every[shard][i][step * ROWS : (step + 1) * ROWS]
                    for step in range(steps)
                    for shard in of
                ]
            )
            for i in range(2)
        ]

    def make():
        return keras.optimizers.Adam(0.05, clipnorm=0.5)

    optimizer = hvd.DistributedOptimizer(make(), shards=shards, deterministic=deterministic)
    model = make_model(optimizer=optimizer, run_eagerly=True)
    model.fit(*batches(own), batch_size=ROWS, epochs=2, shuffle=False, verbose=0)
    assert int(np.array(keras.ops.convert_to_numpy(optimizer.iterations))) == 2 * steps
    alone = make_model(optimizer=make())
    alone.fit(*batches(range(shards)), batch_size=ROWS * shards, epochs=2, shuffle=False, verbose=0)
    for ours, wanted in zip(weights(model), weights(alone)):
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=2e-5)
    everywhere = hvd.allgather_object(weights(model))
    assert all((one == own).all() for ones in everywhere for one, own in zip(ones, weights(model)))


def test_shards_need_batches_that_are_not_compiled():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), shards=hvd.size())
    if keras.backend.backend() != "torch":
        model = make_model(optimizer=optimizer)
        with pytest.raises(RuntimeError, match="run_eagerly=True"):
            model.fit(*data(1), batch_size=ROWS, verbose=0)
    for match, arguments in (
        ("from 1 to", {"shards": -1}),
        ("with shards", {"deterministic": True}),
        ("know neither", {"shards": 2, "compression": hvd.Compression.fp16}),
        ("know neither", {"shards": 2, "backward_passes_per_step": 2}),
    ):
        with pytest.raises(ValueError, match=match):
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **arguments)
    with pytest.raises(ValueError, match="no local variables"):
        optimizer.register_local_var(None)
