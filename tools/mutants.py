"""Plants faults in copies of the product, and shows whether the tests notice them. CONTRIBUTING.md says how to use it.

``tests/mutants.toml`` names the modules, their tests, the faults that are always planted (kept), and the faults that
change nothing that a test could see (equivalent). Further faults are drawn by the SHA-256 of a word and of the place
in the code, so edits elsewhere do not change the draw.
"""

import argparse
import ast
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import cache_from_source
from itertools import chain, pairwise, zip_longest
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENOUGH = 0.9
"""The share of the planted faults that the tests must notice."""

_NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "karrot-data")
_MARK = "MUTANT_RUN"
"""An environment variable of every process of a test run, so that all can be ended, also in sessions of their own."""

_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),  # codespell:ignore notin
}
_ARITHMETIC: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
_SMALL = 100
"""A fault makes smaller numbers one higher. It doubles others, because a time limit of 60,001 ms would be no fault."""

_PLAIN = (ast.Name, ast.Attribute, ast.Call)
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


class Fault(NamedTuple):
    """A fault: the bytes from ``start`` to ``end`` of a file become ``text``."""

    file: str
    function: str
    what: str
    start: int
    end: int
    text: bytes
    line: int = 0
    before: str = ""
    after: str = ""
    """The first changed line, before and after."""

    module: str = ""


def faults_of(file: str, source: bytes) -> Iterator[Fault]:
    """Every small fault that is possible in a file."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node: Any) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    for function, node in _nodes(ast.parse(source), ""):
        for what, start, end, text in _changes(node, source, span):
            yield _in_line(Fault(file, function, what, start, end, text.encode()), source)


def _in_line(fault: Fault, source: bytes) -> Fault:
    first, last = source.rfind(b"\n", 0, fault.start) + 1, source.find(b"\n", fault.end)
    changed = source[first : fault.start] + fault.text + source[fault.end : last]
    before, after = (text.decode().strip().partition("\n")[0] for text in (source[first:last], changed))
    return fault._replace(line=source.count(b"\n", 0, fault.start) + 1, before=before, after=after)


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes where a fault is possible. Annotations, decorators, formatted texts and log records are left out."""
    inside: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    match node:
        case ast.JoinedStr() | ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_log")))):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inside = (*node.args.defaults, *node.args.kw_defaults, *node.body)
            function = f"{function}.{node.name}".lstrip(".")
        case ast.ClassDef():
            inside = node.body
            function = f"{function}.{node.name}".lstrip(".")
        case ast.AnnAssign():
            inside = (node.value,)
    yield function, node
    for each in filter(None, inside):
        yield from _nodes(each, function)


def _changes(  # noqa: C901, PLR0912 - one case for each kind of fault
    node: ast.AST, source: bytes, span: Callable[[Any], tuple[int, int]]
) -> Iterator[tuple[str, int, int, str]]:
    """The small faults of one node: what they are, and the bytes from start to end that become a text."""

    def swapped(left: ast.AST, right: ast.AST, old: str, new: str) -> tuple[str, int, int, str]:
        start = source.index(old.encode(), span(left)[1], span(right)[0])
        return f"{old} becomes {new}", start, start + len(old), new

    match node:
        case ast.Compare():
            for left, right, compared in zip((node.left, *node.comparators), node.comparators, node.ops, strict=False):
                yield swapped(left, right, *_COMPARISONS[type(compared)])
        case ast.BoolOp():
            for left, right in pairwise(node.values):
                yield swapped(left, right, *(("and", "or") if isinstance(node.op, ast.And) else ("or", "and")))
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield swapped(node.left, node.right, *_ARITHMETIC[type(node.op)])
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield swapped(node.target, node.value, *(f"{each}=" for each in _ARITHMETIC[type(node.op)]))
        case ast.UnaryOp(op=ast.Not()):
            yield "not is dropped", span(node)[0], span(node)[0] + len("not "), ""
        case ast.Constant(value=bool() | int() | float()):
            value: Any = node.value
            changed = not value if isinstance(value, bool) else value + 1 if value < _SMALL else value * 2
            yield f"{value!r} becomes {changed!r}", *span(node), repr(changed)
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            yield f"{ast.unparse(call.func)}() is not called", *span(node), "pass"
        case ast.Call():
            called = ast.unparse(node.func).rpartition(".")[2]
            if opposite := _OPPOSITES.get(called):
                end = span(node.func)[1]
                yield f"{called} becomes {opposite}", end - len(called), end, opposite
            for keyword in filter(attrgetter("arg"), node.keywords):
                start, end = span(keyword)
                yield f"{keyword.arg}= is dropped", start, end + source.startswith(b",", end), ""
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if isinstance(test, _PLAIN):
            yield "the condition is negated", *span(test), f"not ({ast.unparse(test)})"
        case ast.comprehension():
            for test in node.ifs:
                if isinstance(test, _PLAIN):
                    yield "the condition is negated", *span(test), f"not ({ast.unparse(test)})"


