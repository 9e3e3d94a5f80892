# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`Intervention`: a change of what a model computes at chosen layers, heads and positions.

Interventions travel in Linen's collection `interventions`, beside the parameters, so they work
under jit, vmap, grad and remat, for every model with a `Stack`. Nothing here knows a model: a
`Stack` hands each of its layers the edits of that layer, and the modules inside apply them at
sites, whose axes say how arrays and numbers fit them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Edits

HEAD_VECTOR, STREAM, MAP = ("B", "S", "H", "D"), ("B", "S", "E"), ("B", "H", "Q", "K")
AXES: Mapping[str, tuple[str, ...]] = {
    "layer_input": STREAM,
    "query": HEAD_VECTOR,
    "key": HEAD_VECTOR,
    "value": HEAD_VECTOR,
    "scores": MAP,
    "weights": MAP,
    "head_output": HEAD_VECTOR,
    "attention_output": STREAM,
    "feed_forward_output": STREAM,
    "layer_output": STREAM,
}
"""Axes of each site in one layer."""
SITES = tuple(AXES)
"""Places where a model can be changed, in the order in which a layer computes them."""


class Heads(NamedTuple):
    """Heads of a layer from which some were pruned.

    Attributes:
        present: Numbers of those that there are.
        total: H, with those that were pruned.
    """

    present: tuple[int, ...]
    total: int


def axes_of(site: str, name: str) -> tuple[str, ...]:
    """Axes of `value` or `where` in one layer; the last one of vectors is left out of `where`."""
    axes = AXES[site]
    return axes if name == "value" or axes == MAP else axes[:-1]


def fitted(
    name: str, site: str, array: Any, shape: tuple[int, ...], heads: Heads | None = None
) -> Array:
    """The value or mask of an intervention with as many axes as the site, of the heads present."""
    axes, received = axes_of(site, name), jnp.shape(array)
    named = zip(AXES[site], shape, strict=True)
    sizes = [heads.total if heads and axis == "H" else n for axis, n in named][: len(axes)]
    padded = (1,) * (len(axes) - len(received)) + received
    if len(padded) != len(axes) or any(n not in (1, m) for n, m in zip(padded, sizes, strict=True)):
        raise InputError(
            f"The {name} at {site} has shape {list(received)} in one layer, expected one that "
            f"broadcasts to [{', '.join(axes)}] = {sizes}.\n"
            "Every axis is that long or 1; a further one at the front is that of the layers."
        )
    array = jnp.asarray(array).reshape(padded)
    if heads is not None and "H" in axes and padded[axes.index("H")] > 1:
        array = jnp.take(array, np.asarray(heads.present), axis=axes.index("H"))
    return array if len(axes) == len(AXES[site]) else array[..., None]


def numbered(
    name: str,
    site: str,
    numbers: tuple[int, ...],
    shape: tuple[int, ...],
    heads: Heads | None = None,
) -> Bool[Array, "..."]:
    """True at some heads or positions, with as many axes as the site."""
    letter = "H" if name == "heads" else "Q" if AXES[site] == MAP else "S"
    axis = AXES[site].index(letter)
    held = np.arange(shape[axis]) if heads is None else np.asarray(heads.present)
    total = shape[axis] if heads is None else heads.total
    if max(numbers) >= total:
        raise InputError(
            f"An intervention at {site} names {name} {max(numbers)}; there are {name} 0 to "
            f"{total - 1}.\n{name.capitalize()} are counted from 0."
        )
    sizes = [-1 if n == axis else 1 for n in range(len(shape))]
    return jnp.asarray(np.isin(held, numbers)).reshape(sizes)


def with_pruned(x: Array, site: str, heads: Heads) -> Array:
    """The array of all heads, 0 for those that were pruned."""
    if "H" not in AXES[site]:
        return x
    axis = AXES[site].index("H")
    shape = (*x.shape[:axis], heads.total, *x.shape[axis + 1 :])
    places = (slice(None),) * axis + (np.asarray(heads.present),)
    return jnp.zeros(shape, x.dtype).at[places].set(x)


