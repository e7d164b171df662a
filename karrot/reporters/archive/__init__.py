"""The ``archive`` reporter: writes the log's events to files of JSON lines, in a folder or on S3, for the pipeline."""

import os
from functools import partial

from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.reporter import ArchiveReporter, Options
from karrot.reporters.archive.s3 import Objects, open_client
from karrot.reporters.archive.segment_store import SegmentStore
from karrot.reporters.base import Context
from karrot.settings.storage_place import Bucket

__all__ = ["build"]


def build(context: Context) -> ArchiveReporter:
    """Build the reporter, which opens its place at the first send. Raises `ValueError` for a wrong setting."""
    options = Options.read(context.settings)
    return ArchiveReporter(options, _store(options), context)


def _store(options: Options) -> SegmentStore:
    if isinstance(options.place, Bucket):
        return Objects(options.place, partial(open_client, os.environ))
    return Folder(options.place)
