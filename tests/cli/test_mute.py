import json

import pytest

from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer
