"""Collects the snapshot that the checks judge: reads Burrow, Karrot and Prometheus, as far as asked for."""

from contextlib import closing

from karrot.burrow.client import Asking, Burrow
from karrot.doctor.http_get import Web
from karrot.doctor.read_burrow import read_burrow
from karrot.doctor.read_karrot import read_karrot
from karrot.doctor.read_prometheus import read_prometheus
from karrot.doctor.snapshot import Away, BurrowSeen, KarrotSeen, PrometheusSeen, Snapshot

__all__ = ["look"]


def look(
    burrow: str | None = None,
    karrot: str | None = None,
    prometheus: str | None = None,
    *,
    token: str | None = None,
    asking: Asking | None = None,
) -> Snapshot:
    """Read what is at these addresses, and change nothing. ``token`` is Karrot's API token."""
    how = asking or Asking()
    return Snapshot(
        burrow=None if burrow is None else _burrow(burrow, how, karrot),
        karrot=None if karrot is None else _karrot(karrot, how, token),
        prometheus=None if prometheus is None else _prometheus(prometheus, how, karrot),
    )


def _burrow(url: str, how: Asking, karrot_url: str | None) -> BurrowSeen | Away:
    with Burrow(url, asking=how) as burrow:
        return read_burrow(burrow, asking=how, karrot_url=karrot_url)


def _karrot(url: str, how: Asking, token: str | None) -> KarrotSeen | Away:
    with closing(Web(url, asking=how, token=token)) as web:
        return read_karrot(web)


def _prometheus(url: str, how: Asking, karrot_url: str | None) -> PrometheusSeen | Away:
    with closing(Web(url, asking=how)) as web:
        return read_prometheus(web, karrot_url=karrot_url)
