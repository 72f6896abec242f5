"""Settings of a `Navin`, from four places with one precedence:

    arguments of open()  >  environment (NAVIN_…)  >  a TOML file (config=, or NAVIN_CONFIG)  >  defaults

Environment names are the fields' in capitals (`NAVIN_DSN`, `NAVIN_DATA_DIR`, `NAVIN_TENANT`, …); `NAVIN_INDEX` and
`NAVIN_TTL` hold JSON objects. In TOML, `index` and `ttl` are tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from .errors import InvalidRequest
from .policies.model import Policy

Distance: TypeAlias = Literal["cosine", "l2", "inner_product"]


class IndexSettings(BaseModel):
    """LangGraph's `index=`: which fields are embedded, by which model."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    dims: Annotated[int, Field(gt=0, le=16_000, strict=True)]
    #: An `Embeddings`, a function from texts to vectors, or "provider:model".
    embed: Any
    fields: tuple[str, ...] | None = None
    distance_type: Distance = "cosine"


#: Minutes: a thousand years. Python's calendar ends with the year 9999.
TTL_LIMIT = 1_000 * 365.25 * 24 * 60


class TTLSettings(BaseModel):
    """LangGraph's `ttl=`. Times are minutes. Expired memories are always omitted, whatever `omit_expired` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default_ttl: Annotated[float, Field(gt=0, le=TTL_LIMIT, allow_inf_nan=False)] | None = None
    refresh_on_read: bool = True
    omit_expired: bool = True
    sweep_interval_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Settings(BaseModel):
    """Everything that `Navin.open()` takes. The `repr` holds no DSN: it may carry a password."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    dsn: str | None = Field(default=None, repr=False)
    admin_dsn: str | None = Field(default=None, repr=False)
    data_dir: Path = Path(".navin")
    tenant: str = "default"
    agent: str = "default"
    index: IndexSettings | None = None
    ttl: TTLSettings | None = None
    require_caller: bool = False
    checkpoints: str | None = Field(default=None, repr=False)
    serde_types: Annotated[tuple[Any, ...], BeforeValidator(lambda types: _pairs(types))] = ()
    namespaces: tuple[tuple[tuple[str, ...], str], ...] = ()
    labels: Literal["strict", "any"] = "strict"
    policy: Policy = Field(default_factory=Policy)
    #: Connections to PostgreSQL at most, over all threads and event loops.
    connections: Annotated[int, Field(ge=1, le=1000)] = 16
    #: Prepared statements. None: where PostgreSQL itself answers, not where a pooler does. True and False are for both.
    prepare: bool | None = None


def _pairs(types: Any) -> Any:
    """(module, name) pairs: JSON and TOML have lists only."""
    return tuple(tuple(one) if isinstance(one, list) else one for one in types) if isinstance(types, (list, tuple)) else types


def load(
    arguments: Mapping[str, Any], *, config: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from all four places; an argument of None counts as not given.

    Raises:
        InvalidRequest: a value that can't be right, a file that can't be read, a name that isn't a setting.
    """
    environ = os.environ if environ is None else environ
    path = config or environ.get("NAVIN_CONFIG")
    given = {name: value for name, value in arguments.items() if value is not None}
    merged = (_toml(Path(path)) if path else {}) | _environment(environ) | given
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        refusal = _refusal(error)
    # Outside the handler: pydantic's error holds what was given, a DSN too, and must not stay in the context.
    raise refusal


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"config: {path} can't be read ({type(error).__name__})", field="config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Its message may quote the line, and a line may hold a password.
        raise InvalidRequest(f"config: {path} is not valid TOML", field="config") from None


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Settings.model_fields:
        text = environ.get(f"NAVIN_{name.upper()}")
        if text:
            found[name] = _json(name, text) if name in ("index", "ttl", "policy", "namespaces", "serde_types") else text
    return found


def _json(name: str, text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    raise InvalidRequest(f"NAVIN_{name.upper()} must be JSON", field=name)


def _refusal(error: ValidationError) -> InvalidRequest:
    """The first problem, by field; pydantic's own text would quote the value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return InvalidRequest(f"{field} is not a setting; settings are {', '.join(sorted(Settings.model_fields))}", field=field)
    return InvalidRequest(f"{field}: {first['msg']}", field=field)
