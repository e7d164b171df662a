"""Every public address of the project in its files is one of pyproject.toml."""

from pathlib import Path

import pytest

from tools.public_addresses import problems, public_addresses, wrong_addresses

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = public_addresses(ROOT)


def test_no_file_has_another_address_of_the_project() -> None:
    assert list(wrong_addresses(ROOT)) == []


@pytest.mark.parametrize(
    "address",
    [
        "http://GitHub.com/some-body/karrot",
        "https://some-body.github.io/karrot",
        "ghcr.io/some-body/karrot",
        "quay.io/some-body/karrot-pipeline",
        "ghcr.io/some-body/charts/burrow",
    ],
)
def test_another_address_is_found(address: str) -> None:
    assert problems(f"see {address}/blob/main", PUBLIC) == [f"{address} is not a public address of pyproject.toml"]


@pytest.mark.parametrize(
    "address",
    [
        "lowess/karrot",
        "docker.io/lowess/karrot",
        "lowess.github.io/helm-charts",
        "karrot.readthedocs.io",
        "coveralls.io/repos/github/lowess",
        "github.com/Lowess/karrot/blob/master",
    ],
)
def test_an_address_of_2019_is_found(address: str) -> None:
    assert any(address.removeprefix("docker.io/") in problem for problem in problems(f"see {address} ", PUBLIC))


def test_the_public_addresses_and_addresses_of_others_are_right() -> None:
    text = f"""{PUBLIC.repository}/issues {PUBLIC.documentation}/pages/ {PUBLIC.registry}/karrot:2.0.0
    --repo {PUBLIC.repository.removeprefix("https://github.com/")}
    {PUBLIC.registry}/charts/karrot oci://{PUBLIC.registry}/charts https://github.com/linkedin/Burrow
    ghcr.io/linkedin/burrow/burrow registry.example.com/kafka/karrot registry.example.com/karrot lowess-helm/karrot"""
    assert problems(text, PUBLIC) == []
