"""What a process that runs stages imports before it opens anything: the code of all stages, and their loggers."""

from lightning.pytorch import loggers as loggers
from mlflow import entities as entities
from mlflow import tracking as tracking

from fedprint.kinds.audit import stage as stage
from fedprint.kinds.clients.stages import train as train
from fedprint.kinds.federation.stages import analyse as analyse
from fedprint.kinds.federation.stages import ask as ask
from fedprint.kinds.federation.stages import attack as attack
from fedprint.kinds.federation.stages import choose as choose
from fedprint.kinds.federation.stages import embed as embed
from fedprint.kinds.federation.stages import federate as federate
from fedprint.kinds.federation.stages import point as point
from fedprint.kinds.federation.stages import prepare as prepare
from fedprint.kinds.inversion.stages import expose as expose
from fedprint.kinds.reconstruction.stages import reconstruct as reconstruct
