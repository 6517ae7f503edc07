"""MobileNet v1 beside torch's own layers, the paper's size, the contract of a federated model, and trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedprint.attacks.features import layer_groups
from fedprint.attacks.updates import MemoryUpdates
from fedprint.federation.backends import make_backend
from fedprint.models.components import MobileNet
from fedprint.models.mobilenet import BLOCKS, MobileNetClassifier, seen, strides_for
from fedprint.models.networks import build_network
from fedprint.rng import torch_rng
from fedprint.types import ClientJob, Examples, FedprintError, LocalTraining

KINDS = ("group", "frozen", "multi-label")
CLASSES, SIDE = 5, 16


def config(kind: str = "group", **changes: Any) -> MobileNet:
    normalisation = "frozen" if kind == "frozen" else "group"
    return MobileNet.model_validate({"width": 0.25, "least_map": 1, "normalisation": normalisation, **changes})


def model(kind: str = "group", seed: int = 0, classes: int = CLASSES, **changes: Any) -> MobileNetClassifier:
    net = build_network(config(kind, **changes), (3, SIDE, SIDE), classes, kind == "multi-label")
    assert isinstance(net, MobileNetClassifier)
    net.reset(torch_rng(seed))
    return net


def batch(kind: str = "group", n: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> Examples:
    rng = torch_rng(seed)
    x = torch.rand(n, 3, SIDE, SIDE, generator=rng).to(dtype)
    if kind == "multi-label":
        return {"x": x, "y": (torch.rand(n, CLASSES, generator=rng) < 0.4).to(dtype)}
    return {"x": x, "y": torch.randint(CLASSES, (n,), generator=rng)}


def disturbed(net: MobileNetClassifier, seed: int = 3) -> MobileNetClassifier:
    """Move every tensor off its neutral start, so that a comparison sees it."""
    rng = torch_rng(seed)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            noise = torch.rand(tensor.shape, generator=rng).to(tensor)
            tensor.copy_(0.5 + noise if name.endswith("var") else tensor + 0.2 * (noise - 0.5))
    return net


# ---- the network ---------------------------------------------------------------------------------------------------


def test_at_width_1_it_has_the_papers_size() -> None:
    """Howard et al., table 8: 4.2 million parameters for 1,000 classes; 1024 features."""
    net = build_network(MobileNet(), (3, 224, 224), 1000, False)
    counted = 32 * 27 + 2 * 32 + 1024 * 1000 + 1000
    inputs = 32
    for outputs, _ in BLOCKS:
        counted += 9 * inputs + 2 * inputs + inputs * outputs + 2 * outputs
        inputs = outputs
    assert sum(p.numel() for p in net.parameters()) == counted
    assert round(counted / 1e6, 1) == 4.2


@pytest.mark.parametrize("width", [0.25, 0.5])
def test_the_multiplier_scales_the_channels(width: float) -> None:
    net = build_network(MobileNet(width=width), (3, 64, 64), 7, True)
    net.reset(torch_rng(0))
    assert net.features(torch.rand(2, 3, 64, 64)).shape == (2, int(1024 * width))  # type: ignore[operator]
    assert net.scores(torch.rand(2, 3, 64, 64)).shape == (2, 7)


def test_large_images_have_the_papers_strides_and_small_ones_a_map_of_four() -> None:
    paper = (2, *(stride for _, stride in BLOCKS))
    assert strides_for(224, 4) == strides_for(128, 4) == paper
    assert np.prod(paper) == 32
    assert [int(np.prod(strides_for(side, 4))) for side in (64, 32, 28, 8)] == [16, 8, 8, 2]
    assert strides_for(64, 4)[:3] == (1, 1, 2)
    assert strides_for(32, 1) == paper


def test_there_are_27_convolutional_layers_and_a_head() -> None:
    """Each convolution is one layer of the by-layer figure, together with its normalisation."""
    sizes = {name: p.numel() for name, p in model().named_parameters()}
    groups = layer_groups(MemoryUpdates(sizes=sizes, values=np.zeros((1, sum(sizes.values())), dtype=np.float32)))
    stems = [{name.rpartition(".")[0] for name in names} for names in groups]
    pairs = [f"block{i}.{kind}" for i in range(1, 14) for kind in ("depthwise", "pointwise")]
    assert stems == [{stem} for stem in ("stem", *pairs, "head")]
    assert all(len(names) == 3 for names in groups[:-1])


@pytest.mark.parametrize("kind", ["group", "frozen"])
def test_it_equals_torchs_own_layers(kind: str) -> None:
    net = disturbed(model(kind)).double()
    x = batch()["x"]
    h = 2 * x - 1
    state = net.state_dict()
    layers = ["stem", *(f"block{i}.{k}" for i in range(1, 14) for k in ("depthwise", "pointwise"))]
    strides = [2, *(s for _, stride in BLOCKS for s in (stride, 1))]
    for layer, stride in zip(layers, strides, strict=True):
        h = functional.relu(_norm(kind, state, layer)(_convolution(state, layer, stride)(h)))
    expected = functional.linear(h.mean((2, 3)), state["head.weight"], state["head.bias"])
    assert torch.allclose(net.scores(x), expected, rtol=1e-9, atol=1e-12)
    assert float(expected.detach().std()) > 1e-3


def _convolution(state: dict[str, Tensor], layer: str, stride: int) -> nn.Conv2d:
    outputs, inputs, kernel, _ = state[f"{layer}.weight"].shape
    groups = outputs if layer.endswith("depthwise") else 1
    conv = nn.Conv2d(inputs * groups, outputs, kernel, stride, kernel // 2, groups=groups, bias=False).double()
    conv.load_state_dict({"weight": state[f"{layer}.weight"]})
    return conv


def _norm(kind: str, state: dict[str, Tensor], layer: str) -> nn.Module:
    scale, shift = 1 + state[f"{layer}.scale"], state[f"{layer}.shift"]
    if kind == "group":
        group = nn.GroupNorm(8, len(scale)).double()
        group.load_state_dict({"weight": scale, "bias": shift})
        return group
    frozen = nn.BatchNorm2d(len(scale)).double().eval()
    mean, var = state[f"{layer}.mean"], state[f"{layer}.var"]
    frozen.load_state_dict({"weight": scale, "bias": shift, "running_mean": mean, "running_var": var}, strict=False)
    return frozen


def test_groups_divide_the_channels() -> None:
    net = build_network(MobileNet(width=0.35, groups=6), (3, 32, 32), 3, False)
    net.reset(torch_rng(0))
    groups_of = {name: m.groups for name, m in net.named_modules() if hasattr(m, "conv_groups")}
    channels = {name.rpartition(".")[0]: len(p) for name, p in net.named_parameters() if name.endswith("scale")}
    assert all(channels[name] % groups == 0 and 1 <= groups <= 6 for name, groups in groups_of.items())
    assert len(set(groups_of.values())) > 1
    assert net(batch("group", 2, dtype=torch.float32)).isfinite().all()


# ---- the contract of a federated model -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_example_has_a_loss_of_its_own_and_no_state_is_kept(kind: str) -> None:
    net, data = disturbed(model(kind)).double().train(), batch(kind)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    losses = net(data)
    alone = torch.cat([net({c: data[c][i : i + 1] for c in data}) for i in range(4)])
    assert losses.shape == (4,) and len(set(losses.tolist())) == 4
    assert torch.allclose(losses, alone, rtol=1e-9)
    assert torch.equal(net.eval()(data), losses)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_stacked_models_equals_a_loop(kind: str) -> None:
    nets = [disturbed(model(kind, seed), seed=9).double() for seed in range(3)]
    data = [batch(kind, seed=seed) for seed in range(3)]
    stacked = {name: torch.stack([dict(n.named_parameters())[name].detach() for n in nets]) for name in names_of(nets)}
    columns = {c: torch.stack([d[c] for d in data]) for c in ("x", "y")}

    def loss(params: dict[str, Tensor], examples: Examples) -> Tensor:
        return functional_call(nets[0], params, (examples,)).mean()

    if kind == "frozen":  # constants belong to the model, and all clients hold the same model
        for net in nets[1:]:
            net.load_state_dict({**net.state_dict(), **dict(nets[0].named_buffers())})
    gradients = vmap(grad(loss))(stacked, columns)
    for k, (net, examples) in enumerate(zip(nets, data, strict=True)):
        expected = torch.autograd.grad(net(examples).mean(), list(net.parameters()))
        for name, gradient in zip(gradients, expected, strict=True):
            assert torch.allclose(gradients[name][k], gradient, atol=1e-10, rtol=1e-8), name
            assert float(gradient.abs().max()) > 0, name


def names_of(nets: list[MobileNetClassifier]) -> list[str]:
    return [name for name, _ in nets[0].named_parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectorised_backend_equals_sequential(kind: str) -> None:
    net = model(kind)
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    jobs = [
        ClientJob(device_id=f"d{i}", examples=batch(kind, n, seed=i, dtype=torch.float32), seed=i)
        for i, n in enumerate((3, 1, 6))
    ]
    training = LocalTraining(epochs=1, batch_size=3, lr=0.05)
    expected = list(make_backend("sequential", net).run(jobs, params, training))
    results = list(make_backend("vectorised", net).run(jobs, params, training))
    for e, f in zip(expected, results, strict=True):
        assert max(float((e.update[n] - f.update[n]).abs().max()) for n in params) < 1e-5, e.device_id
        assert f.loss == pytest.approx(e.loss, abs=1e-5)
        assert max(float(tensor.abs().max()) for tensor in e.update.values()) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_depends_on_the_seed_only(kind: str) -> None:
    first, again, other = model(kind).state_dict(), model(kind).state_dict(), model(kind, seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["block5.pointwise.weight"], other["block5.pointwise.weight"])


@pytest.mark.parametrize("least_map", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_signal_survives_27_layers_at_the_start(kind: str, least_map: int) -> None:
    features = model(kind, least_map=least_map).features(batch(kind, 32, dtype=torch.float32)["x"])
    assert 0.02 < float(features.detach().std()) < 20


@pytest.mark.parametrize(("side", "kernel", "stride"), [(1, 3, 1), (4, 3, 1), (5, 3, 2), (8, 3, 2), (6, 1, 1)])
def test_the_share_of_a_kernel_on_the_map_is_that_of_a_convolution_of_ones(side: int, kernel: int, stride: int) -> None:
    ones = torch.ones(1, 1, side, dtype=torch.float64)
    taps = functional.conv1d(ones, torch.ones(1, 1, kernel, dtype=torch.float64), None, stride, kernel // 2)
    assert seen(side, kernel, stride) == pytest.approx(float(taps.mean()) / kernel)


def test_utility_and_loss_are_those_of_an_image_classifier() -> None:
    single, several = model().double(), model("multi-label").double()
    one, many = batch(), batch("multi-label")
    scores = several.scores(many["x"])
    expected = functional.binary_cross_entropy_with_logits(scores, many["y"], reduction="none").mean(1)
    assert torch.allclose(several(many), expected)
    assert torch.equal(several.per_example_utility(many), scores)
    assert torch.allclose(single(one), -single.scores(one["x"]).log_softmax(1)[range(4), one["y"]])
    assert single.per_example_utility(one).tolist() == (single.scores(one["x"]).argmax(1) == one["y"]).tolist()


# ---- trained weights -----------------------------------------------------------------------------------------------


def collection_state(source: MobileNetClassifier) -> dict[str, Tensor]:
    """The weights of a model under the names and with the scales of the usual collections."""
    stages = [(s, i) for s, n in enumerate((1, 2, 2, 6, 2)) for i in range(n)]
    out = {}
    for name, tensor in source.state_dict().items():
        layer, _, leaf = name.rpartition(".")
        kind = {"scale": "weight", "shift": "bias", "mean": "running_mean", "var": "running_var"}.get(leaf)
        value = tensor + 1 if leaf == "scale" else tensor
        if layer == "head":
            out[f"classifier.{leaf}"] = value
        elif layer == "stem":
            out[f"bn1.{kind}" if kind else "conv_stem.weight"] = value
        else:
            block, _, half = layer.partition(".")
            stage, position = stages[int(block.removeprefix("block")) - 1]
            conv, norm = ("conv_dw", "bn1") if half == "depthwise" else ("conv_pw", "bn2")
            out[f"blocks.{stage}.{position}.{f'{norm}.{kind}' if kind else f'{conv}.weight'}"] = value
    out["bn1.num_batches_tracked"] = torch.tensor(7)
    return {name: tensor.contiguous() for name, tensor in out.items()}


@pytest.mark.parametrize("names", ["own", "collection"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_of_weights_is_the_start(tmp_path: Path, names: str, suffix: str) -> None:
    source = disturbed(model("frozen"))
    state = source.state_dict() if names == "own" else collection_state(source)
    file = tmp_path / f"weights{suffix}"
    if suffix == ".pt":
        torch.save(state, file)
    else:
        save_file({name: tensor.clone() for name, tensor in state.items()}, file)
    x = batch(dtype=torch.float32)["x"]
    loaded = model("frozen", seed=8, weights=str(file))
    assert torch.allclose(loaded.scores(x), source.scores(x), atol=1e-5)
    assert not torch.allclose(model("frozen", seed=8).scores(x), source.scores(x), atol=1e-3)


def test_a_head_for_other_classes_starts_from_noise(tmp_path: Path) -> None:
    source = disturbed(model("frozen", classes=9))
    torch.save(source.state_dict(), tmp_path / "nine.pt")
    loaded, x = model("frozen", weights=str(tmp_path / "nine.pt")), batch(dtype=torch.float32)["x"]
    assert torch.allclose(loaded.features(x), source.features(x), atol=1e-6)
    assert torch.equal(loaded.head.weight, model("frozen").head.weight)


def test_weights_lie_in_the_data_folder_or_where_the_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(disturbed(model()).state_dict(), tmp_path / "mine.pt")
    monkeypatch.setenv("FEDPRINT_DATA", str(tmp_path))
    assert torch.equal(model(weights="mine.pt").stem.weight, disturbed(model()).stem.weight)


def test_a_file_that_does_not_fit_is_named_with_the_remedy(tmp_path: Path) -> None:
    state = model("frozen").state_dict()
    lost = {name: tensor for name, tensor in state.items() if name != "block4.pointwise.shift"}
    wide = {**state, "block4.pointwise.shift": torch.zeros(3)}
    for name, content, kind, says in (
        ("lost", lost, "frozen", r"lacks 'block4\.pointwise\.shift' \(1 missing, 0 unknown\)"),
        ("batch", state, "group", r"has 'block1\.depthwise\.mean', which the model lacks.*normalisation: frozen"),
        (
            "wide",
            wide,
            "frozen",
            r"'block4\.pointwise\.shift' has shape \(3,\), the model's is \(64,\); set model\.width",
        ),
        ("list", [1, 2], "frozen", "not a mapping of names to tensors"),
        ("object", {"a": Path("x")}, "frozen", "does not hold plain tensors"),
    ):
        torch.save(content, tmp_path / f"{name}.pt")
        with pytest.raises(FedprintError, match=says) as caught:
            model(kind, weights=str(tmp_path / f"{name}.pt"))
        assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedprintError, match="does not exist"):
        model(weights=str(tmp_path / "none.pt"))
    for name in ("broken.pt", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not weights at all")
        with pytest.raises(FedprintError, match=f"{name} (does not hold plain tensors|is not a safetensors file)"):
            model(weights=str(tmp_path / name))