def whole_numbers(name: str, numbers: Any) -> tuple[int, ...] | None:
    """Numbers of layers, heads or positions in the given order, each once; None for all."""
    if numbers is None:
        return None
    listed = list(numbers) if isinstance(numbers, Iterable) else [numbers]
    whole = all(isinstance(n, int | np.integer) and n >= 0 for n in listed)
    if not whole or not listed or any(isinstance(n, bool) for n in listed):
        raise InputError(
            f"{name} are {numbers!r}, expected numbers from 0 on.\nLeave them out for all of them."
        )
    return tuple(dict.fromkeys(int(n) for n in listed))


Operation = Literal["replace", "add", "multiply", "record"] | Callable[[Array], Array]
_OF_LAYER = ("layer_input", "layer_output")
_OPERATIONS = ("replace", "add", "multiply", "record")
_SIDES = ("encoder", "decoder", "cross")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["value", "where"],
    meta_fields=["site", "operation", "layers", "heads", "positions", "side"],
)
@check_arguments(0)
@dataclasses.dataclass(frozen=True)
class Intervention:
    """A change of one array that a model computes; a pytree whose arrays are dynamic.

    Sites, in the order of a layer, with the axes of their values in one layer:

    - `layer_input`, `layer_output [B, S, E]`: the residual stream before and after a layer.
    - `query`, `key`, `value [B, S, H, D]`: as a trace records them, normalised and rotated where
      the model does so; keys and values that several query heads share are changed for each of
      these heads by itself.
    - `scores`, `weights [B, H, Q, K]`: before and after the softmax. These need arrays of Q·K
      numbers, so the layers changed run the attention implementation "reference", and the record
      says so; all other sites leave the implementation as it is.
    - `head_output [B, Q, H, D]`: weighted sums of values, before the output projection.
    - `attention_output`, `feed_forward_output [B, S, E]`: of the modules, before a norm that
      follows them and before they are added to the residual stream.

    >>> import jax.numpy as jnp
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> silenced = fa.Intervention("head_output", 0.0, layers=(1,), heads=(3,))
    >>> variables = fa.with_interventions(model.params, silenced)
    >>> model.module.apply(variables, input_ids=jnp.array([[5, 6, 7]])).logits.shape
    (1, 3, 8192)

    Attributes:
        site: One of `SITES`.
        value: What the operation uses: a number, or an array that broadcasts to the axes above
            with a leading axis for `layers`; heads are counted with those that were pruned.
        layers: Numbers of the layers that are changed, in the order of that axis; None for all.
        heads: Numbers of the heads; None for all. For sites with heads only.
        positions: Numbers of the positions, from the left, padding counted; those of queries for
            scores and weights. None for all.
        where: Boolean, True where the change applies, beside the choices above; broadcasts like
            `value` without its axis E or D. The way to choose per text, or under vmap.
        operation: "replace" by the value, "add" it, "multiply" by it, where a masked score of -inf
            stays one; or a function of the array of one layer that returns the new one, hashable,
            which leaves the value unused; or "record", which changes nothing and leaves the array,
            as earlier interventions made it, in Linen's collection `sites` where that is mutable;
            see `site_values`.
        side: `encoder`, `decoder` or `cross`; needed only where a model has several.

    Raises:
        InputError: For an unknown site, operation or side, or heads at a site without heads.
    """

    site: str
    value: Any = 0.0
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    where: Any = None
    operation: Operation = "replace"
    side: str | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "positions"):
            object.__setattr__(self, name, whole_numbers(name, getattr(self, name)))
        if self.site not in AXES:
            raise InputError(
                f"There is no site {self.site!r} to intervene at.\nSites are {', '.join(SITES)}."
            )
        if self.heads is not None and "H" not in AXES[self.site]:
            raise InputError(
                f"{self.site} has no heads, received heads {list(self.heads)}.\n"
                "Leave heads out, or intervene at head_output."
            )
        if not callable(self.operation) and self.operation not in _OPERATIONS:
            raise InputError(
                f"There is no operation {self.operation!r}.\n"
                f"Give {', '.join(_OPERATIONS)} or a function of the array."
            )
        if self.operation == "record" and AXES[self.site] == MAP:
            raise InputError(
                f"{self.site} are recorded by a capture request, not by an intervention.\n"
                f"Give the module capture=Capture({self.site}=True)."
            )
        if self.operation == "record" and (self.layers, self.heads, self.positions) != (None,) * 3:
            raise InputError(
                f"{self.site} is recorded of all layers, heads and positions.\n"
                "Leave layers, heads and positions out, and choose among the values."
            )
        if self.side is not None and self.side not in _SIDES:
            raise InputError(f"There is no side {self.side!r}.\nSides are {', '.join(_SIDES)}.")

    def at_layer(self, layer: int) -> bool:
        """Return whether a layer is changed.

        Args:
            layer: Its number.
        """
        return self.layers is None or layer in self.layers

    @property
    def by_position(self) -> bool:
        """True if the change differs from position to position, as it cannot with a cache."""
        if self.positions is not None or AXES[self.site] == MAP:
            return True
        arrays = {"value": self.value, "where": self.where}
        shapes = {name: jnp.shape(a) for name, a in arrays.items() if a is not None}
        behind = {name: len(axes_of(self.site, name)) - 1 for name in shapes}
        return any(len(shapes[n]) >= k and shapes[n][-k] > 1 for n, k in behind.items())

    def of_layers(self, start: int, stop: int, count: int) -> dict[str, Array]:
        """The arrays that differ from layer to layer, for layers that are all changed.

        Args:
            start: Number of the first layer.
            stop: One more than that of the last.
            count: L of the model.

        Raises:
            InputError: If the leading axis of an array is that of other layers.
        """
        chosen = tuple(range(count)) if self.layers is None else self.layers
        rows, differing = np.array([chosen.index(n) for n in range(start, stop)]), {}
        for name in ("value", "where"):
            array = getattr(self, name)
            if array is None or jnp.ndim(array) <= len(axes_of(self.site, name)):
                continue
            if len(array) not in (1, len(chosen)):
                raise InputError(
                    f"The {name} at {self.site} has {len(array)} layers, received for layers "
                    f"{list(chosen)}.\nGive it a leading axis of {len(chosen)}, or of 1."
                )
            differing[name] = jnp.asarray(array)[rows if len(array) > 1 else 0 * rows]
        return differing

    def apply(
        self,
        x: Array,
        own: Mapping[str, Array],
        heads: Heads | None = None,
    ) -> Array:
        """The array of one layer, changed.

        Args:
            x: With the axes of the site.
            own: This layer's part of `of_layers`.
            heads: Those that x has; None for all.
        """
        chosen = self._chosen(x.shape, own.get("where", self.where), heads)
        if callable(self.operation):
            return jnp.where(chosen, self._computed(x), x)
        value = own.get("value", self.value)
        if value is None:
            raise InputError(
                f"An intervention at {self.site} has no value to {self.operation} by.\n"
                "Give value= a number or an array."
            )
        value = fitted("value", self.site, value, x.shape, heads).astype(x.dtype)
        if self.operation == "multiply" and self.site == "scores":
            # A masked score stays masked: -inf times 0 would be no number, here and in gradients.
            masked = x == -jnp.inf
            new = jnp.where(masked, x, jnp.where(masked, 0, x) * value)
        else:
            new = {"replace": value, "add": x + value, "multiply": x * value}[self.operation]
        return jnp.where(chosen, new, x)

    def _computed(self, x: Array) -> Array:
        """The array that a function makes of one, of the same shape and dtype."""
        assert callable(self.operation)
        new = jnp.asarray(self.operation(x))
        if new.shape != x.shape:
            raise InputError(
                f"The function at {self.site} returned shape {list(new.shape)}, expected "
                f"[{', '.join(AXES[self.site])}] = {list(x.shape)}.\n"
                "Return an array of the shape that it receives."
            )
        return new.astype(x.dtype)

    def _chosen(
        self, shape: tuple[int, ...], where: Array | None, heads: Heads | None
    ) -> Bool[Array, "..."]:
        """True where the change applies, as many axes as the array."""
        site, chosen = self.site, jnp.ones((1,) * len(shape), bool)
        if where is not None:
            chosen = chosen & fitted("where", site, where, shape, heads).astype(bool)
        if self.heads is not None:
            chosen = chosen & numbered("heads", site, self.heads, shape, heads)
        if self.positions is not None:
            chosen = chosen & numbered("positions", site, self.positions, shape)
        return chosen


