# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`push_to_hub` uploads the directory that `save_pretrained` writes, and says why it cannot."""

from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import errors

import flaxattn as fa
from flaxattn.errors import CheckpointError, UnavailableError


class Hub:
    """Stands for `HfApi`: keeps the files of each upload."""

    def __init__(self, kept: Path, token: str | None = None) -> None:
        self.kept, self.token = kept, token
        self.calls: list[tuple[str, dict[str, object]]] = []

    def create_repo(self, repo_id: str, **options: object) -> None:
        self.calls.append((repo_id, options))

    def upload_folder(self, *, repo_id: str, folder_path: Path, **options: object) -> object:
        self.calls.append((repo_id, options))
        Path(folder_path).rename(self.kept)
        return SimpleNamespace(commit_url=f"https://example.org/{repo_id}/commit/1")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path / "uploaded")

    def api(token: str | None = None) -> Hub:
        made.token = token
        return made

    monkeypatch.setattr(huggingface_hub, "HfApi", api)
    return made


def test_what_is_uploaded_opens_again(hub: Hub) -> None:
    model = fa.from_pretrained("tiny-bert")
    address = model.push_to_hub("me/cat", private=True, token="t", commit_message="First")
    assert address == "https://example.org/me/cat/commit/1"
    assert hub.token == "t"
    assert hub.calls == [
        ("me/cat", {"private": True, "exist_ok": True}),
        ("me/cat", {"revision": None, "commit_message": "First"}),
    ]
    again = fa.from_pretrained(hub.kept)
    ids = np.array([[2, 40, 3]])
    first, second = (one(input_ids=ids).last_hidden_state for one in (model, again))
    np.testing.assert_array_equal(first, second)
    assert again.tokenizer is not None


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (errors.HFValidationError("bad"), CheckpointError, "'a b' cannot be a Hub id.\nExpected"),
        (
            errors.LocalTokenNotFoundError("Token is required\nmore"),
            UnavailableError,
            "was not uploaded to 'a b': Token is required\nLog in with `hf auth login`",
        ),
        (OSError("no route"), UnavailableError, "was not uploaded to 'a b': no route\n"),
    ],
)
def test_refusals_are_explained(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, cause: Exception, kind: type[Exception], words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise cause

    monkeypatch.setattr(hub, "create_repo", refuse)
    with pytest.raises(kind) as caught:
        fa.from_pretrained("tiny-bert").push_to_hub("a b")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert not hub.kept.exists()
