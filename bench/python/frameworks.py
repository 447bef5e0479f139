# The gradients of ResNet-50 reduced in the compiled functions of a framework, and by hvd.torch, in
# turns in the same processes. See ./run.
#
#   frameworks.py tensorflow|jax [--rounds 15] [--json]
#
# A compiled function makes new tensors of those that it is given, as hvd.torch's allreduce() does,
# and may reduce in place what it has computed itself, as allreduce_() does: so there are a row for
# given tensors, and rows for a function that multiplies each by a number, without the reduction and
# with it.
import sys

import torch
import turns
from resnet50 import shapes_of_resnet50

import hvd
import hvd.torch


def tensorflow_cases():
    import tensorflow as tf

    import hvd.tensorflow

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tape = hvd.tensorflow.gradients.reduction(
        "gradient",
        compression=0,
        op=hvd.Average,
        gradient_predivide_factor=1.0,
        process_set=hvd.global_process_set,
        sparse_as_dense=False,
        groups=None,
    )
    given = [tf.ones(shape) for shape in shapes_of_resnet50()]
    multiply = tf.function(lambda tensors: [tensor * 0.5 for tensor in tensors])
    reduce = tf.function(tape.reduce, autograph=False)
    both = tf.function(
        lambda tensors: tape.reduce([tensor * 0.5 for tensor in tensors]), autograph=False
    )
    return [(lambda step=step: step(given)) for step in (reduce, multiply, both)]


def jax_cases():
    import jax

    import hvd.jax

    given = [jax.numpy.ones(shape) for shape in shapes_of_resnet50()]
    multiply = jax.jit(lambda tensors: [tensor * 0.5 for tensor in tensors])
    reduce = jax.jit(hvd.jax.allreduce)
    both = jax.jit(lambda tensors: hvd.jax.allreduce([tensor * 0.5 for tensor in tensors]))
    return [
        (lambda step=step: jax.block_until_ready(step(given))) for step in (reduce, multiply, both)
    ]


def main():
    name = sys.argv.pop(1)
    given = turns.arguments(rounds=15)
    hvd.init()
    torch.set_num_threads(1)
    tensors = [torch.ones(shape) for shape in shapes_of_resnet50()]

    def by_torch():
        handles = [
            hvd.torch.allreduce_async_(one, name=f"torch.{index}")
            for index, one in enumerate(tensors)
        ]
        for handle in handles:
            handle.wait()

    def by_torch_to_new():
        handles = [
            hvd.torch.allreduce_async(one, name=f"new.{index}") for index, one in enumerate(tensors)
        ]
        for handle in handles:
            handle.wait()

    reduce, multiply, both = {"tensorflow": tensorflow_cases, "jax": jax_cases}[name]()
    cases = {
        "hvd.torch, in place": by_torch,
        "hvd.torch, to new tensors": by_torch_to_new,
        f"hvd.{name}, compiled": reduce,
        f"{name}, multiplication": multiply,
        f"hvd.{name}, with it": both,
    }
    times = turns.measure(cases, given.rounds)
    in_place, to_new, compiled, alone, together = turns.report(times, given.json).values()
    if hvd.rank() == 0 and not given.json:
        print(f"compiled / hvd.torch to new tensors: {compiled / to_new:.2f}")
        print(f"with the multiplication, less it / in place: {(together - alone) / in_place:.2f}")
    hvd.barrier()


main()
