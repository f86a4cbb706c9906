"""Settings: where they come from, and that a bad one says which it is."""

from pathlib import Path

import pytest

from pipeline.errors import SettingInvalid
from serving import settings
from serving.settings import PREFIX, Settings, load_settings


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings.platformdirs, "user_config_path", lambda name: tmp_path / "config")
    return tmp_path


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    nothing_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nothing_set / "longfold.toml").write_text('model = "file"\ncontext_tokens = 4096\nreplicas = 2\n')
    monkeypatch.setenv("LONGFOLD_MODEL", "environment")
    monkeypatch.setenv("LONGFOLD_CONTEXT_TOKENS", "2048")
    monkeypatch.setenv("LONGFOLD_LOG_LEVEL", "")
    loaded = load_settings(model="option", context_tokens=None)
    assert (loaded.model, loaded.context_tokens, loaded.replicas) == ("option", 2048, 2)
    assert loaded.log_level == "warning"


def test_the_users_file_is_read_where_the_folder_has_none(nothing_set: Path) -> None:
    (nothing_set / "config").mkdir()
    (nothing_set / "config" / "longfold.toml").write_text('model = "mine"')
    assert load_settings().model == "mine"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CONTEXT_TOKENS", "many", "valid integer"),
        ("CONTEXT_TOKENS", "12", "greater than or equal to 1024"),
        ("KV_CACHE_GIB", "-1", "greater than 0"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_bad_value_names_variable_value_and_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(PREFIX + variable, value)
    with pytest.raises(SettingInvalid) as caught:
        load_settings()
    for part in (PREFIX + variable, repr(value), expected):
        assert part in str(caught.value)


def test_a_misspelled_variable_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGFOLD_MODLE", "x")
    with pytest.raises(SettingInvalid, match=r"Unknown setting LONGFOLD_MODLE; did you mean LONGFOLD_MODEL\?"):
        load_settings()


@pytest.mark.parametrize("content", ["modl = 1", "model = ", 'context_tokens = "x"'])
def test_a_bad_file_is_named(nothing_set: Path, content: str) -> None:
    (nothing_set / "longfold.toml").write_text(content)
    with pytest.raises(SettingInvalid, match=r"longfold\.toml"):
        load_settings()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_is(name: str) -> None:
    assert Settings.model_fields[name].description
