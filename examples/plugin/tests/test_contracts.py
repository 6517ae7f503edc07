"""The components of this plug-in keep the contracts of fedprint.testing: ``pytest`` in this folder."""

from pathlib import Path
from typing import ClassVar

from fedprint_example.attack import SignVotes
from fedprint_example.defence import DropCoordinates
from fedprint_example.kind import Survey
from fedprint_example.model import Softmax
from fedprint_example.source import Stripes

from fedprint.testing.attack import AttackContract
from fedprint.testing.defence import DefenceContract
from fedprint.testing.kind import KindContract
from fedprint.testing.model import ModelContract
from fedprint.testing.source import SourceContract


class TestSignVotes(AttackContract):
    component = SignVotes()


class TestDropCoordinates(DefenceContract):
    component = DropCoordinates(share=(0.0, 0.5))


class TestStripes(SourceContract):
    component = Stripes(users=4, images=10, background_users=2)


class TestSoftmax(ModelContract):
    component = Softmax()


class TestSurvey(KindContract):
    kind = Survey()
    values: ClassVar = {
        "data": {"name": "stripes", "users": 4},
        "survey": [0.5],
        "report": {"title": "How many examples"},
    }
    root = Path(__file__).parent
