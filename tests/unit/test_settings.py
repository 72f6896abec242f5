"""Settings: four places with one precedence, names checked, and no DSN in any text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_navin.errors import InvalidRequest
from langgraph_navin.settings import Settings, load

PASSWORD = "S3CRET-PASSWORD"
DSN = f"postgresql://ada:{PASSWORD}@db.example.org/memories"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "navin.toml"
    path.write_text(f'dsn = "{DSN}"\ntenant = "file"\nagent = "file"\nconnections = 3\n[ttl]\ndefault_ttl = 5\n', encoding="utf-8")
    return path


def loaded(config: Path | None = None, environ: dict[str, str] | None = None, **arguments: Any) -> Settings:
    return load(arguments, config=config, environ=environ or {})


def test_without_anything_the_defaults_stand() -> None:
    settings = loaded()
    assert (settings.dsn, settings.tenant, settings.agent, settings.connections) == (None, "default", "default", 16)
    assert settings.data_dir == Path(".navin")
    assert not settings.require_caller
    assert settings == Settings()


def test_arguments_come_before_environment_before_file_before_defaults(config: Path) -> None:
    environ = {"NAVIN_TENANT": "environment", "NAVIN_AGENT": "environment"}
    assert loaded(config).tenant == "file"
    assert loaded(config, environ).tenant == "environment"
    settings = loaded(config, environ, tenant="argument")
    assert (settings.tenant, settings.agent, settings.connections, settings.labels) == ("argument", "environment", 3, "strict")
    assert settings.dsn == DSN
    assert settings.ttl is not None
    assert settings.ttl.default_ttl == 5


def test_an_argument_of_none_is_not_given(config: Path) -> None:
    assert loaded(config, {"NAVIN_AGENT": "environment"}, tenant=None, agent=None).tenant == "file"


def test_false_and_zero_are_given() -> None:
    assert loaded(None, {"NAVIN_PREPARE": "true", "NAVIN_REQUIRE_CALLER": "true"}, prepare=False).prepare is False
    with pytest.raises(InvalidRequest, match="connections"):
        loaded(connections=0)


def test_the_file_may_be_named_by_the_environment(config: Path, tmp_path: Path) -> None:
    assert loaded(None, {"NAVIN_CONFIG": str(config)}).tenant == "file"
    other = tmp_path / "other.toml"
    other.write_text('tenant = "other"', encoding="utf-8")
    assert loaded(other, {"NAVIN_CONFIG": str(config)}).tenant == "other"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAVIN_TENANT", "process")
    assert load({}).tenant == "process"


def test_structured_settings_come_as_json() -> None:
    environ = {
        "NAVIN_INDEX": json.dumps({"dims": 3, "embed": "openai:small", "fields": ["text"]}),
        "NAVIN_TTL": json.dumps({"default_ttl": 1.5, "refresh_on_read": False}),
        "NAVIN_NAMESPACES": json.dumps([[["memories", "{user_id}"], "user"]]),
        "NAVIN_POLICY": json.dumps({"read_scopes": ["user"]}),
        "NAVIN_CONNECTIONS": "4",
        "NAVIN_REQUIRE_CALLER": "true",
    }
    settings = loaded(None, environ)
    assert settings.index is not None
    assert (settings.index.dims, settings.index.fields, settings.index.distance_type) == (3, ("text",), "cosine")
    assert settings.ttl is not None
    assert (settings.ttl.default_ttl, settings.ttl.refresh_on_read) == (1.5, False)
    assert settings.namespaces == ((("memories", "{user_id}"), "user"),)
    assert settings.policy.read_scopes == frozenset({"user"})
    assert (settings.connections, settings.require_caller) == (4, True)


def test_an_empty_variable_is_not_given() -> None:
    assert loaded(None, {"NAVIN_TENANT": "", "NAVIN_TTL": "", "NAVIN_CONFIG": ""}).tenant == "default"


@pytest.mark.parametrize("name", ["INDEX", "TTL", "POLICY", "NAMESPACES"])
def test_what_is_no_json_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"NAVIN_{name} must be JSON") as refused:
        loaded(None, {f"NAVIN_{name}": f"{{{PASSWORD}"})
    assert PASSWORD not in str(refused.value)


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "navin.toml"
    path.write_text(f'dns = "{DSN}"', encoding="utf-8")
    for attempt in (lambda: loaded(path), lambda: loaded(dns=DSN)):
        with pytest.raises(InvalidRequest, match="dns is not a setting") as refused:
            attempt()
        assert "data_dir, dsn," in str(refused.value)
        assert PASSWORD not in str(refused.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"connections": "many"}, "connections"),
    ({"connections": 0}, "connections"),
    ({"labels": "all"}, "labels"),
    ({"tenant": 7}, "tenant"),
    ({"dsn": [DSN]}, "dsn"),
    ({"admin_dsn": {"password": PASSWORD}}, "admin_dsn"),
    ({"index": {"dims": 3}}, "index.embed"),
    ({"index": {"dims": 0, "embed": "x"}}, "index.dims"),
    ({"index": {"dims": 16_001, "embed": "x"}}, "index.dims"),
    ({"index": {"dims": "3", "embed": "x"}}, "index.dims"),
    ({"index": {"dims": True, "embed": "x"}}, "index.dims"),
    ({"index": {"dims": 3, "embed": "x", "field": ["a"]}}, "index.field"),
    ({"index": {"dims": 3, "embed": "x", "distance_type": "hamming"}}, "index.distance_type"),
    ({"index": [3]}, "index"),
    ({"ttl": {"default_ttl": 0}}, "ttl.default_ttl"),
    ({"ttl": {"default_ttl": float("inf")}}, "ttl.default_ttl"),
    ({"ttl": {"ttl": 5}}, "ttl.ttl"),
    ({"policy": {"read_scopes": ["users"]}}, "policy.read_scopes"),
    ({"policy": {"password": PASSWORD}}, "policy.password"),
]


@pytest.mark.parametrize(("arguments", "field"), WRONG, ids=lambda v: str(v)[:50])
def test_a_value_that_cannot_be_right_is_refused_by_its_field(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        loaded(**arguments)
    assert str(refused.value).startswith(field)
    assert str(refused.value.details["field"]).startswith(field)
    # The first thing that pydantic says would be the input.
    assert PASSWORD not in repr((refused.value, refused.value.details))
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.toml can't be read \(FileNotFoundError\)"):
        loaded(tmp_path / "nowhere.toml")
    with pytest.raises(InvalidRequest, match="can't be read"):
        loaded(tmp_path)


@pytest.mark.parametrize("text", [f'dsn = "{DSN}', f"{PASSWORD} = = 1", f'dsn = "{PASSWORD}"\ndsn = "x"'], ids=["open", "equals", "twice"])
def test_a_file_that_is_no_toml_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "navin.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"navin\.toml is not valid TOML") as refused:
        loaded(path)
    assert PASSWORD not in repr((refused.value, refused.value.__cause__))


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "navin.toml"
    path.write_bytes(b'tenant = "caf\xe9"')
    with pytest.raises(InvalidRequest, match=r"navin\.toml is not valid TOML"):
        loaded(path)


def test_no_text_of_the_settings_holds_a_dsn() -> None:
    settings = loaded(dsn=DSN, admin_dsn=DSN, checkpoints=f"redis://:{PASSWORD}@cache")
    for text in (repr(settings), str(settings), f"{settings}", repr([settings])):
        assert PASSWORD not in text
        assert "example.org" not in text


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        loaded().tenant = "other"
