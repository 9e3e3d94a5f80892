# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sections of `docs/induction.md`: prose around the numbers that `docs/induction.py` measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from page_tables import table

from flaxattn.measures.induction import INDUCTION, PREVIOUS

PAIRS = """\
import random

words = "cloud table winter garden soldier letter candle river window doctor".split()
draw, pairs = random.Random(0), []
for _ in range(8):
    a, b, c, d, e, f = draw.sample(words, 6)
    clean, corrupted = f" {e} {a} {b} {f} {c} {d} {a}", f" {e} {c} {b} {f} {a} {d} {a}"
    pairs.append(fa.TextPair(clean, corrupted, f" {b}", f" {d}"))
fa.patch(model, pairs)"""


def named(head: Sequence[int]) -> str:
    """A head as LAYER.HEAD."""
    return f"{head[0]}.{head[1]}"


def listed(heads: Sequence[Sequence[int]]) -> str:
    """Heads in words."""
    *most, last = map(named, heads)
    return f"{', '.join(most)} and {last}" if most else last


def interval(mean: float, low: float, high: float, digits: int = 2) -> str:
    """A mean with its 95% interval."""
    mean, low, high = (round(x, digits) + 0.0 for x in (mean, low, high))  # + 0.0: no -0
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def at(effects: dict[str, Any], head: Sequence[int]) -> str:
    """The effect of a head with its interval."""
    layer, number = head
    return interval(*(effects[name][layer][number] for name in ("means", "low", "high")))


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def detect_section(facts: dict[str, Any]) -> Iterator[str]:
    """Heads by their scores."""
    settings, found = facts["settings"], facts["detected"]
    yield "## Heads that look like the circuit"
    yield (
        f"The model reads {settings['sequences']} sequences of {settings['length']} random tokens, "
        "each repeated once. The *previous-token score* of a head is its mean attention to the "
        "token before the query; its *induction score* is its mean attention, in the repetition, "
        "to the token that followed the first copy of the query's token. Both are between 0 and 1."
    )
    yield _code(
        'import flaxattn as fa\n\nmodel = fa.from_pretrained("tiny-gpt2")\n'
        "scores = fa.detect_heads(model)\n"
        'scores.strongest("induction", 6)'
    )
    yield _code("flaxattn roles texts.txt --model tiny-gpt2 --repeats 16 --out ROLES", "sh")
    yield "The command tests the roles of heads in any file of texts besides."
    rows = []
    for kind, least in settings["least"].items():
        scores, errors = (np.asarray(found[name][kind]) for name in ("scores", "errors"))
        order = np.argsort(-scores, axis=None)[: len(found["heads"][kind]) + 1]
        for place in order:
            layer, head = map(int, np.unravel_index(place, scores.shape))
            is_one = "yes" if [layer, head] in found["heads"][kind] else "no"
            score = f"{scores[layer, head]:.3f} ± {errors[layer, head]:.3f}"
            rows.append([kind, f"{layer}.{head}", score, f"{least:g}", is_one])
    yield table(["kind", "head", "score ± standard error", "least", "counted"], rows)
    yield (
        "The last row of each kind is the strongest head that is not counted. Uniform attention "
        f"would have {found['uniform'][PREVIOUS]:.3f} and {found['uniform'][INDUCTION]:.3f}."
    )


def pattern_section(pattern: dict[str, Any]) -> Iterator[str]:
    """Attention in a sentence."""
    previous, induction = map(named, pattern["heads"])
    yield "## The same heads in a sentence"
    yield _code(
        f'text = "{pattern["text"]}"\n'
        "trace = model.trace(text, predictions=1)\n"
        f"fa.plot_heads(trace, layers=[{previous[0]}], heads=[{previous[2]}])\n"
        f"fa.plot_heads(trace, layers=[{induction[0]}], heads=[{induction[2]}])"
    )
    options = f"--model tiny-gpt2 --layer {induction[0]} --out page.html"
    yield _code(f'flaxattn view "{pattern["text"]}" {options}', "sh")
    yield "![Attention of the strongest head of each kind](induction_pattern.png)"
    rows = [row for row in pattern["rows"] if row["follower"] is not None]
    yield table(
        ["token", "followed before by", f"attention of {induction}", "next token", "predicted"],
        [
            [
                f"`{row['token'].strip()}`",
                f"`{row['follower'].strip()}`",
                f"{row['share']:.2f}",
                f"`{row['next'].strip()}`",
                f"{row['probability']:.3f}",
            ]
            for row in rows
        ],
    )
    whole = np.mean([row["previous"] for row in pattern["rows"][1:]])
    rest = np.mean([row["first"] for row in pattern["rows"][1:] if row["follower"] is None])
    yield (
        f"Head {previous} gives {whole:.3f} of its attention to the previous token on average. "
        f"Head {induction} gives {rest:.2f} to the first token where nothing is repeated. Where a "
        "token stood before, it looks at what followed its first copy, but in a sentence far less "
        "than on random tokens. The last row has no next token; the likeliest one is written. "
        "*Predicted* is the probability of the next token."
    )


