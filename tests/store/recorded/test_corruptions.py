"""Every corruption of a recorded folder is named, with its file and a remedy; none makes a traceback."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recorded_folders import arrays, updates, write_npz_folder

from fedprint.store.recorded.findings import RecordingRefused
from fedprint.store.recorded.recording import open_recording
from fedprint.store.recorded.truth import truth_findings
from fedprint.store.recorded.validate import findings_of

N = 16
Corruption = Callable[[np.random.Generator, Path], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz_folder(tmp_path_factory.mktemp("corrupt") / "r", N)


def some(rng: np.random.Generator, folder: Path) -> Path:
    return folder / "updates" / f"{rng.integers(N)}.npz"


def store(path: Path, **values: object) -> str:
    np.savez(path, **values)
    return path.name


def change_line(path: Path, rng: np.random.Generator, change: Callable[[list[str]], list[str]], only: str = "") -> str:
    lines = path.read_text().splitlines()
    choices = [k for k in range(1, len(lines)) if only in lines[k]]
    number = int(rng.choice(choices))
    lines[number] = ",".join(change(lines[number].split(",")))
    path.write_text("\n".join(lines) + "\n")
    return path.name


def field(number: int, value: str) -> Callable[[list[str]], list[str]]:
    return lambda fields: [*fields[:number], value, *fields[number + 1 :]]


def in_index(number: int, value: str, only: str = "") -> Corruption:
    return lambda rng, folder: change_line(folder / "index.csv", rng, field(number, value), only)


def in_truth(number: int, value: str) -> Corruption:
    return lambda rng, folder: change_line(folder / "truth.csv", rng, field(number, value))


def with_number(value: float) -> Corruption:
    def corrupt(rng: np.random.Generator, folder: Path) -> str:
        path = some(rng, folder)
        vector = updates()[int(path.stem)].copy()
        vector[rng.integers(8)] = value
        np.savez(path, **arrays(vector))
        return "index.csv, row"

    return corrupt


def in_manifest(old: str, new: str) -> Corruption:
    def corrupt(rng: np.random.Generator, folder: Path) -> str:
        path = folder / "manifest.yaml"
        path.write_text(path.read_text().replace(old, new))
        return "manifest.yaml"

    return corrupt


def truncated(rng: np.random.Generator, folder: Path) -> str:
    path = some(rng, folder)
    path.write_bytes(path.read_bytes()[: rng.integers(path.stat().st_size)])
    return path.name


def flipped(rng: np.random.Generator, folder: Path) -> str:
    path = some(rng, folder)
    content = bytearray(path.read_bytes())
    start = content.index(updates()[int(path.stem)][:6].tobytes())
    content[start + rng.integers(24)] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return path.name


def twice(rng: np.random.Generator, folder: Path) -> str:
    path = folder / "index.csv"
    path.write_text(path.read_text() + rng.choice(path.read_text().splitlines()[1:]) + "\n")
    return "index.csv, row 18"


def bomb(rng: np.random.Generator, folder: Path) -> str:
    """A header that declares 134 GiB, in a member that says so too or does not."""
    path = some(rng, folder)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n" % (134 << 27)
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(int(rng.integers(999)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("fc.weight.npy", data)
    if rng.integers(2):
        content = path.read_bytes()
        end = content.rindex(b"PK\x01\x02")
        path.write_bytes(content[: end + 24] + (0xFFFFFFF0).to_bytes(4, "little") + content[end + 28 :])
    return path.name


def link(rng: np.random.Generator, folder: Path) -> str:
    path = some(rng, folder)
    path.unlink()
    path.symlink_to("/etc/hostname")
    return "link out of the folder"


def copied(rng: np.random.Generator, folder: Path) -> str:
    first, second = rng.permutation(4)[:2]
    content = (folder / "updates" / f"{first}.npz").read_bytes()
    (folder / "updates" / f"{second}.npz").write_bytes(content)
    return "equal those of row"


def bytes_in(name: str) -> Corruption:
    def corrupt(rng: np.random.Generator, folder: Path) -> str:
        path, content = folder / name, (folder / name).read_bytes()
        at = int(rng.integers(len(content)))
        path.write_bytes(content[:at] + b"\xff\xfe" + content[at:])
        return name

    return corrupt


def gone(name: str) -> Corruption:
    def corrupt(rng: np.random.Generator, folder: Path) -> str:
        (folder / name).unlink()
        return name

    return corrupt


def anonymous(users: str) -> Corruption:
    """Nobody is known, or everybody is the same."""

    def corrupt(rng: np.random.Generator, folder: Path) -> str:
        path = folder / "index.csv"
        lines = path.read_text().splitlines()
        kept = [line.rpartition(",")[0] + "," + (users if line.rpartition(",")[2] else "") for line in lines[1:]]
        path.write_text("\n".join([lines[0], *kept]) + "\n")
        return "known users"

    return corrupt


def leaking(rng: np.random.Generator, folder: Path) -> str:
    path = folder / "index.csv"
    name = str(rng.choice(["true_user", "user_id", "writer"]))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{lines[0]},{name}", *(f"{line},ada" for line in lines[1:])]) + "\n")
    return f"unknown column '{name}'"


CORRUPTIONS: dict[str, Corruption] = {
    "file gone": lambda rng, folder: (p := some(rng, folder)).unlink() or p.name,
    "truncated": truncated,
    "flipped bit": flipped,
    "NaN": with_number(np.nan),
    "infinite": with_number(np.inf),
    "too large": lambda rng, folder: (
        store(some(rng, folder), **{"fc.weight": np.full((3, 2), 1e300), "fc.bias": np.ones(2)}) and "NaN or infinite"
    ),
    "shape": lambda rng, folder: store(some(rng, folder), **{"fc.weight": np.ones((2, 3)), "fc.bias": np.ones(2)}),
    "renamed": lambda rng, folder: store(some(rng, folder), **{"fc.weights": np.ones((3, 2)), "fc.bias": np.ones(2)}),
    "missing array": lambda rng, folder: store(some(rng, folder), **{"fc.weight": np.ones((3, 2))}),
    "one more array": lambda rng, folder: store(some(rng, folder), x=np.ones(1), **arrays(updates()[0])),
    "pickle": lambda rng, folder: store(
        some(rng, folder), **{"fc.weight": np.array([{}], object), "fc.bias": np.ones(2)}
    ),
    "text": lambda rng, folder: store(some(rng, folder), **{"fc.weight": np.array(["a"]), "fc.bias": np.ones(2)}),
    "134 GiB": bomb,
    "not an npz": lambda rng, folder: (p := some(rng, folder)).write_bytes(rng.bytes(99)) and p.name,
    "link": link,
    "another's numbers": copied,
    "twice": twice,
    "no round": in_index(1, ""),
    "round": in_index(1, "one"),
    "round below 0": in_index(1, "-1"),
    "half a round": in_index(1, "0.5"),
    "examples": in_index(3, "-5"),
    "many examples": in_index(3, "9" * 40),
    "leaves the folder": in_index(0, "../truth.csv"),
    "absolute": in_index(0, "/etc/passwd"),
    "no file": in_index(0, ""),
    "a user for a device of the truth": in_index(4, "ada", only="anon"),
    "a device without truth": in_index(2, "stranger", only="anon"),
    "a device of nobody": in_index(2, "", only="anon"),
    "blanks": in_index(2, " anon0 ", only="anon"),
    "fields": lambda rng, folder: change_line(folder / "index.csv", rng, lambda fields: fields[:-1]),
    "truth of a stranger": in_truth(0, "stranger"),
    "unknown user": in_truth(1, "eve"),
    "truth without a user": in_truth(1, ""),
    "device named as its user": in_truth(0, "ada"),
    "key": in_manifest("truth:", "truht:"),
    "sign": in_manifest("format: npz", "format: npz\nsign: minus"),
    "format": in_manifest("format: npz", "format: npzz"),
    "alias": in_manifest("format: npz", "format: &a npz\ntitle: *a"),
    "repeated key": in_manifest("format: npz", "format: npz\nformat: npz"),
    "no YAML": in_manifest("format: npz", "format: [npz"),
    "claims": in_manifest("format: npz", "format: npz\nclaims: {epsilon: -1, delta: 2, of: user}"),
    "updates elsewhere": in_manifest("updates: updates", "updates: ../updates"),
    "manifest gone": gone("manifest.yaml"),
    "index gone": gone("index.csv"),
    "truth gone": gone("truth.csv"),
    "bytes in the index": bytes_in("index.csv"),
    "bytes in the truth": bytes_in("truth.csv"),
    "bytes in the manifest": bytes_in("manifest.yaml"),
    "nobody known": anonymous(""),
    "one user": anonymous("ada"),
    "leak": leaking,
}


def restore(folder: Path, contents: dict[Path, bytes]) -> None:
    for path, content in contents.items():
        if path.is_symlink() or not path.exists() or path.read_bytes() != content:
            path.unlink(missing_ok=True)
            path.write_bytes(content)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 1000), marks=pytest.mark.slow)])
def test_1000_corruptions_are_all_named(folder: Path, seeds: range) -> None:
    assert findings_of(folder) == ()
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    unnamed = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        name = list(CORRUPTIONS)[seed % len(CORRUPTIONS)]
        expected = CORRUPTIONS[name](rng, folder)
        findings = findings_of(folder)
        if not any(expected in str(finding) for finding in findings) or not all(f.remedy for f in findings):
            unnamed.append((seed, name, expected, list(map(str, findings))))
        restore(folder, contents)
    assert unnamed == []


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corrupted_folder_is_not_opened(folder: Path, tmp_path: Path, name: str) -> None:
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    CORRUPTIONS[name](np.random.default_rng(0), folder)
    try:
        with pytest.raises(RecordingRefused):
            open_recording(folder, tmp_path / "scratch", truth_findings(folder) or findings_of(folder)[:0])
        assert not list(tmp_path.glob("scratch/*.f32"))
    finally:
        restore(folder, contents)


def test_many_problems_are_listed_at_once(folder: Path) -> None:
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for seed, name in enumerate(("NaN", "shape", "half a round", "unknown user", "twice")):
        CORRUPTIONS[name](np.random.default_rng(seed + 3), folder)
    text = str(RecordingRefused(folder, findings_of(folder)))
    restore(folder, contents)
    for word in ("NaN", "shape", "0.5", "eve", "same update"):
        assert word in text
