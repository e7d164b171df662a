"""The settings of an evaluation."""

from typing import NamedTuple

from karrot.burrow.notifier import NameFilter, NotifierSettings
from karrot.burrow.storage import DEFAULT_EXPIRE_GROUP
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet


class EvaluateRules(NamedTuple):
    """The settings of the evaluation. ``expire_group`` is in seconds.

    A verdict lists all partitions, or without ``lists_all`` only those that are worse than OK, as Burrow does. The
    groups that a filter in ``read`` chooses are judged, and the verdicts on those that ``sent`` chooses are sent.
    """

    rules: RuleSet = RuleSet("burrow")
    notifier: NotifierSettings = NotifierSettings()
    expire_group: int = DEFAULT_EXPIRE_GROUP
    lists_all: bool = True
    read: tuple[NameFilter, ...] = (NameFilter(),)
    sent: NameFilter = NameFilter()
