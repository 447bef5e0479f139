"""Runs a function by hvd.run() on the hosts of a list, and prints the results.

run_function.py HOSTS
"""

import os
import sys

import hvd


def place(word):
    hvd.init()
    return word, hvd.rank(), hvd.size(), os.uname().nodename


if __name__ == "__main__":
    print("results", hvd.run(place, ("sent",), hosts=sys.argv[1]), flush=True)
