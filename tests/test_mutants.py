"""make mutants finds the faults that tests do not notice, and its list of faults fits the code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.waiting import wait_for
from tools.mutants import ROOT, Fault, Plan, main

CODE = """def price(amount: int, *, member: bool) -> float:
    if member and amount > 10:
        return amount * 0.9
    return amount
"""
TESTS = """from karrot.shop import price

def test_members_pay_less() -> None:
    right = price(20, member=True) == 18 and price(20, member=False) == 20
    assert right
"""
LEAVES_A_PROCESS = """
import subprocess
from pathlib import Path

def test_forgets_a_process() -> None:
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path({pid!r}).write_text(str(left.pid))
"""
LIST = """word = "w"
drawn = 0
[modules.shop]
files = ["karrot/shop.py"]
tests = ["tests/test_shop.py"]
[modules.till]
files = ["karrot/till.py::Till"]
tests = ["tests/test_shop.py"]
[[kept]]
module = "shop"
file = "karrot/shop.py"
fault = "everybody pays less"
find = "member and amount > 10"
replace = "amount > 10"
[[kept]]
module = "shop"
file = "karrot/shop.py"
fault = "ten are enough"
find = "amount > 10"
replace = "amount >= 10"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "karrot").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "karrot/__init__.py").write_text("")
    (tmp_path / "karrot/shop.py").write_text(CODE)
    (tmp_path / "karrot/till.py").write_text("class Till:\n    open = True\n\n\nSMALL = 1\n")
    (tmp_path / "tests/test_shop.py").write_text(TESTS)
    (tmp_path / "tests/mutants.toml").write_text(LIST)
    return tmp_path


def command_of(pid: str) -> str:
    """Return the command of a process. A process that has ended has none, also before its parent takes note."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.read_text() if command.exists() else ""


def test_each_fault_is_killed_or_survives_and_nothing_is_left(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pid = tree / "pid"
    (tree / "tests/test_shop.py").write_text(TESTS + LEAVES_A_PROCESS.format(pid=str(pid)))
    assert main([], tree) == 1
    assert capsys.readouterr().out == (
        "killed     shop     karrot/shop.py:2 everybody pays less\n"
        "           - if member and amount > 10:\n"
        "           + if amount > 10:\n"
        "           FAILED tests/test_shop.py::test_members_pay_less - assert False\n"
        "SURVIVED   shop     karrot/shop.py:2 ten are enough\n"
        "           - if member and amount > 10:\n"
        "           + if member and amount >= 10:\n"
        "shop         1 of   2 killed\n"
        "all          1 of   2 killed: 50%\n"
    )
    wait_for(lambda: "sleep" not in command_of(pid.read_text()))
    assert (tree / "karrot/shop.py").read_text() == CODE
    assert [*(tree / "build").iterdir()] == []


def test_an_equivalent_fault_is_shown_with_its_reason_and_not_planted(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    equivalent = (
        '[[equivalent]]\nfile = "karrot/till.py"\nfunction = "Till"\n'
        'line = "open = True"\nbecomes = "open = False"\nreason = "nothing reads it"\n'
    )
    (tree / "tests/mutants.toml").write_text(LIST + equivalent)
    assert main(["--count", "2", "--only", "till"], tree) == 0
    assert capsys.readouterr().out == (
        "equivalent till     karrot/till.py:2 Till: True becomes False: nothing reads it\n"
        "all          0 of   0 killed: 100%\n"
    )


def test_tests_that_fail_without_a_fault_show_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests/test_shop.py").write_text(TESTS.replace(" == 20", " == 21"))
    assert main([], tree) == 2
    assert capsys.readouterr().out.startswith("The tests of shop fail without a fault: FAILED tests/test_shop.py::")


def what(faults: list[Fault]) -> list[tuple[str, str]]:
    return [(fault.what, fault.after) for fault in faults]


@pytest.mark.parametrize(
    "edit",
    [lambda code: '"""A shop."""\n\n' + code, lambda code: code + "\n\nLAST = 'x'\n"],
    ids=["lines above", "lines below"],
)
def test_the_draw_does_not_change_with_edits_elsewhere(tree: Path, edit: Callable[[str], str]) -> None:
    before = Plan(tree).sites("shop")
    (tree / "karrot/shop.py").write_text(edit(CODE))
    after = Plan(tree).sites("shop")
    assert what(after) == what(before)
    assert len(after) == 5


def test_another_word_draws_in_another_order(tree: Path) -> None:
    one, other = Plan(tree).sites("shop"), Plan(tree, "another").sites("shop")
    assert what(one) != what(other)
    assert (
        sorted(what(one))
        == sorted(what(other))
        == [
            ("* becomes /", "return amount / 0.9"),
            ("0.9 becomes 1.9", "return amount * 1.9"),
            ("10 becomes 11", "if member and amount > 11:"),
            ("> becomes >=", "if member and amount >= 10:"),
            ("and becomes or", "if member or amount > 10:"),
        ]
    )


def test_every_kept_fault_applies_and_is_valid_python() -> None:
    for fault in Plan(ROOT).kept():
        source = (ROOT / fault.file).read_bytes()
        compile(source[: fault.start] + fault.text + source[fault.end :], fault.file, "exec")


def test_every_equivalent_fault_is_possible_and_has_a_reason() -> None:
    plan = Plan(ROOT)
    possible = {
        (fault.file, fault.function, fault.before, fault.after) for name in plan.modules for fault in plan.sites(name)
    }
    assert plan.equivalent.keys() - possible == set()
    assert all(plan.equivalent.values())


def test_every_file_of_the_list_exists() -> None:
    plan = Plan(ROOT)
    named = [place for module in plan.modules.values() for places in module.values() for place in places]
    assert [place for place in named if not (ROOT / place.partition("::")[0]).exists()] == []
    assert all(plan.sites(name) for name in plan.modules)
    assert len(plan.kept()) + plan.count >= 80
