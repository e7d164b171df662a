"""Parse the settings of the ``kafka`` reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from karrot.kafka import client_properties
from karrot.settings.options import settings_of_reporter


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings; ``properties`` is a file of client properties."""

    bootstrap: tuple[str, ...]
    topic: str = "karrot.events"
    properties: Path | None = None

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Self:
        """The options that texts stand for.

        Raises `ValueError` with a sentence, also for a file that cannot be used as it is now.
        """
        settings = settings_of_reporter("kafka", texts)
        if not settings.kafka_bootstrap:
            raise ValueError("bootstrap is not set: it must be HOST:PORT, several separated by commas")
        options = cls(settings.kafka_bootstrap, settings.kafka_topic, settings.kafka_properties)
        options.client_properties()
        return options

    def client_properties(self) -> dict[str, str]:
        """What the file says now, under librdkafka's names. Raises `karrot.kafka.client_properties.PropertiesError`."""
        return {} if self.properties is None else client_properties.read(self.properties)
