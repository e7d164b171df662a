"""Each idea has one name on the command line, and every name of the past is still accepted."""

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from karrot import cli
from karrot.cli.options import RenamedOption
from support.karrot_command import run_karrot

OLD_NAMES = {
    ("burrow-config", "--url", "--karrot"),
    ("groups", "--interval", "--every"),
    ("groups", "--properties", "--command-config"),
    ("groups", "--watch", "--follow"),
    ("healthcheck", "--url", "--karrot"),
    ("history stale", "--for", "--stale-for"),
    ("lag", "--interval", "--every"),
    ("lag", "--properties", "--command-config"),
    ("lag", "--watch", "--follow"),
    ("pipeline derive", "--silence", "--stale-after"),
    ("pipeline derive", "--target-seconds", "--max-lag-seconds"),
    ("pipeline ingest", "--trigger", "--every"),
    ("pipeline offsets", "--trigger", "--every"),
    ("pipeline replay", "--stood-still", "--stale-for"),
    ("pipeline run", "--silence", "--stale-after"),
    ("pipeline run", "--target-seconds", "--max-lag-seconds"),
    ("pipeline stale", "--for", "--stale-for"),
    ("pipeline stale", "--trigger", "--every"),
    ("pipeline stream", "--trigger", "--every"),
    ("render athena", "--location", "--tables"),
    ("render cloudwatch-dashboard", "--burrow-cluster", "--cluster"),
    ("render druid", "--topic", "--json-topic"),
    ("render ecs-autoscaling", "--burrow-cluster", "--cluster"),
    ("render ecs-service", "--burrow-cluster", "--cluster"),
    ("render ecs-service", "--kafka", "--bootstrap-servers"),
    ("send-sample", "--url", "--karrot"),
    ("simulate", "--burrow-cluster", "--cluster"),
    ("simulate", "--url", "--karrot"),
    ("status", "--interval", "--every"),
    ("status", "--properties", "--command-config"),
    ("status", "--watch", "--follow"),
    ("watch", "--exclude", "--exclude-groups"),
    ("watch", "--interval", "--every"),
    ("watch", "--properties", "--command-config"),
}
"""What scripts of others use. A line leaves this set only with a new major version."""

OTHER_IDEAS = {
    "--interval": {"render druid"},  # the word of Druid: a range of time
    "--topic": {"history timeseries", "pipeline ingest", "pipeline run", "pipeline stream"},  # topics of other things
    "--watch": {"render ecs-service"},  # run `karrot watch`
}
"""Commands in which an old name of another command is the present name of another idea."""


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(cli.main))


def renamed(command: str) -> Iterator[RenamedOption]:
    return (option for option in COMMANDS[command].params if isinstance(option, RenamedOption))


def test_every_old_name_is_known() -> None:
    found = {
        (command, old, option.opts[0]) for command in COMMANDS for option in renamed(command) for old in option.old
    }
    assert found == OLD_NAMES


@pytest.mark.parametrize(("command", "old", "new"), sorted(OLD_NAMES))
def test_an_old_name_means_the_same_as_the_new_one(command: str, old: str, new: str) -> None:
    """The parser gives both names to one parameter. The value is the same text, so its meaning is too."""
    [option] = [each for each in renamed(command) if old in each.old]
    typed = [] if option.is_flag else ["text"]
    context = click.Context(COMMANDS[command], info_name=command, **cli.main.context_settings)
    read = [COMMANDS[command].make_parser(context).parse_args([name, *typed])[0] for name in (old, new)]
    assert read[0] == read[1]
    assert option.name in read[0]


@pytest.mark.parametrize("command", sorted({command for command, *_ in OLD_NAMES}))
def test_the_help_does_not_show_an_old_name(command: str) -> None:
    shown = run_karrot(*command.split(), "--help").stdout.split()
    assert not {old for named, old, _ in OLD_NAMES if named == command} & set(shown)


def test_no_command_uses_the_old_name_of_an_idea_for_it() -> None:
    old_names = {old for _, old, _ in OLD_NAMES}
    used = defaultdict(set)
    for command, each in COMMANDS.items():
        for name in {name for option in each.params for name in option.opts} & old_names:
            used[name].add(command)
    assert used == OTHER_IDEAS


def test_an_option_of_one_name_has_one_kind_of_value() -> None:
    """``--follow`` is a switch everywhere, ``--every`` a duration everywhere."""
    switches = defaultdict(set)
    for each in COMMANDS.values():
        for option in each.params:
            if isinstance(option, click.Option):
                switches[option.opts[0]].add(option.is_flag)
    assert {name for name, kinds in switches.items() if len(kinds) > 1} == set()


def test_an_old_name_works_in_a_run() -> None:
    new, old = (run_karrot("burrow-config", name, "http://karrot:5000").stdout for name in ("--karrot", "--url"))
    assert new == old
    assert "http://karrot:5000/burrow" in new
