"""``make dist`` gives the same bytes anywhere, and the wheel's bill of materials agrees with its RECORD."""

import base64
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.dist import LICENSES, differences, image_packages
from tools.release import CHECKSUMS, NOTES

ROOT = Path(__file__).resolve().parents[1]
# Two builds of all files; each reads the whole checkout.
pytestmark = [pytest.mark.release, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the files of a release twice, as ``make dist`` does."""
    directory = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "tools.dist", "--into", directory], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{directory}: 12 files, and a second build in another place gave the same bytes\n"
    return directory


def test_the_files_of_a_release_are_listed_with_their_checksums(dist: Path) -> None:
    listed = [line.split("  ") for line in (dist / CHECKSUMS).read_text().splitlines()]
    built = {each.name: each for each in dist.iterdir() if each.name not in {CHECKSUMS, NOTES}}
    assert {name: digest for digest, name in listed} == {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in built.items()
    }
    kinds = sorted(re.sub(r"-\d[\w.]*?(-py3-none-any)?(?=\.(?:whl|tgz|tar))", "", name) for name in built)
    assert kinds == [
        "burrow.tgz",
        "grafana-com-karrot-group.json",
        "grafana-com-karrot-itself.json",
        "grafana-com-karrot-overview.json",
        "karrot-burrow.cdx.json",
        "karrot-burrow.licenses.md",
        "karrot-burrow.zip",
        "karrot.tgz",
        "karrot_burrow.tar.gz",
        "karrot_burrow.whl",
    ]


def test_the_table_of_licences_has_every_package_of_the_images(dist: Path) -> None:
    rows = [line.split("|")[1:-1] for line in (dist / LICENSES).read_text().splitlines()[2:]]
    licences = {canonical(name.strip()): licence.strip() for name, _, licence, _ in rows}
    assert licences.keys() == {canonical(name) for name in image_packages(ROOT)} != set()
    assert all(licences.values())


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_package_with_another_licence_is_named() -> None:
    program = str(Path(sys.executable).with_name("pip-licenses"))
    command = [program, "--allow-only", "BSD-3-Clause", "--packages", "urllib3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "license MIT not in allow-only licenses was found for package urllib3" in done.stderr


def test_the_notes_are_the_section_of_the_changelog(dist: Path) -> None:
    text = (dist / NOTES).read_text().strip()
    assert text
    assert text in (ROOT / "CHANGELOG.md").read_text()


def test_the_bill_of_materials_in_the_wheel_agrees_with_the_record(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    with ZipFile(wheel) as archive:
        [place] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        bill = json.loads(archive.read(place))
        [record] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    recorded = {name: base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=").hex() for name, digest, _ in rows}
    assert place in recorded
    contents = {name: digest for name, digest in recorded.items() if ".dist-info/" not in name}
    assert {each["name"]: each["hashes"][0]["content"] for each in bill["components"]} == contents != {}
    subject = bill["metadata"]["component"]
    assert wheel.name.startswith(f"karrot_burrow-{subject['version']}-")
    assert subject["purl"] == f"pkg:pypi/karrot-burrow@{subject['version']}"


def test_both_bills_of_materials_match_the_schema_of_cyclonedx(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    with ZipFile(wheel) as archive:
        [place] = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        bills = [archive.read(place).decode(), (dist / "karrot-burrow.cdx.json").read_text()]
    for bill in bills:
        version = SchemaVersion.from_version(json.loads(bill)["specVersion"])
        assert JsonStrictValidator(version).validate_str(bill) is None


def test_each_difference_between_two_builds_is_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place, content, second in ((one, b"1", 1), (other, b"2", 2)):
        place.mkdir()
        with ZipFile(place / "karrot_burrow-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(ZipInfo("karrot/same.py"), b"")
            wheel.writestr(ZipInfo("karrot/unlike.py"), content)
        with tarfile.open(place / "karrot-1.tgz", "w:gz") as chart:
            member = tarfile.TarInfo("karrot/Chart.yaml")
            member.mtime = second
            chart.addfile(member)
        (place / "karrot-burrow.cdx.json").write_bytes(content)
    (other / "notes.md").touch()
    assert list(differences(one, other)) == [
        "karrot-1.tgz: karrot/Chart.yaml",
        "karrot-burrow.cdx.json: its content",
        "karrot_burrow-1-py3-none-any.whl: karrot/unlike.py",
        f"notes.md: only in {other}",
    ]
