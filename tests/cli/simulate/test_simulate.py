"""`karrot simulate` on the command line."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from karrot.cli import main
from karrot.cli.simulate.lag_samples import samples_from_file
from karrot.web import Credentials
from support.burrow.lag_events import make_event
from support.pipeline.table_files import lag_minute_row, write_rows
from support.servers.background_server import serve_in_thread
from support.web.website import Website, make_website

ROOT = Path(__file__).resolve().parents[2]
TUESDAY = ROOT / "data" / "simulate" / "tuesday.csv"
DOCUMENT = ROOT.parent / "docs" / "simulate.md"

THEN = ["--tasks-then", "2", "--rate-per-task", "500"]
TRACKING = ["--recipe", "target-tracking", "--max-lag-seconds", "120", "--max-tasks", "12"]
RECIPES = [
    TRACKING,
    ["--recipe", "target-tracking", "--target-lag-per-task", "60000", "--max-tasks", "12"],
    ["--recipe", "step", "--max-lag-seconds", "120", "--max-tasks", "12"],
    ["--recipe", "step", "--max-lag", "100000", "--max-tasks", "12", "--high-resolution"],
    ["--recipe", "step", "--max-lag", "100000", "--max-tasks", "12", "--min-tasks", "0"],
    ["--recipe", "from-zero", "--max-lag-seconds", "120", "--max-tasks", "12"],
    ["--recipe", "from-zero", "--target-lag-per-task", "60000", "--max-tasks", "12"],
]


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments], env=env, catch_exceptions=False)


def figures(result: Result) -> dict[str, str]:
    """Return the last column of the table, by the words before it."""
    lines = result.stdout.split("\n\n")[1].splitlines()[1:]
    return {line[:19].strip(): line.split("  ")[-1].strip() for line in lines}


def test_the_command_prints_the_example_in_the_documentation(tmp_path: Path) -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    [example] = re.findall(r"```console\n\$ karrot simulate (.*?)\n(target.*?)\n\.\.\.\n```", page, re.DOTALL)
    drawn = tmp_path / "tuesday.svg"
    here = {"tuesday.csv": str(TUESDAY), "tuesday.svg": str(drawn)}
    result = run(*(here.get(word, word) for word in example[0].replace("\\\n", " ").split()))
    assert result.stdout.startswith(example[1])
    assert result.stderr == ""
    assert drawn.read_text() == (DOCUMENT.parent / "images" / "simulate.svg").read_text()
    single = figures(run(*TRACKING, "--min-tasks", "1", "--series", str(TUESDAY), *THEN))
    assert f"gives {single['task-hours']} task-hours and {single['flaps']} flaps" in page


@pytest.mark.parametrize("target", [[], ["--target", "asg"]], ids=["ecs", "asg"])
@pytest.mark.parametrize("recipe", RECIPES, ids=[" ".join(each[1:]) for each in RECIPES])
def test_every_recipe_is_simulated_as_it_is_rendered(recipe: list[str], target: list[str]) -> None:
    result = run(*recipe, *target, "--series", str(TUESDAY), *THEN)
    assert result.exit_code == 0
    assert result.stderr == ""
    told = figures(result)
    assert int(told["peak lag"].replace(",", "")) < 2_880_726
    assert int(told["scaled out, in"].split(",")[0]) > 0


def test_the_chart_is_a_drawing_with_all_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "tuesday.svg"
    name = 'a"<&>group'
    result = run(*TRACKING, "--group", name, "--series", str(TUESDAY), *THEN, "--svg", str(file))
    assert result.exit_code == 0
    drawing = ET.fromstring(file.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert drawing.findtext(f"{space}title") == f"target-tracking on the lag of {name}"
    assert {"was", "is", "under", "desired", "running"} <= {each.get("class") for each in drawing.iter(f"{space}path")}
    assert "prefers-color-scheme: dark" in str(drawing.findtext(f"{space}style"))


def test_a_recording_that_contradicts_its_rate_gives_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "steep.csv"
    file.write_text("0,90000\n60,0\n1200,0\n")
    result = run(*TRACKING, "--min-tasks", "3", "--series", str(file), *THEN)
    too_fast = "1 of 2 times the lag fell faster than 2 tasks can consume"
    assert result.stderr.splitlines() == [
        f"warning: {too_fast}: --rate-per-task or --tasks-then is too low",
        (
            "warning: gaps between samples are up to 19 minutes long; the simulation assumes a constant arrival rate "
            "in a gap"
        ),
        "warning: the recipe begins with 3 tasks, but the recording had 2",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*TRACKING, *THEN], "karrot: give exactly one of --series, --karrot and --tables"),
        ([*TRACKING, *THEN, "--karrot", "http://127.0.0.1:1"], "karrot: --karrot needs --group"),
        (
            ["--recipe", "step", "--max-tasks", "3", "--series", str(TUESDAY), *THEN],
            "karrot: --recipe step takes either --max-lag-seconds or --max-lag",
        ),
    ],
)
def test_wrong_options_are_refused_with_one_sentence(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.splitlines()) == (2, [sentence])


def test_a_series_that_cannot_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("time,lag\nyesterday,5\n")
    result = run(*TRACKING, "--series", str(file), *THEN)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"karrot: {file}: line 2: 'yesterday' is not a time")


class Served(WSGIServer):
    """A Karrot that serves on a port."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Keep requests off standard error."""


