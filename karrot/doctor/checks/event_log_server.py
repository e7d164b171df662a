"""Checks the PostgreSQL server of the event log, and the replicas that share it, through Karrot's API."""

from collections.abc import Iterator, Sequence
from typing import cast

from karrot.doctor.checks import Check, Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import KarrotSeen, ReadEventLog, ReadServer

_PAGE = "high-availability.md"
_FULL, _NEARLY_FULL = 1.0, 0.8
_LAG_S = 30
_OLDEST = 14
_UNSAFE = {
    "off": "a crash of the server can lose events that Karrot has answered with 202",
    "local": "a commit does not wait for the synchronous standby, so a failover can lose events",
    "remote_write": "a commit waits only until the standby has it in memory, so a failover can lose events",
}
_LOCAL = ("127.0.0.1", "::1", "a socket")


@check("database away", well="Karrot reaches PostgreSQL", where=f"{_PAGE}#when-something-fails")
def database(seen: KarrotSeen) -> Iterator[Said]:
    """Karrot does not reach the PostgreSQL server of its event log, or the server is too old."""
    log = _shared(seen)
    if log.memory_age_seconds is not None:
        yield fault(
            f"the database of the event log is away, and the groups are from {log.memory_age_seconds:.0f} s ago: "
            f"{log.fault}",
            "check that PostgreSQL runs, and that KARROT_EVENT_LOG lists every host of the cluster",
        )
    if log.database is not None and int(log.database.version.partition(".")[0]) < _OLDEST:
        yield fault(f"PostgreSQL {log.database.version} is too old", f"upgrade PostgreSQL to {_OLDEST} or newer")


@check(well="the settings of PostgreSQL are safe", where=f"{_PAGE}#postgresql")
def database_settings(seen: KarrotSeen) -> Iterator[Said]:
    """The PostgreSQL server can lose events that it has confirmed, or the connection is not encrypted."""
    server = _server(seen)
    has_standby = bool(server.synchronous_standby_names)
    if server.synchronous_commit == "off" or (has_standby and server.synchronous_commit in _UNSAFE):
        yield fault(
            f"PostgreSQL has synchronous_commit={server.synchronous_commit}: {_UNSAFE[server.synchronous_commit]}",
            "set synchronous_commit to on for Karrot's role: ALTER ROLE ... SET synchronous_commit = on",
        )
    if not server.encrypted and server.host not in _LOCAL:
        yield warn(
            f"the connection to PostgreSQL at {server.host} is not encrypted",
            "add sslmode=verify-full and sslrootcert to KARROT_EVENT_LOG",
        )


@check("no leader", well="a replica leads, and all replicas agree on it", where=f"{_PAGE}#when-something-fails")
def leader(seen: KarrotSeen) -> Iterator[Said]:
    """No replica leads, so no reporter gets events."""
    log = _shared(seen)
    only_if(log.memory_age_seconds is None)
    told = {each.leader for each in (log, *seen.replicas.values()) if each.memory_age_seconds is None}
    if told == {None}:
        yield fault(
            "no replica leads, so no reporter gets events",
            f"see the log of each replica; runbook: {seen.url}/runbooks/KarrotNoLeader",
        )
    elif len(told) > 1:
        names = ", ".join(sorted(each or "no replica" for each in told))
        yield warn(f"the replicas do not agree on the leader: {names}", "run karrot doctor again after 15 s")


@check(well="all replicas share one event log", where=f"{_PAGE}#set-it-up-by-hand")
def replicas(seen: KarrotSeen) -> Iterator[Said]:
    """A replica has another event log, so each replica has only some of the events."""
    log = _shared(seen)
    known = {log.replica: seen.url}
    for url, other in seen.replicas.items():
        if other.log_id != log.log_id:
            yield fault(
                f"{url} has the event log {other.log_id}, but {seen.url} has {log.log_id}",
                "give all replicas the same database and the same schema in KARROT_EVENT_LOG",
            )
        elif other.replica in known:
            yield note(f"{url} and {known[other.replica]} have one name, {other.replica}: one replica, or one machine")
        known[other.replica] = url
    if not seen.replicas:
        yield note(f"only the replica {log.replica} was checked", "pass the other ones with --replica URL")


@check("standby behind", well="every standby has the newest events", where=f"{_PAGE}#what-a-failover-can-lose")
def standbys(seen: KarrotSeen) -> Iterator[Said]:
    """The database has no standby, or a standby that is behind. A failover then loses events, or is not possible."""
    server = _server(seen)
    if server.standbys is None:
        yield note(
            "Karrot's role may not see the standbys of PostgreSQL",
            "GRANT pg_monitor TO the role in KARROT_EVENT_LOG, if you want to see them here",
        )
        return
    for each in server.standbys:
        if each.lag_seconds > _LAG_S:
            yield warn(
                f"the standby {each.name} is {each.lag_seconds:.0f} s behind ({each.lag_bytes} bytes)",
                "check the network and the disk of the standby",
            )
    if not server.standbys:
        yield note("no standby streams from PostgreSQL", "a managed service can have standbys that do not show here")
    elif all(each.sync_state == "async" for each in server.standbys):
        yield note(
            "every standby is asynchronous: a failover can lose the newest events",
            "set synchronous_standby_names, if no event may be lost",
        )


@check(well="PostgreSQL has free connections", where=f"{_PAGE}#connections")
def connections(seen: KarrotSeen) -> Iterator[Said]:
    """PostgreSQL has few free connections. Without one, a replica cannot read, write or lead."""
    server = _server(seen)
    used = server.connections / max(1, server.max_connections)
    told = f"{server.connections} of {server.max_connections} connections of PostgreSQL are in use"
    mend = "raise max_connections, lower KARROT_WORKERS, or give other programs a pooler"
    if used >= _FULL:
        yield fault(told, mend)
    elif used >= _NEARLY_FULL:
        yield warn(told, mend)


def _shared(seen: KarrotSeen) -> ReadEventLog:
    """The event log, if replicas can share it. Otherwise the check has no data."""
    only_if(seen.event_log is not None and seen.event_log.replica is not None)
    return cast("ReadEventLog", seen.event_log)


def _server(seen: KarrotSeen) -> ReadServer:
    log = _shared(seen)
    only_if(log.database is not None and log.memory_age_seconds is None)
    return cast("ReadServer", log.database)


CHECKS: Sequence[Check[[KarrotSeen]]] = [each for each in tuple(globals().values()) if isinstance(each, Check)]
"""Every check of this module, in its order."""
