# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a tokenizer: vocabularies, settings, added tokens, chat templates; checks of texts.

Nothing here encodes a text; use `flaxattn.text.tokenizer.Tokenizer`. Templates are programs in
Jinja; transformers runs them in a sandbox and is imported only then.
"""

import contextlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from flaxattn.errors import CheckpointError, InputError
from flaxattn.text.text_lists import text_list

_ESM_START, _ESM_STOP = "<cls>", "<eos>"
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
# How families beside BERT write them, where tokenizer_config.json does not say.
OTHER_SPECIAL_TOKENS = {
    "pad_token": ("<pad>",),
    "unk_token": ("<unk>",),
    "cls_token": ("<s>", "<cls>"),
    "sep_token": ("</s>", "<eos>"),
    "mask_token": ("<mask>",),
}


def bert_backend(vocabulary: dict[str, int], settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT's normaliser, splitter, WordPiece and template around a vocabulary."""
    names = {key: settings.get(key, default) for key, default in SPECIAL_TOKENS.items()}
    names = {key: v["content"] if isinstance(v, dict) else v for key, v in names.items()}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    known = [tokenizers.AddedToken(n, special=True) for n in names.values() if n in vocabulary]
    backend.add_special_tokens(known)
    start, stop = names["cls_token"], names["sep_token"]
    for token in (start, stop):
        if token not in vocabulary:
            raise CheckpointError(
                f"the vocabulary has no {token}\n"
                f"expected it among the {len(vocabulary)} lines of vocab.txt\n"
                "add it, or name the right token in tokenizer_config.json"
            )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {stop}:0",
        pair=f"{start}:0 $A:0 {stop}:0 $B:1 {stop}:1",
        special_tokens=[(start, vocabulary[start]), (stop, vocabulary[stop])],
    )
    return backend


def residue_backend(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """ESM's pipeline: every entry of the vocabulary that occurs in a text is a token."""
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    longest = sorted(vocabulary, key=len, reverse=True)
    known = tokenizers.Regex("|".join(map(re.escape, longest)))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(known, "isolated")]
    )
    marks = [token for token in longest if token.startswith("<")]
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in marks])
    start, stop = _ESM_START, _ESM_STOP
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {stop}",
        pair=f"{start} $A {stop} $B:1 {stop}:1",
        special_tokens=[(token, vocabulary[token]) for token in (start, stop)],
    )
    return backend


def read_text(path: Path) -> str:
    """Content of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}\n{error.strerror}\nname a readable file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not valid UTF-8\n"
            f"byte {error.object[error.start]:#04x} at position {error.start}\n"
            "save the file as UTF-8"
        ) from error


def read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    """Pipeline of a `tokenizer.json`."""
    text = read_text(path)
    try:
        return encoded(tokenizers.Tokenizer.from_str, text)
    except Exception as error:  # the package raises bare Exception for every malformed file
        raise CheckpointError(
            f"{path} is not a tokenizer\n{shortened(str(error))}\nfetch the file again"
        ) from error


def encoded(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Result of a call of the `tokenizers` package that runs a tokenizer on text."""
    try:
        return call(*given, **named)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which no module exports
            raise
        raise CheckpointError(
            f"the tokenizer fails on a text: {shortened(str(error))}\n"
            "a regular expression in its tokenizer.json is faulty or takes too long\n"
            "fetch tokenizer.json again, or leave the text out"
        ) from error


