# A training with TensorFlow that is killed in the middle of functions that it has traced, until it
# ends: its weights have the bits of the job that nobody disturbed. One process that starts hvdrun.
import pytest
from whole_jobs import assert_kills_change_no_bit, output_of, program_of

pytest.importorskip("tensorflow")
PROGRAM = """
import os, signal, sys
import numpy as np
import tensorflow as tf
import hvd.tensorflow as hvd

tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
steps, kills = int(sys.argv[1]), [int(step) for step in sys.argv[2:]]
traces = []
numbers = np.random.default_rng(3)
first = tf.Variable(numbers.normal(size=(16, 8)).astype("float32"))
second = tf.Variable(tf.ones([8, 1]))
variables = [first, second]
dying = tf.Variable(False)


def die():
    if dying.numpy():
        os.kill(os.getpid(), signal.SIGKILL)


@tf.function(autograph=False)
def step(batch):
    traces.append(1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(batch @ first) @ second) ** 2)
        with tf.control_dependencies([tf.py_function(die, [], [])]):
            loss = tf.identity(loss)  # the other one is in the collectives then
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
    for variable, gradient in zip(variables, gradients):
        variable.assign_sub(0.05 * gradient)
    return hvd.size_op()


state = hvd.elastic.TensorFlowState(variables, step=0, killed=[])


@hvd.elastic.run
def train(state):
    dying.assign(False)
    while state.step < steps:
        if state.step in kills and state.step not in state.killed:
            state.killed = [*state.killed, state.step]
            state.commit()
            dying.assign(hvd.rank() == len(state.killed) % hvd.size())
        numbers = np.random.default_rng([state.step, hvd.rank()])
        batch = tf.constant(numbers.normal(size=(4, 16)).astype("float32"))
        assert step(batch) == hvd.size()
        state.step += 1
        state.commit()
    return hvd.generation()


generation = train(state)
assert len(traces) == 1, "a world that is new is no reason to trace again"
if hvd.rank() == 0:
    bits = np.concatenate([variable.numpy().ravel() for variable in variables])
    print(bits.tobytes().hex(), generation, flush=True)
"""


def test_killed_workers_change_no_bit(tmp_path):
    assert_kills_change_no_bit(PROGRAM, tmp_path)


def test_the_program_of_the_page_runs_as_it_stands(tmp_path):
    assert output_of(program_of("docs/tensorflow.md"), tmp_path) == "[1.0, 2.0, 3.0] 4.0\n"
