# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A small treebank of our own: sentences with dependency trees, made from templates.

It lets roles and probes be tried without a download. Sentences are grammatical and dull; what is
measured on them holds for sentences of these forms, not for language.
"""

import random
from collections.abc import Sequence

from flaxattn.errors import InputError, check_arguments

_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "the": ("DET", ("the", "the", "a", "every", "this")),
    "old": ("ADJ", ("old", "young", "poor", "strange", "little", "great", "good", "dark")),
    "very": ("ADV", ("very", "rather", "too", "so")),
    "man": ("NOUN", ("man", "woman", "boy", "captain", "doctor", "king", "lady", "horse", "dog")),
    "house": ("NOUN", ("house", "garden", "street", "room", "village", "church", "town")),
    "he": ("PRON", ("he", "she", "they", "we")),
    "who": ("PRON", ("who",)),
    "saw": ("VERB", ("saw", "followed", "found", "watched", "knew", "left", "heard", "met")),
    "slept": ("VERB", ("slept", "laughed", "waited", "came", "spoke", "stood")),
    "slowly": ("ADV", ("slowly", "suddenly", "quietly", "often", "never")),
    "in": ("ADP", ("in", "near", "behind", "before")),
    "of": ("ADP", ("of", "from")),
    "and": ("CCONJ", ("and", "or")),
    "when": ("SCONJ", ("when", "because", "while")),
    ",": ("PUNCT", (",",)),
    ".": ("PUNCT", (".",)),
}
# Word class, number of the governor from 1, relation; 0 is the root.
_TEMPLATES = (
    "the/2/det man/3/nsubj slept/0/root slowly/3/advmod ./3/punct",
    "the/3/det old/3/amod man/4/nsubj saw/0/root the/6/det man/4/obj ./4/punct",
    "he/2/nsubj saw/0/root the/5/det old/5/amod man/2/obj in/8/case the/8/det house/2/obl "
    "./2/punct",
    "in/3/case the/3/det house/6/obl the/5/det man/6/nsubj slept/0/root ./6/punct",
    "the/2/det man/7/nsubj who/4/nsubj saw/2/acl:relcl the/6/det man/4/obj slept/0/root "
    "slowly/7/advmod ./7/punct",
    "he/3/nsubj slowly/3/advmod saw/0/root the/5/det man/3/obj of/8/case the/8/det house/5/nmod "
    "./3/punct",
    "the/2/det man/6/nsubj and/5/cc the/5/det man/2/conj saw/0/root the/9/det old/9/amod man/6/obj "
    "./6/punct",
    "when/3/mark he/3/nsubj slept/8/advcl ,/3/punct the/6/det man/8/nsubj slowly/8/advmod "
    "saw/0/root the/10/det man/8/obj ./8/punct",
    "he/2/nsubj saw/0/root the/4/det man/2/obj and/6/cc slept/2/conj slowly/6/advmod ./2/punct",
    "the/4/det very/3/advmod old/4/amod man/5/nsubj slept/0/root in/8/case the/8/det house/5/obl "
    "./5/punct",
)


@check_arguments()
def sample_treebank(sentences: int = 200, seed: int = 0) -> str:
    """Make sentences with dependency trees, as the text of a CoNLL-U file.

    Ten templates are filled with common words: subjects, objects, adjectives, adverbs, relative
    clauses and the like, with tags and relations of Universal Dependencies.

    >>> import flaxattn as fa
    >>> print(fa.sample_treebank(1).splitlines()[1])
    # text = Every man or this horse heard a dark king.

    Args:
        sentences: Number of different sentences.
        seed: Random seed of templates and words. Different seeds may share sentences.

    Returns:
        CoNLL-U, to be written to a file whose name ends in `.conllu`.

    Raises:
        InputError: If there are fewer than 1 or more than 10,000 sentences.
    """
    if not 1 <= sentences <= 10_000:
        raise InputError(
            f"sample_treebank was asked for {sentences} sentences\n"
            "its templates make 1 to 10,000 different ones\nchoose a number between them"
        )
    pick = random.Random(seed)
    blocks: dict[str, str] = {}
    while len(blocks) < sentences:
        rows = [row.rsplit("/", 2) for row in pick.choice(_TEMPLATES).split()]
        forms = [pick.choice(_WORDS[kind][1]) for kind, _, _ in rows]
        forms[0] = forms[0].capitalize()
        text = " ".join(forms).replace(" ,", ",").replace(" .", ".")
        if text not in blocks:
            blocks[text] = _block(text, forms, rows, len(blocks) + 1)
    return "".join(blocks.values())


def _block(text: str, forms: list[str], rows: Sequence[Sequence[str]], number: int) -> str:
    """One sentence with its tree, and a blank line."""
    lines = [f"# sent_id = sample-{number}", f"# text = {text}"]
    for place, (form, (kind, governor, relation)) in enumerate(zip(forms, rows, strict=True), 1):
        following = forms[place] if place < len(forms) else "."
        note = "SpaceAfter=No" if following in (",", ".") else "_"
        tag = _WORDS[kind][0]
        fields = (place, form, form.lower(), tag, "_", "_", governor, relation, "_", note)
        lines.append("\t".join(map(str, fields)))
    return "\n".join([*lines, "", ""])
