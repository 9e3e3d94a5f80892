# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`PatchRequest`: the parts of a model that are patched, the donor run, and the metric."""

import dataclasses
from typing import Any, Literal

from flaxattn.attribution.patch_metrics import METRICS, Metric
from flaxattn.attribution.patch_task import Positions
from flaxattn.errors import InputError
from flaxattn.models.interventions import SITES

Method = Literal["activation", "attribution", "path", "knockout", "mediation"]
METHODS: tuple[Method, ...] = ("activation", "attribution", "path", "knockout", "mediation")
RECEIVING = ("query", "key", "value")
_CHOICES = {
    "method": METHODS,
    "metric": METRICS,
    "by": ("head", "layer"),
    "positions": ("all", "segment", "token"),
    "direction": ("denoise", "noise"),
    "donor": ("pair", "zero", "mean"),
    "side": (None, "encoder", "decoder", "cross"),
}
_DEFAULTS = {"site": "head_output", "direction": "denoise", "donor": "pair"}
_NAMES = {"positions": "kind of positions", "by": "unit to patch by", "into": "input"}
STREAM = ("layer_input", "layer_output", "attention_output", "feed_forward_output")
"""Sites without heads."""
_NARROW = {  # what a method fixes
    "knockout": {"site": "scores", "direction": "noise", "donor": "pair"},
    "mediation": {"site": "weights", "direction": "noise", "donor": "pair"},
    "path": {"site": "head_output", "donor": "pair"},
}


@dataclasses.dataclass(frozen=True)
class PatchRequest:
    """A request to patch every head, or every layer, of a model on pairs of texts.

    These are the methods:

    - `activation`: a site takes its values from the other run (Vig et al. 2020; Meng et al. 2022).
    - `attribution`: the same to first order, by one backward pass (Nanda 2023), with its error
      measured on some of the heads.
    - `path`: a head's output reaches the receivers, or the scores, along the direct path alone; all
      other heads keep their values (Wang et al. 2023).
    - `knockout`: the answered position may not attend to a group of positions (Geva et al. 2023).
    - `mediation`: attention weights are exchanged; the effect through a head (indirect), and the
      effect that is left with it held (direct), as natural effects (Vig et al. 2020).

    >>> import flaxattn as fa
    >>> request = fa.PatchRequest("knockout", metric="probability", positions="segment")
    >>> request.method, request.direction
    ('knockout', 'noise')

    Attributes:
        method: One of the above.
        metric: "logit-diff", "logit", "probability" or "kl".
        site: What is patched, one of `flaxattn.models.interventions.SITES`; a method may fix it.
        by: "head" patches each head by itself, "layer" all heads of a layer together.
        positions: "all" patches all positions together, "segment" the five groups of
            `flaxattn.attribution.patch_task.SEGMENTS`, "token" each position by itself. For paths
            these are the positions of the sender; receivers read at all positions.
        direction: "denoise" patches clean values into the corrupted run, "noise" the reverse.
        donor: Where values come from: the other text of the pair, "zero", or the "mean" over all
            texts and positions of the donor side.
        receivers: Layers and heads that paths end in; empty for the scores.
        into: What receivers take from the patched run: "query", "key", "value".
        freeze_feed_forward: Whether paths lead through attention alone.
        window: Number of layers that are patched together, the middle one named; odd.
        side: Of an encoder-decoder, the attention that is patched; None for all.

    Raises:
        InputError: For an unknown name, or choices that do not go together.
    """

    method: Method = "activation"
    metric: Metric = "logit-diff"
    site: str = "head_output"
    by: Literal["head", "layer"] = "head"
    positions: Positions = "all"
    direction: Literal["denoise", "noise"] = "denoise"
    donor: Literal["pair", "zero", "mean"] = "pair"
    receivers: tuple[tuple[int, int], ...] = ()
    into: tuple[str, ...] = RECEIVING
    freeze_feed_forward: bool = False
    window: int = 1
    side: str | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for name, value in _NARROW.get(self.method, {}).items():
            if getattr(self, name) not in (value, _DEFAULTS[name]):
                raise InputError(
                    f"The method {self.method} has the {name} {value}; received "
                    f"{getattr(self, name)!r}.\nLeave {name} out, or choose another method."
                )
            object.__setattr__(self, name, value)
        _check_choice("site", self.site, SITES)
        for site in self.into:
            _check_choice("into", site, RECEIVING)
        object.__setattr__(self, "receivers", tuple(tuple(head) for head in self.receivers))
        if self.receivers and self.method != "path":
            raise InputError(
                f"receivers are heads that paths end in; the method is {self.method}.\n"
                "Leave them out, or choose the method path."
            )
        if self.method == "path" and self.by != "head":
            raise InputError(f"Paths begin at heads; received by {self.by}.\nLeave it out.")
        if self.site in STREAM and self.by == "head":
            raise InputError(
                f"{self.site} has no heads, so it cannot be patched by head.\n"
                "Choose by layer, or a site of heads such as head_output."
            )
        if self.site == "scores" and self.method != "knockout":
            raise InputError(
                "Scores of two runs are not comparable, so they are not patched.\n"
                "Choose the site weights, or the method knockout."
            )
        if self.site == "weights" and self.donor == "mean":
            raise InputError(
                "Weights of texts have no mean over positions.\nChoose the donor pair or zero."
            )
        if self.window < 1 or self.window % 2 == 0:
            raise InputError(f"window is {self.window} layers, expected an odd number from 1 on.")

    def described(self) -> dict[str, Any]:
        """The request for a report."""
        return dataclasses.asdict(self)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise InputError(
            f"There is no {_NAMES.get(name, name)} {value!r}.\n"
            f"Choose one of {', '.join(str(c) for c in choices if c is not None)}."
        )
