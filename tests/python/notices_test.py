"""The scripts of deploy/notices and State.on_notice, against a metadata service in the test."""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "deploy" / "notices"
BUILD = Path(os.environ["PYTHONPATH"].split(":")[0]).parent
LIMIT = 120  # seconds

AWS = "/latest/meta-data/spot/instance-action"
GCP = "/computeMetadata/v1/instance/preempted"
AZURE = "/metadata/scheduledevents?api-version=2020-07-01"
AZURE_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


class Service(http.server.ThreadingHTTPServer):
    """Answers as the clouds do, and refuses who asks in another way."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = {}
        self.changed = threading.Condition()
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def say(self, path, body):
        with self.changed:
            self.pages[path] = body
            self.changed.notify_all()

    def wait_until_asked(self, text):
        with self.changed:
            assert self.changed.wait_for(lambda: any(text in path for path in self.asked), LIMIT)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def log_message(self, *words):
        pass

    def answer(self, code, body=""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", str(abs(hash(body))))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self):
        is_right = self.path == "/latest/api/token"
        is_right = is_right and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if is_right else 400, "a-token")

    def do_GET(self):
        path, _, query = self.path.partition("?")
        server = self.server
        with server.changed:
            server.asked.append(self.path)
            server.changed.notify_all()
            if path == GCP and "wait_for_change=true" in query:
                version = query.split("last_etag=")[1]
                server.changed.wait_for(lambda: str(abs(hash(server.pages[GCP]))) != version, LIMIT)
            body = server.pages.get(path if path == GCP else self.path)
        wanted = {
            "/latest": ("X-aws-ec2-metadata-token", "a-token"),
            "/comput": ("Metadata-Flavor", "Google"),
            "/metada": ("Metadata", "true"),
        }[path[:7]]
        if self.headers[wanted[0]] != wanted[1]:
            self.answer(401)
        elif body is None:
            self.answer(404)
        else:
            self.answer(200, body)


@pytest.fixture
def service():
    with Service() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def environment(service):
    # Metadata is never behind a proxy.
    return {**os.environ, "METADATA_URL": service.url, "http_proxy": "http://127.0.0.1:1"}


def ask(name, service):
    return subprocess.run(
        [SCRIPTS / f"{name}.py"], env=environment(service), capture_output=True, text=True,
        timeout=LIMIT,
    )  # fmt: skip


def in_seconds(seconds):
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


def expect_no_notice(end):
    assert (end.returncode, end.stdout, end.stderr) == (1, "", "")


def expect_seconds(end, at_most):
    assert end.returncode == 0, end.stderr
    assert at_most - 60 < float(end.stdout) <= at_most


def test_of_aws(service):
    expect_no_notice(ask("aws", service))
    at = in_seconds(120).strftime("%Y-%m-%dT%H:%M:%SZ")
    service.say(AWS, json.dumps({"action": "terminate", "time": at}))
    expect_seconds(ask("aws", service), 120)


def test_of_google_cloud(service):
    service.say(GCP, "FALSE")
    with subprocess.Popen(
        [SCRIPTS / "gcp.py"], env=environment(service), stdout=subprocess.PIPE, text=True
    ) as script:
        service.wait_until_asked("wait_for_change")
        assert script.poll() is None
        service.say(GCP, "TRUE")
        assert script.communicate(timeout=LIMIT)[0] == "30\n"
        assert script.returncode == 0
    # It is asked again by an agent that comes later.
    assert ask("gcp", service).stdout == "30\n"


def test_of_azure(service):
    def say(*events):
        service.say(AZURE, json.dumps({"DocumentIncarnation": 1, "Events": events}))

    def event(kind, name, at):
        return {
            "EventId": "1", "EventType": kind, "Resources": [name], "NotBefore": at,
        }  # fmt: skip

    soon = format_datetime(in_seconds(45), usegmt=True)
    service.say(AZURE_NAME, "worker_1")
    say()
    expect_no_notice(ask("azure", service))
    say(event("Preempt", "worker_0", soon), event("Reboot", "worker_1", soon))
    expect_no_notice(ask("azure", service))
    say(event("Preempt", "worker_0", soon), event("Preempt", "worker_1", soon))
    expect_seconds(ask("azure", service), 45)
    say(event("Preempt", "worker_1", ""))  # it has begun
    expect_seconds(ask("azure", service), 0)


@pytest.mark.parametrize("name", ["aws", "gcp", "azure"])
def test_without_a_service_says_so(name, service):
    service.shutdown()
    service.server_close()
    end = ask(name, service)
    assert end.returncode == 1
    assert "refused" in end.stderr.splitlines()[-1]


PROGRAM = """
import os, sys, time
import hvd

hvd.init()
state = hvd.elastic.ObjectState(step=0)
folder = sys.argv[1]

def write_checkpoint():
    with open(os.path.join(folder, os.environ["HVD_WORKER"]), "a") as file:
        file.write(f"{state.step}\\n")

state.on_notice(write_checkpoint)

@hvd.elastic.run
def train(state):
    while not os.path.exists(os.path.join(folder, "enough")):
        hvd.allreduce(__import__("numpy").ones(1), name="step")
        time.sleep(0.01)
        state.step += 1
        state.commit()
        print("step", state.step, "of", hvd.size(), flush=True)

train(state)
"""


@contextlib.contextmanager
def job(folder, service, name, *flags):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    words = [
        str(BUILD / "bin" / "hvdrun"), "-H", "localhost:1,127.0.0.1:1", "--min-np", "1",
        "--notice-command", f"exec {sys.executable} {SCRIPTS}/{name}.py", *flags,
        sys.executable, str(program), str(folder),
    ]  # fmt: skip
    with subprocess.Popen(
        words, env=environment(service), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_job_on_hosts_that_are_all_taken_away_is_suspended(tmp_path, service):
    service.say(GCP, "FALSE")
    state_file = tmp_path / "state"
    with job(tmp_path, service, "gcp", "--state-file", str(state_file)) as process:
        for line in process.stdout:
            if "step 5 of 2" in line:
                break
        service.say(GCP, "TRUE")
        _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, errors
    assert "has a notice: it is about to be taken away, in 30 s" in errors
    assert state_file.exists()
    written = [(tmp_path / f"{host}#0").read_text().split() for host in ("localhost", "127.0.0.1")]
    assert all(len(steps) == 1 for steps in written), "each is asked once"
    assert int(written[0][0]) >= 5


def test_what_a_notice_callback_raises_ends_the_worker_alone(tmp_path, service):
    service.say(GCP, "FALSE")
    with job(tmp_path, service, "gcp", "--state-file", str(tmp_path / "state")) as process:
        for line in process.stdout:
            if "step 5 of 2" in line:
                break
        (tmp_path / "localhost#0").mkdir()  # where it would write
        service.say(GCP, "TRUE")
        _, errors = process.communicate(timeout=LIMIT)
    assert "IsADirectoryError" in errors
    assert process.returncode == 75, errors
