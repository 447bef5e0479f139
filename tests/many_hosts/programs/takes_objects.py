"""Takes what another host sends by pickle, which somebody on the way may have replaced.

takes_objects.py object          rank 0 sends the others an object, three times
takes_objects.py state           rank 1 ends once, and the worker in its place gets the state of
                                 the last commit
takes_objects.py replace object  prints the bytes on the wire, "=", and those of an attack that are
takes_objects.py replace state   as long, in hexadecimal digits

Where the attack succeeds the file /root/attacked is made.
"""

import os
import pickle
import signal
import sys

HONEST = "an honest object " * 20
ATTACK = b"cposix\nsystem\n(S'touch /root/attacked'\ntR."
STEPS = 30
LOST_AT = 5  # the step at which rank 1 ends


def packed(value):
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def take_object():
    import hvd

    hvd.init()
    for _ in range(3):
        got = hvd.broadcast_object(HONEST if hvd.rank() == 0 else None)
        if got != HONEST:
            raise SystemExit(f"rank {hvd.rank()} got another object: {got!r:.80}")
    print("all honest", flush=True)


def take_state():
    import hvd

    hvd.init()
    state = hvd.elastic.ObjectState(word=HONEST, step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < STEPS:
            if state.word != HONEST:
                raise SystemExit(f"rank {hvd.rank()} got another state")
            if hvd.generation() == 1 and state.step == LOST_AT and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.barrier()
            state.step += 1
            state.commit()
        return state.step

    print("all honest after", train(state), flush=True)


def print_replacement(kind):
    # A state is packed as its attributes by name. An unpickler is done where the attack ends.
    whole = packed(HONEST if kind == "object" else {"word": HONEST, "step": LOST_AT})
    print(whole.hex() + "=" + ATTACK.ljust(len(whole), b"\0").hex())


if __name__ == "__main__":
    if sys.argv[1] == "replace":
        print_replacement(sys.argv[2])
    elif sys.argv[1] == "object":
        take_object()
    else:
        take_state()
