"""What an application lets people choose: a class of settings, the environment, and how both are shown.

::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings(Choices):
        PREFIX = "SHOP_"

        delivery: timedelta = setting(timedelta(days=2), "how long a parcel may take")

    settings = from_env(Settings())  # SHOP_DELIVERY=3d
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar, get_type_hints

from mainspring.errors import ConfigurationError
from mainspring.text.texts import did_you_mean
from mainspring_apps.frame.setting import kind_of, problem, read

S = TypeVar("S", bound="Choices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The settings of one application; a choice that makes no sense is refused at once, by its name and variable."""

    #: How the variables of these settings begin.
    PREFIX: ClassVar[str]
    #: What begins so and is no setting, such as secrets.
    OTHERS: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        types = types_of(type(self))
        for one in fields(self):
            bounds = {name: one.metadata.get(name) for name in ("least", "most")}
            if (wrong := problem(types[one.name], getattr(self, one.name), **bounds)) is not None:
                raise self._wrong(one.name, wrong)
        for name, wrong in self.together():
            raise self._wrong(name, wrong)

    def together(self) -> Iterator[tuple[str, str]]:
        """What does not fit to something else, by the name of a setting."""
        yield from ()

    @classmethod
    def variable(cls, name: str) -> str:
        """What a setting is called in the environment."""
        said: str | None = next(one.metadata.get("variable") for one in fields(cls) if one.name == name)
        return said or f"{cls.PREFIX}{name.upper()}"

    @classmethod
    def _wrong(cls, name: str, wrong: str) -> ConfigurationError:
        return ConfigurationError(f"{name}: {wrong} ({cls.variable(name)})")


def types_of(settings: type[Choices]) -> Mapping[str, Any]:
    """The type of each setting."""
    hints = get_type_hints(settings, include_extras=True)
    return {one.name: hints[one.name] for one in fields(settings)}


def from_env(base: S, env: Mapping[str, str] | None = None) -> S:
    """Settings with what the environment says; what is almost a setting is refused."""
    env, kind = os.environ if env is None else env, type(base)
    types = types_of(kind)
    said = {kind.variable(name): name for name in types}
    ours = {name for name in env if name.startswith(kind.PREFIX)}
    for unknown in sorted(ours - said.keys() - kind.OTHERS):
        if near := did_you_mean(unknown.removeprefix(kind.PREFIX).lower(), types):
            raise ConfigurationError(f"{unknown}: is no setting{near}")
    changes: dict[str, Any] = {}
    for variable, name in said.items():
        if text := env.get(variable):
            try:
                changes[name] = read(types[name], text)
            except ConfigurationError as error:
                raise base._wrong(name, str(error)) from None
    return replace(base, **changes)


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting as people see it."""

    name: str
    variable: str
    value: str
    default: str
    source: str  # "default", "code", or the variable's name
    about: str


def shown(settings: Choices, env: Mapping[str, str] | None = None) -> list[Shown]:
    """Every setting of an application, and where its value is from."""
    env, types, found = os.environ if env is None else env, types_of(type(settings)), []
    for one in fields(settings):
        show, value, name = kind_of(types[one.name]).show, getattr(settings, one.name), settings.variable(one.name)
        source = name if env.get(name) else "default" if value == one.default else "code"
        found.append(Shown(one.name, name, show(value), show(one.default), source, one.metadata["about"]))
    return found
