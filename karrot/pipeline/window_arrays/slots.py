"""Puts commits into the slots of Burrow's windows, for all partitions at once.

Commits from one log arrive in the order of their place in the log, so Burrow only appends them. Then a window is a
range of slots, and a slot is one commit or several merged commits.
"""

from typing import NamedTuple

import numpy as np

from karrot.pipeline.window_arrays.commit_arrays import Bools, CommitArrays, Ints, begins

_SPAN = 2**40  # 34 years in milliseconds: the timestamps of a healthy partition are never that far apart


class Slots(NamedTuple):
    """The slots of commits.

    ``of`` is the slot of each commit. ``last`` is the newest commit of each slot, ``timestamp_ms`` the timestamp of the
    slot's oldest commit.
    """

    of: Ints
    first_of_segment: Ints
    last: Ints
    timestamp_ms: Ints


def odd_segments(commits: CommitArrays) -> Bools:
    """Whether each segment is odd: a commit came out of order, or a timestamp must be wrong because it is far off."""
    starts = np.flatnonzero(begins(commits.segment))
    out_of_order = np.zeros(len(commits.order), np.bool_)
    out_of_order[1:] = (commits.order[1:] <= commits.order[:-1]) & (commits.segment[1:] == commits.segment[:-1])
    odd = np.zeros(int(commits.segment[-1]) + 1, np.bool_)
    lowest, highest = (each.reduceat(commits.timestamp_ms, starts) for each in (np.minimum, np.maximum))
    # The difference of two 64-bit numbers may overflow; the difference of their halves does not.
    too_wide = highest // 2 - lowest // 2 >= _SPAN // 4
    odd[commits.segment[starts]] = np.logical_or.reduceat(out_of_order, starts) | too_wide
    return odd


def slots_of(commits: CommitArrays, min_distance_ms: int) -> Slots:
    """Make the slots. A commit joins the previous slot if it is older, or less than ``min_distance_ms`` newer."""
    is_first = begins(commits.segment)
    of_segment = np.cumsum(is_first) - 1
    start = np.flatnonzero(is_first)
    # Only the odd segments exceed these bounds, and their slots are not used.
    since_start = np.clip(commits.timestamp_ms - commits.timestamp_ms[start][of_segment], -_SPAN // 2, _SPAN // 2)
    own = of_segment * _SPAN + since_start
    highest = np.maximum.accumulate(np.where(since_start < 0, of_segment * _SPAN, own))
    is_new = is_first.copy()
    is_new[1:] |= own[1:] - highest[:-1] >= min_distance_ms
    if min_distance_ms:
        is_new = _far_apart(is_first, is_new, highest, min_distance_ms)
    first = np.flatnonzero(is_new)
    of = np.cumsum(is_new) - 1
    return Slots(of, of[start][of_segment], np.append(first[1:], len(of)) - 1, commits.timestamp_ms[first])


def _far_apart(is_first: Bools, is_new: Bools, highest: Ints, min_distance_ms: int) -> Bools:
    """Mark the commits that begin a slot: each is the first that is far enough after the previous slot's beginning.

    A walk from slot to slot would need one step per slot. This loop doubles its step, so it needs few steps.
    """
    if is_new.all():
        return is_new
    following = np.append(np.searchsorted(highest, highest + min_distance_ms), len(highest))
    next_segment = np.append(np.flatnonzero(is_first)[1:], len(highest))
    following[:-1] = np.minimum(following[:-1], next_segment[np.cumsum(is_first) - 1])
    reached = np.append(is_first, True)
    while True:
        ahead = following[np.flatnonzero(reached)]
        if reached[ahead].all():
            return reached[:-1]
        reached[ahead] = True
        following = following[following]
