"""The pages of the documentation match the code."""

import importlib.util
import re
import signal
from pathlib import Path

import pytest

from karrot.aws.classify_errors import FaultKind
from karrot.cli.errors import NotDone, NotNow, Refused
from karrot.reporters.cloudwatch.data import REASONS
from karrot.reporters.cloudwatch.group_data import HEARTBEAT, INCOMPLETE, UNKNOWN
from karrot.settings.loading import load
from karrot.settings.options import GroupMetricName

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ["settings.md", "codes.md", "commands.md", "metrics.md", "checks.md", "bounds.md", "tables.md"]


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages that `make docs` would write, by name."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_reference_equals_the_generated_one(page: str, reference: dict[str, str]) -> None:
    written = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert written == reference[page], "run make docs to write it again"


def test_the_reference_has_no_other_pages(reference: dict[str, str]) -> None:
    assert sorted(reference) == sorted(PAGES)
    assert sorted(path.name for path in (DOCS / "reference").iterdir()) == sorted(PAGES)


def test_every_link_between_pages_leads_to_a_file() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_links_each_page_once() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"} | {f"reference/{name}" for name in PAGES}
    assert len(linked) == len(set(linked))
    assert pages | {"runbooks", "decisions/README.md"} <= set(linked)


def test_every_test_and_benchmark_that_a_page_names_exists() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        moved = dict(
            re.findall(r"^\| `(\S+)` \| `(\S+)` \|$", text, re.MULTILINE)
        )  # a decision's old paths and their new ones
        for named in re.findall(r"\b(?:tests|benchmarks)/[\w/]+\.py", text):
            assert (ROOT / moved.get(named, named)).exists(), f"{page.name} names {named}"


def test_the_sample_of_a_configuration_is_accepted(tmp_path: Path) -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    [sample] = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "karrot.toml"
    file.write_text(sample, encoding="utf-8")
    passwords = {
        "KARROT_API_TOKEN": "a",
        "KARROT_BURROW_TOKEN": "b",
    }  # not in the file, because that would give a warning
    settings, warnings, _ = load(passwords, config=file)
    assert (settings.retention, warnings) == (7 * 86_400, ())


def test_every_metric_of_the_process_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8").partition("## The process")[2]
    listed = re.findall(r"^\| `(process_\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert listed == [
        ("process_virtual_memory_bytes", "gauge"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("process_cpu_seconds_total", "counter"),
        ("process_open_fds", "gauge"),
        ("process_max_fds", "gauge"),
    ]


def test_the_exit_codes_of_the_service_are_explained() -> None:
    table = (DOCS / "operations.md").read_text(encoding="utf-8").partition("| exit code of `karrot serve` |")[2]
    codes = re.findall(r"^\| (\d+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert codes == [
        str(code) for code in (0, NotDone.exit_code, Refused.exit_code, NotNow.exit_code, 128 + signal.SIGTERM)
    ]


def test_every_reason_for_missing_cloudwatch_data_is_explained() -> None:
    page = (DOCS / "cloudwatch.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(\w+)`", page))
    counted_by_the_reporter = {"over_cap", "expired", "name_collision", "rejected", "too_large"}
    assert {*FaultKind, *REASONS, UNKNOWN, INCOMPLETE, *counted_by_the_reporter} <= told
    assert {*GroupMetricName, HEARTBEAT} <= told
