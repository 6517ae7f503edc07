"""Trained weights from a file: read without unpickling objects, and copied only where they fit."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from fedprint.data.formats.locate import located
from fedprint.types import FedprintError

HEAD = ("head.weight", "head.bias")

_STAGES = (1, 2, 2, 6, 2)
_NORM = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "var"}


def read_weights(file: str) -> dict[str, Tensor]:
    """Return the tensors of a ``.safetensors`` file or of a state dict that ``torch.save`` wrote, by our names.

    ``file`` is a path as given, or one inside the data folder. Its names are those of our own state dict, or those of
    the usual PyTorch collections (``conv_stem``, ``bn1``, ``blocks.0.0.conv_dw``, ..., ``classifier``), whose scales
    become differences from 1. Raises FedprintError for a file that is missing or no mapping of tensors.
    """
    path = located(file)
    if not path.is_file():
        raise FedprintError(f"model.weights: {path} does not exist; give a .safetensors file or a state dict, or null")
    tensors = _tensors(path)
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    return dict(_renamed(name, tensor) for name, tensor in kept.items())


def _tensors(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise FedprintError(
            f"model.weights: {path} does not hold plain tensors ({_line(error)}); save a state dict"
        ) from None
    except Exception as error:  # safetensors' own error derives from Exception alone
        raise FedprintError(
            f"model.weights: {path} is not a safetensors file ({_line(error)}); save one with safetensors"
        ) from None
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise FedprintError(f"model.weights: {path} is not a mapping of names to tensors; save model.state_dict()")
    return tensors


def _renamed(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    ours = our_name(name)
    return ours, tensor - 1 if ours != name and ours.endswith(".scale") else tensor


def our_name(name: str) -> str:
    """Return our name of a tensor: ``blocks.1.0.bn2.running_var`` is ``block2.pointwise.var``."""
    if name.startswith("classifier."):
        return name.replace("classifier.", "head.")
    if match := re.fullmatch(r"(?:conv_stem|(bn1))\.(\w+)", name):
        return f"stem.{_NORM.get(match[2], match[2]) if match[1] else match[2]}"
    if match := re.fullmatch(r"blocks\.([0-4])\.(\d)\.(conv_dw|conv_pw|bn1|bn2)\.(\w+)", name):
        block = sum(_STAGES[: int(match[1])]) + int(match[2]) + 1
        layer = "depthwise" if match[3] in ("conv_dw", "bn1") else "pointwise"
        return f"block{block}.{layer}.{_NORM.get(match[4], match[4]) if match[3].startswith('bn') else match[4]}"
    return name


@torch.no_grad()
def copy_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy ``tensors`` into parameters and constants; a head for other classes is left out, all else must fit.

    Raises FedprintError naming the first tensor that is missing, unknown, or of another shape.
    """
    wanted = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    head_fits = all(name in tensors and tensors[name].shape == wanted[name].shape for name in HEAD)
    needed = {name: tensor for name, tensor in wanted.items() if head_fits or name not in HEAD}
    missing, unknown = sorted(needed.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or unknown:
        fault = f"lacks '{missing[0]}'" if missing else f"has '{unknown[0]}', which the model lacks"
        remedy = "model.normalisation: frozen needs mean and var of every layer, group has none"
        raise FedprintError(
            f"model.weights: {origin} {fault} ({len(missing)} missing, {len(unknown)} unknown); {remedy}"
        )
    for name, target in needed.items():
        if tensors[name].shape != target.shape:
            shapes = f"{tuple(tensors[name].shape)}, the model's is {tuple(target.shape)}"
            raise FedprintError(f"model.weights: {origin}: '{name}' has shape {shapes}; set model.width to the file's")
        target.copy_(tensors[name])


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