def read_vocabulary(path: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT's pipeline around a `vocab.txt`."""
    lines = read_text(path).split("\n")
    vocabulary = {token: number for number, token in enumerate(lines) if token}
    try:
        if _ESM_START in vocabulary and SPECIAL_TOKENS["cls_token"] not in vocabulary:
            return residue_backend(vocabulary)
        return bert_backend(vocabulary, settings)
    except CheckpointError:
        raise
    except Exception as error:  # the package raises bare Exception
        raise CheckpointError(
            f"{path} and tokenizer_config.json make no tokenizer\n{shortened(str(error))}\n"
            "fetch both again"
        ) from error


_STRING_ADVICE = {
    bytes: "decode bytes with .decode('utf-8') first",
    tuple: "give the second texts of pairs as a list of their own",
    list: "give the second texts of pairs as a list of their own",
}


def checked_texts(texts: str | Sequence[str], what: str) -> list[str]:
    """One text or several as a list, each fit to be encoded."""
    items = text_list(texts, what)
    if not items:
        raise InputError(
            f"expected a {what} or a non-empty list of them\n"
            f"received {type(texts).__name__}: {shortened(repr(texts))}\n"
            "pass str, or list[str]"
        )
    for number, item in enumerate(items):
        if not isinstance(item, str):
            raise InputError(
                f"{what} {number} is not a string\n"
                f"expected str, received {type(item).__name__}: {shortened(repr(item))}\n"
                f"{_STRING_ADVICE.get(type(item), 'convert it with str')}"
            )
        if not item.strip():
            raise InputError(
                f"{what} {number} is empty\n"
                f"received {item!r}, which holds no token\n"
                "leave it out, or give it at least one word"
            )
        _check_unicode(item, f"{what} {number}")
    return items


def _check_unicode(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} is not valid Unicode\n"
            f"lone surrogate U+{ord(text[error.start]):04X} at character {error.start}\n"
            "decode the source as UTF-8, or drop the character"
        ) from error


def shortened(text: str, limit: int = 60) -> str:
    """At most `limit` characters of a text, on one line, for an error message."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


BERT = "BertTokenizer"
ESM = "EsmTokenizer"
# Classes whose vocab.txt has BERT's pipeline and BERT's special tokens around it.
BERT_CLASSES = {
    BERT,
    *(f"{name}Tokenizer" for name in ("ConvBert", "DistilBert", "Electra", "LayoutLM")),
    *(f"{name}Tokenizer" for name in ("Lxmert", "MobileBert", "RetriBert", "SqueezeBert")),
    *(f"DPR{name}Tokenizer" for name in ("ContextEncoder", "QuestionEncoder", "Reader")),
}
# Classes that transformers has in Python only, so that it never reads a tokenizer.json for them.
PYTHON_CLASSES = {
    f"{name}Tokenizer"
    for name in (
        *("Bartpho", "BertGeneration", "BertJapanese", "Bertweet", "BioGpt", "BlenderbotSmall"),
        *("ByT5", "CTRL", "Canine", "Cpm", "CpmAnt", "FSMT", "Flaubert", "GPTNeoXJapanese"),
        *("GPTSw3", "M2M100", "MyT5", "PLBart", "Perceiver", "Phobert", "ProphetNet", "RoCBert"),
        *("Siglip", "Tapas", "XLM"),
    )
}
_GENERAL = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")
_CLASS_OF_TYPE = {
    **dict.fromkeys(("bert", "distilbert", "electra"), BERT),
    "esm": ESM,
    "mpnet": "MPNetTokenizer",
}
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")
_SWITCHES = (
    *("do_lower_case", "strip_accents", "keep_accents", "tokenize_chinese_chars"),
    *("add_prefix_space", "split_by_punct", "split_special_tokens"),
)
# Settings of BERT's normalizer: the name of its attribute, and the default of transformers.
_NORMALIZER = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}


def read_settings(folder: Path, prefix: str = "") -> dict[str, Any]:
    """Content of `tokenizer_config.json`; empty where the directory has none.

    As in transformers, `special_tokens_map.json` takes precedence over it where it does not list
    the added tokens itself.
    """
    settings = _read_object(folder / f"{prefix}tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings
    return settings | _read_object(folder / f"{prefix}special_tokens_map.json")


def tokenizer_class(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Name of the class that transformers reads a tokenizer with, without "Fast"."""
    config = _read_object(folder / "config.json")
    name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if isinstance(name, str):
        name = name.removesuffix("Fast")
        return None if name in _GENERAL else name
    return _CLASS_OF_TYPE.get(str(config.get("model_type")))


class Unmet(NamedTuple):
    """A setting that contradicts a tokenizer.json: what it says, and what the file does."""

    name: str
    value: Any


