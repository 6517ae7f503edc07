"""The spn paper's claims about the number of clients, each judged on one report by partition (papers.md 4.5).

Differences are paired over the test images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedprint.evaluation.rows import Row
from fedprint.reports.claims.comparison import AllOf, Comparison, compared
from fedprint.reports.claims.verdict import UNTESTED, Claim, Finding, Judged, Verdict, count, decide, together
from fedprint.reports.numbers.clients import ALONE, ClientsHead, accuracy_of, gains, growth, points
from fedprint.reports.wording import shown

Judge = Callable[[ClientsHead, Sequence[Row], str], Finding]
PAR = 0.03
"""Accuracies this close are "on par": the paper counts 2 to 3 points as an improvement."""

MANY = 100
"""The number of clients at which the paper says what fails and what is on par."""

DIRICHLET = "dirichlet"


def judge_clients(head: ClientsHead, rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict per claim and partition, from ``rows`` of all seeds pooled."""
    return decide([
        Judged(claim=one, finding=one.judge(head, rows, partition), member=partition, dataset=head.dataset)
        for one in CLAIMS
        for partition in head.partitions
    ])  # fmt: skip


def leads(better: str, *others: str) -> Judge:
    """Return the judge of "this method is more accurate than each of the others, at every number of clients"."""

    def judge(head: ClientsHead, rows: Sequence[Row], partition: str) -> Finding:
        return together(_lead(head, rows, partition, better, worse) for worse in others)

    return judge


def _lead(head: ClientsHead, rows: Sequence[Row], partition: str, better: str, worse: str) -> Finding:
    differences = gains(rows, partition, better, worse)
    if not differences:
        return UNTESTED
    missing = [str(n) for n in head.clients if n not in {int(row["clients"]) for row in differences}]
    lost = f"; no number at {', '.join(missing)} (diverged)" if missing else ""
    return Finding(
        test=AllOf(tuple(compared(row, 0.0) for row in differences)),
        numbers=f"{better} minus {worse}: {by_clients(differences)}{lost}",
    )


def grows(better: str, worse: str) -> Judge:
    """Return the judge of "the gain of one method over another grows from the fewest clients to the most"."""

    def judge(head: ClientsHead, rows: Sequence[Row], partition: str) -> Finding:
        row = growth(rows, partition, better, worse)
        if row is None:
            return UNTESTED
        numbers = f"{better} minus {worse}: {points(row)} points more at {row['clients']} than at "
        return Finding(test=compared(row, 0.0), numbers=f"{numbers}{row['versus_clients']} clients")

    return judge


def fail_at_many(*methods: str) -> Judge:
    """Return the judge of "these methods fail to train at 100 clients".

    They diverge, or are at most :data:`PAR` above chance.
    """

    def judge(head: ClientsHead, rows: Sequence[Row], partition: str) -> Finding:
        known = [method for method in methods if method in head.methods]
        if MANY not in head.clients or not known:
            return UNTESTED
        by_method = {method: accuracy_of(rows, partition, method, MANY) for method in known}
        parts = [f"{name} {'diverged' if row is None else shown(row)}" for name, row in by_method.items()]
        trained = [row for row in by_method.values() if row is not None]
        limits = [compared(row, float(row["chance"]) + PAR, above=False) for row in trained]
        beside = f"; chance {100 * float(trained[0]['chance']):.1f} %" if trained else ""
        return Finding(test=AllOf(tuple(limits) or (_diverged(head),)), numbers=", ".join(parts) + beside)

    return judge


def _diverged(head: ClientsHead) -> Comparison:
    """Return that no seed gave a model, which is no estimate."""
    return Comparison(value=0.0, lo=0.0, hi=0.0, bound=PAR, above=False, n_users=0, n_seeds=len(head.seeds))


