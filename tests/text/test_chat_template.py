# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Chats: their text and ids are those of transformers, and a model replies to them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.text.tokenizer_files import chats_of, rendered
from flaxattn.trace.tensor_file import accept_files

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('no role is called ' + m.role) }}{% endif %}"
    "[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
HELLO = [{"role": "user", "content": "Where is the cat?"}]
LONG = [
    {"role": "system", "content": "Be brief. "},
    *HELLO,
    {"role": "assistant", "content": "Here."},
    {"role": "user", "content": "And é </s> the dog?"},
]
GOING_ON = [*HELLO, {"role": "assistant", "content": "It is"}]
CHATS = [HELLO, LONG, GOING_ON]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small decoder whose tokenizer begins texts with `<s>`, as its template does."""
    folder = write_decoder(tmp_path_factory.mktemp("chat") / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> PretrainedDecoder:
    loaded = fa.from_pretrained(folder)
    assert isinstance(loaded, PretrainedDecoder)
    return loaded


@pytest.mark.parametrize("chat", CHATS)
def test_text_and_ids_are_those_of_transformers(
    chat: list[dict[str, str]], model: PretrainedDecoder, folder: Path
) -> None:
    """Special tokens once: those of the template, and none that the tokenizer adds."""
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast.from_pretrained(folder, bos_token="<s>", eos_token="</s>")
    last = {"continue_final_message": chat is GOING_ON, "add_generation_prompt": True}
    last["add_generation_prompt"] = chat is not GOING_ON
    text = model.chat_prompt(chat)
    assert text == theirs.apply_chat_template(chat, tokenize=False, **last)
    expected = theirs.apply_chat_template(chat, **last)["input_ids"]
    ids, mask = model._prompts(chat, None, None)
    assert (ids.tolist(), mask.all()) == ([expected], True)
    assert expected[:2] != [expected[0]] * 2
    assert model.read(chat).given["input_ids"].tolist() == [expected]


@pytest.mark.slow
def test_replies_are_what_follows_the_text(model: PretrainedDecoder) -> None:
    settings = {"max_new_tokens": 6, "eos": ()}
    tokenizer = model.tokenizer
    assert tokenizer is not None
    replies = model.generate(CHATS, **settings)
    assert len(replies) == 3
    for chat, reply in zip(CHATS, replies, strict=True):
        ids = tokenizer.encode(model.chat_prompt(chat), special=False).input_ids
        whole = model.generate(input_ids=ids, **settings)
        assert reply == tokenizer.decode(whole[0, ids.shape[1] :])
        assert model.generate(chat, **settings) == [reply]
        assert "".join(model.stream(chat, **settings)) == reply
    assert model.chat_prompt(CHATS) == [model.chat_prompt(chat) for chat in CHATS]


@pytest.mark.slow
def test_the_trace_of_a_chat(model: PretrainedDecoder) -> None:
    (reply,), trace = model.generate(HELLO, max_new_tokens=6, eos=(), trace=True)
    prompt = model.trace(HELLO)
    length = len(prompt.tokens[0])
    assert trace.tokens[0][:length] == prompt.tokens[0] and len(trace.tokens[0]) == length + 6
    assert trace.segments is not None
    np.testing.assert_array_equal(trace.segments[0], [0] * length + [1] * 6)
    assert prompt.tokens[0].count("<s>") == 1 and isinstance(reply, str)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("file", [False, True])
def test_the_template_is_kept(folder: Path, tmp_path: Path, file: bool, several: bool) -> None:
    """Where it was: in a file, or among the settings, alone or as one of several."""
    model, source = fa.from_pretrained(folder), tmp_path / "source"
    assert isinstance(model, PretrainedDecoder)
    expected = model.chat_prompt(LONG)
    model.save_pretrained(source)
    path = source / "chat_template.jinja"
    assert path.read_text() == TEMPLATE
    if not file:
        other = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
        settings = {"chat_template": other if several else TEMPLATE}
        path.unlink()
        (source / "tokenizer_config.json").write_text(json.dumps(settings))
        accept_files(source)
    again = fa.from_pretrained(source)
    assert isinstance(again, PretrainedDecoder)
    again.save_pretrained(tmp_path / "saved")
    saved = fa.from_pretrained(tmp_path / "saved")
    assert isinstance(saved, PretrainedDecoder)
    assert saved.chat_prompt(LONG) == again.chat_prompt(LONG) == expected
    assert (tmp_path / "saved" / "chat_template.jinja").is_file() == file


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (HELLO[0], "a chat is a list of messages, received one message"),
        ([{"role": "user"}], "message 0 of chat 0 has no role or no content"),
        ([HELLO, [{"content": "a"}]], "message 0 of chat 1 has no role or no content"),
        ([HELLO, []], "chat 1 has no messages"),
        ([HELLO, "text"], "chat 1 has no messages"),
        ([{"role": "tool", "content": "a"}], "no role is called tool"),
        ("text", "expected a list of messages, received str"),
    ],
)
def test_wrong_messages_are_refused(model: PretrainedDecoder, messages: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        model.chat_prompt(messages)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_a_model_without_template_says_so() -> None:
    model = fa.from_pretrained("tiny-gpt2")
    assert isinstance(model, PretrainedDecoder)
    with pytest.raises(InputError) as error:
        model.generate(HELLO)
    assert str(error.value) == (
        "the model 'tiny-gpt2' has no chat template, so it cannot read messages\n"
        "expected chat_template.jinja, or chat_template in tokenizer_config.json\n"
        "name a model that was trained on chats, or give the prompt as one text"
    )


@pytest.mark.parametrize("template", ["{% for %}", "{{ messages[9].content.x }}", "{{ 1 / 0 }}"])
def test_a_template_that_does_not_run(template: str) -> None:
    with pytest.raises(InputError, match="chat template does not take these messages") as error:
        rendered(HELLO, template, {})
    assert len(str(error.value).splitlines()) <= 3


def test_texts_are_no_chats() -> None:
    assert [chats_of(one) for one in ("a", ["a"], [], None, np.zeros(2))] == [None] * 5