def unmet_setting(
    backend: tokenizers.Tokenizer, settings: Mapping[str, Any], kind: str | None
) -> Unmet | None:
    """Return a setting that contradicts a pipeline and that `apply_settings` cannot apply."""
    if kind is None or _is_bert(backend, kind):
        return None
    for name, actual in _behaviour(backend):
        wanted = settings.get(name)
        if wanted is not None and wanted != actual:
            return Unmet(name, wanted)
    return None


def apply_settings(
    backend: tokenizers.Tokenizer,
    folder: Path,
    settings: Mapping[str, Any],
    kind: str | None,
    prefix: str = "",
) -> None:
    """Change a pipeline in place as the files beside it say."""
    if kind is not None:
        _set_normalizer(backend, folder, settings, kind)
        _set_prefix_space(backend, settings)
    backend.encode_special_tokens = bool(settings.get("split_special_tokens", False))
    _add_tokens(backend, folder, settings, kind, prefix)


def spelling(token: Any) -> Any:
    """Text of a token of the settings, which may be an object with properties."""
    return token.get("content") if isinstance(token, dict) else token


def _read_object(path: Path) -> dict[str, Any]:
    """Content of a JSON file; empty where there is none."""
    if not path.is_file():
        return {}
    text = read_text(path)
    try:
        content = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path} is not valid JSON\n{reason}\nfetch the file again"
        ) from error
    if path.name != "config.json":
        _check_settings(path, content)
    return content


def _check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Check the types of the settings that are read here."""
    limit = settings.get("model_max_length")
    usable = limit is None or (
        isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0
    )
    wrong = {} if usable else {"model_max_length": "a positive number"}
    for name in NAMED:
        if not isinstance(spelling(settings.get(name)), str | None):
            wrong[name] = "a string, or an object with a string as its content"
    for name in _SWITCHES:
        if not isinstance(settings.get(name), bool | None):
            wrong[name] = "true or false"
    for name in _LISTED:
        listed = settings.get(name) or []
        values = listed.values() if isinstance(listed, dict) else listed
        strings = isinstance(listed, list | dict) and all(
            isinstance(spelling(value), str) for value in values
        )
        if not strings:
            wrong[name] = "a list of strings, or of objects with a string as their content"
    listed = settings.get("added_tokens_decoder", {})
    if not isinstance(listed, dict) or not all(
        key.isdecimal() and isinstance(value, dict) and isinstance(value.get("content"), str)
        for key, value in listed.items()
    ):
        wrong["added_tokens_decoder"] = "an object of ids, with an object with a content for each"
    for name, expected in wrong.items():
        raise CheckpointError(
            f"{path}: {name} is {shortened(repr(settings[name]))}\n"
            f"expected {expected}\ncompare it with the original, or fetch the file again"
        )


def _is_bert(backend: tokenizers.Tokenizer, kind: str) -> bool:
    """Return whether settings of BERT's normalizer apply to a pipeline."""
    wordpiece = isinstance(backend.model, models.WordPiece)
    known = kind in (*BERT_CLASSES, "MPNetTokenizer")
    return wordpiece and known and isinstance(backend.normalizer, normalizers.BertNormalizer)


def _set_normalizer(
    backend: tokenizers.Tokenizer, folder: Path, settings: Mapping[str, Any], kind: str
) -> None:
    """Give BERT's normalizer the settings, and the defaults of transformers for those absent."""
    if not _is_bert(backend, kind):
        return
    current: Any = backend.normalizer
    values: dict[str, Any] = {"clean_text": current.clean_text}
    for name, (attribute, default) in _NORMALIZER.items():
        values[attribute] = settings.get(name, default)
        if name not in settings and getattr(current, attribute) != default:
            warnings.warn(
                f"{folder}: tokenizer.json has {attribute}={getattr(current, attribute)}, and "
                f"tokenizer_config.json does not name {name}. {name}={default} is used, as "
                f"transformers does; name it there to decide.",
                UserWarning,
                stacklevel=6,
            )
    backend.normalizer = normalizers.BertNormalizer(**values)


