"""Parse the settings of the ``kafka`` reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from karrot.kafka import client_properties
from karrot.settings import types

_TOPIC = "karrot.events"


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings; ``properties`` is a file of client properties."""

    bootstrap: tuple[str, ...]
    topic: str = _TOPIC
    properties: Path | None = None

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> Self:
        """The options that texts stand for; an empty text, or none, leaves the default.

        Raises `ValueError` with a sentence, also for a file that cannot be used as it is now.
        """
        given = {
            name: text for name in ("bootstrap", "topic", "properties") if (text := settings.get(name, "").strip())
        }
        if "bootstrap" not in given:
            raise ValueError("bootstrap is not set: it must be HOST:PORT, several separated by commas")
        options = cls(
            types.checked(types.brokers, "bootstrap", given["bootstrap"]),
            types.checked(types.topic, "topic", given.get("topic", _TOPIC)),
            types.checked(types.path, "properties", given["properties"]) if "properties" in given else None,
        )
        options.client_properties()
        return options

    def client_properties(self) -> dict[str, str]:
        """What the file says now, under librdkafka's names. Raises `karrot.kafka.client_properties.PropertiesError`."""
        return {} if self.properties is None else client_properties.read(self.properties)
