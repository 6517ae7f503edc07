"""The storage of trials: a journal file, or a database by its URL (sqlite, PostgreSQL)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from fedprint.types import FedprintError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study

DRIVERS = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""Driver module -> package; which driver a URL without one means depends on SQLAlchemy's release."""

_PASSWORD = re.compile(r"(?<=://)([^:/@?]*):.*@|([?&][^=&]*pass(?:word|wd)=)[^&\s]*", re.IGNORECASE)
"""A password before the host, which may itself hold ``@`` or ``/``, or among the URL's parameters."""


def without_password(text: str) -> str:
    """Return a storage's URL, or a text that quotes one, with ``***`` in place of its password."""
    return _PASSWORD.sub(lambda match: f"{match[2]}***" if match[2] else f"{match[1]}:***@", text)


def open_storage(url: str) -> BaseStorage:
    """Return the storage of a URL, or of the path of a journal file, which is created when missing.

    Raises FedprintError (one line) for a storage that cannot be opened.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    class OsLock(JournalFileOpenLock):
        """A lock that ends with its process; Optuna's lock would stay for half a minute after a worker is killed."""

        def __init__(self, path: Path) -> None:
            super().__init__(str(path))
            self._lock = FileLock(path)

        def acquire(self) -> bool:
            self._lock.acquire()
            return True

        def release(self) -> None:
            self._lock.release()

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if "://" not in url:
        path = Path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path), lock_obj=OsLock(path.with_name(f".{path.name}.lock"))))
    try:
        return RDBStorage(url)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None) or "its driver"
        package = DRIVERS.get(missing, missing)
        shown = without_password(url)
        raise FedprintError(f"storage {shown}: {missing} is not installed; pip install '{package}'") from None
    except Exception as error:  # SQLAlchemy has one class per driver and fault
        reason = without_password(" ".join(str(error).split()))[:200]
        raise FedprintError(f"storage {without_password(url)} cannot be opened ({reason}); check the URL") from None


def open_study(url: str, name: str) -> Study:
    """Return the study, created when missing."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(
            storage=open_storage(url), study_name=name, direction="maximize", load_if_exists=True
        )
