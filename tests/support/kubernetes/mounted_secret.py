"""Mounts a Secret as the kubelet does: each file is a link through ``..data``, which changes at once for all files."""

from pathlib import Path


class MountedSecret:
    """A folder with the files of a Secret."""

    def __init__(self, folder: Path, **files: bytes) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir()
        self.update(**files)
        for name in files:
            self.path(name).symlink_to(Path("..data") / name)

    def path(self, name: str) -> Path:
        """Return the path that a setting names."""
        return self.folder / name

    def update(self, **files: bytes) -> None:
        """Replace all files. A file that is not named has no content any more, and its link leads nowhere."""
        self._version += 1
        newest = self.folder / f"..version-{self._version}"
        newest.mkdir()
        for name, content in files.items():
            (newest / name).write_bytes(content)
        temporary = self.folder / "..data_tmp"
        temporary.symlink_to(newest.name)
        temporary.rename(self.folder / "..data")
