"""`make truth` notices each way in which Karrot can be wrong about a group."""

from dataclasses import replace

import pytest

from e2e.truth.explained import Asked, is_enough
from e2e.truth.explained import last_line as last_line_of_causes
from e2e.truth.explained import report as report_of_causes
from e2e.truth.judge import Verdict, is_true, judged, last_line
from e2e.truth.plan import Case, Proof, Sighting
from e2e.truth.proofs import Json, bad_partitions, lack_of_facts, lack_of_page
from e2e.truth.report import as_json, markdown

HARMLESS = Case("compacted topic", "calm")
PROOF = Proof({("hung-1", 0): frozenset({"STALL"})}, has_owner=True)
FAULT = Case(
    "hung thread",
    "hung-1",
    PROOF,
    ("KarrotConsumerError",),
    commit_gap_s=2,
    planted_at=100.0,
)
FOUND = Sighting(
    found_at=130.0, incidents=1, open_at_end=True, lack="", lack_at_end="", alerts={"KarrotConsumerError": [1.0]}
)


def verdict(case: Case, sighting: Sighting) -> Verdict:
    [found] = judged([case], {case.group: sighting})
    return found.verdict


def test_a_fault_found_in_time_once_with_its_proof_and_a_silent_healthy_group_are_true() -> None:
    found = judged([HARMLESS, FAULT], {"hung-1": FOUND})
    assert is_true(found)
    assert last_line(found) == "truth: false 0 of 1, missed 0 of 1"


def test_an_incident_or_an_alert_of_a_healthy_group_is_false() -> None:
    assert verdict(HARMLESS, Sighting(incidents=1, found_at=5, sentence="It stopped.")).incident
    assert verdict(HARMLESS, Sighting(alerts={"KarrotMessagesLost": [1.0]})).alert == "KarrotMessagesLost"
    found = judged([HARMLESS, FAULT], {"calm": Sighting(incidents=2), "hung-1": FOUND})
    assert not is_true(found)
    assert last_line(found) == "truth: false 1 of 1, missed 0 of 1"


@pytest.mark.parametrize(
    ("sighting", "kind", "words"),
    [
        (Sighting(), "missed", "not found"),
        (replace(FOUND, found_at=99.0), "missed", "before it was planted"),
        (replace(FOUND, found_at=141.0), "missed", "found after 41 s, more than 40 s"),
        (replace(FOUND, open_at_end=False), "missed", "ended"),
        (replace(FOUND, alerts={"KarrotConsumerRebalancing": [1.0]}), "missed", "no alert"),
        (replace(FOUND, incidents=2), "twice", "2 incidents"),
        (replace(FOUND, alerts={"KarrotConsumerError": [1.0, 90.0]}), "twice", "fired 2 times"),
        (replace(FOUND, lack="names healthy partitions: 1 STALL"), "unproved", "healthy partitions"),
        (replace(FOUND, lack_at_end="the page has no sentence"), "unproved", "at the end"),
    ],
)
def test_a_fault_that_is_not_shown_in_time_once_and_with_its_proof_is_missed(
    sighting: Sighting, kind: str, words: str
) -> None:
    assert words in getattr(verdict(FAULT, sighting), kind)
    assert last_line(judged([FAULT], {"hung-1": sighting})) == "truth: false 0 of 0, missed 1 of 1"


def test_a_fault_that_was_not_planted_is_missed() -> None:
    assert verdict(replace(FAULT, planted_at=None), Sighting()).missed == "the fault was not planted"


def test_a_group_that_commits_seldom_leaves_more_time_to_find_its_fault() -> None:
    seldom = replace(FAULT, commit_gap_s=15)
    assert verdict(seldom, replace(FOUND, found_at=144.0)).missed == ""
    assert verdict(seldom, replace(FOUND, found_at=146.0)).missed


def test_a_run_without_groups_is_not_true() -> None:
    assert not is_true([])


def test_the_report_has_a_row_for_each_kind_a_line_for_each_wrong_group_and_the_figure_at_its_end() -> None:
    found = judged([HARMLESS, FAULT], {"calm": Sighting(incidents=1), "hung-1": replace(FOUND, incidents=3)})
    text = markdown(found, {"minutes": 20})
    assert "| compacted topic | 1 | 1 | 0 |" in text
    assert "| hung thread | 1 | 0 | 1 | 0 | 30 / 30 |" in text
    assert "- hung-1 (hung thread): 3 incidents" in text
    assert text.endswith("\ntruth: false 1 of 1, missed 1 of 1\n")
    told = as_json(found, {"minutes": 20})
    assert (told["is_true"], told["result"]) == (False, "truth: false 1 of 1, missed 1 of 1")
    assert [each["wrong"] for each in told["groups"]] == [["1 incidents,"], ["3 incidents"]]


