# A job of JAX whose workers are killed in the middle of compiled steps, until it ends: its weights
# have the bits of the job that nobody disturbed. One process that starts hvdrun.
import pytest
from whole_jobs import (
    assert_kills_change_no_bit,
    output_of,
    program_of,
    that_resizes,
    weights_of,
)

pytest.importorskip("jax")
PROGRAM = """
import os, signal, sys
import jax, jax.numpy as jnp, numpy as np
import hvd.jax as hvd

hvd.init()
steps, kills = int(sys.argv[1]), [int(step) for step in sys.argv[2:]]
traces = []


def loss(params, batch):
    return (jnp.tanh(batch @ params["w"]) @ params["v"] ** 2).mean()


@jax.jit
def step(params, batch):
    traces.append(1)
    gradients = hvd.allreduce(jax.grad(loss)(params, batch))
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients)


key = jax.random.key(3)
state = hvd.elastic.JaxState(
    params={"w": jax.random.normal(key, (16, 8)), "v": jnp.ones(8)},
    scale=jnp.float32(1),
    step=0,
    key=key,
    killed=[],
)


@hvd.elastic.run
def train(state):
    while state.step < steps:
        if state.step in kills and state.step not in state.killed:
            state.killed = [*state.killed, state.step]
            state.commit()
            if hvd.rank() == len(state.killed) % hvd.size():
                os.kill(os.getpid(), signal.SIGKILL)
        numbers = np.random.default_rng([state.step, hvd.rank()])
        batch = jnp.asarray(numbers.normal(size=(4, 16)).astype(np.float32))
        state.params = step(state.params, batch)
        state.step += 1
        state.commit()
    return hvd.generation()


generation = train(state)
assert state.scale.shape == () and state.scale == 1
assert jax.random.key_data(state.key).tolist() == jax.random.key_data(key).tolist()
assert len(traces) == 1, "a world that is new is no reason to trace again"
if hvd.rank() == 0:
    bits = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.params)])
    print(bits.tobytes().hex(), generation, flush=True)
"""


def test_killed_workers_change_no_bit(tmp_path):
    assert_kills_change_no_bit(PROGRAM, tmp_path)


# The same over shards, in worlds of one worker and of two.
SHARDED = PROGRAM
for old, new in (
    (
        "@jax.jit\ndef step(params, batch):\n    traces.append(1)\n",
        "traces.append(1)\nreducer = None\n\n\ndef step(params, number):\n",
    ),
    (
        "    gradients = hvd.allreduce(jax.grad(loss)(params, batch))\n",
        """\
    global reducer
    reducer = reducer or hvd.ShardReducer(params, 5, deterministic=True)
    for shard in reducer.shards():
        numbers = np.random.default_rng([number, shard])
        batch = jnp.asarray(numbers.normal(size=(4, 16)).astype(np.float32))
        reducer.add(gradient(params, batch))
    gradients = reducer.result()
""",
    ),
    ("key = jax.random.key(3)", "gradient = jax.jit(jax.grad(loss))\nkey = jax.random.key(3)"),
    (
        """        numbers = np.random.default_rng([state.step, hvd.rank()])
        batch = jnp.asarray(numbers.normal(size=(4, 16)).astype(np.float32))
        state.params = step(state.params, batch)
""",
        "        state.params = step(state.params, state.step)\n",
    ),
):
    assert SHARDED.count(old) == 1, old
    SHARDED = SHARDED.replace(old, new)


def test_with_shards_the_size_of_the_world_changes_no_bit(tmp_path):
    undisturbed, _ = weights_of(SHARDED, tmp_path, 30)
    resized, generation = weights_of(that_resizes(SHARDED), tmp_path, 30, 10, 20)
    assert generation >= 3
    assert resized == undisturbed


def test_the_program_of_the_page_runs_as_it_stands(tmp_path):
    assert output_of(program_of("docs/jax.md"), tmp_path) == "[1.0, 2.0, 3.0] 4.0\n"
