"""A coverage-guided fuzzer (atheris) on the readers of readers.py; it says what to install where there is none.

``PYTHONPATH=tests/helpers:tests/store:tests/store/recorded python tests/helpers/atheris_target.py recorded-manifest
-max_total_time=60``: the first word is a reader, all others are for libFuzzer.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

MISSING = "atheris is not installed: `pip install atheris` (Linux, CPython), or use fuzzing.py, which needs nothing"


def main() -> None:
    """Fuzz one reader until libFuzzer's limits, or until an input leads to anything but a refusal of one line."""
    if find_spec("atheris") is None:
        sys.exit(MISSING)
    import atheris  # type: ignore[import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["fedprint.store", "fedprint.data.formats", "fedprint.kinds.config_files"]):
        from fuzzing import attempt, sound_files
        from readers import READERS

    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.exit(f"give one of {', '.join(sorted(READERS))}")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as folder:
        place, corpus = Path(folder) / "tried", Path(folder) / "corpus"
        contents = sound_files(READERS[name], place)
        files = sorted(contents)
        corpus.mkdir()
        for number, file in enumerate(files):
            (corpus / str(number)).write_bytes(bytes([number]) + contents[file])

        def one_input(data: bytes) -> None:
            """Write the bytes to the file that their first one names, read the folder, and restore the file."""
            file = files[data[0] % len(files)] if data else files[0]
            (place / file).write_bytes(data[1:])
            attempt(READERS[name], place, repr(data[:80]))
            (place / file).write_bytes(contents[file])

        atheris.Setup([*sys.argv, str(corpus)], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
