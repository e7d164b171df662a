"""The modules, the tests and the documentation keep the rules of the house; for example, no test sleeps."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from karrot.pipeline.schemas_and_conversions import DERIVED
from tools.budget import budget, measured

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "karrot"
SUPPORT = ROOT / "tests" / "support"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

KEPT_FRAGMENTS = {
    "eventlog/postgres/group_commit.py:_is_refusal": "a rule with a name",
    "reporters/prometheus/group_metrics.py:_bad_partitions": "each lambda of the loop needs an index of its own",
    "reporters/prometheus/group_metrics.py:_is_status": "each lambda of the loop needs a status of its own",
}
"""Private functions of one statement and one caller, and why they are kept."""

TIMES_IN_TESTS = {
    "burrow/test_payload.py": "compares the CPU time of two bodies, and one must take far less",
    "e2e/sender.py": "the pace of a sender",
    "e2e/stack/__main__.py": "prints how long the servers take to start",
    "e2e/stack/processes.py": "asks again until a server answers",
    "e2e/test_evaluate_beside_burrow.py": "the pace of a producer",
    "e2e/test_failover.py": "a figure that nothing compares",
    "e2e/test_pipeline_run.py": "kills a process at any moment: each moment is right",
    "e2e/test_real_burrow.py": "a figure that nothing compares",
    "e2e/test_watch.py": "a figure that nothing compares",
    "e2e/truth/members.py": "the rhythms of consumers",
    "e2e/truth/world.py": "the pace of producers, and the times at which things happen",
    "image/conftest.py": "a figure that nothing compares",
    "support/servers/faulty_proxy.py": "a slow network",
    "support/service/open_loop.py": "requests at their due times, for the benchmarks",
    "support/waiting.py": "waits for a condition",
}
"""Files below tests/ that sleep or read a clock, and why. All others wait for a condition or move a clock."""

PORTS_IN_TESTS = {
    "support/service/free_ports.py": "keeps the port that it gives to a server",
    "support/service/open_loop.py": "the source address of a client",
}
"""Files below tests/ that bind a socket without listening, and why. A port that is free at the moment can be taken."""

UNCLEAR_PHRASES = ("whoever", "whosoever", "anew", "reckoned", "of which", "who does not", "by whom", "told of")
TEXT_FILES = (".md", ".py", ".html", ".j2", ".yaml", ".json", ".tpl", ".toml", "Makefile")


def modules() -> Iterator[Path]:
    return (path for path in PACKAGE.rglob("*.py") if path.stem not in {"__init__", "__main__"})


def test_only_a_package_lists_its_exports() -> None:
    assert [str(path) for path in modules() if "\n__all__" in path.read_text(encoding="utf-8")] == []


def test_the_budget_names_each_package_and_none_that_is_gone() -> None:
    assert measured(PACKAGE).keys() == budget(ROOT).keys()


def test_a_function_with_one_statement_and_one_caller_is_inlined() -> None:
    found = {f"{path.relative_to(PACKAGE)}:{name}" for path in modules() for name in _fragments(path)}
    assert found == KEPT_FRAGMENTS.keys()


def _fragments(path: Path) -> Iterator[str]:
    """Yield the private functions of a module with one simple statement that are called in one place and not passed on.

    A loop, a match or a try that returns from within does not count, because inlined it would need a flag.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    uses = Counter(_name_of(node) for node in ast.walk(tree))
    calls = Counter(_name_of(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(member for each in classes for member in each.body)]:
        if isinstance(node, ast.FunctionDef) and re.match("_[^_]", node.name) and not node.decorator_list:
            statements = node.body[1:] if ast.get_docstring(node) else node.body
            simple = len(statements) == 1 and isinstance(statements[0], ast.Return | ast.Expr | ast.Assign | ast.Raise)
            if simple and uses[node.name] == calls[node.name] == 1:
                yield node.name


def _name_of(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def test_each_derived_table_is_made_in_the_module_of_its_name() -> None:
    made = {path.stem for path in (PACKAGE / "pipeline" / "derive").glob("*.py")}
    assert DERIVED.keys() - made == {
        "verdict_runs"
    }  # the module of status_intervals makes it, because the intervals are made of the runs


def test_each_built_in_reporter_is_in_its_contract_and_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    entry_points = project["project"]["entry-points"]["karrot.reporters"]
    contracts = project["tool"]["importlinter"]["contracts"]
    [modules] = [each["modules"] for each in contracts if each["name"] == "Reporters are independent of each other"]
    assert sorted(target.partition(":")[0] for target in entry_points.values()) == sorted(modules)
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Reporters\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(entry_points)


def test_each_name_that_a_docstring_refers_to_exists() -> None:
    missing = []
    for path in PACKAGE.rglob("*.py"):
        for reference in re.findall(r"`(karrot(?:\.\w+)+)`", path.read_text(encoding="utf-8")):
            module, attributes = _longest_module(reference.split("."))
            if attributes and not re.search(rf"\b{attributes[0]}\b", module.read_text(encoding="utf-8")):
                missing.append(f"{path.relative_to(ROOT)}: {reference}")
    assert missing == []


def _longest_module(names: list[str]) -> tuple[Path, list[str]]:
    """Return the file of the longest part of a dotted name that is a module, and the rest of the name."""
    for length in range(len(names), 0, -1):
        place = ROOT.joinpath(*names[:length])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file, names[length:]
    raise AssertionError(f"{names[0]} is not a package here")


def test_each_file_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"`(karrot/[\w/]+\.py)`", ARCHITECTURE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("folder", "contract"),
    [
        ("karrot/", "Arrows point down"),
        ("karrot/pipeline/", "The pipeline's arrows point down"),
        ("karrot/eventlog/", "The event log's arrows point down"),
        ("karrot/demo/", "The demo's arrows point down"),
    ],
)
def test_the_layers_of_the_architecture_match_the_import_contracts(folder: str, contract: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [each["layers"] for each in contracts if each["name"] == contract]
    [drawn] = re.findall(rf"^`{folder}`:\n\n```text\n(.*?)^```$", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert drawn.splitlines() == layers


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        (r"\btime\.(sleep|monotonic|perf_counter|process_time)\b|^from time |\basyncio\.sleep\([^0]", TIMES_IN_TESTS),
        (r"\.bind\(\(", PORTS_IN_TESTS),
    ],
    ids=["times", "ports"],
)
def test_no_test_depends_on_the_speed_of_the_machine_or_on_luck(pattern: str, kept: dict[str, str]) -> None:
    tests = SUPPORT.parent
    texts = {str(path.relative_to(tests)): path.read_text(encoding="utf-8") for path in tests.rglob("*.py")}
    assert {name for name, text in texts.items() if re.search(pattern, text, re.MULTILINE)} == kept.keys()


def test_no_file_has_an_unclear_phrase() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = set()
    for name in listed.split("\0"):
        # This file lists the phrases. A file that git still lists may be removed in the working tree.
        if name.endswith(TEXT_FILES) and ROOT / name != Path(__file__) and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8")
            found |= {(name, phrase) for phrase in UNCLEAR_PHRASES if _occurs(phrase, text)}
    assert found == set(), "write plain sentences: see docs/glossary.md for the words"


def _occurs(phrase: str, text: str) -> bool:
    words = r"[\s#]+".join(phrase.split())  # a phrase may continue on the next line of a comment
    return re.search(rf"\b{words}\b", text, re.IGNORECASE) is not None
