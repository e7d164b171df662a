from hypothesis import given
from hypothesis import strategies as st

from karrot.clock import Anchor, LogTime
from support.manual_clock import ManualClock


def test_a_new_log_starts_at_the_wall_clock_and_ignores_it_from_then_on(clock: ManualClock) -> None:
    time = LogTime(clock, None)
    begun = time.now()
    assert begun == clock.wall
    clock.jump(-86_400_000)
    clock.advance(1_500)
    assert time.now() == begun + 1_500


def test_within_one_boot_the_boot_clock_counts(clock: ManualClock) -> None:
    anchor = LogTime(clock, None).anchor()
    clock.advance(10_000)
    clock.jump(999_999)
    assert LogTime(clock, anchor).now() == anchor.log_ms + 10_000


def test_between_boots_the_wall_clock_counts_if_it_went_forward(clock: ManualClock) -> None:
    anchor = LogTime(clock, None).anchor()
    clock.reboot(down_ms=45_000)
    assert LogTime(clock, anchor).now() == anchor.log_ms + 45_000
    clock.jump(-90_000)
    assert LogTime(clock, anchor).now() == anchor.log_ms


def test_all_workers_of_one_boot_agree(clock: ManualClock) -> None:
    first = LogTime(clock, Anchor("boot-1", clock.boot - 700, 0, 5_000))
    clock.advance(3_000)
    second = LogTime(clock, first.anchor())
    assert first.now() == second.now() == 8_700


@given(steps=st.lists(st.tuples(st.sampled_from(["advance", "jump", "reboot"]), st.integers(-(10**12), 10**12))))
def test_log_time_never_goes_back(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    anchor = LogTime(clock, None).anchor()
    for number, (what, ms) in enumerate(steps):
        match what:
            case "advance":
                clock.advance(abs(ms))
            case "jump":
                clock.jump(ms)
            case _:
                clock.reboot(down_ms=ms, boot_id=f"boot-{number + 2}")
        later = LogTime(clock, anchor).anchor()
        assert later.log_ms >= anchor.log_ms
        anchor = later