@pytest.fixture
def website() -> Website:
    return make_website(credentials=Credentials(api_token="let-me-in"))


@pytest.fixture
def karrot(website: Website) -> Iterator[Served]:
    server = make_server("127.0.0.1", 0, website.client.application, Served, Quiet)
    with serve_in_thread(server):
        yield server


TOKEN = {"KARROT_API_TOKEN": "let-me-in"}


def record(website: Website, *, clusters: tuple[str, ...] = ("prod-eu",), events: int = 120) -> None:
    """Store a lag that grows for an hour."""
    for _ in range(events):
        website.clock.advance(30_000)
        for cluster in clusters:
            at_ms, lag = website.clock.wall_ms(), 1000 * _
            website.context.intake.accept(
                make_event(cluster=cluster, consumer="orders/eu svc", total_lag=lag, observed_at_ms=at_ms)
            )


def test_the_lag_can_be_read_from_a_running_karrot(website: Website, karrot: Served) -> None:
    record(website)
    result = run(*TRACKING, *THEN, "--karrot", karrot.url, "--group", "orders/eu svc", env=TOKEN)
    assert result.exit_code == 0, result.stderr
    assert "target-tracking on the lag of orders/eu svc, 1 to 12 tasks" in result.stdout
    assert "120 samples" in result.stdout


def test_a_group_in_two_clusters_needs_its_cluster(website: Website, karrot: Served) -> None:
    record(website, clusters=("prod-eu", "prod-us"), events=3)
    asked = [*TRACKING, *THEN, "--karrot", karrot.url, "--group", "orders/eu svc"]
    unclear = run(*asked, env=TOKEN)
    assert unclear.stderr == "karrot: 'orders/eu svc' is in the clusters prod-eu, prod-us: choose one with --cluster\n"
    assert run(*asked, "--cluster", "prod-us", env=TOKEN).exit_code == 0


def test_an_error_of_karrot_is_shown(website: Website, karrot: Served) -> None:
    record(website, events=3)
    asked = [*TRACKING, *THEN, "--karrot", karrot.url, "--group"]
    assert "401" in run(*asked, "orders/eu svc").stderr
    assert run(*asked, "nobody", env=TOKEN).stderr == f"karrot: {karrot.url} has no live group 'nobody'\n"
    assert "404" in run(*asked, "nobody", "--cluster", "prod-eu", env=TOKEN).stderr
    assert run(*TRACKING, *THEN, "--karrot", "http://127.0.0.1:1", "--group", "g").exit_code == 2


def test_the_api_gives_the_requested_number_of_events(website: Website) -> None:
    record(website, events=60)
    query = {"cluster": "prod-eu", "consumer": "orders/eu svc"}
    header = {"Authorization": "Bearer let-me-in"}
    for limit, there in (("", 50), ("7", 7), ("1000", 60)):
        answer = website.client.get("/api/v1/group", query_string=query | {"limit": limit}, headers=header)
        assert len(json.loads(answer.data)["events"]) == there
    assert website.client.get("/api/v1/group", query_string=query | {"limit": "0"}, headers=header).status_code == 400


SHARED = ["--max-lag-seconds", "120", "--max-tasks", "12", *THEN, "--series", str(TUESDAY)]


