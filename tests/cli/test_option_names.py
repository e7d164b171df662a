"""Each idea has one name on the command line."""

from collections import defaultdict
from collections.abc import Iterator

import click

from karrot import cli


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(cli.main))


def test_an_option_of_one_name_has_one_kind_of_value() -> None:
    """``--follow`` is a switch everywhere, ``--every`` a duration everywhere."""
    switches = defaultdict(set)
    for each in COMMANDS.values():
        for option in each.params:
            if isinstance(option, click.Option):
                switches[option.opts[0]].add(option.is_flag)
    assert {name for name, kinds in switches.items() if len(kinds) > 1} == set()


def test_every_command_with_json_also_has_o_json() -> None:
    names = {command: {name for each in COMMANDS[command].params for name in each.opts} for command in COMMANDS}
    with_json = {command for command in names if "--json" in names[command]}
    assert len(with_json) > 10
    assert with_json == {command for command in names if "-o" in names[command]}
