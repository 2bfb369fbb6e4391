"""People for whom somebody else vouches, a reverse proxy or a provider of identities, and what they may here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from mainspring.db.access import Grant
from mainspring.declare.credential import ACCESS_ROLES
from mainspring.errors import ConfigurationError
from mainspring.text.texts import MAX_NAME, holder_problem, text_problem
from mainspring.web.access.oidc_config import OidcConfig
from mainspring.web.proxies import BY_PROXY

ROLES_SETTING: Final = "MAINSPRING_SIGN_IN_ROLES"
USER_HEADER_SETTING: Final = "MAINSPRING_PROXY_USER_HEADER"
GROUPS_HEADER_SETTING: Final = "MAINSPRING_PROXY_GROUPS_HEADER"
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")


@dataclass(frozen=True, slots=True)
class RoleMap:
    """Which role somebody has, by their name or a group: the first line that fits decides; without one they stay out.

    >>> roles = RoleMap.parse("olga@shop.example=admin, group:ops=operator@acme, *=viewer")
    >>> [roles.grant(name, groups) for name, groups in (("olga@shop.example", ()), ("ben", ["ops"]))]
    [Grant(role='admin', org=None, reveals=False), Grant(role='operator', org='acme', reveals=False)]
    """

    lines: tuple[tuple[str, Grant], ...] = ()

    @classmethod
    def parse(cls, text: str) -> RoleMap:
        """As the setting has it: `name=role`, `group:name=role@organisation`, `*=role`, with commas between."""
        lines = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            who, _, what = (piece.strip() for piece in part.rpartition("="))
            role, _, org = what.partition("@")
            known = next((one for one in ACCESS_ROLES if one == role), None)
            if not who or known is None or ("@" in what and text_problem(org, MAX_NAME)) or org == "SYSTEM":
                raise ConfigurationError(f"{ROLES_SETTING}: is not of the form olga=admin, group:ops=operator@acme")
            lines.append((who, Grant(role=known, org=org or None)))
        return cls(tuple(lines))

    def grant(self, name: str, groups: Sequence[str] = ()) -> Grant | None:
        """What somebody may; None: nothing."""
        here = {name, "*", *(f"group:{group}" for group in groups)}
        if name == "*" or name.startswith("group:"):  # such a name would be taken for something else
            return None
        return next((grant for who, grant in self.lines if who in here), None)


@dataclass(frozen=True, slots=True)
class Vouching:
    """Who may vouch for people: named proxies by a header, a provider by OpenID Connect."""

    roles: RoleMap = RoleMap()
    user_header: str | None = None
    groups_header: str | None = None
    oidc: OidcConfig | None = None

    @classmethod
    def configured(cls, env: Mapping[str, str] | None = None) -> Vouching:
        """As the environment says."""
        env = os.environ if env is None else env
        user, groups = (_header(env, name) for name in (USER_HEADER_SETTING, GROUPS_HEADER_SETTING))
        made = cls(RoleMap.parse(env.get(ROLES_SETTING, "")), user, groups, OidcConfig.configured(env))
        if groups is not None and user is None:
            raise ConfigurationError(f"{USER_HEADER_SETTING}: is not set, but {GROUPS_HEADER_SETTING} is")
        if made.by and not made.roles.lines:
            raise ConfigurationError(f"{ROLES_SETTING}: is not set: nobody whom others vouch for could come in")
        return made

    @property
    def by(self) -> bool:
        """Whether anybody may."""
        return self.user_header is not None or self.oidc is not None

    def proxy_user(self, request: HTTPConnection) -> str | None:
        """Whom a named proxy says that it brings; anybody else may say what they like."""
        if self.user_header is None or not request.scope.get(BY_PROXY, False):
            return None
        given = request.headers.getlist(self.user_header)
        return given[0] if len(given) == 1 and not holder_problem(given[0]) else None

    def proxy_groups(self, request: HTTPConnection) -> list[str]:
        """Of which groups it says that they are."""
        if self.groups_header is None:
            return []
        values = request.headers.getlist(self.groups_header)
        return [group.strip() for value in values for group in value.split(",") if group.strip()]


def _header(env: Mapping[str, str], setting: str) -> str | None:
    found = env.get(setting)
    if found and not _HEADER.fullmatch(found):
        raise ConfigurationError(f"{setting}: is not the name of a header, such as X-Forwarded-User")
    return found or None
