"""Passwords: by scrypt, with a recipe that is kept beside what it makes.

>>> recipe = PasswordRecipe.new()
>>> recipe == PasswordRecipe.parse(recipe.text)
True
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

from mainspring.errors import ValidationError

SHORTEST_PASSWORD: Final = 12
LONGEST_PASSWORD: Final = 1000
SALT_BYTES: Final = 16
_RECIPE = re.compile(r"scrypt\$(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([A-Za-z0-9+/=]{24})")


@dataclass(frozen=True, slots=True)
class PasswordRecipe:
    """How scrypt makes something of a password: 32 MiB and a quarter of a second for each guess."""

    salt: bytes
    cost: int = 15  # as a power of two
    block: int = 8
    passes: int = 3

    @classmethod
    def new(cls, cost: int = 15) -> PasswordRecipe:
        """One with a salt of its own."""
        return cls(secrets.token_bytes(SALT_BYTES), cost)

    @classmethod
    def parse(cls, text: str) -> PasswordRecipe:
        """As it was kept."""
        found = _RECIPE.fullmatch(text)
        try:
            if found is not None:
                return cls(base64.b64decode(found[4], validate=True), *map(int, found.groups()[:3]))
        except binascii.Error:
            pass
        raise ValidationError("recipe: is not one of scrypt", field="recipe")

    @property
    def text(self) -> str:
        """As it is kept."""
        return f"scrypt${self.cost}${self.block}${self.passes}${base64.b64encode(self.salt).decode()}"

    def verifier(self, password: str) -> str:
        """What is kept to know a password again: a digest of what scrypt makes, so that it opens nothing itself."""
        made = hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=self.salt, n=1 << self.cost, r=self.block, p=self.passes,
            maxmem=(256 * self.block << self.cost) + (1 << 20), dklen=32,
        )  # fmt: skip
        return hashlib.sha256(made).hexdigest()


def check_password(password: str) -> str:
    """Refuse a password that is too short to be one; nothing is asked of its characters."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise ValidationError(
            f"password: must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters", field="password"
        )
    if not password.isprintable() or len(set(password)) < 4:
        raise ValidationError("password: has a control character, or fewer than four different ones", field="password")
    return password