def activation_section(facts: dict[str, Any]) -> Iterator[str]:
    """Activation patching."""
    settings, found = facts["settings"], facts["activation"]
    yield "## Which heads the answer depends on: activation patching"
    yield (
        f"Attention is not use, so we exchange activations. A pair has a clean text of "
        f"{settings['words']} different words, drawn from {facts['words']:,}, and the first of two "
        "of them again: `… A B … C D … A`. In the corrupted text `A` and `C` are exchanged: "
        "`… C B … A D … A`. The answer changes from `B` to `D`, although both stand where they "
        "stood; only what stands *before* them has changed. We measure the logit of `B` minus that "
        "of `D`, put the output of one head of the clean run into the corrupted run, and see how "
        "much of the difference comes back."
    )
    yield _code(PAIRS)
    yield (
        "These are a few pairs to try; the numbers below are of pairs from the whole vocabulary, "
        "which the script writes as a table for the command:"
    )
    yield _code(
        "python docs/induction.py --pairs-table pairs.csv\n"
        "flaxattn patch pairs.csv --model tiny-gpt2 --metric logit-diff --out PATCHED",
        "sh",
    )
    tests = facts["model"]["layers"] * facts["model"]["heads"]
    yield (
        f"Over {settings['pairs']} pairs the logit difference is {found['clean']:+.1f} in the "
        f"clean runs and {found['corrupted']:+.1f} in the corrupted ones. These heads bring back a "
        f"part of the {found['total']:.1f} between them; *causal* heads have a p-value of at most "
        f"{settings['alpha']:g} in a sign-flip test over pairs, corrected for {tests} heads "
        f"(`{settings['correction']}`)."
    )
    means = np.asarray(found["means"])
    rows = []
    for place in np.argsort(-np.abs(means), axis=None)[:10]:
        head = [int(n) for n in np.unravel_index(place, means.shape)]
        kinds = [kind for kind, heads in facts["detected"]["heads"].items() if head in heads]
        effect = means[head[0], head[1]]
        causal = "yes" if found["causal"][head[0]][head[1]] else "no"
        rows.append(
            [named(head), "".join(kinds), at(found, head), f"{effect / found['total']:.0%}", causal]
        )
    yield table(["head", "kind", "effect [95% interval]", "share", "causal"], rows)
    if control := found["control"]:
        yield (
            f"All {control['heads']} causal heads together bring back {control['effect']:.1f}. "
            f"Random sets of as many heads, {settings['sets']} of them, bring back "
            f"{control['random']:.1f} on average and {control['largest']:.1f} at most "
            f"(p = {control['p']:.3f}; {1 / (1 + settings['sets']):.3f} is the smallest there can "
            "be with so many draws). Random sets may hold heads of the circuit, which is why they "
            "do so much."
        )
    yield "By position, the largest effects are these:"
    yield table(
        ["head", "positions", "effect [95% interval]"],
        [
            [
                named((row["layer"], row["head"])),
                row["positions"],
                interval(row["effect"], row["low"], row["high"]),
            ]
            for row in found["segments"][:7]
        ],
    )
    yield (
        "*after* are the positions behind the words that were exchanged, `B` and `D` among them; "
        "*answered* is the last position. So the previous-token heads work where the answers "
        "stand, the induction heads where the answer is asked for."
    )


