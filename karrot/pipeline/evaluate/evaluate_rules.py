"""The settings of an evaluation."""

import re
from typing import NamedTuple, Self

from karrot.burrow.notifier import NotifierSettings
from karrot.burrow.storage import DEFAULT_EXPIRE_GROUP
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet


class NameFilter(NamedTuple):
    """Chooses consumer groups by name. A regular expression need not match the whole name, as in Burrow.

    A group is chosen if its name matches all of ``allow`` and none of ``deny``.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def has(self, group: str) -> bool:
        """Whether a group is chosen."""
        return all(re.search(each, group) for each in self.allow) and not any(
            re.search(each, group) for each in self.deny
        )

    def joined(self, other: Self) -> "NameFilter":
        """The groups that both filters choose."""
        return NameFilter(self.allow + other.allow, self.deny + other.deny)


class EvaluateRules(NamedTuple):
    """The settings of the evaluation. ``expire_group`` is in seconds.

    A verdict lists all partitions, or without ``lists_all`` only those that are worse than OK, as Burrow does. ``read``
    chooses the groups that are judged, and ``sent`` those whose verdicts are sent.
    """

    rules: RuleSet = RuleSet("burrow")
    notifier: NotifierSettings = NotifierSettings()
    expire_group: int = DEFAULT_EXPIRE_GROUP
    lists_all: bool = True
    read: NameFilter = NameFilter()
    sent: NameFilter = NameFilter()