@check_arguments()
def with_interventions(
    params: Mapping[str, Any], interventions: Intervention | Sequence[Intervention]
) -> dict[str, Any]:
    """Variables of a model that is changed while it runs, for `module.apply`.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> silenced = fa.Intervention("head_output", 0.0, layers=(1,), heads=(3,))
    >>> variables = fa.with_interventions(model.params, silenced)
    >>> batch = model.read(["The captain said nothing."]).padded(model.limit)
    >>> model.module.apply(variables, **batch).logits.shape[-1]
    8192

    Interventions at one site apply in the given order. Works under jit, vmap over the arrays of
    interventions, and grad with respect to them; without interventions the model is the plain one,
    bit by bit.

    Args:
        params: Parameters of any model of this library but the recurrent ones.
        interventions: One or several.

    Returns:
        The two collections `params` and `interventions`, as a dictionary.

    Raises:
        InputError: For anything but interventions, or if the model has no stack of layers, or not
            the side named, or several sides and none is named.
    """
    some = interventions if isinstance(interventions, Sequence) else [interventions]
    others = [type(one).__name__ for one in some if not isinstance(one, Intervention)]
    if others:
        raise InputError(
            f"Interventions are of type Intervention, received {others[0]}.\n"
            'Make one with fa.Intervention("head_output", 0.0, layers=(1,)).'
        )
    if not some:
        return {"params": params}
    stacks = dict(_stacks(params, ()))
    sides = [side for side in _SIDES if side in stacks or (side == "cross" and len(stacks) > 1)]
    if not stacks:
        raise InputError(
            "The parameters have no stack of attention layers to intervene in.\n"
            "Give those of a model with multi-head attention; recurrent models have none."
        )
    by_stack: dict[str, list[Intervention]] = {}
    for one in some:
        side = one.side or (sides[0] if len(sides) == 1 else None)
        if side not in sides:
            raise InputError(
                f"The model has the side{'s' * (len(sides) > 1)} {', '.join(sides)}; the "
                f"intervention at {one.site} names {one.side or 'none'}.\nGive side=."
            )
        if side == "cross" and one.site in (*_OF_LAYER, "feed_forward_output"):
            raise InputError(
                f"{one.site} belongs to a layer of the decoder, received side cross.\n"
                "Give side='decoder'."
            )
        stack = "decoder" if side == "cross" else side
        by_stack.setdefault(stack, []).append(dataclasses.replace(one, side=side))
    tree: dict[str, Any] = {}
    for side, chosen in by_stack.items():
        *path, last = stacks[side]
        place = functools.reduce(lambda at, name: at.setdefault(name, {}), path, tree)
        place[last] = {"layers": tuple(chosen)}
    return {"params": params, "interventions": tree}


