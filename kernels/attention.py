# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""THE attention function: checks a call and has the best implementation, or the named one, run it.

The mathematics is in reference.py, the rules in contract.py, the choice in choice.py; no array is
computed here.
"""

from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import choice, devices
from flaxattn.kernels.call import Call, PairBias
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Edits, Intermediates, Labels


def implementations() -> dict[str, str | None]:
    """Every implementation that can be named, and why it cannot run here.

    >>> implementations()["xla"] is None  # it runs anywhere
    True

    Returns:
        Name to reason, None for those that this machine's device can run. Preferred ones come
        first, but a call may ask for what they do not have: see `choice.choose`.
    """
    device = devices.current()
    return {name: choice.device_refusal(name, device) for name in choice.NAMES}


def attention(
    q: Float[Array, "B Q H D"],
    k: Float[Array, "B K G D"],
    v: Float[Array, "B K G Dv"],
    *,
    mask: Bool[Array, "B K"] | Bool[Array, "#B #H #Q #K"] | None = None,
    bias: Float[Array, "#B #H #Q #K"] | PairBias | None = None,
    segment_ids: Int[Array, "B S"] | tuple[Int[Array, "B Q"], Int[Array, "B K"]] | None = None,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    soft_cap: float | None = None,
    sinks: Float[Array, " H"] | None = None,
    query_offset: int | Int[Array, ""] | Int[Array, " B"] = 0,
    scale: float | Float[Array, ""] | None = None,
    dropout: Dropout | None = None,
    labels: Labels | None = None,
    capture: Capture = NOTHING,
    edits: Edits | None = None,
    implementation: str | None = None,
) -> tuple[Float[Array, "B Q H Dv"], Intermediates]:
    """Attention that also returns requested intermediates; only those cost time and memory.

    Computes ``softmax(cap(scale * q·k) + bias) v``, cap by ``soft_cap``, with the masking rules of
    `flaxattn.kernels.contract` (True = may be attended; all restrictions hold at once; a row
    without any key gives 0). Works under jit, vmap, grad, remat, scan and shard_map over batch and
    heads. Capturing never changes the output.

    >>> import jax
    >>> from flaxattn.kernels.contract import Capture, Sieve
    >>> q = k = v = jax.random.normal(jax.random.key(0), (2, 5, 4, 8))
    >>> next_token = Sieve("next", offsets=(1, 1))
    >>> output, found = attention(q, k, v, capture=Capture(weights=True, stats=("lse", next_token)))
    >>> output.shape, found.weights.shape, found.stats["next"].shape, found.implementation
    ((2, 5, 4, 8), (2, 4, 5, 5), (2, 4, 5), 'xla')

    Args:
        q: Queries, float32, bfloat16 or float16 (float64 under x64).
        k: Keys, the same dtype; H is a multiple of G, and H / G query heads share a key head.
        v: Values, the same dtype; their depth may differ.
        mask: Bool, True where attention is allowed: ``[B, K]`` marks real keys, four dimensions
            broadcast to ``[B, H, Q, K]``.
        bias: Float, added to the scaled scores; four dimensions that broadcast to
            ``[B, H, Q, K]``. Has a gradient. Or a function of the positions of queries
            ``[Q, 1]`` and keys ``[1, K]`` that returns ``[#H, Q, K]``, such as ALiBi: it is
            called block by block, so that no array of Q x K exists.
        segment_ids: Integers of packed sequences, one ``[B, S]`` when Q = K, else
            ``(of_queries, of_keys)``; a query attends to keys with its own id only.
        causal: A query at i attends to keys at j <= i only.
        window: ``(left, right)``: a query at i attends to keys at i - left <= j <= i + right
            only; None on a side means no limit, one number stands for both sides. Static.
        soft_cap: Scaled scores become ``soft_cap * tanh(score / soft_cap)``. Static. The bias is
            added afterwards and is not capped; tokamax adds it first and caps the sum.
        sinks: A logit for each head that takes part in the softmax but has no value.
        query_offset: Position of the first query, for keys in a cache or a prompt in chunks; one
            number, or one for each example. A Python number lets kernels skip masked keys.
        scale: Factor on q·k, ``1 / sqrt(D)`` when None.
        dropout: Drops weights on the way to the output, never in what is captured.
        labels: Labels of positions that sieves and ``received`` read.
        capture: Fields to return beside the output, static. Memory on top of the output:
            ``weights`` B·H·Q·K entries of ``capture.dtype``, ``scores`` the same in float32, each
            row statistic 4·B·H·Q bytes. Without weights and scores nothing of size Q·K is stored
            (by "xla" from 129 queries on), nor with a window of them.
        edits: Functions of the scores and of the weights, for interventions. They need arrays of
            Q·K numbers, so "reference" runs the call, whatever the device, and the record says so.
        implementation: "mosaic_gpu" (Hopper GPUs), "tpu", "cudnn" (other NVIDIA GPUs; few
            statistics), "xla" or "reference" (anywhere). None chooses while tracing, by device
            and request: the first of these that both allow. The device is that of q when q is
            concrete, else that of the current mesh, else ``jax.default_device``, else the first
            of ``jax.default_backend()``. One that is named is traced on any machine, so that
            ``jax.export`` and ahead-of-time compilation work without the device, and refuses
            when the program is run or lowered for another platform. So does one that was chosen
            for a device where the program then does not run.

    Returns:
        The output, in q's dtype, and the `Intermediates`, whose ``implementation`` names the one
        that ran; a window of weights is worked out beside it, in plain JAX. Gradients flow from
        the output, float weights, scores and all statistics except indices.

    Raises:
        ValueError: Shapes that do not fit, heads or labels that are missing, an unknown
            implementation.
        TypeError: A mask that is not bool, different dtypes of q, k and v, and the like.
        NotImplementedError: A known implementation that cannot run the call, or not here, with
            the reason.
    """
    given = Labels() if labels is None else labels
    options = (mask, bias, segment_ids, causal, scale, dropout, given, capture)
    call = Call(q, k, v, *options, window, soft_cap, sinks, query_offset, edits)
    return choice.run(implementation, checked(call))