def on_par(one: str, other: str) -> Judge:
    """Return the judge of "both are equally accurate at 100 clients": the difference lies within :data:`PAR`."""

    def judge(head: ClientsHead, rows: Sequence[Row], partition: str) -> Finding:
        differences = [row for row in gains(rows, partition, one, other) if int(row["clients"]) == MANY]
        if not differences:
            return UNTESTED
        (row,) = differences
        numbers = f"{one} minus {other}: {points(row)} points; on par means within {100 * PAR:.0f}"
        return Finding(test=AllOf((compared(row, -PAR), compared(row, PAR, above=False))), numbers=numbers)

    return judge


def only_on(partition: str, judge: Judge) -> Judge:
    """Return a judge that leaves other partitions untested: the paper speaks of this one."""
    return lambda head, rows, own: judge(head, rows, own) if own == partition else UNTESTED


def by_clients(differences: Sequence[Row]) -> str:
    """Return differences by the number of clients: ``+5.0 [+3.9, +6.1] at 8, ... clients, in points``."""
    listed = ", ".join(f"{points(row)} at {row['clients']}" for row in differences)
    return f"{listed} clients, in points"


CLAIMS: tuple[Claim[Judge], ...] = (
    Claim("fedavg-over-standalone",
          "FedAvg is more accurate than clients alone (published: by 2 to 4 points on MNIST, 10 to 40 on CIFAR-10)",
          "4.5", leads("fedavg", ALONE)),
    Claim("gain-grows", "FedAvg's gain over clients alone grows with their number", "4.5", grows("fedavg", ALONE)),
    Claim("spn-over-fedavg", "federated SPN improves on FedAvg (published: by 2 to 3 points on CIFAR-10, .2 on MNIST)",
          "4.5", leads("spn", "fedavg")),
    Claim("spn-gain-grows", "SPN's gain over FedAvg grows with the number of clients (published for Dirichlet)",
          "4.5; spn, figure 29", only_on(DIRICHLET, grows("spn", "fedavg"))),
    Claim("spn-over-ppdl", "federated SPN is more accurate than PPDL", "4.5; spn, figure 28",
          leads("spn", "ppdl-0.3", "ppdl-0.05")),
    Claim("spn-over-dp", "federated SPN is more accurate than DP-0.1 (published: by 25 points, AlexNet on CIFAR-10)",
          "4.5", leads("spn", "dp-0.1")),
    Claim("collapse", "PPDL-0.05 and DP-0.1 lose accuracy (published: DLNet on CIFAR-10, about 12 points each)",
          "4.5, spn_accuracy_dlnet.csv", leads("fedavg", "ppdl-0.05", "dp-0.1")),
    Claim("fail-at-100", "PPDL-0.3 and DP-0.1 fail to train at 100 clients (published: VGG16 on SVHN)", "4.5",
          fail_at_many("ppdl-0.3", "dp-0.1")),
    Claim("par-at-100", "with Dirichlet data SPN is on par with PPDL-0.3 at 100 clients", "4.5",
          only_on(DIRICHLET, on_par("spn", "ppdl-0.3"))),
)  # fmt: skip


def sentences(head: ClientsHead, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the verdict of the page: accuracy gained at the most clients, by partition, and how the claims fare."""
    said = []
    for partition in head.partitions:
        compared = {
            f"from {worse} to {better}": differences[-1]
            for worse, better in ((ALONE, "fedavg"), ("fedavg", "spn"), ("dp-0.1", "spn"))
            if (differences := gains(rows, partition, better, worse))
        }
        if compared:
            listed = ", ".join(f"{points(row)} {words} ({row['clients']} clients)" for words, row in compared.items())
            said.append(f"With the {partition} partition accuracy changes, in points, by {listed}.")
    hold, fail, undecided = (count(verdicts, state) for state in ("holds", "fails", "undecided"))
    said.append(
        f"Of {hold + fail + undecided} verdicts on the papers' claims, one per claim and partition, {hold} hold, "
        f"{fail} fail, and {undecided} are undecided."
    )
    return said
