"""Replays a recording onto a model of a disk, and makes the folders that a power cut could leave.

What a flush covered is on the disk. Of everything else, any part can be there: POSIX promises no more. So the name of a
file can be lost although the file was flushed, until its folder is flushed. File systems give more than that: a rename
is never half done, and the names of one folder change in order.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from support.powercut.recording import Kind, Record, Recording

SECTOR = 512


@dataclass(eq=False, frozen=True, slots=True)
class Change:
    """A write, or with ``data`` ``None`` a truncation to the size ``at``."""

    at: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        end = self.at + len(self.data or b"")
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        if self.data is None:
            del content[self.at :]
        else:
            content[self.at : end] = self.data


@dataclass(eq=False)
class File:
    """``disk`` is the flushed content, and ``pending`` the changes after it."""

    disk: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class Folder:
    """The flushed entries, and the present ones."""

    disk: dict[str, "File | Folder"] = field(default_factory=dict)
    live: dict[str, "File | Folder"] = field(default_factory=dict)


@dataclass(eq=False, frozen=True, slots=True)
class NameChange:
    """Entries that appear (or with ``None`` disappear) together, each in its folder."""

    entries: tuple[tuple[Folder, str, File | Folder | None], ...]

    @property
    def folders(self) -> set[Folder]:
        return {folder for folder, _, _ in self.entries}


def _prefix(changes: list[Change], chance: Random) -> list[Change]:
    return changes[: chance.randint(0, len(changes))]


def _subset(changes: list[Change], chance: Random) -> list[Change]:
    return [change for change in changes if chance.random() < 0.5]


def _torn(changes: list[Change], chance: Random) -> list[Change]:
    """Half of the sectors, in any order. Truncations happen first: their order among writes is that of the journal."""
    sectors = [
        Change(change.at + begin, change.data[begin : begin + SECTOR])
        for change in changes
        if change.data is not None
        for begin in range(0, len(change.data), SECTOR)
        if chance.random() < 0.5
    ]
    chance.shuffle(sectors)
    return [change for change in changes if change.data is None] + sectors


WRITES: dict[str, Callable[[list[Change], Random], list[Change]]] = {
    "drop": lambda _changes, _chance: [],
    "prefix": _prefix,
    "subset": _subset,
    "torn": _torn,
    "all": lambda changes, _chance: changes,
}
"""What remains of the writes to a file that no flush covered."""

NAMES = ("drop", "prefix", "by folder", "all")
"""What remains of the changed names: nothing, those before a moment, in each folder those before a moment, or all."""


class Disk:
    """The disk below the recorded folder. With ``flushes`` false, it ignores flushes of files: a negative control."""

    def __init__(self, recording: Recording, *, flushes: bool = True) -> None:
        self._root_path = str(recording.folder)
        self._root = Folder()
        self._flushes = flushes
        self._names: list[NameChange] = []
        self._inodes: dict[int, File] = {}
        self._begun: dict[int, Callable[[], None]] = {}

    def replay(self, records: Iterable[Record]) -> None:
        for record in records:
            self._play(record)

    def cut(self, place: Path, chance: Random, writes: str, names: str) -> None:
        """Write the folder that a power cut can leave now."""
        changes = [] if names == "drop" else self._names
        if names == "prefix":
            changes = changes[: chance.randint(0, len(changes))]
        elif names == "by folder":
            until = {folder: chance.randint(0, len(changes)) for each in changes for folder in each.folders}
            changes = [each for at, each in enumerate(changes) if any(at < until[folder] for folder in each.folders)]
        entries: dict[Folder, dict[str, File | Folder]] = {}
        _apply(changes, lambda folder: entries.setdefault(folder, dict(folder.disk)))

        def write(folder: Folder, into: Path) -> None:
            into.mkdir()
            for name, node in entries.get(folder, folder.disk).items():
                if isinstance(node, Folder):
                    write(node, into / name)
                else:
                    content = bytearray(node.disk)
                    for change in WRITES[writes](node.pending, chance):
                        change.apply(content)
                    (into / name).write_bytes(content)

        write(self._root, place)

    def present(self) -> dict[str, bytes]:
        """The present content of each file, to compare it with the real one: did the recording miss a call?"""
        found = dict[str, bytes]()

        def read(folder: Folder, above: str) -> None:
            for name, node in folder.live.items():
                if isinstance(node, Folder):
                    read(node, f"{above}{name}/")
                else:
                    content = bytearray(node.disk)
                    for change in node.pending:
                        change.apply(content)
                    found[above + name] = bytes(content)

        read(self._root, "")
        return found

    def _play(self, record: Record) -> None:  # noqa: C901 (one case per kind)
        match record.kind:
            case Kind.CREATE:
                folder, name = self._find(record.data)
                file = folder.live.get(name)
                if file is None or file is not self._inodes.get(record.inode):
                    self._inodes[record.inode] = file = File()
                    self._change((folder, name, file))
            case Kind.FOLDER:
                self._change((*self._find(record.data), Folder()))
            case Kind.WRITE:
                self._file(record.inode).pending.append(Change(record.number, record.data))
            case Kind.TRUNCATE:
                self._file(record.inode).pending.append(Change(record.number, None))
            case Kind.LINK | Kind.RENAME:
                (folder, name), (target, new) = map(self._find, record.data.split(b"\0"))
                node = folder.live[name]
                added = (target, new, node)
                self._change(added) if record.kind is Kind.LINK else self._change((folder, name, None), added)
            case Kind.UNLINK:
                self._change((*self._find(record.data), None))
            case Kind.FLUSH:
                self._begun[record.number] = self._flush(record)
            case Kind.FLUSHED:
                self._begun.pop(record.number)()
            case Kind.UNKNOWN:
                raise AssertionError(f"the replay does not know {record.data!r}")

    def _flush(self, record: Record) -> Callable[[], None]:
        """Return what the end of a flush that begins now does."""
        if record.data:
            folder, names = self._folder(record.data), list(self._names)
            return lambda: self._flush_names(folder, names)
        file = self._file(record.inode)
        covered = list(file.pending) if self._flushes else []

        def end() -> None:
            for change in covered:
                if file.pending and file.pending[0] is change:  # another flush may have covered it meanwhile
                    file.pending.pop(0).apply(file.disk)

        return end

    def _flush_names(self, folder: Folder, covered: list[NameChange]) -> None:
        """Flush the changes of a folder, and those before them that they depend on, as the other half of a rename."""
        folders, flushed, still = {folder}, list[NameChange](), {*self._names}
        for change in reversed(covered):
            if change in still and change.folders & folders:
                folders |= change.folders
                flushed.append(change)
        _apply(reversed(flushed), lambda each: each.disk)
        still.difference_update(flushed)
        self._names = [change for change in self._names if change in still]

    def _change(self, *entries: tuple[Folder, str, File | Folder | None]) -> None:
        change = NameChange(entries)
        _apply([change], lambda folder: folder.live)
        self._names.append(change)

    def _file(self, inode: int) -> File:
        return self._inodes.setdefault(inode, File())

    def _find(self, path: bytes) -> tuple[Folder, str]:
        folder, _, name = os.path.normpath(path).rpartition(b"/")
        return self._folder(folder), os.fsdecode(name)

    def _folder(self, path: bytes) -> Folder:
        node: File | Folder = self._root
        below = os.path.relpath(os.fsdecode(path), self._root_path)
        for name in below.split("/") if below != "." else ():
            assert isinstance(node, Folder)
            node = node.live[name]
        assert isinstance(node, Folder)
        return node


def _apply(changes: Iterable[NameChange], entries_of: Callable[[Folder], dict[str, File | Folder]]) -> None:
    for change in changes:
        for folder, name, node in change.entries:
            if node is None:
                entries_of(folder).pop(name, None)
            else:
                entries_of(folder)[name] = node


def check(recording: Recording) -> None:
    """Assert that the recording missed no call: its replay has the content of each real file but SQLite's -shm."""
    disk, folder = Disk(recording), recording.folder
    disk.replay(recording.records())
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    assert disk.present() == {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Cut(NamedTuple):
    """A power cut when the recording had this size, and what remains of that which no flush covered."""

    at: int
    writes: str
    names: str


def cuts(recording: Recording, chance: Random, many: int, place: Path, *, flushes: bool = True) -> Iterator[Cut]:
    """Cut after random records. For each cut, ``place`` has the folder as the cut can leave it."""
    disk, records = Disk(recording, flushes=flushes), [*recording.records()]
    done = 0
    for until in sorted(chance.randint(1, len(records)) for _ in range(many)):
        disk.replay(records[done:until])
        done = until
        cut = Cut(records[until - 1].end, chance.choice([*WRITES]), chance.choice(NAMES))
        shutil.rmtree(place, ignore_errors=True)
        disk.cut(place, chance, cut.writes, cut.names)
        yield cut
