"""The command line of a JVM that runs for only a few minutes."""

from pathlib import Path


def java(jars: Path, heap_mb: int, main: str, *arguments: str | Path, log_level: str = "info") -> list[str | Path]:
    """Return the command that runs a class, tuned for a quick start instead of top speed."""
    return [
        "java",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        "-cp",
        f"{jars}/*",
        main,
        *arguments,
    ]
