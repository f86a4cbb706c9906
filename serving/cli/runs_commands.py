"""What `longfold runs list | show | edit | fork` do."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import typer

from pipeline.dispatch.journal import Journal, RunRecord
from pipeline.documents.load import STDIN
from pipeline.errors import CallerError, LongfoldError, NothingToResume, UnknownName
from pipeline.run.checkpoints import Checkpoint
from serving.cli.ask import print_lines
from serving.cli.rehearse_edit import rehearse_edit
from serving.cli.show.answer import printable
from serving.cli.show.run import run_lines, run_row, state_text
from serving.session import open_journal
from serving.settings import Settings

_MOST_LISTED = 20


def list_runs(settings: Settings) -> None:
    """The latest, newest first."""
    with open_journal(settings) as journal:
        records = journal.latest_runs(_MOST_LISTED)
        print_lines([run_row(record, journal.last_checkpoint(record.run_id)) for record in records])


def show_run(settings: Settings, run: str, at: int | None) -> None:
    """The history for people; one state as JSON, as it can be given back."""
    with open_journal(settings) as journal:
        record = _find(journal, run)
        checkpoints = journal.checkpoints(record.run_id)
    if at is None:
        print_lines(run_lines(record, checkpoints))
    else:
        typer.echo(state_text(_at(record, checkpoints, at)))


def edit_run(settings: Settings, run: str, file: str, at: int | None, *, fork: bool = False) -> None:
    """Take the edited state from `file`, or from an editor; it is tried before it is kept."""
    with open_journal(settings) as journal:
        record = _find(journal, run)
        before = _at(record, journal.checkpoints(record.run_id), at)
        draft = settings.cache_dir / f"{record.run_id}-{before.number}.json"
        text = _read(file) if file else _ask_editor(state_text(before), draft)
        edited = replace(before, edited=None if _says_the_same(text, before.state) else text, paused=True)
        run_id = secrets.token_hex(4) if fork else record.run_id
        try:
            rehearse_edit(record, edited, journal, settings)
            if fork:
                journal.fork_run(record.run_id, run_id, edited)
            else:
                journal.edit_run(run_id, edited)
        except LongfoldError:
            if not file:
                command = f"longfold runs {'fork' if fork else 'edit'} {record.run_id} --at {before.number}"
                typer.echo(f"Your text is kept in {draft}; to mend it: {command}", err=True)
            raise
        if not file:
            draft.unlink()
    what = f"Run {run_id}, forked from {record.run_id}," if fork else f"Run {run_id}"
    print_lines(
        [
            f"{what} goes on from what you wrote before step {before.number} ({before.name}).",
            f"To go on: longfold ask --resume {run_id}",
        ]
    )


def _says_the_same(text: str, state: str) -> bool:
    """Whoever writes back what the run had come to takes an edit back."""
    try:
        return bool(json.loads(text) == json.loads(state))
    except json.JSONDecodeError:
        return False


def _find(journal: Journal, run: str) -> RunRecord:
    record = journal.find_run(run)
    if record is None:
        raise NothingToResume(f"No run {run!r} is known; `longfold runs list` shows the latest.")
    return record


def _at(record: RunRecord, checkpoints: list[Checkpoint], at: int | None) -> Checkpoint:
    if not checkpoints:
        raise NothingToResume(f"Run {record.run_id} has come to no step yet, so there is no state of it.")
    if at is None:
        return checkpoints[-1]
    found = next((checkpoint for checkpoint in checkpoints if checkpoint.number == at), None)
    if found is None:
        raise UnknownName(f"Run {record.run_id} has no step {at}; its steps are 1 to {checkpoints[-1].number}.")
    return found


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"The state cannot be read from {printable(file)}: {error}.") from error


def _ask_editor(text: str, draft: Path) -> str:
    """What the person leaves in the draft. One that did not fit, or was not used, is opened again."""
    if not sys.stdin.isatty():
        raise CallerError("There is no terminal to edit on; give the edited state as a FILE, or - for standard input.")
    if not draft.exists():
        draft.write_text(f"{text}\n", encoding="utf-8")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        subprocess.run([*shlex.split(editor), str(draft)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise CallerError(f"The editor {editor!r} did not work ({error}); set EDITOR, or give a FILE.") from error
    return draft.read_text(encoding="utf-8")