def compared(result: Result) -> dict[str, list[str]]:
    """Return the columns of a comparison, by recipe."""
    lines = result.stdout.split("\n\n")[1].splitlines()
    return {re.split(r"  +", line)[0]: re.split(r"  +", line)[1:] for line in lines}


def test_recipes_in_a_comparison_have_the_same_figures_as_alone() -> None:
    own = "step:max-lag=100000,min-tasks=0,high-resolution"
    result = run("--recipe", "target-tracking", "--recipe", own, *SHARED)
    assert result.stdout.startswith("2 recipes on a recorded lag\n")
    told = compared(result)
    assert told.pop("recipe")[:5] == ["tasks", "peak lag", "in seconds", "task-hours", "flaps"]
    assert told.pop("as recorded") == ["2", "2,880,726", "2,880", "12.0"]
    options = ["--max-lag", "100000", "--min-tasks", "0", "--high-resolution", "--max-tasks", "12", *THEN]
    alone = {
        "target-tracking": run("--recipe", "target-tracking", *SHARED),
        own: run("--recipe", "step", *options, "--series", str(TUESDAY)),
    }
    assert list(told) == list(alone)
    for recipe, single in alone.items():
        known = figures(single)
        assert told[recipe] == [
            known["tasks"],
            known["peak lag"],
            known["peak lag in seconds"],
            known["task-hours"],
            known["flaps"],
            known["scaled out, in"],
            known["minutes at the most"],
        ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--recipe", "stairs"], "'stairs' is not one of 'target-tracking', 'step', 'from-zero'."),
        (["--recipe", "step:lag=5"], "'lag' is not an option of a recipe. The options are max-lag-seconds, "),
        (["--recipe", "step:max-tasks=many"], "'many' is not a valid integer"),
        (["--recipe", "step:max-lag=5,min-tasks=20"], "--min-tasks is 20 and --max-tasks is 12"),
        (["--recipe", "step", "--recipe", "step", "--svg", "x.svg"], "--svg can draw only one recipe"),
        (["--recipe", "step", "--from", "24h"], "--from and --to need --tables"),
    ],
)
def test_an_impossible_recipe_gives_one_sentence(arguments: list[str], sentence: str) -> None:
    result = run(*arguments, *SHARED)
    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write Tuesday's lag by minute into the pipeline's tables; another cluster has a group of the same name."""
    directory = tmp_path_factory.mktemp("tables")
    lags = [(each.at_s, each.lag) for each in samples_from_file(TUESDAY)]
    by_minute = {int(at_s // 60): int(lag) for at_s, lag in lags}
    rows = [
        lag_minute_row(0, lag, consumer="orders", cluster=cluster, minute=datetime.fromtimestamp(number * 60, UTC))
        for number, lag in by_minute.items()
        for cluster in ("prod", "test")
    ]
    write_rows(directory, "lag_minute", [*rows, lag_minute_row(0, None, consumer="orders", cluster="prod")])
    return directory


def test_the_lag_of_every_minute_is_read_from_the_pipelines_tables(tables: Path) -> None:
    asked = ["--tables", str(tables), "--group", "orders", "--from", "2026-11-17", "--to", "2026-11-21"]
    result = run(*TRACKING, *THEN, *asked, "--cluster", "prod")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "target-tracking on the lag of orders, 1 to 12 tasks"
    assert lines[1] == "recording  2026-11-17 08:01 to 2026-11-17 14:00 UTC, 360 samples"
    assert int(figures(result)["peak lag"].replace(",", "")) < 2_880_726
    unclear = run(*TRACKING, *THEN, *asked)
    assert (unclear.exit_code, unclear.stderr) == (
        2,
        "karrot: 'orders' is in the clusters prod, test: choose one with --cluster\n",
    )


def test_tables_without_the_group_or_without_a_lag_say_so(tables: Path) -> None:
    asked = [*TRACKING, *THEN, "--tables", str(tables), "--cluster", "prod"]
    nobody = run(*asked, "--group", "nobody", "--from", "2026-11-17", "--to", "2026-11-18")
    assert nobody.stderr == (
        "karrot: no lag of 'nobody' from 2026-11-17 00:00 to 2026-11-18 00:00 UTC; "
        f"{tables} has 2026-11-17 to 2026-11-20\n"
    )
    assert run(*asked).stderr == "karrot: --tables needs --group\n"
    assert "no such directory" in run(*TRACKING, *THEN, "--tables", f"{tables}x", "--group", "orders").stderr
