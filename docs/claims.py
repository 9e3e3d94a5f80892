# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Write `claims.md`: what is taught about attention, where to see it here, and the figure we get.

    python docs/claims.py

Every figure is read from the kept outputs of a tutorial, or from a page of results that a script
made; a claim whose figure is no longer there stops the script.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent


class Claim(NamedTuple):
    """A row of the page.

    Attributes:
        text: What is taught, with its source.
        figure: What we get, with `{0}`, `{1}` for the groups of the pattern.
        pattern: Finds the figure.
        verdict: Whether we see it too: "yes", "in part" or "no".
    """

    text: str
    figure: str
    pattern: str
    verdict: str = "yes"


SOURCES: dict[str, tuple[Claim, ...]] = {
    "tutorials/query_key_value.ipynb": (
        Claim(
            "A head is softmax(QKᵀ/√D) V with three matrices (Vaswani et al. 2017).",
            "by hand in NumPy and in the model, the output of a head differs by at most {0}",
            r"output of the head \| ([\d.e-]+)",
        ),
        Claim(
            "With Q = K relevance is symmetric; separate matrices let a token look elsewhere.",
            "asymmetry of the scores {0} with W_K = W_Q, {2} with both matrices; weight on the "
            "token itself {1} and {3}",
            r"W_K = W_Q \| ([\d.]+) \| (\d+%).*?W_Q and W_K \| ([\d.]+) \| (\d+%)",
        ),
        Claim(
            "Context moves the two meanings of “bank” apart, layer by layer.",
            "gap between the meanings {0} in the embeddings (chance {1}), {2} after layer 3 "
            "(chance {3})",
            r"embeddings \| ([\d.]+) \| ([\d.]+) \| no.*layer 3 \| ([\d.]+) \| ([\d.]+) \| yes",
        ),
    ),
    "tutorials/rise_of_attention.ipynb": (
        Claim(
            "An encoder-decoder with one vector between loses long sources; attention does not "
            "(Bahdanau et al. 2015).",
            "at 12 letters {0} are copied right with one vector, {1} with attention",
            r"at 12 letters \*\*(\d+%)\*\* and \*\*(\d+%)\*\*",
        ),
        Claim(
            "Additive attention aligns what is written with what was read.",
            "in {0} of the steps the largest weight is on the letter that is written",
            r"In (\d+%) of the steps the largest weight",
        ),
        Claim(
            "A causal mask hides later tokens, a padding mask padding.",
            "all {0} weights on later tokens are 0; padding changes the others by at most {1}",
            r"All (\d+) weights on later tokens are exactly 0.*differ by at most ([\d.e-]+)",
        ),
        Claim(
            "Sinusoids have fast and slow dimensions; positions are added to words.",
            "the eight fastest span {0} of 2 over the positions shown, the eight slowest {1}",
            r"fastest sines span ([\d.]+) on average.*slowest span ([\d.]+\d)",
        ),
        Claim(
            "The raw [CLS] vector is a poor vector of a sentence (Reimers & Gurevych 2019).",
            "rank correlation with ratings of pairs: [CLS] {0}, mean {1}, weighted mean {2}",
            r"\[CLS\], last layer \| ([\d.]+).*mean, last layer \| ([\d.]+).*"
            r"weighted mean, last layer \| ([\d.]+)",
        ),
    ),
    "tutorials/seeing_bert.ipynb": (
        Claim(
            "Heads attend to the next and to the previous token (Vig 2019, patterns 1 and 2).",
            "{0} heads for the next and {1} for the previous token; none in a model with random "
            "weights",
            r"next token \| (\d+) \| 0 \|\n\| previous token \| (\d+) \| 0",
        ),
        Claim(
            "Heads attend to identical or related words, to the other text, or to a bag of words "
            "(Vig 2019, patterns 3, 4 and 6).",
            "no head passes the thresholds: {0}",
            r"Patterns that no head has here: ([^.]+)",
            "no",
        ),
        Claim(
            "Heads attend to [SEP] where they have nothing to do (Vig 2019; Clark et al. 2019).",
            "in the last layer delimiters get {0} of the weight",
            r"delimiters get (\d+%) of the weight",
        ),
        Claim(
            "[SEP] gets weight, but its values are small (Kobayashi et al. 2020).",
            "{1} of the norm for {0} of the weight: not in this small model",
            r"delimiters get (\d+%) of the weight and (\d+%) of the norm",
            "no",
        ),
        Claim(
            "A few neurons of query and key make [SEP] what it is (Vig 2019).",
            "the five strongest give {1} of a difference of {0}, and {2} of 64 push the same way",
            r"is \*\*([\d.]+)\*\* above that of the words.*neurons give ([\d.]+) of it, and "
            r"(\d+) of 64",
            "in part",
        ),
        Claim(
            "A head finds what a pronoun means (Vig 2019; Clark et al. 2019).",
            "the best of 16 heads is right in {0}, no more than the best of 32 coins",
            r"right in (\d+%) of 24 sentences",
            "no",
        ),
    ),
    "tutorials/heads_hypothesis.ipynb": (
        Claim(
            "Heads have roles: local, syntactic, delimiter, block (Pande et al. 2021).",
            "of 16 heads {2} have a syntactic role, {1} have none",
            r"Of 16 heads, (\d+) have more than one role and (\d+) have none. (\d+) heads",
        ),
        Claim(
            "Roles overlap: many heads have several (Pande et al. 2021).",
            "{0} of 16 heads have more than one",
            r"Of 16 heads, (\d+) have more than one role",
        ),
        Claim(
            "Syntactic heads follow syntax.",
            "{1} of {0} put most of their attention on a neighbour, which position explains",
            r"(\d+) heads have a syntactic role; (\d+) of these put most",
            "in part",
        ),
        Claim(
            "A head with more than uniform attention on a set of keys has a role.",
            "random weights earn {0} such roles at τ = 1, and {1} at τ = 3",
            r"\| 1 \| \d+ \| (\d+) \| \d+ \|.*\| 3 \| \d+ \| (\d+) \| \d+ \|",
            "no",
        ),
        Claim(
            "Fine-tuning changes the last layers most (Kovaleva et al. 2019).",
            "mean divergence {0} nats in layer 0, {1} in layer 3",
            r"layer 0: ([\d.]+\d), .*layer 3: ([\d.]+\d)",
        ),
    ),
    "tutorials/views_and_probes.ipynb": (
        Claim(
            "Attention heads together are a parser (Clark et al. 2019).",
            "right for {0} of {1} words, selectivity {2} points",
            r"right for (\d+%) of ([\d,]+) words, selectivity (\d+) points",
        ),
        Claim(
            "Hidden states hold syntax trees (Hewitt & Manning 2019).",
            "{0} of the edges, {1} with random weights",
            r"finds (\d+%) of the edges.*\*random weights\* finds (\d+%)",
            "in part",
        ),
        Claim(
            "Single heads find dependency relations (Clark et al. 2019).",
            "for {1} of {0} relations a head beats a fixed distance by more than five points",
            r"Of (\d+) relations, a head beats .* for \*\*(\d+)\*\*",
            "in part",
        ),
        Claim(
            "Probes need control tasks (Hewitt & Liang 2019).",
            "parts of speech: {0} right in the last state, selectivity {1}",
            r"\| 4 \| ([\d.]+%) \| ([\d.]+%)",
        ),
    ),
    "tutorials/gpt2_attends.ipynb": (
        Claim(
            "Decoders park attention on the first token (Xiao et al. 2024).",
            "head 3.3 gives it {0}",
            r"Head 3.3 gives (\d+%) to the first token",
        ),
        Claim(
            "A small model learns a text of your own.",
            "perplexity on held-out lines {0} before, {2} after {1} updates",
            r"perplexity of ([\d.]+); after (\d+) updates it is ([\d.]+\d)",
        ),
        Claim(
            "The head that changed most is the one that matters.",
            "head {0} moved most, head {1} carries {2} of the effect",
            r"Head (\d\.\d) moved most.*\| (\d\.\d) \| \+[\d.]+ \| [^|]+ \| (9\d%) \|",
            "no",
        ),
    ),
    "induction.md": (
        Claim(
            "Induction heads look at what followed the token before (Olsson et al. 2022).",
            "{0}: {1}",
            r"score of 0\.5 or more \| holds \| (\d+ heads): ([^|]+?) \|",
        ),
        Claim(
            "A previous-token head feeds them through their keys (Elhage et al. 2021).",
            "head 2.2: {0} of the logit difference through the keys, {1} through queries",
            r"\| 2\.2 \| (\+[\d.]+) \[[^]]+\] \| \d+% \| (\+[\d.]+)",
        ),
        Claim(
            "Eigenvalues of the OV circuit show that induction heads copy (Elhage et al. 2021).",
            "the copying score is negative for {0} heads, although they do copy",
            r"It is negative for (\d+ of \d+) heads",
            "no",
        ),
    ),
}


