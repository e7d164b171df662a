"""The ``archive`` reporter: write the log's events as files of JSON lines, to a folder or to S3, for the pipeline."""

import os
from functools import partial

from karrot.reporters.archive.options import Bucket, Options
from karrot.reporters.archive.reporter import ArchiveReporter
from karrot.reporters.archive.s3 import Objects, open_client
from karrot.reporters.archive.segment_files import Folder
from karrot.reporters.archive.segment_store import SegmentStore
from karrot.reporters.base import Context

__all__ = ["build"]


def build(context: Context) -> ArchiveReporter:
    """The reporter. The place is opened with the first send, in the process that leads.

    Raises `ValueError` with a sentence for a setting that cannot be used.
    """
    options = Options.read(context.settings)
    return ArchiveReporter(options, _store(options), context)


def _store(options: Options) -> SegmentStore:
    if isinstance(options.place, Bucket):
        return Objects(options.place, partial(open_client, os.environ))
    return Folder(options.place)
