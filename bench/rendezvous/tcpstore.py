"""tcpstore.py CLIENTS: reads of a 100-byte key from torch's TCPStore, by as many processes.

The server has a process of its own, as hvd's has in main.cpp. Clients are forked after torch was
imported, begin together, and read for three seconds.
"""

import multiprocessing
import socket
import sys
import time
from datetime import timedelta

import torch.distributed as dist

SECONDS = 3.0
TIMEOUT = timedelta(seconds=60)


def serve(port, ready, done):
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=TIMEOUT
    )
    store.set("read", "v" * 100)
    ready.set()
    done.wait()


def read(port, barrier, results):
    store = dist.TCPStore(
        "127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=TIMEOUT
    )
    times = []
    barrier.wait()
    begin = time.perf_counter()
    now = begin
    while now - begin < SECONDS:
        store.get("read")
        after = time.perf_counter()
        times.append(after - now)
        now = after
    results.put((now - begin, times))


def main():
    clients = int(sys.argv[1])
    context = multiprocessing.get_context("fork")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready, done, results = context.Event(), context.Event(), context.Queue()
    barrier = context.Barrier(clients)
    server = context.Process(target=serve, args=(port, ready, done), daemon=True)
    server.start()
    ready.wait(60)
    readers = [
        context.Process(target=read, args=(port, barrier, results), daemon=True)
        for _ in range(clients)
    ]
    for reader in readers:
        reader.start()
    collected = [results.get(timeout=120) for _ in readers]
    for reader in readers:
        reader.join()
    done.set()
    server.join()
    times = sorted(1000 * t for _, own in collected for t in own)
    seconds = max(seconds for seconds, _ in collected)
    label = "torch TCPStore get, %d clients" % clients
    print(
        "%-34s %9.0f /s   p50 %7.3f ms   p99 %7.3f ms   max %8.3f ms"
        % (
            label,
            len(times) / seconds,
            times[len(times) // 2],
            times[int(0.99 * (len(times) - 1))],
            times[-1],
        )
    )


if __name__ == "__main__":
    main()