def read(path: Path) -> tuple[str, str]:
    """Title and text of a page, or of a notebook and of its outputs."""
    if path.suffix != ".ipynb":
        text = path.read_text(encoding="utf-8")
        return title_of(text), text
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    outputs = [one.get("data", {}) for cell in cells for one in cell.get("outputs", ())]
    parts = [data.get("text/markdown", data.get("text/plain", "")) for data in outputs]
    return title_of(prose), "\n".join("".join(part) for part in parts)


def title_of(text: str) -> str:
    """The first heading of a Markdown text."""
    return next(line[2:] for line in text.splitlines() if line.startswith("# "))


def figure_of(claim: Claim, text: str, where: str) -> str:
    """The figure of a claim in a text.

    Raises:
        LookupError: The text has no such figure.
    """
    match = re.search(claim.pattern, text, flags=re.DOTALL)
    if match is None:
        raise LookupError(f"{where} no longer shows the figure of: {claim.text}")
    return claim.figure.format(*match.groups())


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# What is taught about attention, and what we see",
        "",
        "`python docs/claims.py` writes this page. Figures are those of the tutorials and pages "
        "named, all on the small models that come with the library; a *no* speaks about these "
        "models, not about larger ones.",
    ]
    for where, claims in SOURCES.items():
        title, text = read(DOCS / where)
        lines += ["", f"## [{title}]({where})", "", "| claim | here | figure |", "|---|---|---|"]
        lines += [
            f"| {one.text} | {one.verdict} | {figure_of(one, text, where)} |" for one in claims
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "claims.md").write_text(page(), encoding="utf-8")