def _set_prefix_space(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Add a space before every text, or not, where a byte-level pipeline says otherwise."""
    wanted, current = settings.get("add_prefix_space"), backend.pre_tokenizer
    if not isinstance(wanted, bool) or not isinstance(current, pre_tokenizers.ByteLevel):
        return
    current.add_prefix_space = wanted
    backend.pre_tokenizer = current
    after: Any = backend.post_processor
    if isinstance(after, processors.RobertaProcessing | processors.ByteLevel):
        after.add_prefix_space = wanted  # it keeps a blank before a text out of the offsets
        backend.post_processor = after


def _behaviour(backend: tokenizers.Tokenizer) -> Iterator[tuple[str, bool]]:
    """Yield what a pipeline does with letters, for each setting that decides it."""

    def normalized(text: str) -> str:
        return backend.normalizer.normalize_str(text) if backend.normalizer else text

    def split(text: str) -> list[str]:
        parts = normalized(text)
        if backend.pre_tokenizer is None:
            return [parts]
        return [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(parts)]

    yield "do_lower_case", "A" not in normalized("A")
    strips = "é" not in normalized("é") and "e\u0301" not in normalized("é")
    yield "strip_accents", strips
    yield "keep_accents", not strips
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        begins = "".join(split("a"))[:1]
        yield "add_prefix_space", begins in ("▁", "Ġ", " ")
        yield "split_by_punct", len(split("a,b")) > 1


def _add_tokens(
    backend: tokenizers.Tokenizer,
    folder: Path,
    settings: Mapping[str, Any],
    kind: str | None,
    prefix: str,
) -> None:
    """Add the tokens that the files list and name, in the order of their ids."""
    named: dict[str, AddedToken] = {}
    for token in _named_tokens(settings):
        named.setdefault(token.content, token)
    if kind in BERT_CLASSES:
        defaults = (token for name, token in SPECIAL_TOKENS.items() if name not in settings)
        present = [token for token in defaults if backend.token_to_id(token) is not None]
        named = {token: AddedToken(token, special=True) for token in present} | named
    known = backend.get_added_tokens_decoder()
    listed, path = _listed_tokens(folder, settings, prefix, set(named))
    new = []
    for number, token in sorted(listed.items()):
        stored = known.get(number)
        same = stored is not None and stored.content == token.content
        if same and (path.name == "added_tokens.json" or repr(stored) == repr(token)):
            continue
        token.special |= token.content in named
        new.append(token)
    contents = {token.content for token in (*known.values(), *listed.values())}
    new += [token for content, token in named.items() if content not in contents]
    if not new:
        return
    backend.add_tokens(new)
    for number, token in listed.items():
        actual = backend.token_to_id(token.content)
        if actual != number:
            raise CheckpointError(
                f"{path}: the token {token.content!r} has the id {number} there\n"
                f"in the vocabulary beside it, it has {actual}\n"
                "the files are not of one tokenizer; take them all from the same place"
            )


def _listed_tokens(
    folder: Path, settings: Mapping[str, Any], prefix: str, named: set[str]
) -> tuple[dict[int, AddedToken], Path]:
    """Added tokens by their ids, and the file that lists them."""
    if "added_tokens_decoder" in settings:
        listed = settings["added_tokens_decoder"]
        tokens = {int(number): _token(value, False) for number, value in listed.items()}
        return tokens, folder / f"{prefix}tokenizer_config.json"
    path = folder / f"{prefix}added_tokens.json"
    tokens = {}
    for content, number in _read_object(path).items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise CheckpointError(
                f"{path}: the token {content!r} has the id {shortened(repr(number))}\n"
                "expected a number of at least 0\nfetch the file again"
            )
        special = content in named
        tokens[number] = AddedToken(content, special=special, normalized=not special)
    return tokens, path


def _named_tokens(settings: Mapping[str, Any]) -> Iterator[AddedToken]:
    """Yield the special tokens that the settings name: `pad_token`, `image_token`, lists."""
    own = [name for name in settings if name.endswith("_token") and name not in NAMED]
    values = [settings.get(name) for name in NAMED]
    values += [settings[name] for name in own if isinstance(settings[name], str)]
    for name in _LISTED:
        listed = settings.get(name) or []
        values += listed.values() if isinstance(listed, dict) else listed
    yield from (_token(value, True) for value in values if value)


def _token(value: Any, special: bool) -> AddedToken:
    """An added token of a string, or of an object with its properties."""
    if isinstance(value, str):
        return AddedToken(value, special=True)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    properties = {name: bool(value[name]) for name in names if name in value}
    properties["special"] = special or properties.get("special", False)
    return AddedToken(value["content"], **properties)


FILE = "chat_template.jinja"
_NAMES = ("bos_token", "eos_token", *SPECIAL_TOKENS)
Chat = Sequence[Mapping[str, Any]]


def read_template(folder: Path, prefix: str = "") -> str | None:
    """The template that a directory has in a file of its own; None where it has none."""
    path = folder / FILE
    return read_text(path) if path.is_file() and not prefix else None


def default_template(setting: Any) -> str | None:
    """The template for chats without tools among those of `tokenizer_config.json`."""
    if isinstance(setting, list):
        named = {one.get("name"): one.get("template") for one in setting if isinstance(one, dict)}
        setting = named.get("default")
    return setting if isinstance(setting, str) else None


def chats_of(texts: Any) -> list[Chat] | None:
    """The chats that prompts are; None where they are texts."""
    if isinstance(texts, Mapping):
        raise InputError(
            f"a chat is a list of messages, received one message: {shortened(str(dict(texts)))}\n"
            "put it into a list"
        )
    if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
        return None
    if isinstance(texts[0], Mapping):
        chats = [texts]
    elif isinstance(texts[0], Sequence) and texts[0] and isinstance(texts[0][0], Mapping):
        chats = list(texts)
    else:
        return None
    for number, chat in enumerate(chats):
        _check(chat, number)
    return chats


def rendered(chat: Chat, template: str, special: Mapping[str, str]) -> str:
    """The text that a model continues with its reply.

    A last message of the assistant is continued; behind another one a new message begins.
    """
    going_on = chat[-1]["role"] == "assistant"
    try:
        with quiet_transformers():
            from transformers import PreTrainedTokenizerFast  # takes seconds

            empty = Tokenizer(models.BPE())  # no token is read here
            names: dict[str, Any] = dict(special)
            text = PreTrainedTokenizerFast(tokenizer_object=empty, **names).apply_chat_template(
                [dict(message) for message in chat],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=not going_on,
                continue_final_message=going_on,
            )
    except Exception as error:  # a template raises whatever its author makes it raise
        roles = ", ".join(message["role"] for message in chat)
        raise InputError(
            f"the model's chat template does not take these messages\n"
            f"received the roles {roles}: {shortened(str(error) or type(error).__name__, 200)}\n"
            "change the messages, or compare the template with the original"
        ) from error
    return str(text)


def special_tokens(settings: Mapping[str, Any], usual: Mapping[str, str | None]) -> dict[str, str]:
    """Special tokens by name, as they are written."""
    tokens = {**usual, **{name: settings[name] for name in _NAMES if name in settings}}
    tokens = {n: t.get("content") if isinstance(t, Mapping) else t for n, t in tokens.items()}
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def _check(chat: Any, number: int) -> None:
    if not isinstance(chat, Sequence) or isinstance(chat, str) or not chat:
        raise InputError(
            f"chat {number} has no messages\nreceived {shortened(repr(chat))}\n"
            'give a list such as [{"role": "user", "content": "Hello"}]'
        )
    for place, message in enumerate(chat):
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or not ("content" in message or "tool_calls" in message):
            raise InputError(
                f"message {place} of chat {number} has no role or no content\n"
                f"received {shortened(repr(message))}\n"
                'give each message both: {"role": "user", "content": "Hello"}'
            )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Use transformers without its advice to install torch or sacremoses; nothing needs them."""
    before = os.environ.get("TRANSFORMERS_VERBOSITY")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            del os.environ["TRANSFORMERS_VERBOSITY"]
        else:
            os.environ["TRANSFORMERS_VERBOSITY"] = before
