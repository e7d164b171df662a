"""Clocks that tests set by hand."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """A clock that only `advance` moves; ``jump`` moves the wall clock alone, like an administrator or NTP."""

    wall: int = 1_800_000_000_000
    boot: int = 5_000_000
    boot_id: str = "boot-1"

    def wall_ms(self) -> int:
        return self.wall

    def boot_ms(self) -> int:
        return self.boot

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms

    def jump(self, ms: int) -> None:
        self.wall += ms

    def reboot(self, *, down_ms: int, boot_id: str = "boot-2") -> None:
        self.wall += down_ms
        self.boot = 1_000
        self.boot_id = boot_id


class SlowClock(ManualClock):
    """A clock that advances by 100 ms with each reading of the boot clock."""

    def boot_ms(self) -> int:
        self.boot += 100
        return self.boot
