"""Fuzzes the parser with bytes that coverage selects: it may raise `MalformedPayload` and nothing else.

make fuzz [ARGS="--seconds 300 --seed 1 --corpus build/fuzz"]

Atheris (libFuzzer) mutates Burrow's recorded bodies and keeps each input that takes a new way through
``karrot.burrow``. An input that breaks what `support.burrow.parser_contract` asserts ends the run with an error and
stays next to the corpus as ``crash-*``; once it is fixed, add it to ``tests/data/hostile/fuzzed.base64``, which the
tests replay.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import atheris
import msgspec

with atheris.instrument_imports(include=["karrot.burrow"]):
    from support.burrow.parser_contract import assert_parsed_or_rejected

from karrot.burrow.payload import NotificationJson, RestReply, Verdict, WebhookJson
from karrot.event import OffsetSample, PartitionLag
from support.burrow.malformed_bodies import fuzzer_corpus, mutate_body

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
LONGEST_BODY = 4096
SLOW_S = 5
MARKS = [*"{}[]:,", "null", "true", "1e308", "-0", "9223372036854775808", "18446744073709551616", "\\u0000", "\\ud83d"]
STRUCTS = (WebhookJson, NotificationJson, Verdict, PartitionLag, OffsetSample, RestReply)


def seeds() -> Iterator[bytes]:
    """Yield every recorded body that is not too long, and the inputs that were found before."""
    for folder in ("burrow/events", "burrow/real"):
        for file in sorted((DATA / folder).iterdir()):
            if file.stat().st_size <= LONGEST_BODY:
                yield file.read_bytes()
    yield from fuzzer_corpus()


def words() -> Iterator[str]:
    """Yield the words that the parser looks for."""
    yield from MARKS
    for struct in STRUCTS:
        yield from (f'"{each.encode_name}"' for each in msgspec.structs.fields(struct))
    yield from ('"api_key"', '"events"', '"ids"', '"attachments"')


def bred(data: bytes, longest: int, seed: int) -> bytes:
    """Return the next input: random byte changes, or changes that mostly keep valid JSON, to get past the decoder."""
    random = Random(seed)
    changed = mutate_body(data, random) if random.random() < 0.5 else atheris.Mutate(data, longest)
    return bytes(changed[:longest])


def prepare(corpus: Path) -> Path:
    """Write the first inputs and the dictionary; return the dictionary's path."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    dictionary = corpus.with_suffix(".dict")
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words())
    dictionary.write_text("".join(f'"{word}"\n' for word in escaped))
    return dictionary


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=Path("build/fuzz"), help="kept, so that the next run goes on")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parsed()
    dictionary = prepare(arguments.corpus)
    options = {
        "max_total_time": arguments.seconds,
        "seed": arguments.seed,
        "max_len": LONGEST_BODY,
        "timeout": SLOW_S,
        "dict": dictionary,
        "artifact_prefix": f"{arguments.corpus.parent}/",
    }
    flags = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(arguments.corpus)], assert_parsed_or_rejected, custom_mutator=bred)
    atheris.Fuzz()
