# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Question answering by decoders: from a language model, its loss, and the names it is saved by.

The scores themselves are compared with torch in `test_family_parity`.
"""

from pathlib import Path

import make_family_golden as golden
import numpy as np
import pytest
from safetensors.numpy import load_file

import flaxattn as fa
from flaxattn.errors import InputError

HEAD = "ForQuestionAnswering"
IDS = np.array([[5, 6, 7, 8], [9, 4, 3, 5]])


def reader(name: str, folder: Path) -> fa.Pretrained:
    """A question answering model from a stored model without such a head."""
    golden.read("decoders")[name].write(folder)
    with pytest.warns(UserWarning, match=r"lacks qa_outputs.bias, qa_outputs.weight"):
        return fa.from_pretrained(folder, head=HEAD)


@pytest.mark.slow
@pytest.mark.few("neox")
@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("llama-base", "transformer."),
        ("qwen2", "transformer."),
        ("qwen3-left", "transformer."),
        ("smollm3", "transformer."),
        ("mistral", "model."),
        ("neox", "gpt_neox."),
    ],
)
def test_names_of_upstream(name: str, before: str, tmp_path: Path) -> None:
    """Upstream names the backbone of some of these models otherwise than in all other heads."""
    model = reader(name, tmp_path)
    model.save_pretrained(tmp_path / "saved")
    names = set(load_file(tmp_path / "saved" / "model.safetensors"))
    assert {"qa_outputs.weight", "qa_outputs.bias"} <= names
    assert {n.partition(".")[0] + "." for n in names} == {before, "qa_outputs."}
    again = fa.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(again(IDS).start_logits, model(IDS).start_logits)
    backbone = fa.from_pretrained(tmp_path / "saved", head="base")
    expected = fa.from_pretrained(tmp_path, head="base")(IDS).last_hidden_state
    np.testing.assert_array_equal(backbone(IDS).last_hidden_state, expected)


def test_loss_is_the_mean_of_both_ends(tmp_path: Path) -> None:
    model = reader("llama-base", tmp_path)
    first, last = np.array([1, 0]), np.array([3, 2])
    out = model(IDS, start_positions=first, end_positions=last)
    losses = []
    for scores, places in ((out.start_logits, first), (out.end_logits, last)):
        scores = np.asarray(scores, np.float64)
        logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        losses += [-logs[[0, 1], places].mean()]
    np.testing.assert_allclose(out.loss, np.mean(losses), rtol=1e-6)


@pytest.mark.slow
def test_labels_of_another_head_are_refused(tmp_path: Path) -> None:
    model = reader("llama-base", tmp_path)
    with pytest.raises(InputError, match="takes start_positions and end_positions; received la"):
        model(IDS, labels=IDS)
    with pytest.raises(InputError, match="takes start_positions and end_positions; received sta"):
        model(IDS, start_positions=np.array([1, 0]))