def paths_section(facts: dict[str, Any]) -> Iterator[str]:
    """Path patching."""
    paths, receivers = facts["paths"], facts["detected"]["heads"][INDUCTION]
    key, first = paths["key"], paths["first"]
    yield "## Whether one feeds the other: path patching"
    yield (
        "Activation patching does not tell along which path a head acts. Path patching (Wang et "
        f"al. 2023) lets the clean output of one head reach the *keys* of {listed(receivers)} "
        "alone, with all other heads held as they were in the corrupted run; then it does the same "
        "for their queries and values."
    )
    ends = ", ".join(f"({layer}, {head})" for layer, head in receivers)
    yield _code(
        f"receivers = ({ends})\n"
        'request = fa.PatchRequest(method="path", receivers=receivers, into=("key",))\n'
        "fa.patch(model, pairs, request)"
    )
    yield _code(
        "flaxattn patch pairs.csv --model tiny-gpt2 --method path --receivers "
        f"{','.join(map(named, receivers))} --into key --out PATHS",
        "sh",
    )
    means = np.asarray(key["means"])
    heads = [
        [int(n) for n in np.unravel_index(place, means.shape)]
        for place in np.argsort(-np.abs(means), axis=None)[:5]
    ]
    yield table(
        ["head", "into keys", "share", "into queries", "into values", "to the logits"],
        [
            [
                named(head),
                at(key, head),
                f"{means[head[0], head[1]] / key['total']:.0%}",
                *(at(paths[name], head) for name in ("query", "value", "logits")),
            ]
            for head in heads
        ],
    )
    rest = [[n, m] for n, m in np.ndindex(*means.shape) if [n, m] not in heads[:2]]
    most = max(abs(means[layer, head]) for layer, head in rest)
    yield (
        f"Head {named(first['head'])} has the largest effect through the keys, "
        f"{interval(first['difference'], first['low'], first['high'])} more than the next one, "
        f"{named(first['next'])}. All other heads stay below {most + 0.005:.2f}. The same head "
        "does next to nothing through queries, through values, or directly to the logits."
    )
    if control := key["control"]:
        yield (
            f"Together, the {control['heads']} heads that are causal on this path bring back "
            f"{control['effect']:.1f} of {key['total']:.1f}; random sets of as many heads "
            f"{control['random']:.1f} on average and {control['largest']:.1f} at most."
        )


def weights_section(weights: dict[str, Any], heads: dict[str, Any]) -> Iterator[str]:
    """Composition and copying scores."""
    yield "## Whether the weights alone would have told"
    yield (
        "The K-composition of two heads says how much of what the earlier one can write lies where "
        "the keys of the later one read (Elhage et al. 2021). It needs no text."
    )
    yield _code('circuits = fa.head_circuits(model)\ncircuits.edges("key", 5)')
    yield _code("flaxattn circuits --model tiny-gpt2 --out CIRCUITS", "sh")
    writer = named(heads[PREVIOUS][0])
    yield table(
        ["induction head", "strongest writer", "score", f"{writer} scores", "its rank", "copying"],
        [
            [
                named(row["head"]),
                named(row["strongest"]),
                f"{row['strongest score']:.3f}",
                f"{row['score']:.3f}",
                f"{row['rank']} of {row['writers']}",
                f"{row['copying']:+.2f}",
            ]
            for row in weights["rows"]
        ],
    )
    agree = sum(row["rank"] == 1 for row in weights["rows"])
    edge = weights["strongest"]
    negative = sum(row["copying"] < 0 for row in weights["rows"])
    yield (
        f"Random matrices have {weights['expected']:.3f}. For {agree} of {len(weights['rows'])} "
        f"induction heads, {writer} is the strongest writer, and over the earlier heads the mean "
        "score agrees in rank with the effect of the path (Spearman's correlation "
        f"{weights['correlation']:.2f}, p = {weights['p']:.1g}). The weights do not show "
        "how much more it matters, though: the scores of several heads are close to each other "
        "where the effects are far apart. And looking for the strongest edge of the whole model "
        "would not have found the circuit: that "
        f"is {edge['writer_layer']}.{edge['writer_head']} into "
        f"{edge['reader_layer']}.{edge['reader_head']}, with {edge['score']:.2f}."
    )
    yield (
        "The *copying* score is the sum of the eigenvalues of W_E W_V W_O W_U over the sum of "
        f"their sizes: 1 for a head that raises the logit of what it attends to. It is negative "
        f"for {negative} of {len(weights['rows'])} heads, although they do raise it (below). "
        "The score supposes that a head reads the embeddings; these read what three layers have "
        "made of them. Here, the weights alone would have misled."
    )


def knockout_section(knockout: dict[str, Any], heads: dict[str, Any]) -> Iterator[str]:
    """Knockout of attention."""
    yield "## What happens if they may not look"
    yield (
        "Knockout forbids the last position to attend to a group of positions (Geva et al. 2023), "
        "in the clean text, in one head or in all heads of a layer."
    )
    yield _code('fa.patch(model, pairs, fa.PatchRequest(method="knockout", positions="segment"))')
    yield _code(
        "flaxattn patch pairs.csv --model tiny-gpt2 --method knockout --positions segment "
        "--by layer --out KNOCKOUT",
        "sh",
    )
    rows = [
        *(["layer", str(row["layer"]), row] for row in knockout["layer"][:5]),
        *(["head", named((row["layer"], row["head"])), row] for row in knockout["head"][:7]),
    ]
    yield table(
        ["hidden from", "number", "positions", "effect [95% interval]", "causal"],
        [
            [
                *words,
                row["positions"],
                interval(row["effect"], row["low"], row["high"]),
                "yes" if row["causal"] else "no",
            ]
            for *words, row in rows
        ],
    )
    layer = heads[INDUCTION][0][0]
    row = next(r for r in knockout["layer"] if (r["layer"], r["positions"]) == (layer, "after"))
    alone = [
        abs(r["effect"])
        for r in knockout["head"]
        if [r["layer"], r["head"]] in heads[INDUCTION] and r["positions"] == "after"
    ]
    yield (
        f"If all heads of layer {layer} are blind to the words behind the exchanged ones, the "
        f"logit difference of {knockout['clean']:+.1f} changes by {row['effect']:+.1f}. A single "
        f"induction head changes it by {max(alone):.1f} at most: the others do the same work. Most "
        "of the other rows are not explained by the circuit above. The last position also depends "
        "on what heads of earlier layers read there, and what these contribute is not shown here."
    )


