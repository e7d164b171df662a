import pytest

from karrot.eventlog.base import ReporterState
from karrot.web.pages.banners import Heard, ServiceHealth
from support.web.banners import banners


def wrong(seen: ServiceHealth) -> list[str]:
    return [banner.wrong for banner in banners(seen)]


def test_a_healthy_karrot_has_no_banner() -> None:
    heard = [Heard("prod-eu", 3.0, silent=False)]
    assert wrong(ServiceHealth(heard=heard, kinds={"observation": 1, "incident": 99}, groups=3, max_groups=10)) == []


@pytest.mark.parametrize(
    ("seen", "sentence", "remedy", "runbook"),
    [
        pytest.param(
            ServiceHealth(fault="disk full"),
            "Karrot cannot store events: disk full",
            "KARROT_DATA_DIR",
            "KarrotLogNotWritable",
            id="a log that is not writable",
        ),
        pytest.param(
            ServiceHealth(heard=[Heard("eu", 400.0, silent=True), Heard("us", 2.0, silent=False)]),
            "Burrow has been silent for 6 min 40 s (eu): the values of its groups are old",
            "karrot doctor",
            "KarrotBurrowSilent",
            id="a silent Burrow",
        ),
        pytest.param(
            ServiceHealth(heard=[Heard("eu", None, silent=True)]),
            "Burrow never sent an event (eu)",
            "send-sample",
            "KarrotBurrowSilent",
            id="a Burrow that never sent an event",
        ),
        pytest.param(
            ServiceHealth(kinds={"incident": 10}),
            "Burrow has sent only WARN and ERR",
            "threshold = 1",
            "KarrotOnlyUnhealthyVerdicts",
            id="only WARN and ERR",
        ),
        pytest.param(
            ServiceHealth(refused={"unsupported_template": 3}),
            "3 bodies were refused in the last 15 min: `unsupported_template`.",
            "karrot burrow-config",
            "KarrotRejectingEvents",
            id="refused bodies",
        ),
        pytest.param(
            ServiceHealth(groups=50, max_groups=50),
            "Karrot has reached its limit of groups (50)",
            "KARROT_MAX_CONSUMERS",
            "KarrotSeriesDropped",
            id="the limit of groups",
        ),
        pytest.param(
            ServiceHealth(left_out={"cloudwatch": "12"}),
            "cloudwatch leaves out 12 groups.",
            "KARROT_CLOUDWATCH_MAX_GROUPS",
            "KarrotCloudWatchOverCap",
            id="groups that CloudWatch leaves out",
        ),
        pytest.param(
            ServiceHealth(heard=[Heard("eu", 2.0, silent=False)], cut_off=["eu"]),
            "Burrow reads no commits (eu). Its lags are old.",
            "may read `__consumer_offsets`",
            "KarrotBurrowCutOff",
            id="a Burrow that is cut off from Kafka",
        ),
        pytest.param(
            ServiceHealth(burrow_behind=["eu"]),
            "The Burrow of eu itself is behind",
            "workers",
            "KarrotBurrowLagging",
            id="a Burrow that is behind",
        ),
        pytest.param(
            ServiceHealth(
                failing=[ReporterState("cloudwatch", None, "failing", "AccessDenied: no")], reporters=["cloudwatch"]
            ),
            "cloudwatch is failing: AccessDenied: no",
            "loses no event",
            "KarrotCloudWatchRefusing",
            id="a failing CloudWatch reporter",
        ),
        pytest.param(
            ServiceHealth(failing=[ReporterState("kafka", None, "failing", "no broker")], reporters=["kafka"]),
            "kafka is failing: no broker",
            "loses no event",
            "KarrotReporterBacklog",
            id="a failing kafka reporter",
        ),
        pytest.param(
            ServiceHealth(failing=[ReporterState("watch", None, "failing", "no broker")]),
            "watch is failing: no broker",
            "It retries by itself.",
            "KarrotWatchSilent",
            id="a failing watch",
        ),
        pytest.param(
            ServiceHealth(failing=[ReporterState("resync", None, "failing", "refused")]),
            "resync is failing: refused",
            "It retries by itself.",
            "KarrotResyncFailing",
            id="a failing resync",
        ),
    ],
)
def test_each_problem_has_a_banner_with_its_remedy_and_runbook(
    seen: ServiceHealth, sentence: str, remedy: str, runbook: str
) -> None:
    (banner,) = banners(seen)
    assert banner.wrong.startswith(sentence)
    assert remedy in banner.remedy
    assert banner.runbook == runbook


@pytest.mark.parametrize(
    ("seconds", "said", "gone"),
    [
        (None, "never sent an event", "take it out of `KARROT_EXPECTED_CLUSTERS`."),
        (400.0, "has been silent for 6 min 40 s", "run `karrot forget-cluster`."),
    ],
)
def test_a_burrow_is_not_called_silent_while_karrot_refuses_events(seconds: float | None, said: str, gone: str) -> None:
    heard = [Heard("eu", seconds, silent=True)]
    silent, refused = banners(ServiceHealth(heard=heard, refused={"unsupported_template": 3}))
    assert silent.wrong.startswith(f"Burrow {said}, or Karrot refused its events (eu)")
    assert silent.remedy.startswith("First fix the refusals. ")
    assert silent.remedy.endswith(f"If the cluster is gone, {gone}")
    assert "3 bodies were refused" in refused.wrong


def test_few_verdicts_give_no_banner_about_the_threshold() -> None:
    assert wrong(ServiceHealth(kinds={"incident": 9})) == []


def test_errors_come_first() -> None:
    kinds = [banner.kind for banner in banners(ServiceHealth(fault="x", groups=1, max_groups=1, burrow_behind=["eu"]))]
    assert kinds == ["err", "warn", "warn"]
