#!/usr/bin/env python3
"""For hvdrun --notice-command, on a spot or preemptible instance of Google Cloud.

Waits until the instance is about to be stopped, prints the seconds that are left then, and ends
with 0. docs/elastic.md, "A notice that a host goes".
"""

import os
import urllib.request

BASE = os.environ.get("METADATA_URL", "http://169.254.169.254")
PATH = "/computeMetadata/v1/instance/preempted"
SECONDS_LEFT = 30
WAIT = 60  # seconds, for one answer

# A proxy is for other addresses.
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _ask(query):
    request = urllib.request.Request(BASE + PATH + query, headers={"Metadata-Flavor": "Google"})
    with open_url(request, timeout=2 * WAIT) as answer:
        return answer.read().decode().strip(), answer.headers["ETag"]


value, version = _ask("")
while value != "TRUE":
    value, version = _ask(f"?wait_for_change=true&timeout_sec={WAIT}&last_etag={version}")
print(SECONDS_LEFT)
