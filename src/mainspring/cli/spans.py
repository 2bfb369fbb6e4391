"""Time spans as people type them: as in code, seconds or a text such as 90s."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from cyclopts import Parameter, Token

from mainspring.text.span import read_span


def _read(_: Any, tokens: Sequence[Token]) -> timedelta:
    text = tokens[0].value
    found = read_span(float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text) else text)
    if found is None:
        raise ValueError
    return found


#: An option that takes one.
TypedSpan = Annotated[timedelta, Parameter(converter=_read)]
