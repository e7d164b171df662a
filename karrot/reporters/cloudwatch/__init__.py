"""The ``cloudwatch`` reporter: publishes lag as Amazon CloudWatch metrics, for autoscaling."""

import os
from functools import partial
from random import Random

from karrot import telemetry
from karrot.reporters.base import Context
from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.reporters.cloudwatch.reporter import CloudWatchReporter
from karrot.reporters.cloudwatch.sender import Sender

__all__ = ["build"]


def build(context: Context) -> CloudWatchReporter:
    """Build the reporter. The first send opens the client."""
    options = context.options
    sender = Sender(
        partial(open_client, options, os.environ),
        options.namespace,
        count=partial(context.count, telemetry.REPORTER_CLOUDWATCH_REQUESTS, 1, reporter=context.name),
        may_call=context.leads,
    )
    return CloudWatchReporter(options, sender, context, Random())  # noqa: S311 - it only spreads retries
