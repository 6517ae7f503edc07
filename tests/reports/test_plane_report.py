"""The page of a sweep: one panel per adversary, the front in words, the papers' claims, both settings named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_points import fake_point

from fedprint.evaluation.rows import COLUMNS, POOLED, read_measurements
from fedprint.evaluation.tradeoffs.tradeoff import Point
from fedprint.reports.claims.plane import judge_plane
from fedprint.reports.figures.plane import COLOURS, look
from fedprint.reports.numbers.plane import Entry, front, measured, measurement_rows, overhead
from fedprint.reports.pages.plane.choices import choices_table
from fedprint.reports.pages.plane.linked import effort_table, linked_drawings, linked_table
from fedprint.reports.pages.plane.page import PlaneHead, central_words, front_words, plane_tables, verdict, write_plane
from fedprint.reports.pages.plane.privacy import privacy_rows
from fedprint.reports.pages.plane.utility import utility_table
from fedprint.reports.pages.terminal import summary_table

ADVERSARIES = ("naive", "adaptive")
HEAD = PlaneHead(
    name="demo-plane", title="A <plane>", dataset="albums", prior="random", seeds=(0, 1, 2), defended="everyone",
    learn_from="offline", views=("local",), adversaries=ADVERSARIES, utility_metric="accuracy", fast=False,
    config_hash="abc",
)  # fmt: skip


def entry(strategy: str | None, strength: float | None, naive: float, adaptive: float | None, utility: float) -> Entry:
    """Three seeds around the given numbers; without a defence there is no adaptive adversary."""
    points = []
    for seed in range(3):
        shift = 0.005 * (seed - 1)
        ap = {"naive": naive + shift} | ({"adaptive": adaptive + shift} if adaptive is not None else {})
        points.append(fake_point(ap, utility, seed, defence=strategy or "none", seconds=2.0 if strategy else 1.0))
    return Entry(strategy=strategy, strength=strength, points=tuple(points))


ENTRIES = [
    entry(None, None, 0.8, None, 0.80),
    entry("noise", 0.1, 0.5, 0.6, 0.40),
    entry("dp-fedavg", 1.0, 0.75, 0.79, 0.60),
    entry("mm-aug", 0.5, 0.15, 0.7, 0.88),
    entry("mm-aug", 2.0, 0.02, 0.5, 0.90),
    entry("top-k", 0.01, 0.7, 0.75, 0.70),
    Entry(strategy="noise", strength=9.0, points=(), error="3 of 3 seeds: training diverged"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plane") / "demo-plane"
    write_plane(head=HEAD, entries=ENTRIES, config_text="sweep: {}\n", out=out)
    return out


def test_the_front_has_what_nothing_beats() -> None:
    assert [e.name for e in front(ENTRIES, ENTRIES[0], "naive")] == ["mm-aug 2"]
    words = front_words(HEAD, ENTRIES, "adaptive")
    setting = "view local, defended: everyone, random prior"
    assert words.startswith(
        f"The Pareto front against the adaptive adversary ({setting}), from least to most AP: mm-aug 2."
    )
    assert words.endswith("No strength of these is on it: noise, dp-fedavg, top-k.")
    mixed = [*ENTRIES, entry("sign", 1.0, 0.01, 0.01, 0.3)]
    assert [e.name for e in front(mixed, mixed[0], "naive")] == ["sign 1", "mm-aug 2"]


def test_claims_are_judged_for_each_adversary() -> None:
    verdicts = {(v.claim, v.member): v for v in judge_plane(ENTRIES, ADVERSARIES, "albums")}
    assert verdicts["mm-aug-cuts", "naive"].state == "holds"
    assert verdicts["mm-aug-cuts", "naive"].numbers.startswith("mm-aug 0.5: 81 % [")
    assert verdicts["mm-aug-cuts", "adaptive"].state == "fails"
    assert verdicts["mm-aug-dominates", "naive"].state == "holds"
    assert verdicts["mm-aug-gains", "any"].state == "holds"
    assert [member for name, member in verdicts if name in {"mm-aug-gains", "mm-aug-data"}] == ["any", "any"]
    assert verdicts["noise-loses", "adaptive"].state == "holds"
    assert verdicts["bkg-repl-cuts", "naive"].state == "untested"
    assert verdicts["rand-aug-second", "naive"].state == "untested"
    ours = [*ENTRIES, entry("sign", 1.0, 0.01, 0.01, 0.3)]
    verdicts = {(v.claim, v.member): v for v in judge_plane(ours, ADVERSARIES, "albums")}
    assert verdicts["mm-aug-dominates", "naive"].state == "holds", "sign is no defence of the paper"
    worse = [*ENTRIES, entry("rand-aug", 1.0, 0.01, 0.01, 0.3), entry("noise", 0.2, 0.1, 0.1, 0.79)]
    verdicts = {(v.claim, v.member): v for v in judge_plane(worse, ADVERSARIES, "albums")}
    assert verdicts["mm-aug-dominates", "naive"].state == "fails"
    assert verdicts["mm-aug-dominates", "naive"].numbers.endswith("not rand-aug 1")
    assert verdicts["rand-aug-second", "naive"].numbers.startswith("0 of 3")
    assert verdicts["noise-loses", "naive"].state == "fails"
    assert "noise 0.2" in verdicts["noise-loses", "naive"].numbers


@pytest.mark.parametrize(
    ("ap", "result"), [(0.15, "holds"), (0.202, "undecided"), (0.198, "undecided"), (0.7, "fails")]
)
def test_a_cut_that_may_be_as_large_as_published_or_not_is_undecided(ap: float, result: str) -> None:
    swept = [ENTRIES[0], entry("mm-aug", 0.5, ap, 0.7, 0.88)]
    verdicts = {v.claim: v for v in judge_plane(swept, ["naive"], "albums")}
    assert verdicts["mm-aug-cuts"].result == result


def test_the_better_of_the_adversaries_in_each_seed_is_a_reading_of_its_own(made: Path) -> None:
    assert HEAD.readings == ("naive", "adaptive", "best") and replace(HEAD, adversaries=("naive",)).readings == (
        "naive",
    )
    turned = entry("sign", 1.0, 0.6, 0.2, 0.8)
    assert turned.attack("best")["value"] == pytest.approx(0.6) and turned.attack("adaptive")["value"] < 0.3
    places = json.loads((made / "plane.json").read_text())["places"]
    assert places[3]["adversaries"]["best"]["ap"]["value"] == places[3]["adversaries"]["adaptive"]["ap"]["value"]
    assert "best: AP" in (made / "index.html").read_text()


def test_our_own_defence_is_judged_beside_mm_aug_at_equal_strength() -> None:
    def state(*ours: Entry) -> tuple[str, str]:
        found = judge_plane([*ENTRIES, *ours], ["adaptive"], "albums")
        return next((v.state, v.source) for v in found if v.claim == "counter-aug-beats-mm-aug")

    low, high = entry("counter-aug", 0.5, 0.1, 0.4, 0.88), entry("counter-aug", 2.0, 0.1, 0.6, 0.9)
    assert state(low) == ("holds", "this project")
    assert state(low, high)[0] == "fails" and state(entry("counter-aug", 9.0, 0.1, 0.1, 0.9))[0] == "untested"
    assert not [v for v in judge_plane(ENTRIES, ["adaptive"], "albums") if "counter" in v.text], "none was swept"


def test_our_own_defence_is_judged_beside_the_plainest_one_at_equal_cost() -> None:
    def state(*swept: Entry) -> str:
        found = judge_plane([ENTRIES[0], *swept], ["adaptive"], "albums")
        return next(v.state for v in found if v.claim == "counter-aug-beats-rand-aug")

    own, plainest = entry("counter-aug", 2.0, 0.2, 0.4, 0.9), entry("rand-aug", 2.0, 0.2, 0.6, 0.9)
    assert state(own, plainest) == "holds"
    assert state(own) == "untested"
    assert state(own, entry("rand-aug", 2.0, 0.2, 0.3, 0.9)) == "fails"


def test_our_own_defence_is_judged_on_all_updates_of_a_device_too() -> None:
    """One update may be hidden better and thirty worse; both differences are paired over users."""

    def linked(made: Entry, ap: float) -> Entry:
        aps = {str(user): ap * (0.9 + 0.01 * user) for user in range(20)}
        attacks = [tuple(replace(one, linked_by_user=aps) for one in point.attacks) for point in made.points]
        pairs = zip(made.points, attacks, strict=True)
        return replace(made, points=tuple(replace(point, attacks=numbers) for point, numbers in pairs))

    own, plainest = entry("counter-aug", 2.0, 0.2, 0.4, 0.9), entry("rand-aug", 2.0, 0.2, 0.6, 0.9)
    found = judge_plane([ENTRIES[0], linked(own, 0.8), linked(plainest, 0.6)], ["adaptive"], "albums")
    states = {v.claim: v.state for v in found}
    assert states["counter-aug-beats-rand-aug"] == "holds" and states["counter-aug-beats-rand-aug-linked"] == "fails"
    unlinked = judge_plane([ENTRIES[0], own, plainest], ["adaptive"], "albums")
    assert next(v.state for v in unlinked if v.claim == "counter-aug-beats-rand-aug-linked") == "untested"


def test_who_knows_the_defence_is_judged_beside_who_does_not(made: Path) -> None:
    def verdict(*more: Entry) -> tuple[str, str]:
        found = judge_plane([*ENTRIES, *more], ADVERSARIES, "albums")
        return next((v.state, v.numbers) for v in found if v.claim == "adaptive-never-weaker")

    assert verdict() == ("holds", "below it at 0 of 5 points")
    state, said = verdict(entry("sign", 1.0, 0.6, 0.4, 0.8))
    assert state == "fails" and said.startswith("below it at 1 of 6 points; sign 1: ")
    assert "-50 % [" in said
    state, said = verdict(entry("sign", 1.0, 0.6, 0.59, 0.8))
    assert state == "holds" and said.startswith("below it at 1 of 6 points; sign 1: "), "by less than the margin"
    above, below = (entry("sign", 1.0, 0.6, adaptive, 0.8) for adaptive in (0.7, 0.48))
    state, said = verdict(replace(above, points=(above.points[0], *below.points[1:])))
    assert state == "undecided" and said.startswith("below it at 1 of 6 points; sign 1: ")
    assert not [v for v in judge_plane(ENTRIES, ["adaptive"], "albums") if v.claim == "adaptive-never-weaker"]
    places = json.loads((made / "plane.json").read_text())["places"]
    assert [place["naive_misses"] is None for place in places if not place["error"]] == [True] + [False] * 5
    assert places[1]["naive_misses"]["value"] == pytest.approx(1 / 6, abs=0.01)


def test_two_points_are_compared_by_their_paired_differences() -> None:
    """Users whose utilities differ much hide a difference that all of them share, unless they are paired."""

    def entries(*, paired: bool) -> list[Entry]:
        swept = [entry("mm-aug", 1.0, 0.3, 0.3, 0.70), entry("noise", 1.0, 0.5, 0.5, 0.68)]
        return [ENTRIES[0], *(_by_user(one) if paired else one for one in swept)]

    def state(known: list[Entry]) -> str:
        found = judge_plane(known, ["naive"], "albums")
        return next(v.state for v in found if v.claim == "mm-aug-dominates")

    assert state(entries(paired=False)) == "undecided", "70 and 68 % with 2 points to either side"
    assert state(entries(paired=True)) == "holds"
    assert state([*entries(paired=True), _by_user(entry("dp-fedavg", 1.0, 0.1, 0.1, 0.75))]) == "fails"


def test_a_place_under_another_view_says_so() -> None:
    summed = entry("secure-aggregation", 5.0, 0.01, 0.01, 0.8)
    seen = tuple(replace(p, attacks=tuple(replace(n, view="aggregate") for n in p.attacks)) for p in summed.points)
    entries = [*ENTRIES, replace(summed, points=seen)]
    assert "secure-aggregation 5 (view aggregate), mm-aug 2." in front_words(HEAD, entries, "best")
    for table in plane_tables(HEAD, entries):
        assert [line.labels[2] for line in table.lines][-2:] == ["local", "aggregate"]


def test_the_tables_have_every_number_of_every_adversary_once_and_few_columns() -> None:
    first, more = plane_tables(HEAD, ENTRIES)
    assert first.heads == (
        "utility", "naive: AP", "adaptive: AP", "best: AP", "naive: linked AP", "adaptive: linked AP",
    )  # fmt: skip
    assert more.heads == (
        "naive: AP over chance", "naive: AP gone", "adaptive: AP over chance", "adaptive: AP gone",
    )  # fmt: skip
    assert more.lines[0].cells[1] is None, "without a defence nothing is gone"
    assert more.folded and not first.folded and len(first.lines) == len(more.lines) == len(measured(ENTRIES))


def test_users_who_chose_no_protection_stand_apart() -> None:
    assert choices_table(ENTRIES) is None, "nobody had a choice"

    def of(point: Point) -> Point:
        (like, *_) = [row for row in point.rows if row["metric"] == "ap" and row["linkage"] == "update"]
        keys = {"analysis": "strengths", "n_users": 10}
        rows = [
            {**like, **keys, "strength": strength, "protected": safe, "value": value, "attack": f"ridge-{point.seed}"}
            for safe, value in ((True, 0.2), (False, 0.7))
            for strength in ("any", "mm-aug alpha=2" if safe else "mm-aug alpha=0")
        ]
        return replace(point, analyses=tuple(rows))

    chose = replace(ENTRIES[4], points=tuple(of(point) for point in ENTRIES[4].points))
    table = choices_table([*ENTRIES[:4], chose])
    assert table is not None
    ((line,), (safe, bare)) = table.lines, table.lines[0].cells
    assert line.labels == ("mm-aug 2", "naive", "local")
    assert (safe.value, bare.value) == (pytest.approx(0.2), pytest.approx(0.7))
    pooled = [row for row in privacy_rows("albums-plane", [*ENTRIES[:4], chose]) if row["seed"] == POOLED]
    assert {row["strength"] for row in pooled} == {2.0}, "the sweep's"
    assert {(row["chosen"], row["protected"]) for row in pooled} == {
        ("any", True), ("any", False), ("mm-aug alpha=2", True), ("mm-aug alpha=0", False)
    }  # fmt: skip


def test_no_measurement_is_written_twice(tmp_path: Path) -> None:
    linked = [
        replace(one, points=tuple(fake_point(0.6, 0.7, seed, linked=True) for seed in range(3))) for one in ENTRIES[:2]
    ]
    write_plane(head=HEAD, entries=linked, config_text="sweep: {}\n", out=tmp_path / "plane")
    rows = [json.dumps(row, sort_keys=True) for row in read_measurements(tmp_path / "plane" / "measurements.jsonl")]
    assert any('"analysis": "linked"' in row for row in rows) and len(set(rows)) == len(rows)


def _linked(found: Entry, at_thirty: float) -> Entry:
    """Give an entry rows by linked updates: ridge is chosen, a side channel is stronger."""

    def of(point: Point) -> Point:
        (like, *_) = [row for row in point.rows if row["metric"] == "ap" and row["linkage"] == "update"]
        rows = [
            {**like, "analysis": "linked", "linked_updates": count, "attack": attack, "selected": attack == "ridge",
             "value": value + extra, "lo": value, "hi": value + 0.1, "adversary": adversary}
            for count, value in ((1, like["value"]), (30, at_thirty))
            for adversary in ("naive", "adaptive")
            for attack, extra in (("ridge", 0.01 * (adversary == "adaptive")), ("ridge+sides", 0.05))
        ]  # fmt: skip
        return replace(point, analyses=tuple(rows))

    return replace(found, points=tuple(of(point) for point in found.points))


def test_linked_updates_are_an_axis_of_the_plane() -> None:
    swept = [_linked(ENTRIES[0], 0.9), _linked(ENTRIES[3], 0.8), _linked(ENTRIES[1], 0.3), ENTRIES[-1]]
    table = linked_table(swept, "adaptive")
    assert table is not None and table.heads == ("chosen: 1", "chosen: 30", "any attack: 1", "any attack: 30")
    by_name = {line.labels: line.cells for line in table.lines}
    _, chosen, _, largest = by_name["mm-aug", "0.5"]
    assert (chosen.value, largest.value) == (pytest.approx(0.81), pytest.approx(0.85))
    naive = linked_table(swept, "naive")
    assert naive is not None and naive.lines[1].cells[1].value == pytest.approx(0.8)  # type: ignore[union-attr]
    (drawing,) = linked_drawings(swept, "adaptive")
    assert "mm-aug 0.5" in drawing.inline and "noise 0.1" not in drawing.inline, "noise costs too much utility"
    assert linked_table(ENTRIES, "adaptive") is None and linked_drawings(ENTRIES, "adaptive") == []
    said = verdict(replace(HEAD, users="confirmation"), swept)
    assert "over 30 linked updates (any attack: 95.0 %" in said[0] and "20 confirmation users, 3 seeds" in said[0]
    assert " leaves the least over 30 linked updates: average precision" in said[1]


def test_a_number_of_linked_updates_that_one_seed_lacks_is_left_out() -> None:
    plain = _linked(ENTRIES[0], 0.9)
    first, *others = plain.points
    few = replace(first, analyses=tuple(row for row in first.analyses if row["linked_updates"] == 1))
    swept = [replace(plain, points=(few, *others)), _linked(ENTRIES[3], 0.8)]
    table = linked_table(swept, "adaptive")
    assert table is not None and table.heads == ("chosen: 1", "any attack: 1")


def test_an_ap_that_the_last_doubling_of_effort_raised_is_a_lower_bound() -> None:
    def gained(found: Entry, gain: float) -> Entry:
        def of(point: Point) -> Point:
            like = {**point.rows[1], "analysis": "effort", "metric": "ap_difference", "selected": True}
            rows = [{**like, "linkage": linkage, "value": gain, "lo": gain - 0.01, "hi": gain + 0.01}
                    for linkage in ("update", "device")]  # fmt: skip
            return replace(point, analyses=tuple(rows))

        return replace(found, points=tuple(of(point) for point in found.points))

    unlinked = gained(ENTRIES[4], -0.1)
    unlinked = replace(unlinked, points=tuple(replace(p, analyses=p.analyses[:1]) for p in unlinked.points))
    table = effort_table([gained(ENTRIES[0], -0.1), gained(ENTRIES[2], 0.002), gained(ENTRIES[3], 0.03), unlinked])
    assert table is not None
    assert [line.cells[2] for line in table.lines] == ["settled", "undecided", "lower bound", "undecided"]
    assert table.lines[2].cells[1].value == pytest.approx(0.03)  # type: ignore[union-attr]
    assert effort_table(ENTRIES) is None
    assert "a lower bound by its effort" in verdict(HEAD, [ENTRIES[0], gained(ENTRIES[4], 0.03)])[1]


def _by_user(found: Entry, *, defence: str = "noise", strength: float | None = None) -> Entry:
    """Give every point users of about its utility."""
    points = tuple(
        replace(p, defence=defence, utility=replace(p.utility, by_user={
            str(user): (100 * p.utility.value + user % 3, 100.0) for user in range(20)
        }))
        for p in found.points
    )  # fmt: skip
    return replace(found, points=points, strength=found.strength if strength is None else strength)


def test_utility_is_read_beside_that_of_public_data_alone() -> None:
    plain, public = _by_user(ENTRIES[0]), _by_user(ENTRIES[1], defence="bkg-repl", strength=1.0)
    half = _by_user(ENTRIES[2])
    table = utility_table([plain, public, half])
    assert table is not None and "Private data add 40.0" in table.note.replace("\u00a0", " ")
    cells = {line.labels: line.cells for line in table.lines}
    lost, kept, worst = cells["dp-fedavg", "1"]
    assert (lost.value, kept.value) == (pytest.approx(0.2), pytest.approx(0.5))
    assert worst.value == pytest.approx(0.6)
    same = utility_table([plain, _by_user(ENTRIES[0], defence="bkg-repl", strength=1.0), half])
    assert same is not None and "not discriminating" in same.note
    assert utility_table(ENTRIES) is None and utility_table([plain, half]) is None
    written = [row for row in measurement_rows("demo", [plain, public, half]) if row["seed"] == POOLED]
    shares = {(row["strategy"], row["metric"]): row["value"] for row in written}
    assert shares["dp-fedavg", "private_share"] == pytest.approx(0.5)
    assert shares["no defence", "private_gain"] == pytest.approx(0.4)
    nothing = measurement_rows("demo", [plain, half])
    assert not any(row["metric"].startswith("private") for row in nothing)


def test_a_verdict_measures_cost_by_what_private_data_add() -> None:
    plain, public = _by_user(ENTRIES[0]), _by_user(ENTRIES[1], defence="bkg-repl", strength=1.0)
    half, most = _by_user(ENTRIES[2]), _by_user(ENTRIES[4])
    said = verdict(HEAD, [plain, public, half])
    assert said[1] == "No defence here keeps 90 % of what private data add."
    assert said[2].startswith("Public data alone (noise 1) have 0.50 [0.47, 0.53] of the utility, at average")
    said = verdict(HEAD, [plain, public, half, most])
    assert said[1].startswith("Of the defences that keep 90 % of what private data add, mm-aug 2 leaves the least")
    assert "1.25 [1.25, 1.25] of what private data add" in said[1]
    same = verdict(HEAD, [plain, _by_user(ENTRIES[0], defence="bkg-repl", strength=1.0), half, most])
    assert "that keep 90 % of the utility, mm-aug 2 leaves the least" in same[1], "not discriminating"


def test_what_mm_aug_costs_is_measured_on_the_devices() -> None:
    def state(factor: float) -> str:
        points = tuple(fake_point(0.1, 0.8, seed, factor=factor) for seed in range(3))
        places = [ENTRIES[0], Entry(strategy="mm-aug", strength=2.0, points=points)]
        return next(v.state for v in judge_plane(places, ["naive"], "albums") if v.claim == "mm-aug-data")

    assert (state(3.0), state(3.01), state(2.0)) == ("holds", "holds", "fails")


def test_central_dp_is_said_not_to_protect_from_the_server() -> None:
    words = central_words(HEAD, ENTRIES)
    assert words is not None and words.startswith("Central differential privacy does not protect against a server")
    assert "AP 79.0 %" in words and "view local, defended: everyone" in words
    assert central_words(HEAD, ENTRIES[:2]) is None


def test_curves_of_many_strategies_look_different() -> None:
    shown = [look(position) for position in range(3 * len(COLOURS))]
    assert len(set(shown)) == len(shown)
    assert len({(colour, marker) for colour, marker, _ in shown}) == len(shown)


def test_overhead_compares_with_the_same_seed() -> None:
    costs = overhead(ENTRIES[3], ENTRIES[0])
    assert costs["time_factor"] == pytest.approx(2.0)
    assert costs["data_factor"] == 1.0


def test_measurements_have_the_schema_of_every_experiment(made: Path) -> None:
    rows = read_measurements(made / "measurements.jsonl")
    assert set(COLUMNS) <= set(rows[0])
    assert {row["experiment"] for row in rows} == {"demo-plane"}
    assert {row["strategy"] for row in rows} == {"no defence", "noise", "dp-fedavg", "mm-aug", "top-k"}
    pooled = [row for row in rows if row["seed"] == POOLED]
    found = {(r["strategy"], r["strength"], r["adversary"]): r for r in pooled if r["metric"] == "ap_reduction"}
    assert found["mm-aug", 0.5, "naive"]["value"] == pytest.approx(0.81, abs=0.01)
    assert {r["n_seeds"] for r in pooled} == {3}
    utility = [r for r in pooled if r["metric"] == "normalised_utility" and r["strategy"] == "noise"]
    assert [r["value"] for r in utility] == [pytest.approx(0.5)]


def test_the_page_names_view_setting_and_failures(made: Path) -> None:
    page = (made / "index.html").read_text()
    assert "AP is of one update where a claim does not say of all" in page
    for text in (
        "A &lt;plane&gt;", "view: local", "defended: everyone", "naive adversary", "adaptive adversary",
        "noise 9", "training diverged", "published: 75 %", "table-overhead", "No strength of these is on it",
        "Of the defences that keep 90 % of the utility, ",
    ):  # fmt: skip
        assert text in page, text
    assert "http" not in page.replace("http-equiv", "")
    svg = (made / "figures" / "plane.svg").read_text()
    assert "naive adversary" in svg and "adaptive adversary" in svg and "top-k" in svg


def test_plane_json_says_who_is_on_the_front(made: Path) -> None:
    plane = json.loads((made / "plane.json").read_text())
    on = {
        (place["strategy"], place["strength"]): place["adversaries"]["naive"]["on_front"]
        for place in plane["places"]
        if not place["error"]
    }
    assert [place for place, front_ in on.items() if front_] == [("mm-aug", 2.0)]
    assert plane["places"][-1]["error"].startswith("3 of 3 seeds")


def test_linked_updates_have_a_column_of_their_own(made: Path) -> None:
    places = json.loads((made / "plane.json").read_text())["places"]
    noise = next(place for place in places if place["strategy"] == "noise" and place["error"] is None)
    assert noise["adversaries"]["adaptive"]["linked_ap"]["value"] == pytest.approx(1.2 * 0.6)
    plain = next(place for place in places if place["strength"] is None)  # nothing to adapt to: the naive one's
    assert plain["adversaries"]["adaptive"]["linked_ap"]["value"] == pytest.approx(1.2 * 0.8)
    assert "linked AP" in (made / "index.html").read_text(encoding="utf-8")


def test_the_terminal_shows_every_place(made: Path) -> None:
    table = summary_table(made)
    assert table.row_count == len(ENTRIES)


def test_equal_input_gives_equal_bytes(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    write_plane(head=HEAD, entries=ENTRIES, config_text="sweep: {}\n", out=out)
    files = [path.relative_to(made) for path in made.rglob("*") if path.is_file()]
    assert [str(name) for name in files if (made / name).read_bytes() != (out / name).read_bytes()] == []
