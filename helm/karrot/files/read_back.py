"""Reads the group that `karrot send-sample` posted back from Karrot, and prints the answer. `helm test` runs it."""

import os
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

address = sys.argv[1] + "/api/v1/group?cluster=karrot-sample&consumer=sample-group-1"
token_file = os.environ.get("KARROT_API_TOKEN_FILE")
token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else ""
asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
patience_ends = time.monotonic() + 5
while True:
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            print(answer.status, answer.read(2000).decode())
        break
    except urllib.error.HTTPError as error:
        # With several pods, the pod that answers knows the event within a second after the pod that took it.
        if error.code != HTTPStatus.NOT_FOUND or time.monotonic() > patience_ends:
            raise
        time.sleep(0.2)
