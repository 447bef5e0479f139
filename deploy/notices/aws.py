#!/usr/bin/env python3
"""For hvdrun --notice-command, on a spot instance of AWS.

Ends with 0 and prints the seconds that are left if the instance is about to be interrupted, with 1
if it is not. docs/elastic.md, "A notice that a host goes".
"""

import datetime
import json
import os
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("METADATA_URL", "http://169.254.169.254")
TIMEOUT = 5  # seconds
NOT_FOUND = 404

# A proxy is for other addresses.
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _ask(path, headers, method="GET"):
    request = urllib.request.Request(BASE + path, headers=headers, method=method)
    with open_url(request, timeout=TIMEOUT) as answer:
        return answer.read().decode()


try:
    token = _ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    notice = _ask("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
except urllib.error.HTTPError as error:
    if error.code == NOT_FOUND:
        sys.exit(1)  # there is no notice
    raise

time = datetime.datetime.strptime(json.loads(notice)["time"], "%Y-%m-%dT%H:%M:%S%z")
print((time - datetime.datetime.now(datetime.timezone.utc)).total_seconds())
