"""Cross-modal matching: does an update from pictures belong to the writer of some texts (gradient-leaks v3, 6.1.1)?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedprint.analyses.base import Analysis, Bench, Facts
from fedprint.analyses.matching import paper_layers, rows_of
from fedprint.analyses.trials import AnswerSet, Asked, Key, QuestionSet, Trial, binary_trial
from fedprint.attacks.matching.cross_modal import CrossProblem, bridges, choose_bridges, two_towers
from fedprint.attacks.matching.match import numpy_like
from fedprint.attacks.matching.open_set import folds_of
from fedprint.attacks.matching.pairs import balanced_pairs
from fedprint.attacks.matching.sentences import Encode, Encoder, captions_of, sentence_transformer, tfidf, user_features
from fedprint.data.text_columns import CAPTION
from fedprint.rng import numpy_rng
from fedprint.types import Floats, Ints, Scores

World = Literal["open", "closed"]
Matcher = Literal["chance", "cross-modal", "cross-modal-strong"]


class CrossModal(Analysis):
    """``cross-modal``: AP over balanced pairs (texts of a user, anonymous update).

    ``world`` open: the adversary learns from updates and texts of a share ``paired`` of the users; the questions are
    about the others, of whom it has texts only. closed: it has updates and texts of all users. The texts are the
    captions of the prior; the devices never see them. ``encoder`` tfidf needs no files; sentence-transformers reads a
    model in the folder ``encoder_model``. ``layers`` are what the towers read: by default the layers of attack ``mlp``.
    """

    name: Literal["cross-modal"] = "cross-modal"
    worlds: tuple[World, ...] = Field(default=("open", "closed"), min_length=1)
    pairs: int = Field(default=10_000, ge=2)
    paired: float = Field(default=2 / 3, gt=0, lt=1)
    attacks: tuple[Matcher, ...] = Field(default=("chance", "cross-modal", "cross-modal-strong"), min_length=1)
    layers: tuple[str, ...] | None = None
    encoder: Encoder = "tfidf"
    encoder_model: Path | None = None
    dimensions: int = Field(default=128, ge=1)

    @property
    def reads(self) -> tuple[str, ...]:
        """The folder of the encoder, if there is one."""
        return (str(self.encoder_model),) if self.encoder_model else ()

    def ask(self, facts: Facts) -> Iterator[Asked]:
        """Ask about pairs of a user's texts and an anonymous update; subjects (q, 2) are user and observation ids."""
        captions_of(facts.prior)  # refuses data without captions
        users = np.array(facts.users, dtype=np.int64)
        for world in self.worlds:
            rng = numpy_rng(facts.seed, self.name, world)
            paired = np.sort(rng.permutation(users)[: round(self.paired * len(users))])
            known, asked = (users, users) if world == "closed" else (paired, np.setdiff1d(users, paired))
            yield self._ask_pairs(facts, world, known, asked, rng)

    def _ask_pairs(self, facts: Facts, world: World, known: Ints, asked: Ints, rng: np.random.Generator) -> Asked:
        rows = facts.rows("anonymous")
        rows = rows[np.isin(facts.owner[rows], asked)]
        pairs, same = balanced_pairs(asked, facts.owner[rows], self.pairs, rng)
        observations = facts.index["obs_id"].to_numpy(dtype=np.int64)[rows]
        subjects = np.stack([asked[pairs[:, 0]], observations[pairs[:, 1]]], axis=1)
        name = f"{self.name}-{world}"
        questions = QuestionSet(name=name, kind="same", subjects=subjects, facts={"paired": known})
        owners = facts.owner[rows][pairs[:, 1]]
        return questions, AnswerSet(name=name, answers=same.astype(np.int64), users=owners)

    def trials(self, bench: Bench) -> Iterator[Trial]:
        """Yield one trial per world and matcher."""
        bench.progress("texts")
        texts = self.texts(bench)
        for world in self.worlds:
            questions = bench.questions[f"{self.name}-{world}"]
            problem = self._problem(bench, questions, texts)
            for name in self.attacks:
                bench.progress(f"{world}, {name}")
                layers, scores = self._answer(bench, name, problem, world)
                keys: dict[str, Key] = {"attack": name, "layers": layers, "world": world, "encoder": self.encoder}
                yield binary_trial(questions.name, scores, keys, ("cross_modal_ap",))

    def texts(self, bench: Bench) -> Floats:
        """Return phi (U, D) of all users, in the order of the options; of a text-only user nothing else is read."""
        captions = captions_of(sorted(bench.view.prior_users, key=lambda user: user.user_id))
        return user_features(captions, self._encoder(bench, [text for texts in captions.values() for text in texts]))

    def _encoder(self, bench: Bench, texts: list[str]) -> Encode:
        if self.encoder != "tfidf":
            return sentence_transformer(self.encoder_model)
        others = [user for user in bench.view.background if CAPTION in user.examples]
        more = [text for captions in captions_of(others).values() for text in captions]
        return tfidf([*texts, *more], self.dimensions)

    def _problem(self, bench: Bench, questions: QuestionSet, texts: Floats) -> CrossProblem:
        paired = np.searchsorted(bench.options, questions.facts["paired"])
        kept = np.isin(bench.problem.labels, paired)
        users = np.searchsorted(bench.options, questions.subjects[:, 0])
        return CrossProblem(
            updates=bench.view.store,
            texts=texts,
            fit=bench.problem.fit[kept],
            labels=bench.problem.labels[kept],
            pairs=np.stack([users, rows_of(bench, questions.subjects[:, 1])], axis=1),
            layers=paper_layers(bench) if self.layers is None else self.layers,
        )

    def _answer(self, bench: Bench, name: Matcher, problem: CrossProblem, world: World) -> tuple[str | None, Scores]:
        """Return the layers that the matcher read (of an ensemble those of the three best), and its scores (q,)."""
        rng = bench.rng(self.name, world, name)
        if name == "chance":
            return None, numpy_like(rng).random(len(problem.pairs))
        if name == "cross-modal":
            return ",".join(problem.layers or ("all",)), two_towers(problem, rng)
        folds = folds_of(bench.folds, np.unique(problem.labels))
        chosen = choose_bridges(folds, problem.texts, numpy_like(rng))
        return ",".join(dict.fromkeys(settings.layers for settings in chosen[:3])), bridges(problem, chosen)
