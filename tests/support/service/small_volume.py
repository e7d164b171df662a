"""Mounts a small file system, which a test can fill quickly."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_volume(path: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a volume of that size at ``path``; skip the test if that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small volume")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs root that may mount a small volume: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)
