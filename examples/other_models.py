# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Statistics of attention in a model that is not of this library, without patching it.

Models take their attention as an argument more often than not. Two adapters are here: a module in
place of the `attention_fn` of Flax's `MultiHeadDotProductAttention`, and a function with the
signature of kernels such as splash attention, which see one example at a time, heads first, with
scaled queries. `python examples/other_models.py` prints the largest score and the mean entropy of
every head of a small decoder with shared key heads, a sliding window and a soft cap.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture

STATISTICS = Capture(stats=("max_score", "entropy"))

KernelLike = Callable[..., tuple[Float[Array, "H S D"], dict[str, Float[Array, "H S"]]]]


class RecordedAttention(nn.Module):
    """Attention for `flax.linen.MultiHeadDotProductAttention(attention_fn=...)`.

    The attention record is sown into the collection "intermediates" under the name "attention".

    Attributes:
        capture: what to return beside the output.
        options: further arguments of `flaxattn.kernels.attention.attention`, such as ``window``.
    """

    capture: Capture = STATISTICS
    options: Any = None

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "B Q H D"],
        key: Float[Array, "B K H D"],
        value: Float[Array, "B K H D"],
        bias: Float[Array, "#B #H #Q #K"] | None = None,
        mask: Array | None = None,
        deterministic: bool = False,
        dropout_rate: float = 0.0,
        **_: Any,
    ) -> Float[Array, "B Q H D"]:
        """Return the output; refuse dropout, whose masks would be others than those of Flax."""
        if dropout_rate and not deterministic:
            raise NotImplementedError("RecordedAttention drops no weights; pass deterministic=True")
        output, record = attention(
            query,
            key,
            value,
            bias=bias,
            mask=None if mask is None else mask.astype(bool),
            capture=self.capture,
            **dict(self.options or {}),
        )
        self.sow("intermediates", "attention", record)
        return output


def make_kernel(
    *,
    causal: bool = True,
    window: tuple[int, int] | None = None,
    soft_cap: float | None = None,
    capture: Capture = STATISTICS,
) -> KernelLike:
    """Return a function of one example, as splash attention's makers do.

    Args:
        causal: a query sees no later key.
        window: keys before and after the query that it sees.
        soft_cap: limit of the absolute score.
        capture: row statistics to return.

    Returns:
        A function of q ``[H, S, D]``, which is scaled already, k and v ``[G, S, D]`` and segment
        ids ``[S]`` or None. It returns the output and statistics ``[H, S]``; `jax.vmap` adds the
        batch.
    """

    def kernel(
        q: Float[Array, "H S D"],
        k: Float[Array, "G S D"],
        v: Float[Array, "G S D"],
        segment_ids: Int[Array, " S"] | None = None,
    ) -> tuple[Float[Array, "H S D"], dict[str, Float[Array, "H S"]]]:
        sides = (jnp.swapaxes(side, 0, 1)[None] for side in (q, k, v))
        output, record = attention(
            *sides,
            segment_ids=None if segment_ids is None else segment_ids[None],
            causal=causal,
            window=window,
            soft_cap=soft_cap,
            scale=1.0,
            capture=capture,
        )
        return jnp.swapaxes(output[0], 0, 1), {name: x[0] for name, x in record.stats.items()}

    return kernel


class OtherDecoder(nn.Module):
    """A decoder somebody else wrote: its attention is an argument with splash's signature.

    Attributes:
        kernel: (q, k, v) of one example to output and statistics.
        layers: number of layers.
        heads: H.
        key_heads: G.
        depth: D.
    """

    kernel: KernelLike
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    depth: int = 16

    @nn.compact
    def __call__(self, x: Float[Array, "B S E"]) -> tuple[Float[Array, "B S E"], list[Any]]:
        """Return hidden states, and what the kernel of each layer handed back."""
        found = []
        for _ in range(self.layers):
            normed = nn.RMSNorm()(x)
            heads = (self.heads, self.key_heads, self.key_heads)
            q, k, v = (nn.DenseGeneral((n, self.depth), use_bias=False)(normed) for n in heads)
            q = q * self.depth**-0.5
            sides = (jnp.swapaxes(side, 1, 2) for side in (q, k, v))
            output, statistics = jax.vmap(self.kernel)(*sides)
            output = jnp.swapaxes(output, 1, 2)
            x = x + nn.DenseGeneral(x.shape[-1], axis=(-2, -1), use_bias=False)(output)
            x = x + nn.Dense(x.shape[-1])(nn.silu(nn.Dense(2 * x.shape[-1])(nn.RMSNorm()(x))))
            found.append(statistics)
        return x, found


def main() -> None:
    """Print the largest score and the mean entropy of every head of `OtherDecoder`."""
    model = OtherDecoder(make_kernel(window=(31, 0), soft_cap=30.0))
    x = jax.random.normal(jax.random.key(0), (2, 128, 64))
    params = model.init(jax.random.key(1), x)
    _, layers = jax.jit(model.apply)(params, x)
    for number, statistics in enumerate(layers):
        largest = statistics["max_score"].max(axis=(0, 2))
        entropy = statistics["entropy"].mean(axis=(0, 2))
        for head in range(model.heads):
            print(
                f"layer {number}, head {head}: largest score {largest[head]:.2f}, "
                f"mean entropy {entropy[head]:.2f} nats"
            )


if __name__ == "__main__":
    main()