def contributions_section(found: dict[str, Any]) -> Iterator[str]:
    """Direct contributions to logits."""
    yield "## What the induction heads add to the answer"
    yield (
        "The logit of a token is a sum over heads and layers. We take texts of random words that "
        "are repeated once, and compare what each part adds to the logit of the next word in the "
        "repetition with what it adds to the same word the first time, when it cannot be known."
    )
    yield _code(
        'texts = [" ".join(["", *draw.sample(words, 10)]) * 2 for _ in range(4)]\n'
        "trace = model.trace(texts, predictions=1)\n"
        "fa.logit_contributions(model, trace).predictions.heads  # [B, T, L, H]"
    )
    means = np.asarray(found["means"])
    heads = [
        [int(n) for n in np.unravel_index(place, means.shape)]
        for place in np.argsort(-np.abs(means), axis=None)[:7]
    ]
    yield table(
        ["part", "change of the logit [95% interval]"],
        [
            *([f"head {named(head)}", at(found, head)] for head in heads),
            ["the induction heads together", interval(*found["induction"])],
            ["all other heads together", interval(*found["others"])],
            *(
                [f"feed-forward layer {layer}", f"{change:+.2f}"]
                for layer, change in enumerate(found["feed forward"])
            ),
            ["the logit", interval(*found["logit"])],
        ],
    )
    first, again = found["probability"]
    share = found["induction"][0] / found["logit"][0]
    yield (
        f"The mean probability of the next word rises from {first:.5f} to {again:.3f}. The "
        f"induction heads add {share:.0%} of the change of the logit directly. What the "
        "feed-forward layers add behind them is theirs in this account, though they can only know "
        "the word from a head."
    )


def losses_section(facts: dict[str, Any]) -> Iterator[str]:
    """Losses without heads."""
    losses, heads = facts["losses"], facts["detected"]["heads"]
    yield "## What is lost without them"
    yield (
        "We silence heads (their output is zero) and measure the mean loss, in nats for each word, "
        "on both halves of the same texts."
    )
    count = losses["random heads"]
    rows = [["all heads", *(f"{losses[half]['loss']:.2f}" for half in ("second", "first"))]]
    rows += [
        [
            f"without {listed(heads[kind])} ({kind})",
            *(interval(*losses[half]["rise"][kind]) for half in ("second", "first")),
        ]
        for kind in (INDUCTION, PREVIOUS)
    ]
    draws = [losses[half]["random"] for half in ("second", "first")]
    rows.append(
        [
            f"without {count} random heads of the others: mean, least, most",
            *(" / ".join(f"{x:+.2f}" for x in each) for each in draws),
        ]
    )
    yield table(["", "the repetition", "the first time"], rows)
    alone = np.asarray(losses["alone"])
    layer, head = np.unravel_index(alone.argmax(), alone.shape)
    yield (
        f"There are {facts['settings']['sets']} random sets, of heads that are neither induction "
        f"nor previous-token heads. {losses['harmful']} of them cost more than half of what the "
        f"induction heads cost; the worst is {listed(losses['worst'])}. By itself, "
        f"the head that is missed most on the repetition is {layer}.{head}, with "
        f"{alone.max():+.2f} nats."
    )


def limits_section(facts: dict[str, Any]) -> Iterator[str]:
    """Limits of all this."""
    yield "## What is not shown"
    yield (
        "* All pairs and repeated texts are random words. In a sentence the same heads look back "
        "less (see the table above); how much of the loss on ordinary text they save is not "
        "measured here.\n"
        "* The model was trained on repeated spans besides novels, in order to have such heads. "
        "That it has them says nothing about how they come about elsewhere.\n"
        "* The pairs exchange what stands before the answers. What the values of the induction "
        "heads carry, and how it becomes a logit in the last feed-forward layer, is not taken "
        "apart.\n"
        "* Silencing a head by zeros takes it to a state that it never has; the change of the "
        "loss on the first half shows how much of the damage is not about repetition.\n"
        "* Effects of single heads do not add up to the effect of all of them."
    )
