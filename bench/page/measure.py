#!/usr/bin/python3
"""Measures how long the status page takes for a large job, in a headless Chromium.

bench/page/measure.py [--ranks 1000] [--hosts 125] [--events 100000] [--rounds 50]

A server of its own gives the browser the files of driver/status/page and a made-up job; measure.js
then feeds the page. Needs what scripts/setup --browser installs.
"""

import argparse
import http.server
import json
import os
import pathlib
import statistics
import tempfile
import threading

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "driver" / "status" / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
PARTS = ("leave", "wait", "connect", "vote", "sync", "step")


def worker_of(rank, slots):
    """The member with this rank."""
    host = f"node{rank // slots:03}"
    work = {
        "steps": 1000,
        "operations": 160_000,
        "bytes": 10**12,
        "steps_per_second": 12.5,
        "bytes_per_second": 1e9,
        "waited": 0.1,
        "late": 0.5,
        "slow": False,
    }
    return {
        "rank": rank,
        "local_rank": rank % slots,
        "worker": f"{host}#{rank % slots}",
        "host": host,
        "slot": rank % slots,
        "incarnation": rank + 1,
        "pid": 10_000 + rank,
        "state": "initialised",
        "membership": "member",
        "work": work,
    }


def host_of(number, slots):
    """The host with this number."""
    return {
        "host": f"node{number:03}",
        "state": "ready",
        "workers": slots,
        "slots": slots,
        "address": f"10.0.{number // 250}.{number % 250}",
        "local": False,
        "joined": False,
        "leaves": False,
    }


def status_of(ranks, hosts, worlds=200):
    """The answer to GET /status of a job of that size."""
    slots = -(-ranks // hosts)
    entry = {part: 0.01 * (i + 1) for i, part in enumerate(PARTS)}
    entry |= {"seconds": 0.21, "received": 10**9, "worker": "node000#0", "text": ""}
    past = [
        {
            "generation": i + 1,
            "at": f"2026-11-25T{12 + i // 60:02}:{i % 60:02}:00.000Z",
            "size": ranks - i % 7,
            "why": f"node{i % hosts:03}#1 was killed by SIGKILL (signal 9)" if i > 0 else "",
            "entry": entry,
        }
        for i in range(worlds)
    ]
    members = [worker_of(rank, slots) for rank in range(ranks)]
    return {
        "schema": 1,
        "job": "a6cca56365eafafb",
        "pid": 1,
        "command": ["./train", "text.txt"],
        "directory": "/",
        "elastic": True,
        "started": "2026-11-25T12:00:00.000Z",
        "seconds": 60.0 * worlds,
        "state": "running",
        "waits_for": f"ranks 0-{ranks - 1} of {ranks} to exit",
        "work": {"steps_per_second": 12.5, "bytes_per_second": 1e12, "totals": {}},
        "world": {"generation": worlds, "members": members},
        "other_workers": [],
        "drained": [],
        "scaled_to": None,
        "hosts": [host_of(number, slots) for number in range(hosts)],
        "worlds": past,
    }


class Handler(http.server.BaseHTTPRequestHandler):
    """The page, its status, and an /events on which nothing comes."""

    status = b"{}"
    ended = threading.Event()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/events":
            self.begin("text/event-stream")
            self.ended.wait()
        elif path == "/status":
            self.begin("application/json")
            self.wfile.write(self.status)
        else:
            folder = HERE if path == "/measure.js" else PAGE
            file = folder / (path.lstrip("/") or "index.html")
            if not file.is_file():
                self.send_error(404)
                return
            self.begin(TYPES[file.suffix])
            self.wfile.write(file.read_bytes())

    def begin(self, content_type):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def browser(directory):
    """A Chromium with its profile there."""
    options = webdriver.ChromeOptions()
    options.add_argument("--headless=new")
    options.add_argument("--disable-gpu")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--window-size=1300,1000")
    options.add_argument(f"--user-data-dir={directory}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def measure(arguments):
    """The numbers that measure.js has found."""
    Handler.status = json.dumps(status_of(arguments.ranks, arguments.hosts)).encode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as directory:
            driver = browser(directory)
            try:
                driver.set_script_timeout(300)
                driver.get(f"http://127.0.0.1:{server.server_address[1]}/")
                measured = driver.execute_async_script(
                    "const [text, rounds, events, done] = arguments;"
                    "import('/measure.js').then((m) => m.measure(text, rounds, events))"
                    ".then(done, (error) => done({ error: error.stack }));",
                    Handler.status.decode(),
                    arguments.rounds,
                    arguments.events,
                )
                version = driver.capabilities["browserVersion"]
            finally:
                Handler.ended.set()
                driver.quit()
    finally:
        server.shutdown()
        server.server_close()
    if "error" in measured:
        raise SystemExit(measured["error"])
    return measured | {"version": version}


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=125)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    measured = measure(arguments)
    print(
        f"Chromium {measured['version']}: {arguments.ranks:,} ranks on {arguments.hosts} hosts "
        f"(a status of {len(Handler.status):,} bytes), {arguments.events:,} events"
    )
    print(f"{'milliseconds':<40} {'times':>6} {'median':>8} {'95 %':>8} {'most':>8}")
    for name, times in measured["results"].items():
        times.sort()
        high = times[min(len(times) - 1, int(0.95 * len(times)))]
        row = f"{statistics.median(times):>8.1f} {high:>8.1f} {times[-1]:>8.1f}"
        print(f"{name:<40} {len(times):>6} {row}")
    print(
        f"rows in the list: {measured['rows']:,}; elements: {measured['elements']:,}; "
        f"JavaScript heap: {measured['heap'] / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
