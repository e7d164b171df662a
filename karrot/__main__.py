"""``python -m karrot`` is ``karrot``."""

from karrot.cli import main

main()
