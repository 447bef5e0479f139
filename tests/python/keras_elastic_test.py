# fit() of Keras 3 whose workers are killed in the middle of epochs: the weights have the bits of
# the job that nobody disturbed, and each batch counts once. One process that starts hvdrun.
import pytest
from whole_jobs import output_of, program_of, weights_of

pytest.importorskip("keras", minversion="3.0")
PROGRAM = """
import os, signal, sys
import keras, numpy as np
import hvd.keras as hvd

hvd.init()
EPOCHS, BATCHES = 3, 8
kills = [tuple(map(int, place.split("."))) for place in sys.argv[1:]]


class Batches(keras.utils.PyDataset):
    def __init__(self, epoch, first):
        super().__init__()
        self.epoch, self.first = epoch, first

    def __len__(self):
        return BATCHES - self.first

    def __getitem__(self, index):
        numbers = np.random.default_rng([self.epoch, self.first + index, hvd.rank()])
        x = numbers.normal(size=(4, 6)).astype("float32")
        return x, x.sum(1, keepdims=True)


class Kill(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        place = (state.epoch, state.batch)
        if place in kills and place not in state.killed:
            state.killed = [*state.killed, place]
            state.commit()
            if hvd.rank() == len(state.killed) % hvd.size():
                os.kill(os.getpid(), signal.SIGKILL)


class Count(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        state.seen = [*state.seen, (state.epoch, state.batch)]


keras.utils.set_random_seed(5)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
)
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
state = hvd.elastic.KerasState(model, epoch=0, batch=0, killed=[], seen=[])


@hvd.elastic.run
def train(state):
    while state.epoch < EPOCHS:
        model.fit(
            Batches(state.epoch, state.batch),
            initial_epoch=state.epoch,
            epochs=state.epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=[
                Kill(),
                Count(),
                hvd.callbacks.UpdateBatchStateCallback(state),
                hvd.callbacks.UpdateEpochStateCallback(state),
                hvd.callbacks.CommitStateCallback(state),
            ],
        )
    return hvd.generation()


generation = train(state)
assert state.seen == [(epoch, batch) for epoch in range(EPOCHS) for batch in range(BATCHES)]
if hvd.rank() == 0:
    bits = np.concatenate([np.ravel(value) for value in model.get_weights()])
    print(bits.tobytes().hex(), generation, flush=True)
"""


def test_fit_goes_on_in_the_middle_of_an_epoch(tmp_path):
    undisturbed, generation = weights_of(PROGRAM, tmp_path)
    assert generation == 1
    killed, generation = weights_of(PROGRAM, tmp_path, "0.3", "1.0", "1.7")
    assert generation >= 4
    assert killed == undisturbed


def test_the_program_of_the_page_runs_as_it_stands(tmp_path):
    assert output_of(program_of("docs/keras.md"), tmp_path) == "[1.0, 2.0, 3.0] 4.0\n"
