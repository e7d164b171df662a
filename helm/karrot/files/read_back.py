"""Reads the group that `karrot send-sample` posted back from Karrot, and prints the answer. `helm test` runs it."""

import os
import sys
import urllib.request
from pathlib import Path

address = sys.argv[1] + "/api/v1/group?cluster=karrot-sample&consumer=sample-group-1"
token_file = os.environ.get("KARROT_API_TOKEN_FILE")
token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else ""
asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
with urllib.request.urlopen(asked, timeout=10) as answer:
    print(answer.status, answer.read(2000).decode())
