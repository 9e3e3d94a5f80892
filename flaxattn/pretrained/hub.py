# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From the name of a model to the directory that holds it: built in, local, or from the Hub.

It finds, fetches and uploads files; it opens none of them.
"""

import difflib
import os
import re
from pathlib import Path

from flaxattn.errors import CheckpointError, UnavailableError
from flaxattn.pretrained import sentence_modules

_BUILT_IN = Path(__file__).parent
_WANTED = [  # never code, pickles or other frameworks' weights
    "config.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "merges.txt",
    "generation_config.json",
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    *sentence_modules.HUB_PATTERNS,
]
_TRUE = {"1", "ON", "YES", "TRUE"}
_HUB_ID = re.compile(r"[A-Za-z0-9](?:[\w.-]*/)?[\w.-]*")


def built_in() -> tuple[str, ...]:
    """Names of the models that come with the package."""
    if not _BUILT_IN.is_dir():
        return ()
    return tuple(sorted(p.parent.name for p in _BUILT_IN.glob("*/config.json")))


def find(
    name: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Path:
    """The directory of a model."""
    text = os.fspath(name)
    if text in built_in():
        return _BUILT_IN / text
    path = Path(text).expanduser()
    if text and path.is_dir():
        return path
    if text and path.exists():
        raise CheckpointError(
            f"{text} is a file; expected the directory of a model.\n"
            f"Give the directory that holds it: {path.parent}."
        )
    if isinstance(name, Path) or not _HUB_ID.fullmatch(text) or ".." in text or "--" in text:
        raise CheckpointError(_unknown(text, "it is not a directory and cannot be a Hub id"))
    offline = local_files_only or os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    return _snapshot(text, revision, cache_dir, offline)


def _snapshot(name: str, revision: str | None, cache_dir: str | Path | None, offline: bool) -> Path:
    import huggingface_hub  # imports slowly, and only Hub ids need it
    from huggingface_hub import errors

    try:
        folder = huggingface_hub.snapshot_download(
            name,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=offline,
            allow_patterns=_WANTED,
        )
    except errors.GatedRepoError as error:
        raise UnavailableError(
            f"The Hub model {name!r} is gated.\n"
            f"Ask for access on its page, then log in with `hf auth login`."
        ) from error
    except errors.RepositoryNotFoundError as error:
        reason = "no built-in model, no directory, and the Hub has no such model (or it is private)"
        raise CheckpointError(_unknown(name, reason)) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(
            f"The Hub model {name!r} has no revision {revision!r}.\n"
            "Give one of its branches, tags or commits."
        ) from error
    except errors.HFValidationError as error:
        raise CheckpointError(
            _unknown(name, "it is not a directory and cannot be a Hub id")
        ) from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        raise UnavailableError(_unreachable(name, offline)) from error
    return Path(folder)


def upload(
    directory: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a model with flaxattn",
) -> str:
    """Upload the files of a directory to a repository of the Hub, which is made where absent."""
    import huggingface_hub  # imports slowly, and only Hub ids need it
    from huggingface_hub import errors

    api = huggingface_hub.HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=directory,
            revision=revision,
            commit_message=commit_message,
        )
    except errors.HFValidationError as error:
        raise CheckpointError(
            f"{repo_id!r} cannot be a Hub id.\nExpected OWNER/NAME, such as me/my-model."
        ) from error
    except (errors.LocalTokenNotFoundError, errors.HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnavailableError(
            f"The model was not uploaded to {repo_id!r}: {reason}\n"
            "Log in with `hf auth login`, with a token that may write there."
        ) from error
    return str(commit.commit_url)


def _unknown(name: str, reason: str) -> str:
    close = difflib.get_close_matches(name, built_in(), n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    models = ", ".join(built_in()) or "none"
    return (
        f"No model {name!r} was found: {reason}.\n"
        f"{hint}Built in: {models}. Otherwise give a directory with config.json and "
        "model.safetensors, or a Hub id."
    )


def _unreachable(name: str, offline: bool) -> str:
    why = "offline mode is on" if offline else "the Hub cannot be reached"
    return (
        f"{_unknown(name, f'not built in, no directory, not in the local cache, and {why}')}\n"
        f"To use it without a network, fetch it once where there is one: hf download {name}"
    )
