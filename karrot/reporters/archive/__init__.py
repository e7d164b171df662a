"""The ``archive`` reporter: writes the log's events to files of JSON lines, in a folder or on S3, for the pipeline."""

import os
from functools import partial

from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.reporter import ArchiveReporter
from karrot.reporters.archive.s3 import Objects, open_client
from karrot.reporters.base import Context
from karrot.settings.types import Bucket

__all__ = ["build"]


def build(context: Context) -> ArchiveReporter:
    """Build the reporter. The first send opens the folder or the S3 client."""
    place = context.options.place
    store = Objects(place, partial(open_client, os.environ)) if isinstance(place, Bucket) else Folder(place)
    return ArchiveReporter(context.options, store, context)
