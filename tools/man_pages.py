"""Writes a man page for each command into a folder: ``python tools/man_pages.py FOLDER``, which is ``make man``."""

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from karrot import __version__, cli


def write(folder: Path) -> None:
    """Write the pages, such as ``karrot-pipeline-run.1``. ``SOURCE_DATE_EPOCH`` sets their date."""
    folder.mkdir(parents=True, exist_ok=True)
    _keep_whole_sentences(cli.main)
    write_man_pages("karrot", cli.main, version=__version__, target_dir=str(folder))


def _keep_whole_sentences(command: click.Command) -> None:
    """Set the short help, which ``whatis`` shows. click would cut it after 45 characters."""
    command.short_help = command.get_short_help_str(limit=200)
    for each in getattr(command, "commands", {}).values():
        _keep_whole_sentences(each)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
