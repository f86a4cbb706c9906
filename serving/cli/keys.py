"""The commands `longfold keys ...` and `longfold db ...`: parse and call."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.command_settings import command_settings

keys = typer.Typer(no_args_is_help=True, help="API keys: create, list, revoke.")
database = typer.Typer(no_args_is_help=True, help="The database of jobs and keys: upgrade, check.")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is for, to recognise it by.")],
    owner: Annotated[str, typer.Option(help="Team whose jobs and files it reaches; without one it has its own.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="infer, files, admin; repeat. [infer, files]")] = None,
    expires_in: Annotated[str, typer.Option(help="Such as 90d, 12h or 30m; without it, it does not expire.")] = "",
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Jobs it may submit in a minute.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=1, help="Tokens its jobs may take in a day.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="A model it may name; repeat. [all]")] = None,
) -> None:
    """Make a key and print its secret, once."""
    from serving.cli import key_commands

    key_commands.create_key(
        command_settings(),
        name=name,
        owner=owner,
        scopes=scope or ["infer", "files"],
        expires_in=expires_in,
        requests_per_minute=requests_per_minute,
        tokens_per_day=tokens_per_day,
        models=only or [],
    )


@keys.command("list")
def list_keys() -> None:
    """Show the keys, their limits and their use."""
    from serving.cli import key_commands

    key_commands.list_keys(command_settings())


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The part of the key between lf_ and the next _.")]) -> None:
    """Revoke a key immediately."""
    from serving.cli import key_commands

    key_commands.revoke_key(command_settings(), key_id)


@database.command("upgrade")
def upgrade_schema() -> None:
    """Bring the tables to this version; a SQLite file is copied first."""
    from serving.cli import key_commands

    key_commands.upgrade_schema(command_settings())


@database.command("check")
def check_database() -> None:
    """Say whether the database can be used by this version and is sound."""
    from serving.cli import key_commands

    key_commands.check_database(command_settings())