def facts(*partitions: Json) -> str:
    bad = bad_partitions({"partitions": [*partitions]})
    return lack_of_facts(bad, PROOF, {("hung-1", 0): 7, ("hung-1", 1): 9}, is_end=False)


def partition(number: int = 0, status: str = "STALL", offset: int = 7, owner: str = "/10.0.0.1") -> Json:
    return {"topic": "hung-1", "partition": number, "status": status, "end": {"offset": offset}, "owner": owner}


def page(told: str = "1 of 2 partitions stalled.", offset: str = "7", log_end: str = "90") -> str:
    row = f'<td data-label="Partition">0</td><td data-label="Committed offset">{offset}</td>'
    row += f'<td data-label="Log end offset">{log_end}</td>'
    return f'<div><p class="wrong">{told}</p></div><table><tr><th>hung-1</th>{row}</tr></table>'


def test_the_facts_prove_a_fault_if_they_name_its_partition_status_offset_and_owner_and_nothing_else() -> None:
    assert facts(partition(), partition(1, "OK")) == ""
    assert facts(partition(1, "OK")) == "does not name partitions [0]"
    assert facts(partition(), partition(1, offset=9)) == "names the healthy partition 1 as STALL"
    assert facts(partition(status="WARN")) == "names partition 0 as WARN"
    assert facts(partition(owner="")) == "does not name the owner of partition 0"
    assert facts(partition(offset=6)) == "shows partition 0 at 6, and Kafka has 7"


def test_at_the_end_each_partition_with_the_fault_must_be_named() -> None:
    both = replace(PROOF, places=dict.fromkeys([("hung-1", 0), ("hung-1", 1)], frozenset({"STALL"})))
    bad = bad_partitions({"partitions": [partition()]})
    assert lack_of_facts(bad, both, {("hung-1", 0): 7}, is_end=False) == ""
    assert lack_of_facts(bad, both, {("hung-1", 0): 7}, is_end=True) == "does not name partitions [1]"


def test_at_the_end_a_consumer_that_hangs_may_be_out_of_its_group() -> None:
    bad = bad_partitions({"partitions": [partition(owner="")]})
    assert lack_of_facts(bad, PROOF, {("hung-1", 0): 7}, is_end=True) == ""


def test_the_page_proves_a_fault_if_its_sentence_and_its_row_are_right() -> None:
    bad = bad_partitions({"partitions": [partition()]})

    def lack(html: str, *words: str) -> str:
        return lack_of_page(html, bad, replace(PROOF, words=words), lambda _topic, _partition: 90)

    assert lack(page(), "stalled") == ""
    assert "does not say anything" in lack("<p>nothing</p>")
    assert "does not say transaction" in lack(page(), "transaction")
    assert "claims what nobody saw" in lack(page("It commits the same offset again and again."))
    assert lack(page(offset="8")) == "the page shows partition 0 at 8, and the API at 7"
    bad["hung-1", 0]["status"] = "BEYOND_END"
    assert lack(page()) == ""
    assert "shows the log end 7000 of partition 0, and Kafka has 90" in lack(page(log_end="7,000"))


def asked(*answers: str, number: int = 0) -> Asked:
    found = Asked("hung_consumer", f"hung-{number}", "hung_consumer", also=frozenset({"slow_consumer"}))
    found.answers = [(float(at), cause) for at, cause in enumerate(answers)]
    found.last = {"cause": answers[-1], "sentence": "It hangs.", "evidence": []}
    found.is_done = True
    return found


def test_the_cause_that_counts_is_the_last_one_and_no_other_may_be_wrong() -> None:
    assert asked("none", "not_known", "slow_consumer", "hung_consumer").is_right
    assert asked("none", "slow_consumer", "hung_consumer").wrong == set()
    late = asked("poison_record", "hung_consumer")
    assert (late.is_right, late.wrong) == (True, {"poison_record"})
    assert not asked("hung_consumer", "not_known").is_right


def test_two_of_fifty_causes_may_be_unknown_and_none_may_be_wrong() -> None:
    right = [asked("hung_consumer", number=number) for number in range(48)]
    unknown, wrong = asked("not_known", number=48), asked("hot_key", "hung_consumer", number=49)
    assert is_enough([*right, unknown, unknown])
    assert not is_enough([*right, unknown, unknown, unknown, unknown])
    assert not is_enough([*right, unknown, wrong])
    assert last_line_of_causes([*right, unknown, wrong]) == "explain: right 49 of 50, wrong 1"
    text = report_of_causes([*right, unknown, wrong])
    assert "| hung_consumer | 50 | 49 | 1 | 1 |" in text
    assert "hung-48" in text
    assert "hung-49" in text
    assert "hung-47" not in text


def test_a_run_without_explained_groups_can_be_true() -> None:
    assert is_enough([])
