# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Small random models of each family with tokenizers, and texts of many lengths."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

import flaxattn as fa
from flaxattn.bert import Bert
from flaxattn.bert_handle import PretrainedBert
from flaxattn.gpt2 import GPT2
from flaxattn.gpt2_handle import PretrainedGPT2
from flaxattn.rnn import RnnLM
from flaxattn.seq2seq import Seq2SeqLM
from flaxattn.seq2seq_handle import PretrainedSeq2Seq
from flaxattn.tokenizing import bert_backend
from flaxattn.tokens import Tokenizer

WORDS = "a b c d e f g h the cat is very sad , .".split()


def drawn(module: Any, *given: Any, seed: int = 0) -> Any:
    """Parameters so large that attention is peaked and every term matters."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *given)["params"]
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: rng.normal(0, 0.3, s.shape).astype(np.float32), shapes)


@pytest.fixture(scope="session")
def bert() -> PretrainedBert:
    """2 layers, 2 heads, width 16, at most 48 positions."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = Tokenizer(bert_backend({p: i for i, p in enumerate(pieces)}, {}))
    config = fa.BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
    )
    module = Bert(config)
    return PretrainedBert(module, drawn(module, np.ones((1, 2), np.int32)), tokenizer, config, "b")


def _by_word(end: bool, words: Sequence[str] = WORDS) -> Tokenizer:
    pieces = ["<pad>", "</s>", "<unk>", *(f"▁{word}" for word in words)]
    backend = Backend(models.WordLevel({p: i for i, p in enumerate(pieces)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    if end:
        backend.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 1)]
        )
    return Tokenizer(backend, {"pad_token": "<pad>"})


@pytest.fixture(scope="session")
def gpt2() -> PretrainedGPT2:
    """2 layers, 2 heads, width 16, at most 48 positions."""
    tokenizer = _by_word(end=False)
    config = fa.GPT2Config(
        vocab_size=tokenizer.vocab_size,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=48,
        bos_token_id=1,
        eos_token_id=1,
    )
    module = GPT2(config)
    return PretrainedGPT2(module, drawn(module, np.ones((1, 2), np.int32)), tokenizer, config, "g")


@pytest.fixture(scope="session")
def seq2seq() -> PretrainedSeq2Seq:
    """2 + 1 layers, 2 and 4 heads, width 16, at most 48 positions."""
    tokenizer = _by_word(end=True)
    config = fa.Seq2SeqConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=48,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=1,
    )
    module = Seq2SeqLM(config)
    ids = np.ones((1, 2), np.int32)
    params = drawn(module, ids, ids, ids)
    return PretrainedSeq2Seq(module, params, tokenizer, config, "s")


@pytest.fixture(scope="session")
def translation() -> PretrainedSeq2Seq:
    """A Marian, 1 + 2 layers, 2 heads, width 16, which writes other words than it reads."""
    source, target = _by_word(end=True), _by_word(end=True, words=WORDS[::-1][:9])
    config = fa.Seq2SeqConfig.from_hf(
        {
            "model_type": "marian",
            "vocab_size": source.vocab_size,
            "decoder_vocab_size": target.vocab_size,
            "share_encoder_decoder_embeddings": False,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "max_position_embeddings": 48,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
            "forced_eos_token_id": 1,
        }
    )
    module = Seq2SeqLM(config)
    ids = np.ones((1, 2), np.int32)
    params = drawn(module, ids, ids, ids)
    return PretrainedSeq2Seq(module, params, source, config, "t", target_tokenizer=target)


@pytest.fixture(scope="session")
def rnn() -> PretrainedSeq2Seq:
    """A recurrent encoder-decoder with states of 8, which writes other words than it reads."""
    source, target = _by_word(end=True), _by_word(end=True, words=WORDS[::-1][:9])
    config = fa.RnnConfig(
        vocab_size=source.vocab_size,
        decoder_vocab_size=target.vocab_size,
        embedding_size=8,
        hidden_size=8,
        attention_size=8,
        readout_size=8,
        max_position_embeddings=48,
    )
    module = RnnLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return PretrainedSeq2Seq(module, params, source, config, "r", target_tokenizer=target)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """14 texts of 1 to 30 words, of three widths of batches."""
    rng = np.random.default_rng(1)
    sizes = [1, 30, 2, 14, *rng.integers(1, 15, 10)]
    return [" ".join(rng.choice(WORDS, size)) for size in sizes]