class Plan:
    """The faults to plant in a tree of files, as its ``tests/mutants.toml`` says. ``word`` replaces the file's word."""

    def __init__(self, root: Path, word: str | None = None) -> None:
        asked: dict[str, Any] = tomllib.loads((root / "tests/mutants.toml").read_text(encoding="utf-8"))
        self.root = root
        self.modules: Mapping[str, Mapping[str, Sequence[str]]] = asked["modules"]
        self.count: int = asked["drawn"]
        self.equivalent: Mapping[tuple[str, ...], str] = {
            (each["file"], each["function"], each["line"], each["becomes"]): each["reason"]
            for each in asked.get("equivalent", ())
        }
        self._word = word or asked["word"]
        self._kept: Sequence[Mapping[str, str]] = asked.get("kept", ())

    def kept(self) -> list[Fault]:
        """The kept faults. Raises `ValueError` if the code no longer has the text of one."""
        found = []
        for each in self._kept:
            source, find = (self.root / each["file"]).read_bytes(), each["find"].encode()
            if source.count(find) != 1:
                raise ValueError(f"{each['file']} has this text {source.count(find)} times, not once: {each['find']}")
            start = source.index(find)
            fault = Fault(each["file"], "", each["fault"], start, start + len(find), each["replace"].encode())
            found.append(_in_line(fault, source)._replace(module=each["module"]))
        return found

    def sites(self, module: str) -> list[Fault]:
        """All possible faults of a module, in the order of the draw."""
        found: dict[str, Fault] = {}
        for entry in self.modules[module]["files"]:
            file, _, function = entry.partition("::")
            seen: Counter[tuple[str, ...]] = Counter()
            for fault in faults_of(file, (self.root / file).read_bytes()):
                if f"{fault.function}.".startswith(f"{function}." if function else ""):
                    place = (file, fault.function, fault.what, fault.before)
                    seen[place] += 1
                    key = "\0".join((self._word, *place, str(seen[place])))
                    found[hashlib.sha256(key.encode()).hexdigest()] = fault._replace(module=module)
        return [found[key] for key in sorted(found)]

    def drawn(self, count: int) -> list[Fault]:
        """So many faults that are not equivalent or kept, shared over the modules. Equivalent ones come in addition."""
        rounds = zip_longest(*map(self.sites, self.modules))
        kept = {(fault.file, fault.line, fault.after) for fault in self.kept()}
        taken: list[Fault] = []
        for fault in filter(None, chain.from_iterable(rounds)):
            if not count:
                break
            if (fault.file, fault.line, fault.after) not in kept:
                taken.append(fault)
                count -= self.reason(fault) is None
        return taken

    def reason(self, fault: Fault) -> str | None:
        """Why the fault is equivalent, or ``None``."""
        return self.equivalent.get((fault.file, fault.function, fault.before, fault.after))


class Runner:
    """Runs tests in copies of the tree, one run at a time in each copy. No process is left after a run."""

    def __init__(self, root: Path, modules: Mapping[str, Mapping[str, Sequence[str]]], at_once: int) -> None:
        self._modules = modules
        (root / "build").mkdir(exist_ok=True)
        self._copies = tempfile.TemporaryDirectory(prefix="mutants-", dir=root / "build")
        # Not below the copies, because paths of sockets are short.
        self._temporary = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
        self._trees: SimpleQueue[Path] = SimpleQueue()
        self._limits_s: dict[str, float] = {}
        for number in range(at_once):
            tree = Path(self._copies.name) / str(number)
            shutil.copytree(root, tree, ignore=_NOT_COPIED)
            self._check(tree)
            self._trees.put(tree)

    def stop(self) -> None:
        """End the processes of all runs."""
        _end_processes(self._temporary.name)

    def remove(self) -> None:
        """Remove all files, when no run goes on."""
        self._temporary.cleanup()
        self._copies.cleanup()

    def unmutated(self, module: str) -> str:
        """Run a module's tests without a fault. Return the first failure, or an empty text."""
        tree, begun = self._trees.get(), time.monotonic()
        try:
            return self._tested(tree, module, 1800)
        finally:
            # Other programs may need the machine, and a fault that does not hang should not count as one that does.
            self._limits_s[module] = 60 + 3 * (time.monotonic() - begun)
            self._trees.put(tree)

    def planted(self, fault: Fault) -> str:
        """Run the tests of a fault. Return the first failure, or an empty text if no test noticed the fault."""
        tree = self._trees.get()
        path = tree / fault.file
        source = path.read_bytes()
        try:
            _write(path, source[: fault.start] + fault.text + source[fault.end :])
            return self._tested(tree, fault.module, self._limits_s[fault.module])
        finally:
            _write(path, source)
            self._trees.put(tree)

    def _tested(self, tree: Path, module: str, limit_s: float) -> str:
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *self._modules[module]["tests"]]
        with tempfile.TemporaryDirectory(dir=self._temporary.name, ignore_cleanup_errors=True) as folder:
            said = Path(folder) / "said"
            with said.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "pytest", *options],
                    cwd=tree,
                    env=_environ(tree, folder),
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return f"no end within {limit_s:.0f} s"
            finally:
                process.kill()
                process.wait()
                _end_processes(folder)
            lines = said.read_text(errors="replace").splitlines()
            if code in (4, 5):  # pytest was called wrongly, or found no test
                raise RuntimeError("\n".join(lines[-20:]))
            named = (line for line in reversed(lines) if line.startswith(("FAILED ", "ERROR ")))
            return next(named, f"exit code {code}") if code else ""

    def _check(self, tree: Path) -> None:
        """Check that programs import the copy, from any directory."""
        command = [sys.executable, "-c", "import karrot; print(karrot.__file__)"]
        environ = _environ(tree, self._temporary.name)
        found = subprocess.run(command, cwd="/", env=environ, check=True, capture_output=True, text=True).stdout
        if not Path(found.strip()).is_relative_to(tree):
            raise RuntimeError(f"karrot is imported from {found.strip()}, not from {tree}")


