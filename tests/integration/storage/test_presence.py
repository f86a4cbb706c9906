"""Which processes live: the kernel says it, whatever a process did not come to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from serving.storage.presence import Presence

ROOT = Path(__file__).parents[3]
_OTHER = """
import sys
from pathlib import Path
from serving.storage.presence import Presence
print(Presence(Path(sys.argv[1])).id, flush=True)
sys.stdin.read()
"""


def test_a_process_lives_until_it_is_killed(tmp_path: Path) -> None:
    here = Presence(tmp_path)
    assert here.lives(here.id)
    command = [sys.executable, "-c", _OTHER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other_id = other.stdout.readline().strip()
        assert here.lives(other_id)
        assert here.lives(other_id), "asking takes nothing from it"
        other.kill()
        other.wait()
        assert not here.lives(other_id)
    assert [path.name for path in tmp_path.iterdir()] == [here.id]


def test_nobody_and_a_stranger_do_not_live(tmp_path: Path) -> None:
    here = Presence(tmp_path)
    assert not here.lives("")
    assert not here.lives("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    mine = here.id
    here.close()
    assert not Presence(tmp_path).lives(mine)
