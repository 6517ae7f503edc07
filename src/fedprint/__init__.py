"""fedprint: how recognisable is a user from the updates that federated learning calls anonymous?"""

from fedprint import _torchvision_repair as _torchvision_repair
