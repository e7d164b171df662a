"""Builds the files of a release into ``dist/``, builds them again elsewhere, and names each file that differs.

``python -m tools.dist``, which is ``make dist``, makes: sdist, wheel, the wheel as ``karrot-burrow.zip`` for Spark, the
packaged charts, the dashboards for grafana.com, the bill of materials and the licences of the images' packages, the
release notes, and ``SHA256SUMS``. The second build has another directory, file times, umask, time zone, language and
hash seed. Both builds must give the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import click
from packaging.requirements import Requirement

from tools import release
from tools.dashboards.grafana_com import PREFIX, for_grafana_com
from tools.release import CHARTS, CHECKSUMS, NOTES

ROOT = Path(__file__).resolve().parents[1]
LICENSES = "karrot-burrow.licenses.md"
_LICENSES = ("--format", "markdown", "--with-urls", "--order", "name", "--output-file")
_EPOCH = 1580601600
"""The time of each file in each archive, as in hatchling's archives: 2020-02-02 00:00 UTC."""


@click.command(help=__doc__)
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="The checkout to build.")
@click.option("--into", type=click.Path(path_type=Path), default=Path("dist"), show_default=True)
@click.option("--once", is_flag=True, help="Leave the second build out.")
def main(root: Path, into: Path, *, once: bool) -> None:
    """Build the files, and compare them with a second build."""
    build(root.resolve(), into.resolve())
    if once:
        return
    with tempfile.TemporaryDirectory() as directory:
        copy, again = Path(directory) / "another place", Path(directory) / "dist"
        copy_checkout(root.resolve(), copy)
        unlike = {"TZ": "Asia/Kolkata", "LC_ALL": "C", "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
        arguments = ("-m", "tools.dist", "--root", copy, "--into", again, "--once")
        _run(ROOT, os.environ | unlike, *arguments, umask=0o077)
        if found := list(differences(into, again)):
            raise click.ClickException("two builds of one checkout differ:\n" + "\n".join(found))
    click.echo(f"{into}: {len(_built(into))} files, and a second build in another place gave the same bytes")


def build(root: Path, into: Path) -> None:
    """Build all files of a release from the checkout. They replace those of an earlier build."""
    into.mkdir(parents=True, exist_ok=True)
    for earlier in _built(into):
        earlier.unlink()
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    _run(root, environment, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", into)
    [wheel] = into.glob("*.whl")
    # Spark puts a .zip of --py-files on the path of the executors' Python, but not a .whl.
    shutil.copyfile(wheel, into / "karrot-burrow.zip")
    # The library warns that the bill of materials does not say which package needs which. Nor do the requirements.
    quiet = ("-W", "ignore::UserWarning:cyclonedx.model.bom")
    where = ("--pyproject", root / "pyproject.toml", root / "requirements" / "image.txt")
    bill = ("--output-reproducible", "-o", into / "karrot-burrow.cdx.json")
    _run(root, environment, *quiet, "-m", "cyclonedx_py", "requirements", *bill, *where)
    package = "import sys, helm_python as helm; helm.package(sys.argv[1], destination=sys.argv[2])"
    for name in CHARTS:
        _run(root, environment, "-c", package, root / "helm" / name, into)
    for chart in into.glob("*.tgz"):
        _same_times(chart)
    _run(root, environment, "-m", "piplicenses", *_LICENSES, into / LICENSES, "--packages", *image_packages(root))
    for dashboard in sorted((root / "templates" / "grafana").glob("*.json")):
        uploaded = for_grafana_com(json.loads(dashboard.read_text(encoding="utf-8")))
        (into / f"{PREFIX}{dashboard.name}").write_text(json.dumps(uploaded, indent=2) + "\n", encoding="utf-8")
    sums = (f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in _built(into))
    (into / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    notes = release.notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), release.version(root))
    (into / NOTES).write_text(f"{notes}\n", encoding="utf-8")


def image_packages(root: Path) -> list[str]:
    """Return the names of the packages in the images, as far as this Python and this system need them."""
    pinned = [(root / "requirements" / f"{name}.txt").read_text(encoding="utf-8") for name in ("image", "pipeline")]
    lines = re.findall(r"^[\w.-]+==[^\\\n]*", "\n".join(pinned), re.MULTILINE)
    needed = (Requirement(line) for line in lines)
    return sorted({each.name for each in needed if each.marker is None or each.marker.evaluate()})


def _built(into: Path) -> list[Path]:
    patterns = (
        "karrot_burrow-*",
        "karrot-burrow.*",
        "karrot-*.tgz",
        "burrow-*.tgz",
        f"{PREFIX}*",
        "notes.md",
        CHECKSUMS,
    )
    return sorted(each for pattern in patterns for each in into.glob(pattern))


def copy_checkout(root: Path, copy: Path) -> None:
    """Copy the files that git would add, with another time. Links stay links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source, target = root / name, copy / name
        if source.is_symlink() or source.is_file():  # a file that is removed and not committed is neither
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target, follow_symlinks=False)
            os.utime(target, (1e9, 1e9), follow_symlinks=False)


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield a sentence for each file of two builds that differs, with the members of an archive that differ."""
    names = [{each.name for each in _built(place)} for place in (one, other)]
    for name in sorted(names[0] | names[1]):
        if not all(name in each for each in names):
            yield f"{name}: only in {one if name in names[0] else other}"
        elif (one / name).read_bytes() != (other / name).read_bytes() and name != CHECKSUMS:
            ours, theirs = _members(one / name), _members(other / name)
            members = sorted(each for each in ours | theirs if ours.get(each) != theirs.get(each))
            yield f"{name}: {', '.join(members) or 'the same members, in another order or compressed in another way'}"


def _members(file: Path) -> dict[str, tuple[object, ...]]:
    """Return what an archive has about each member. A file that is no archive has one member: itself."""
    if file.suffix in {".whl", ".zip"}:
        with ZipFile(file) as archive:
            return {each.filename: (each.CRC, each.date_time, each.external_attr) for each in archive.infolist()}
    if file.suffix in {".gz", ".tgz"}:
        with tarfile.open(file) as tar:
            return {each.name: (tar.extractfile(each).read(), *_about(each)) for each in tar if each.isfile()}  # type: ignore[union-attr]
    return {"its content": (file.read_bytes(),)}


def _about(member: tarfile.TarInfo) -> tuple[object, ...]:
    return member.mtime, member.mode, member.uid, member.gid, member.uname, member.gname


def _same_times(chart: Path) -> None:
    """Write a packaged chart again with one time for all files, because Helm writes the time of the packaging."""
    written = io.BytesIO()
    with (
        tarfile.open(chart) as packaged,
        gzip.GzipFile(filename="", mode="wb", fileobj=written, mtime=_EPOCH) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for member in packaged:
            member.mtime = _EPOCH
            archive.addfile(member, packaged.extractfile(member))
    chart.write_bytes(written.getvalue())


def _run(root: Path, environment: dict[str, str], *arguments: object, umask: int = -1) -> None:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, umask=umask)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
