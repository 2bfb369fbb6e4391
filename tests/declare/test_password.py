from __future__ import annotations

from hashlib import sha256

import pytest

from mainspring.declare.password import PasswordRecipe
from mainspring.errors import ValidationError


def test_a_verifier_is_the_digest_of_what_scrypt_makes() -> None:
    made = "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"  # RFC 7914, section 12
    recipe = PasswordRecipe(b"NaCl", 10, 8, 16)

    assert recipe.verifier("password") == sha256(bytes.fromhex(made)).hexdigest()


def test_a_guess_costs_32_mib_and_each_password_has_a_salt_of_its_own() -> None:
    one, other = PasswordRecipe.new(), PasswordRecipe.new()

    assert one.salt != other.salt
    assert (128 * one.block << one.cost, one.passes) == (32 * 1024 * 1024, 3)
    assert one.text.startswith("scrypt$15$8$3$")


@pytest.mark.parametrize("text", ["", "md5$x", "scrypt$99$8$1$x", "scrypt$15$8$3$" + "=" * 24, "scrypt$15$8$3$"])
def test_what_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        PasswordRecipe.parse(text)