def check_layers(interventions: Sequence[Intervention], layers: int, caching: bool) -> None:
    """Refuse interventions at layers that a model lacks, and at positions where it has a cache."""
    for one in interventions:
        if one.layers is not None and max(one.layers) >= layers:
            raise InputError(
                f"An intervention at {one.site} names layer {max(one.layers)}; the model has "
                f"layers 0 to {layers - 1}.\nLayers are counted from 0."
            )
        if one.by_position and caching:
            raise InputError(
                f"An intervention at {one.site} depends on positions, which a model with a "
                "cache counts anew at each call.\nLeave positions out, or run without a cache."
            )


def edits_of_layer(
    interventions: "Sequence[tuple[Intervention, Mapping[str, Array]]]",
) -> dict[str, Any]:
    """The collection `interventions` inside of one layer, by module and site."""
    tree: dict[str, dict[str, Any]] = {}
    for one, own in interventions:
        module = "cross_attention" if one.side == "cross" else "attention"
        module = "feed_forward" if one.site == "feed_forward_output" else module
        module = "layer" if one.site in _OF_LAYER else module
        sites = tree.setdefault(module, {})
        sites[one.site] = (*sites.get(one.site, ()), (one, own))
    return tree


def edited(module: nn.Module, site: str, x: Array, heads: Heads | None = None) -> Array:
    """An array that a module computes, changed by the interventions at that site."""
    edits = module.get_variable("interventions", site, ())
    x = changed(edits, x, heads)
    if is_recorded(edits) and module.is_mutable_collection("sites"):
        module.put_variable("sites", site, x if heads is None else with_pruned(x, site, heads))
    return x


