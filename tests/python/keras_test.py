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
