# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every setting of the training of a language model: shape, data and evaluation.

Settings that every run has are in `recipe`; nothing here reads a file or builds a model.
"""

import dataclasses
import difflib
from typing import Any, Literal

from flaxattn.errors import InputError
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.decoder_types import OWN, TYPES, Setting, switches
from flaxattn.train.recipe import TextRecipe, at_least

GPT2 = "gpt2"
ARCHITECTURES = (GPT2, *(kind for kind in TYPES if kind != OWN))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelRecipe(TextRecipe):
    """Next-word prediction; the defaults suit a small model and a few megabytes of text.

    Attributes:
        architecture: of a new model, as a `model_type` of Hugging Face: gpt2, llama, qwen3, gemma2
            or another key of `flaxattn.models.decoder_types.TYPES`. The type decides everything
            that no setting here names: norms, activation, rotary positions, windows, soft caps.
        model: what to continue from: built-in name, model directory or Hub id; it keeps its
            tokenizer and its config. Empty for a new model.
        vocab_size: most tokens of a byte-level BPE vocabulary learnt from the data.
        n_layer: L of a new model.
        n_head: H of a new model.
        n_embd: E of a new model.
        key_heads: G of a new model, a divisor of `n_head`: heads of keys and values that query
            heads share; 0 for as many as query heads.
        dropout: of a new model: on embeddings, attention weights and sub-layer outputs, where its
            type has such a setting. Most types have one for attention weights alone.
        model_dropout: the same of a model that is gone on from; None for what its config says.
        initializer_range: standard deviation of a new model's weights. Its positions get half of
            it, and what a layer adds to the residual stream is scaled by 1 / sqrt(2 L).
        block: S, tokens of a row, and the context of a new model.
        reflow: put each paragraph on one line, for text with hard line breaks; else lines and white
            space stay as written, and only blank lines between paragraphs count as one.
        pack: most documents that share a row.
        repeat_share: share of the rows of every batch that hold spans which stand twice, the second
            time to be copied; see `flaxattn.train.lm`. They come on top of the text, which
            `epochs` counts. 0 for none.
        repeat_spans: fewest and most tokens of such a span.
        repeat_mix: shares of the spans that are random tokens, each as likely; random tokens, as
            likely as in the text; and passages of the text. They add up to 1.
        stride: tokens between two windows of an evaluation, so that each token but the first ones
            is predicted from at least `block` - `stride`; 0 for half of `block`.
        epochs: passes over the text; sets `steps` where that is 0.
        steps: updates in all; 0 lets `epochs` decide.
        learning_rate: the peak; 0 for 0.2 / E, and half of that where training starts from a model.
        warmup_share: share of the steps that warm up; sets `warmup_steps` where that is 0.
        evaluations: at most so many in all; sets `evaluate_every` where that is 0.
        evaluate_tokens: held-out tokens that an evaluation looks at, from the first on; 0 for all.
        prompts: texts that are continued at every evaluation; none for the beginnings of the first
            held-out documents.
        sample_tokens: most tokens of a continuation; 0 for none.
        sample_temperature: of the draws; 0 takes the likeliest token.
        save_dtype: of the parameters in the finished model.
    """

    least = (
        TextRecipe.least
        | at_least(0, "stride evaluate_tokens sample_tokens sample_temperature epochs key_heads")
        | at_least(1, "pack evaluations n_layer n_head n_embd")
        | {"block": 2}
    )
    shares = ("dropout", "warmup_share", "heldout_fraction", "repeat_share")
    cutting = (*TextRecipe.cutting, "reflow")

    architecture: str = GPT2
    model: str = ""
    vocab_size: int = 8192
    n_layer: int = 4
    n_head: int = 6
    n_embd: int = 192
    key_heads: int = 0
    dropout: float = 0.1
    model_dropout: float | None = None
    initializer_range: float = 0.02
    block: int = 256
    reflow: bool = False
    paragraphs_per_document: int = 20
    heldout_fraction: float = 0.05
    pack: int = 64
    repeat_share: float = 0.0
    repeat_spans: tuple[int, ...] = (8, 127)
    repeat_mix: tuple[float, ...] = (0.5, 0.25, 0.25)
    stride: int = 0
    batch_size: int = 16
    epochs: float = 5.0
    steps: int = 0
    warmup_share: float = 0.05
    warmup_steps: int = 0
    learning_rate: float = 0.0
    schedule: Literal["bert", "linear", "polynomial", "constant", "inverse-sqrt", "noam"] = "linear"
    adam_b2: float = 0.95
    adam_eps: float = 1e-8
    bias_correction: bool = True
    weight_decay: float = 0.1
    evaluations: int = 10
    evaluate_every: int = 0
    evaluate_tokens: int = 50_000
    checkpoint_every: int = 0
    prompts: tuple[str, ...] = ()
    sample_tokens: int = 40
    sample_temperature: float = 0.8
    save_dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride > self.block:
            raise InputError(
                f"recipe: stride {self.stride} would leave tokens out between two windows\n"
                f"block is {self.block}, and a window has so many tokens\n"
                f"lower stride to at most {self.block}, or raise block"
            )
        if self.n_embd % self.n_head:
            raise InputError(
                f"recipe: n_embd {self.n_embd} is not a multiple of n_head {self.n_head}\n"
                "every head gets n_embd / n_head dimensions\nchange one of them"
            )
        if not 0 <= (self.model_dropout or 0) < 1:
            raise InputError(
                f"recipe: model_dropout must be in [0, 1), got {self.model_dropout}\n"
                "it is a share, such as 0.1"
            )
        self._check_architecture()
        self._check_repeats()
        if "" in (prompt.strip() for prompt in self.prompts):
            raise InputError(
                "recipe: one of the prompts is empty\n"
                f"received {list(self.prompts)}\n"
                "give it a word, or no prompts for the beginnings of held-out documents"
            )

    def _check_architecture(self) -> None:
        kind = self.architecture
        if kind not in ARCHITECTURES:
            near = difflib.get_close_matches(kind, ARCHITECTURES, 1, 0)[0]
            raise InputError(
                f"recipe: there is no architecture {kind!r}\n"
                f"architectures are {', '.join(ARCHITECTURES)}\n"
                f"choose one of them: --set architecture={near}"
            )
        if self.n_head % (self.key_heads or self.n_head):
            raise InputError(
                f"recipe: n_head {self.n_head} is not a multiple of key_heads {self.key_heads}\n"
                "every head of keys serves the same number of query heads\nchange one of them"
            )
        heads = None if kind == GPT2 else switches(kind)["num_key_value_heads"]
        own = self.model or self.key_heads in (0, self.n_head)
        if not own and not isinstance(heads, Setting):
            raise InputError(
                f"recipe: key_heads {self.key_heads} does not fit architecture {kind}\n"
                f"its query heads do not share keys, and n_head is {self.n_head}\n"
                "leave key_heads out, or choose another architecture, such as llama"
            )

    def _check_repeats(self) -> None:
        mix, spans = self.repeat_mix, self.repeat_spans
        if len(mix) != 3 or min(mix) < 0 or abs(sum(mix) - 1) > 1e-6:
            raise InputError(
                "recipe: repeat_mix needs three shares that add up to 1\n"
                f"received {list(mix)}\n"
                "give those of uniform tokens, of tokens by frequency, and of passages"
            )
        if not self.repeat_share:
            return
        if len(spans) != 2 or not 2 <= spans[0] <= min(spans[1], self.block // 2):
            raise InputError(
                f"recipe: repeat_spans {list(spans)} do not fit block {self.block}\n"
                "expected the fewest and the most tokens; the fewest must fit twice into a row\n"
                f"give for example repeat_spans=[2,{self.block // 2}]"
            )
        if not 0 < self.text_rows < self.batch_size:
            raise InputError(
                f"recipe: repeat_share {self.repeat_share} is {self.repeated_rows} of the "
                f"{self.batch_size} rows of a batch\n"
                "expected rows of both kinds, text and repeats\nchange it, or raise batch_size"
            )

    @property
    def repeated_rows(self) -> int:
        """Rows of a batch that hold repeated spans."""
        return round(self.repeat_share * self.batch_size)

    @property
    def text_rows(self) -> int:
        """Rows of a batch that hold text."""
        return self.batch_size - self.repeated_rows

    @property
    def step_of_windows(self) -> int:
        """Tokens between two windows of an evaluation."""
        return self.stride or self.block // 2

    def for_rows(self, rows: int, width: int) -> "LanguageModelRecipe":
        """The recipe with what it leaves open filled in: steps, their rate, and evaluations.

        Args:
            rows: of an epoch.
            width: E of the model.
        """
        steps = self.steps or max(1, round(self.epochs * rows / self.text_rows))
        return dataclasses.replace(
            self,
            steps=steps,
            learning_rate=self.learning_rate or (0.1 if self.model else 0.2) / width,
            warmup_steps=self.warmup_steps or round(self.warmup_share * steps),
            evaluate_every=self.evaluate_every or -(-steps // self.evaluations),
        )

    def check_model(self, config: GPT2Config | DecoderConfig) -> None:
        """Refuse settings that a given model contradicts.

        Args:
            config: of the model that the run continues from.

        Raises:
            InputError: `block` is over its context, or its shape was asked to be another one.
        """
        limit = config.max_position_embeddings
        if self.block > limit:
            raise InputError(
                f"recipe: block {self.block} does not fit the model\n"
                f"{self.model} reads up to {limit} tokens\n"
                f"lower it: --set block={limit}"
            )
        defaults = self.defaults()
        shape: dict[str, Any] = {
            "architecture": config.model_type,
            "n_layer": config.num_hidden_layers,
            "n_head": config.num_attention_heads,
            "n_embd": config.hidden_size,
            "key_heads": config.key_heads,
        }
        for name, has in shape.items():
            requested = getattr(self, name)
            if requested not in (defaults[name], has):
                raise InputError(
                    f"recipe: {name} {requested} contradicts model {self.model!r}\n"
                    f"it has {name} {has}, and keeps its shape\n"
                    f"leave {name} out, or train a new model without --model"
                )
