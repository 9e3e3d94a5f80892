# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files as inseq writes them, of today and of before, become the trace of the same weights."""

import base64
import gzip
import json

import numpy as np
import pytest
import safetensors.numpy

from flaxattn import head_view
from flaxattn.errors import InputError
from flaxattn.trace.other_libraries import from_inseq
from flaxattn.views.figures.plot_heads import plot_heads

RNG = np.random.default_rng(0)
LAYERS, HEADS = 2, 3


def shares(queries, keys):
    """Attention [L, H, Q, K]."""
    return RNG.dirichlet(np.ones(keys), (LAYERS, HEADS, queries)).astype(np.float32)


def instance(name, **attributes):
    return {"__instance_type__": ["inseq.data.attribution", name], "attributes": attributes}


def spelled(weights, how):
    """Scores [K, Q, L, H] in one of inseq's spellings."""
    array = np.ascontiguousarray(weights.transpose(3, 2, 0, 1))
    if how.startswith("safetensors"):
        array = array.astype(how.split()[1])
        return base64.b64encode(safetensors.numpy.save({"attribution": array})).decode()
    data = {
        "list": lambda: array.tolist(),
        "b64": lambda: "b64:" + base64.b64encode(array.tobytes()).decode(),
        "gz": lambda: "b64.gz:" + base64.b64encode(gzip.compress(array.tobytes())).decode(),
    }[how]()
    return {"__ndarray__": data, "dtype": "float32", "shape": list(array.shape), "Corder": True}


def saved(path, text, *, zipped=False):
    whole = instance(
        "FeatureAttributionOutput",
        sequence_attributions=[instance("MultiDimensionalSequenceOutput", **text)],
        step_attributions=None,
        info={"model_name": "gpt2", "attribution_method": "attention"},
    )
    data = json.dumps(whole).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


def tokens(words):
    return [instance("TokenWithId", token=word, id=n) for n, word in enumerate(words.split())]


def causal_text(how="safetensors float32"):
    """Six tokens, the last three generated; the rows as inseq keeps them."""
    weights = shares(3, 6)
    for row, reads in enumerate((3, 4, 5)):
        weights[:, :, row, reads:] = 0
    weights /= weights.sum(-1, keepdims=True)
    marked = weights.copy()
    for row, reads in enumerate((3, 4, 5)):
        marked[:, :, row, reads:] = np.nan
    text = {
        "source": tokens("a b c"),
        "target": tokens("a b c d e f"),
        "source_attributions": None,
        "target_attributions": spelled(marked, how),
        "attr_pos_start": 3,
        "attr_pos_end": 6,
    }
    return weights, text


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("how", ["safetensors float32", "safetensors float16", "list", "b64", "gz"])
def test_a_decoder_in_every_spelling(tmp_path, how, zipped):
    weights, text = causal_text(how)
    trace = from_inseq(saved(tmp_path / "out.json", text, zipped=zipped))
    tolerance = 1e-3 if "16" in how else 0
    np.testing.assert_allclose(trace.decoder.weights[:, 0], weights, atol=tolerance)
    assert trace.decoder.query_window == (2, 5)
    assert (trace.tokens, trace.model) == (["a b c d e f".split()], "gpt2")
    labels = plot_heads(trace, [0], [0]).axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["c", "d", "e"]


def test_an_encoder_decoder(tmp_path):
    cross, encoder = shares(2, 4), shares(4, 4)
    text = {
        "source": tokens("w x y </s>"),
        "target": tokens("a </s>"),
        "source_attributions": spelled(cross, "safetensors float32"),
        "target_attributions": None,
        "sequence_scores": {"encoder_self_attentions": spelled(encoder, "safetensors float32")},
        "attr_pos_start": 0,
        "attr_pos_end": 2,
    }
    trace = from_inseq(saved(tmp_path / "out.json", text))
    np.testing.assert_array_equal(trace.cross.weights[:, 0], cross)
    np.testing.assert_array_equal(trace.encoder.weights[:, 0], encoder)
    assert (trace.tokens, trace.written) == (["w x y </s>".split()], [["a", "</s>"]])
    head_view(trace)


def test_what_is_no_file_of_attention_is_refused_in_three_lines(tmp_path):
    path = tmp_path / "out.json"
    weights, good = causal_text()
    mean = weights.mean((0, 1)).T.tolist()
    cases = [
        (b"{", "it is not JSON"),
        (b"\x1f\x8b" + bytes(9), "its gzip cannot be read"),
        (gzip.compress(b"{}" * 99)[:-9], "its gzip is cut"),
        (b"[]", "holds 0 texts of inseq; there is no 0"),
        ({}, "it lacks 'source'"),
        ({**good, "source": [{}]}, "it lacks 'token'"),
        ({**good, "target_attributions": "!"}, "target_attributions cannot be read"),
        ({**good, "target": good["target"][:5]}, "expected [5 keys, 3 queries, layers, heads]"),
        (
            {
                **good,
                "target_attributions": {"__ndarray__": mean, "dtype": "float32", "shape": [6, 3]},
            },
            "has shape (6, 3)",
        ),
        (
            {
                **good,
                "target_attributions": {"__ndarray__": "b64:", "dtype": "object", "shape": [1]},
            },
            "its dtype is object",
        ),
        (
            {**good, "target_attributions": spelled(-weights, "b64")},
            "is not attention: weights from",
        ),
        ({**good, "attr_pos_start": 0, "attr_pos_end": 3}, "stands before the first token"),
    ]
    array = {"dtype": "float32", "Corder": True}
    zipped = "b64.gz:" + base64.b64encode(gzip.compress(bytes(96))).decode()
    for shape, message in (([23], "it has more than 92 bytes"), ([25], "it has less than 100")):
        whole = {**array, "__ndarray__": zipped, "shape": shape}
        cases.append(({**good, "target_attributions": whole}, message))
    for text, message in cases:
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            saved(path, text)
        with pytest.raises(InputError) as caught:
            from_inseq(path)
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 3
    with pytest.raises(InputError, match="cannot be read: No such file"):
        from_inseq(tmp_path / "none.json")