def _environ(tree: Path, folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own = {"PYTHONPATH": str(tree), "TMPDIR": folder, "HYPOTHESIS_STORAGE_DIRECTORY": folder, _MARK: folder}
    return kept | own


def _write(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    # Python would use the compiled file of another fault of the same size, written in the same second.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _end_processes(folder: str) -> None:
    """End every process whose mark begins with the folder, and those that they start meanwhile."""
    mark, found = f"{_MARK}={folder}".encode(), True
    while found:
        found = False
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or belongs to another user
                if mark in environ.read_bytes():
                    os.kill(int(environ.parent.name), signal.SIGKILL)
                    found = True
        time.sleep(0.05 if found else 0)


def run(plan: Plan, faults: Sequence[Fault], at_once: int) -> int:
    """Plant the faults, print what became of each, and return the exit code."""
    planted = [fault for fault in faults if plan.reason(fault) is None]
    for fault in faults:
        if reason := plan.reason(fault):
            print(f"equivalent {_shown(fault)}: {reason}")
    runner, pool = Runner(plan.root, plan.modules, at_once), ThreadPoolExecutor(at_once)
    killed: Counter[str] = Counter()
    try:
        modules = dict.fromkeys(fault.module for fault in planted)
        for module, failure in zip(modules, pool.map(runner.unmutated, modules), strict=True):
            if failure:
                print(f"The tests of {module} fail without a fault: {failure}")
                return 2
        for fault, failure in zip(planted, pool.map(runner.planted, planted), strict=True):
            killed[fault.module] += bool(failure)
            print(f"{'killed    ' if failure else 'SURVIVED  '} {_shown(fault)}")
            print(f"           - {fault.before}\n           + {fault.after}")
            print(*([f"           {failure[:200]}\n"] if failure else []), end="", flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.stop()
        pool.shutdown()
        runner.remove()
    for module, number in Counter(fault.module for fault in planted).items():
        print(f"{module:10} {killed[module]:3} of {number:3} killed")
    share = killed.total() / len(planted) if planted else 1.0
    print(f"{'all':10} {killed.total():3} of {len(planted):3} killed: {share:.0%}")
    return 0 if share >= ENOUGH else 1


def _shown(fault: Fault) -> str:
    return f"{fault.module:8} {fault.file}:{fault.line} {fault.function}{': ' if fault.function else ''}{fault.what}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command. Exit code 1: too few faults were noticed. 2: the tests fail without a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="MODULE", help="only this module; can be given several times"
    )
    parser.add_argument("--count", type=int, help="how many faults to draw, over all modules")
    parser.add_argument("--kept-only", action="store_true", help="draw no faults")
    parser.add_argument("--word", help="draw by another word")
    parser.add_argument("--at-once", type=int, default=2, help="how many test runs at a time")
    asked = parser.parse_args(arguments)
    plan = Plan(root, asked.word)
    if unknown := set(asked.only or ()) - plan.modules.keys():
        parser.error(f"no module {', '.join(unknown)}; the modules are {', '.join(plan.modules)}")
    count = 0 if asked.kept_only else plan.count if asked.count is None else asked.count
    faults = [*plan.kept(), *plan.drawn(count)]
    return run(plan, [fault for fault in faults if not asked.only or fault.module in asked.only], asked.at_once)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