def changed(
    edits: "Sequence[tuple[Intervention, Mapping[str, Array]]]",
    x: Array,
    heads: Heads | None = None,
) -> Array:
    """An array after all edits, one after the other; arguments as for `edited`."""
    for intervention, own in edits:
        if intervention.operation != "record":
            x = intervention.apply(x, own, heads)
    return x


def is_recorded(edits: "Sequence[tuple[Intervention, Mapping[str, Array]]]") -> bool:
    """Return whether one of the edits of a site asks for its values."""
    return any(intervention.operation == "record" for intervention, _ in edits)


@check_arguments()
def site_values(state: Mapping[str, Any]) -> dict[str, dict[str, Float[Array, "L B ..."]]]:
    """Values of the sites that interventions recorded, by side and site.

    >>> import jax.numpy as jnp
    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> recorded = fa.Intervention("head_output", operation="record")
    >>> variables = fa.with_interventions(model.params, recorded)
    >>> input_ids = jnp.array([[5, 6, 7]])
    >>> output, state = model.module.apply(variables, input_ids, mutable=["sites"])
    >>> fa.site_values(state)["decoder"]["head_output"].shape  # [L, B, Q, H, D]
    (4, 1, 3, 6, 32)

    Args:
        state: Collections that `module.apply` returned, `sites` among them.

    Returns:
        By side and site, the values with a leading axis for layers.

    Raises:
        InputError: If there is no collection `sites`.
    """
    if "sites" not in state:
        raise InputError(
            "No values of sites were recorded.\nRun the model with mutable=['sites'] and an "
            'intervention whose operation is "record".'
        )
    values: dict[str, dict[str, Array]] = {}
    for stack, path in _stacks(state["sites"], ()):
        layers = functools.reduce(lambda at, name: at[name], path, state["sites"])["layers"]
        for module, sites in layers.items():
            side = "cross" if module == "cross_attention" else stack
            values.setdefault(side, {}).update(sites)
    return values


def edits_of_maps(module: nn.Module, heads: Heads | None) -> Edits | None:
    """Functions that change scores and weights, for the kernel; None where nothing does."""
    functions = {
        site: functools.partial(changed, edits, heads=heads)
        for site in ("scores", "weights")
        if (edits := module.get_variable("interventions", site, ()))
    }
    return Edits(**functions) if functions else None


def _stacks(tree: Any, path: tuple[str, ...]) -> "list[tuple[str, tuple[str, ...]]]":
    """Stacks of a parameter tree: their last name, and the path to them."""
    if not isinstance(tree, Mapping):
        return []
    if "layers" in tree and path:
        return [(path[-1], path)]
    return [stack for name, part in tree.items() for stack in _stacks(part, (*path, name))]
