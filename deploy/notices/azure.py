#!/usr/bin/env python3
"""For hvdrun --notice-command, on a spot machine of Azure.

Ends with 0 and prints the seconds that are left if this machine is about to be evicted, with 1 if
it is not. docs/elastic.md, "A notice that a host goes".
"""

import datetime
import email.utils
import json
import os
import sys
import urllib.request

BASE = os.environ.get("METADATA_URL", "http://169.254.169.254")
TIMEOUT = 120  # seconds: the first answer may take that long

# A proxy is for other addresses.
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _ask(path):
    request = urllib.request.Request(BASE + path, headers={"Metadata": "true"})
    with open_url(request, timeout=TIMEOUT) as answer:
        return answer.read().decode()


# The events are those of all machines of a scale set or an availability set.
name = _ask("/metadata/instance/compute/name?api-version=2021-02-01&format=text")
events = json.loads(_ask("/metadata/scheduledevents?api-version=2020-07-01"))["Events"]
times = [
    event["NotBefore"]
    for event in events
    if event["EventType"] == "Preempt" and name in event["Resources"]
]
if not times:
    sys.exit(1)
# One that has begun has no time any more.
now = datetime.datetime.now(datetime.timezone.utc)
left = [
    (email.utils.parsedate_to_datetime(time) - now).total_seconds() if time else 0 for time in times
]
print(min(left))
