# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A capture request through the whole model: transforms, meshes, cost, and Linen's silent traps."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.models.bert import Bert
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.task_heads import BertForPreTraining, architectures_of
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=512,
)
NEXT = Sieve("next", offsets=(1, 1))
STATS = Capture(stats=("lse", "entropy", "received", NEXT))
IDS = np.random.default_rng(0).integers(0, 50, (4, 12)).astype(np.int32)
MASK = np.ones_like(IDS)
STEP = 3e-3  # of a finite difference, along the gradient
MASK[1, 9:] = 0
MASK[2, :2] = 0


def drawn(module):
    """Parameters with peaked attention, without compiling an initialiser."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(module.init, jax.random.key(0), IDS)
    assert set(shapes) == {"params"}, "init must not record anything"
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(0, 0.25, a.shape), a.dtype), shapes)[
        "params"
    ]


@pytest.fixture(scope="module")
def params():
    return drawn(BertForPreTraining(CONFIG))


def forward(params, ids=IDS, mask=MASK, capture=None, module=None, key=None):
    """Output and state; recorded if a capture is given, with dropout if a key is."""
    return compiled_forward(params, ids, mask, key, capture, module or BertForPreTraining(CONFIG))


@functools.partial(jax.jit, static_argnames=("capture", "module"))
def compiled_forward(params, ids, mask, key, capture, module):
    options = {} if key is None else dict(deterministic=False, rngs={"dropout": key})
    if capture is None:
        return module.apply({"params": params}, ids, mask, **options), None
    module = module.clone(capture=capture)
    return module.apply({"params": params}, ids, mask, mutable=["intermediates"], **options)


@pytest.fixture(scope="module")
def plain(params):
    """Everything, computed operation by operation, without any transform."""
    module = BertForPreTraining(CONFIG, capture=Capture(weights=True, stats=STATS.stats))
    out, state = module.apply({"params": params}, IDS, MASK, mutable=["intermediates"])
    return out, Trace.from_variables(state, mask=MASK.astype(bool))


def close(a, b, atol=2e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=1e-5), a, b)


CAPTURES = {
    "weights": Capture(weights=True),
    "statistics": STATS,
    "everything": Capture(*[True] * 7, stats=("lse", "topk(3)", "argmax")),
    "one head of one layer": Capture(weights=True, layers=(2,), heads=(1,)),
    "nothing": Capture(),
}


@pytest.mark.slow
@pytest.mark.few("float32-everything")
@pytest.mark.parametrize("capture", CAPTURES.values(), ids=CAPTURES)
@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.bfloat16, marks=pytest.mark.slow)])
def test_asking_changes_no_output(params, capture, dtype):
    module = BertForPreTraining(CONFIG, dtype=dtype)
    expected, _ = forward(params, module=module)
    out, _ = forward(params, module=module, capture=capture)
    rounding = 8 * CONFIG.num_hidden_layers * float(jnp.finfo(dtype).eps)
    for name in ("last_hidden_state", "prediction_logits", "seq_relationship_logits"):
        a, b = (np.asarray(getattr(o, name), np.float32) for o in (expected, out))
        assert np.abs(a - b).max() <= rounding * np.abs(a).max()


def test_recorded_weights_are_what_the_projections_say(params):
    capture = Capture(weights=True, scores=True, query=True, key=True, value=True, head_output=True)
    _, state = forward(params, capture=capture)
    record = Trace.from_variables(state).encoder
    scores = np.einsum("lbqhd,lbkhd->lbhqk", record.query, record.key) / np.sqrt(8)
    real = np.broadcast_to(MASK[None, :, None, None].astype(bool), scores.shape)
    np.testing.assert_allclose(np.asarray(record.scores)[real], scores[real], atol=1e-4)
    assert np.all(np.isneginf(np.asarray(record.scores)[~real]))
    expected = np.where(
        real, np.exp(scores - scores.max(-1, keepdims=True, where=real, initial=-99)), 0
    )
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(record.weights, expected, atol=2e-5)
    mixed = np.einsum("lbhqk,lbkhd->lbqhd", record.weights, record.value)
    np.testing.assert_allclose(record.head_output, mixed, atol=2e-5)


@pytest.mark.float16
@pytest.mark.parametrize("name", ["bert", "gpt2", "seq2seq"])
def test_hidden_states_are_the_outputs_of_the_layers(name, request):
    model = request.getfixturevalue(name)
    texts = [["the cat is sad", "a b"], ["a b", "the cat"]][: 1 + (name == "seq2seq")]
    given = {n: a for n, a in model.read(*texts).given.items() if n != "key_classes"}
    out = model(**given, output_hidden_states=True)
    trace = model.trace(*texts, capture=Capture(hidden=True))
    last = model.trace(*texts, capture=Capture(hidden=True, layers=(0,), vector_dtype="float16"))
    for side, record in trace.sides.items():
        if side == "cross":
            assert record.hidden is None
            continue
        states = getattr(out, f"{side}_hidden_states", None) or out.hidden_states
        # What leaves a decoder-only model, and an encoder-decoder, went through a normalization.
        same = len(states) - 1 if name == "bert" else len(states) - 2
        for layer in range(same):
            np.testing.assert_allclose(record.hidden[layer], states[layer + 1], atol=1e-5)
        first = last.sides[side].hidden
        assert first.dtype == np.float16 and first.shape == record.hidden[:1].shape
        np.testing.assert_allclose(first[0], record.hidden[0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_under_jit(params, plain):
    capture = Capture(weights=True, stats=STATS.stats)
    out, state = forward(params, capture=capture)
    close(out, plain[0])
    close(Trace.from_variables(state).encoder, plain[1].encoder)


@pytest.mark.slow
def test_under_vmap_over_examples(params, plain):
    capture = Capture(weights=True, stats=STATS.stats)
    one = lambda ids, mask: forward(params, ids[None], mask[None], capture)[1]  # noqa: E731
    trace = Trace.from_variables(jax.vmap(one)(IDS, MASK), vmapped=True)
    close(trace.encoder, plain[1].encoder)


@pytest.mark.slow
def test_under_vmap_over_parameter_sets(params, plain):
    doubled = jax.tree.map(lambda a: jnp.stack([a, a * 1.1]), params)
    _, states = jax.vmap(lambda p: forward(p, capture=Capture(weights=True)))(doubled)
    first = Trace.from_variables(jax.tree.map(lambda a: a[0], states))
    second = Trace.from_variables(jax.tree.map(lambda a: a[1], states))
    close(first.encoder.weights, plain[1].encoder.weights)
    assert float(jnp.abs(first.encoder.weights - second.encoder.weights).max()) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("remat", [pytest.param(False, marks=pytest.mark.slow), True])
def test_under_grad_and_remat(params, plain, remat):
    module = BertForPreTraining(CONFIG, remat=remat)

    def loss(p, capture):
        out, state = forward(p, module=module, capture=capture)
        return jnp.mean(out.prediction_logits**2), state

    requested = jax.jit(jax.grad(lambda p: loss(p, Capture(weights=True)), has_aux=True))
    gradient, state = requested(params)
    without = jax.jit(jax.grad(lambda p: loss(p, None)[0]))(params)
    close(gradient, without, atol=1e-5)
    close(Trace.from_variables(state).encoder.weights, plain[1].encoder.weights)


@pytest.mark.slow
def test_a_statistic_can_be_trained(params):
    """An entropy penalty reaches the query projection, through scan and remat."""
    module = BertForPreTraining(CONFIG, remat=True)

    @jax.jit
    def penalty(p):
        _, state = forward(p, module=module, capture=Capture(stats=("entropy",)))
        return jnp.mean(Trace.from_variables(state).encoder.stats["entropy"])

    gradient = jax.jit(jax.grad(penalty))(params)
    query = gradient["bert"]["encoder"]["layers"]["attention"]["query"]["kernel"]
    assert all(float(jnp.abs(layer).max()) > 0 for layer in query)
    length = float(jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient))))
    ahead, behind = (
        float(penalty(jax.tree.map(lambda p, g, h=h: p + h / length * g, params, gradient)))
        for h in (STEP, -STEP)
    )
    assert (ahead - behind) / (2 * STEP) == pytest.approx(length, rel=0.02)


@pytest.mark.slow
@pytest.mark.few("shape1")
@pytest.mark.parametrize("shape", [(8, 1), (2, 4)])
def test_on_a_sharded_mesh(params, plain, shape):
    mesh = jax.make_mesh(shape, ("data", "heads"), axis_types=(AxisType.Auto,) * 2)
    ids, mask = np.concatenate([IDS, IDS]), np.concatenate([MASK, MASK])
    spread = lambda spec: NamedSharding(mesh, PartitionSpec(*spec))  # noqa: E731

    def place(path, leaf):
        projection = any(getattr(k, "key", "") in ("query", "key", "value") for k in path)
        spec = (*[None] * (leaf.ndim - 1), "heads") if projection else ()
        return jax.device_put(leaf, spread(spec))

    placed = jax.tree_util.tree_map_with_path(place, params)
    batch = [jax.device_put(a, spread(("data",))) for a in (ids, mask)]
    capture = Capture(weights=True, stats=STATS.stats)
    _, state = forward(placed, *batch, capture)
    record = Trace.from_variables(state).encoder
    close(jax.tree.map(lambda a: np.asarray(a)[:, :4], record), plain[1].encoder, atol=1e-5)
    assert len(record.weights.sharding.device_set) == 8
    assert record.weights.addressable_shards[0].data.size == record.weights.size // 8


def compiled(params, capture, length=512):
    ids = jnp.zeros((1, length), jnp.int32)
    mutable = False if capture is None else ["intermediates"]
    module = Bert(CONFIG, capture=capture or Capture())
    run = jax.jit(lambda p, i: module.apply({"params": p}, i, mutable=mutable))
    return run.lower(params["bert"], ids).compile()


def largest_square(program, length=512) -> int:
    """The number of length x length arrays in the largest buffer that holds any."""
    shapes = re.findall(r"\w\d+\[([\d,]+)\]", program.as_text())
    sizes = [[int(n) for n in shape.split(",")] for shape in shapes]
    return max((np.prod(s) // length**2 for s in sizes if s.count(length) >= 2), default=0)


@pytest.mark.slow
def test_statistics_alone_never_make_a_square(params):
    assert largest_square(compiled(params, Capture(weights=True))) >= 16
    assert largest_square(compiled(params, STATS)) == 0
    assert largest_square(compiled(params, None)) == 0


@pytest.mark.slow
def test_nothing_requested_adds_no_output_and_no_work(params):
    asked_nothing = compiled(params, Capture())
    not_asked = compiled(params, None)
    memory = [p.memory_analysis() for p in (asked_nothing, not_asked)]
    assert memory[0].output_size_in_bytes == memory[1].output_size_in_bytes
    assert memory[0].temp_size_in_bytes == memory[1].temp_size_in_bytes


@pytest.mark.slow
def test_layers_and_heads_are_paid_for_only_where_requested(params):
    """Bytes returned, and bytes held meanwhile: one map of 16 costs what one map costs."""
    square = 4 * 512 * 512

    def cost(capture):
        memory = compiled(params, capture).memory_analysis()
        return np.array([memory.output_size_in_bytes, memory.temp_size_in_bytes])

    nothing = cost(None)
    one = cost(Capture(weights=True, layers=(2,), heads=(1,))) - nothing
    everything = cost(Capture(weights=True)) - nothing
    assert square <= one[0] <= square + 1024
    assert 16 * square <= everything[0] <= 16 * square + 1024
    assert one[1] <= 4 * square < everything[1] + 16 * square


@pytest.mark.slow
def test_statistics_cost_their_bytes(params):
    extra = (
        compiled(params, Capture(stats=("entropy",))).memory_analysis().output_size_in_bytes
        - compiled(params, None).memory_analysis().output_size_in_bytes
    )
    assert 4 * 16 * 512 <= extra <= 4 * 16 * 512 + 1024


def test_layers_and_heads_are_the_ones_requested(params, plain):
    capture = Capture(weights=True, stats=("entropy",), layers=(3, 0, 1), heads=(3, 1))
    out, state = forward(params, capture=capture)
    record = Trace.from_variables(state).encoder
    assert (record.layers, record.heads) == ((0, 1, 3), (3, 1))
    full = plain[1].encoder
    np.testing.assert_allclose(
        record.weights, full.weights[jnp.array([0, 1, 3])][:, :, jnp.array([3, 1])], atol=2e-6
    )
    np.testing.assert_allclose(
        record.stats["entropy"][2, :, 1], full.stats["entropy"][3, :, 1], atol=1e-5
    )
    close(out, plain[0])


def test_a_layer_that_is_not_there(params):
    with pytest.raises(ValueError, match=r"capture.layers names \[4, 9\].*layers 0 to 3"):
        forward(params, capture=Capture(weights=True, layers=(1, 4, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("capture", [None, *CAPTURES.values()], ids=["unasked", *CAPTURES])
def test_dropout_masks_do_not_depend_on_the_request(params, capture):
    key = jax.random.key(7)
    expected, _ = forward(params, key=key)
    close(forward(params, capture=capture, key=key)[0], expected)


def test_trap_init_makes_no_intermediates():
    """Only `intermediates` is left out of `init`; another collection would be made there."""
    init = BertForPreTraining(CONFIG, capture=STATS).init
    assert set(jax.eval_shape(init, jax.random.key(0), IDS)) == {"params"}


@pytest.mark.slow
def test_trap_recording_twice_keeps_one_value(params):
    """Returned state fed back in must not be appended to."""
    _, state = forward(params, capture=Capture(weights=True))
    module = BertForPreTraining(CONFIG)
    run = jax.jit(lambda v: module.apply(v, IDS, MASK, mutable=["intermediates"])[1])
    again = run({"params": params, **state})
    close(Trace.from_variables(again).encoder, Trace.from_variables(state).encoder)


@pytest.mark.slow
def test_trap_a_stack_loses_no_collection(params):
    """A scan that forgets the collection returns {} without a word."""
    _, state = forward(params, capture=STATS)
    record = Trace.from_variables(state).encoder
    assert record.layers == (0, 1, 2, 3)
    assert {name: a.shape[0] for name, a in record.stats.items()} == dict.fromkeys(record.stats, 4)


@pytest.mark.slow
def test_trap_values_are_not_wrapped_in_tuples(params):
    _, state = forward(params, capture=Capture(weights=True))
    record = state["intermediates"]["bert"]["encoder"]["layers"]["attention"]["attention_record"]
    assert isinstance(record, AttentionRecord)


def test_trap_other_collections_do_not_record(params):
    run = lambda p: BertForPreTraining(CONFIG).apply({"params": p}, IDS, MASK, mutable=["cache"])  # noqa: E731
    assert jax.tree.leaves(jax.eval_shape(run, params)[1]) == []


@pytest.mark.slow
def test_trap_capture_intermediates_returns_sown_values_as_well(params):
    module = Bert(CONFIG)
    options = dict(capture_intermediates=True, mutable=["intermediates"])
    _, state = jax.jit(lambda p: module.apply({"params": p}, IDS, **options))(params["bert"])
    assert state["intermediates"]["pooler"]["__call__"][0].shape == (4, 32)
    assert Trace.from_variables(state).encoder.weights.shape == (4, 4, 4, 12, 12)


def test_trap_vmap_axis_is_named_where_it_is_misread(params):
    """Under vmap the example axis precedes the layer axis; `vmapped` is what puts it right."""
    one = lambda ids: forward(params, ids[None], None, Capture(weights=True))[1]  # noqa: E731
    trace = lambda vmapped: lambda ids: Trace.from_variables(jax.vmap(one)(ids), vmapped=vmapped)  # noqa: E731
    weights = lambda vmapped: jax.eval_shape(lambda ids: trace(vmapped)(ids).encoder.weights, IDS)  # noqa: E731
    assert weights(False).shape == (4, 4, 1, 4, 12, 12)
    assert weights(True).shape == (4, 4, 4, 12, 12)


def test_nothing_recorded_says_how_to_ask(params):
    with pytest.raises(InputError, match=r'mutable=\["intermediates"\]'):
        Trace.from_variables({"intermediates": {}})


class Unrolled(nn.Module):
    """Somebody's own model: eleven attention layers, no stack."""

    @nn.compact
    def __call__(self, x):
        for i in range(11):
            capture = Capture(weights=True)
            x = x + MultiHeadAttention(2, capture=capture, name=f"layer_{i}")(x)
        return x


@pytest.mark.slow
def test_other_peoples_models_give_a_trace_in_layer_order():
    x = jax.random.normal(jax.random.key(1), (2, 5, 8))
    shapes = jax.eval_shape(Unrolled().init, jax.random.key(0), x)
    rng = np.random.default_rng(2)
    variables = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype), shapes)
    state = jax.jit(lambda v: Unrolled().apply(v, x, mutable=["intermediates"])[1])(variables)
    trace = Trace.from_variables(state)
    assert trace.encoder.layers == tuple(range(11))
    for i in range(11):
        own = state["intermediates"][f"layer_{i}"]["attention_record"].weights
        np.testing.assert_array_equal(trace.encoder.weights[i], own)


@pytest.mark.few("PreTraining", "NextSentence")
@pytest.mark.parametrize("name", architectures_of(BertConfig()))
def test_every_architecture_records(name):
    module = architectures_of(BertConfig())[name](CONFIG)
    _, state = forward(drawn(module), capture=Capture(weights=True), module=module)
    assert Trace.from_variables(state).encoder.weights.shape == (4, 4, 4, 12, 12)
