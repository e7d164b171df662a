"""Runs the command ``karrot`` when you type ``python -m karrot``."""

from karrot.cli import main

main()
