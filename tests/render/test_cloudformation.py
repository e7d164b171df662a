"""The rendered templates pass CloudFormation's own rules in cfn-lint: errors, warnings and advice."""

import subprocess
import sys
from pathlib import Path

from karrot.render.ecs_autoscaling import autoscaling
from karrot.render.karrot_on_ecs import service
from support.autoscaling.scaling_recipes import RECIPES
from support.terraform.ecs_service import SERVICES


def test_every_template_is_valid(tmp_path: Path) -> None:
    texts = {name: autoscaling(asked) for name, asked in RECIPES.items()}
    texts |= {f"service-{number}": service(asked) for number, asked in enumerate(SERVICES.values())}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    # One process checks all files, because most of its time is its start. -c I: advice counts too.
    command = [
        sys.executable,
        "-c",
        "from cfnlint.runner import main; exit(main())",
        "-c",
        "I",
        "-r",
        "eu-west-1",
        "--",
        *map(str, sorted(tmp_path.iterdir())),
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "", "")
