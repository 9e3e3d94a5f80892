# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A page is one safe, offline file; it is saved whole or not at all; bad requests are explained."""

import base64
import hashlib
import html
import json
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from page_payload import decode_weights, payload_of

from flaxattn.errors import InputError
from flaxattn.files import readable_size
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page, build_page
from flaxattn.views.trace_views import head_view

# Linear RGB under the three kinds of dichromacy (Machado et al. 2009, severity 1), row by row.
SIGHT = {
    "normal": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "no red": [0.152, 1.053, -0.205, 0.115, 0.786, 0.099, -0.004, -0.048, 1.052],
    "no green": [0.367, 0.861, -0.228, 0.280, 0.673, 0.047, -0.012, 0.043, 0.969],
    "no blue": [1.256, -0.077, -0.179, -0.078, 0.931, 0.148, 0.005, 0.691, 0.304],
}


class Reader(HTMLParser):
    """Collects the text inside each kind of element, by tag and class."""

    def __init__(self) -> None:
        super().__init__()
        self.found: defaultdict[str, str] = defaultdict(str)
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.inside = f"{tag} {dict(attrs).get('class', '')}".strip()

    def handle_data(self, data: str) -> None:
        self.found[self.inside] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def parts(document: str) -> dict[str, str]:
    """Text of a document by tag and class."""
    reader = Reader()
    reader.feed(document)
    return reader.found


def bytes_of_steps(rows: int, keys: int) -> int:
    """Bytes of weights in eleven bits each, with a maximum of two bytes for each row."""
    return 2 * rows + rows * keys + -(-3 * rows * keys // 8)


class TestDocument:
    def test_it_is_a_whole_document(self, pair):
        page = head_view(pair.trace)
        assert page.html.startswith(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
        )
        assert page.title == "Attention heads · tiny-bert"
        assert parts(page.html)["title"].startswith(page.title)

    def test_the_policy_allows_exactly_its_own_script_and_style(self, pair):
        document = head_view(pair.trace).html
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)[1]
        for tag in ("script", "style"):
            text = re.search(rf"<{tag}>(.*?)</{tag}>", document, re.DOTALL)[1]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy

    def test_it_names_no_address(self, pair):
        assert not re.search(r"https?:|//[a-z]+\.", head_view(pair.trace).html)

    def test_it_says_what_is_wrong_where_scripts_do_not_run(self, pair):
        message = parts(head_view(pair.trace).html)["p failure"]
        assert message.startswith("This page draws attention with JavaScript, which did not run.")

    def test_the_same_trace_gives_the_same_bytes(self, pair):
        assert head_view(pair.trace).html == head_view(pair.trace).html

    def test_hostile_names_end_no_element_and_fill_no_slot(self):
        evil = "</title></script></style>@{script}@{nothing}\x00<!--"
        page = build_page({"a": evil}, title=evil, summary="", height=1)
        for tag in ("title", "script", "style"):
            assert page.html.count(f"</{tag}>") == (2 if tag == "script" else 1)
        found = parts(page.html)
        assert json.loads(found["script flaxattn-payload"])["a"] == evil
        assert "<!--" not in page.html
        assert found["title"].startswith("</title></script></style>@{script}@{nothing}␀<!--")

    def test_pairs_and_repeats_add_no_weights(self, pair):
        payload = payload_of(head_view(pair.trace))
        assert payload["inputs"][0]["texts"]["source"]["boundary"] == pair.boundary
        raw = bytes_of_steps(3 * pair.length, pair.length)
        stored = [n for n in payload["blocks"] if "/weights/" in n]
        assert [len(payload["blocks"][n]) for n in stored] == [raw, raw]

    def test_padding_stays_out(self, peaked):
        mask = np.arange(5)[None] < 3
        trace = Trace.from_arrays(peaked(1, 2, 5), [["a", "b", "c", "[PAD]", "[PAD]"]], mask=mask)
        payload = payload_of(head_view(trace))
        assert payload["inputs"][0]["texts"]["source"]["tokens"] == ["a", "b", "c"]
        assert len(payload["blocks"]["0/encoder/weights/0"]) == bytes_of_steps(2 * 3, 3)

    def test_captured_bytes_are_shares(self, pair):
        shares = np.rint(255 * np.asarray(pair.trace.encoder.weights)).astype(np.uint8)
        payload = payload_of(head_view(Trace.from_arrays(shares, [pair.tokens])))
        stored = decode_weights(
            payload["blocks"]["0/encoder/weights/0"], "uint11", (3, pair.length, pair.length)
        )
        assert stored == pytest.approx(pair.shares[0], abs=0.003)


class TestPage:
    def test_without_compression_it_holds_the_same(self, pair):
        page = head_view(pair.trace)
        plain = page.decompressed()
        assert payload_of(page)["compressed"] and not payload_of(plain)["compressed"]
        assert payload_of(plain)["blocks"] == payload_of(page)["blocks"]
        assert plain.decompressed().html == plain.html
        assert (
            page.html.partition("flaxattn-payload")[0]
            == plain.html.partition("flaxattn-payload")[0]
        )

    def test_it_is_short_in_words(self, pair):
        page = head_view(pair.trace)
        size = readable_size(len(page.html))
        assert repr(page) == f"Page(head view: 13 tokens, 2 layers x 3 heads, uint11, {size})"
        assert "uint8" in repr(head_view(pair.trace, precision="uint8"))

    def test_a_notebook_gets_it_in_a_sandboxed_frame(self, pair):
        page = head_view(pair.trace)
        frame = page._repr_html_()
        assert page.__html__() == frame
        assert re.fullmatch(r'<iframe [^<>]*srcdoc="[^"<>]*"></iframe>', frame)
        assert 'sandbox="allow-scripts allow-downloads"' in frame
        assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == page.html

    def test_saving_replaces_the_file_and_leaves_nothing_else(self, tmp_path):
        target = tmp_path / "page.html"
        target.write_text("old")
        assert Page("t", "<p>ü</p>\n", "s").save(str(target)) == target
        assert target.read_bytes() == "<p>ü</p>\n".encode()
        assert list(tmp_path.iterdir()) == [target]

    def test_a_failed_save_leaves_the_old_file(self, tmp_path, monkeypatch):
        target = tmp_path / "page.html"
        target.write_text("old")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            Page("t", "new", "s").save(target)
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("", "is a folder"), ("no/page.html", "is in a folder that does not exist")],
    )
    def test_where_it_cannot_be_saved(self, tmp_path, name, reason):
        target = tmp_path / name
        with pytest.raises(InputError) as caught:
            Page("t", "x", "s").save(target)
        assert str(caught.value) == (
            f"Cannot write a page: {str(target)!r} {reason}.\n"
            "Give a file name in a folder that exists."
        )


class TestRequests:
    @pytest.mark.parametrize(
        ("request_", "message"),
        [
            ({"layer": 7}, "There is no layer 7.\nThere are layers 0, 1."),
            ({"heads": [0, 3]}, "There is no head 3.\nThere are heads 0, 1, 2."),
            ({"heads": []}, "No head was requested.\nThere are heads 0, 1, 2."),
            ({"include_layers": [1], "layer": 0}, "There is no layer 0.\nThere are layers 1."),
            ({"sequence": 1}, "The trace has sequences 0 to 0; there is no 1."),
            ({"theme": "pink"}, 'Unknown theme \'pink\'.\nUse "auto", "light" or "dark".'),
        ],
    )
    def test_what_is_not_there_is_named(self, pair, request_, message):
        with pytest.raises(InputError) as caught:
            head_view(pair.trace, **request_)
        assert str(caught.value) == message

    def test_a_trace_without_weights_says_what_to_capture(self):
        trace = Trace.from_arrays(tokens=[["a", "b"]], stats={"entropy": np.zeros((1, 1, 2, 2))})
        with pytest.raises(InputError) as caught:
            head_view(trace)
        assert str(caught.value) == (
            "A view draws attention weights; this trace holds only entropy.\n"
            "Capture them: model.trace(text, capture=fa.Capture(weights=True))."
        )

    @pytest.mark.parametrize(("value", "spoken"), [(-1, "-1 to 0"), (2, "0 to 2")])
    def test_numbers_that_are_no_shares_are_refused(self, value, spoken):
        scores = np.zeros((1, 1, 1, 2, 2), np.float32)
        scores[..., 0, 0] = value
        with pytest.raises(
            InputError, match=f"range from {spoken}.\nApply the softmax over keys first"
        ):
            head_view(Trace.from_arrays(scores, [["a", "b"]]))

    def test_numbers_of_layers_and_heads_are_the_models(self, peaked):
        trace = Trace.from_arrays(peaked(2, 2, 3), [list("abc")], layers=[8, 10], heads=[3, 5])
        payload = payload_of(head_view(trace, layer=10, heads=[5]))
        (side,) = payload["inputs"][0]["sides"]
        assert (side["layers"], side["heads"]) == ([8, 10], [3, 5])
        assert payload["start"] == {
            "level": "head",
            "sequence": 0,
            "side": "encoder",
            "layer": 10,
            "heads": [5],
            "mass": 100,
            "theme": "auto",
        }


class TestColours:
    @pytest.mark.parametrize("theme", ["light", "dark"])
    @pytest.mark.parametrize("sight", SIGHT)
    def test_sixteen_heads_can_be_distinguished(self, theme, sight, repository: Path):
        style = (repository / "flaxattn/views/assets/view.css").read_text(encoding="utf-8")
        colours = re.findall(r"--head-\d+: #(\w{6});", style)
        assert len(colours) == 32
        chosen = colours[:16] if theme == "light" else colours[16:]
        encoded = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in chosen]) / 255
        linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
        seen = np.clip(linear @ np.reshape(SIGHT[sight], (3, 3)).T, 0, 1)
        places = oklab(seen)
        apart = np.linalg.norm(places[:, None] - places, axis=-1)[~np.eye(16, dtype=bool)]
        assert apart.min() > 0.06

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_colours_of_heads_stand_out_from_the_paper(self, theme, repository: Path):
        style = (repository / "flaxattn/views/assets/view.css").read_text(encoding="utf-8")
        part = style.split(':root[data-theme="dark"]')[theme == "dark"]
        (paper,) = re.findall(r"--paper: #(\w{6});", part)
        colours = re.findall(r"--(?:head-\d+|backdrop): #(\w{6});", part)
        assert len(colours) == 17
        for colour in colours:
            of_a_half = "".join(  # a line of weight 0.5 has an opacity of 0.9
                f"{round(0.9 * int(colour[i : i + 2], 16) + 0.1 * int(paper[i : i + 2], 16)):02x}"
                for i in (0, 2, 4)
            )
            low, high = sorted(map(luminance, (of_a_half, paper)))
            assert (high + 0.05) / (low + 0.05) >= 3, colour


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    encoded = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def oklab(linear: np.ndarray) -> np.ndarray:
    """Linear RGB in a space where distance is what people see (Ottosson 2020)."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    lab = np.array(
        [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    )
    return np.cbrt(linear @ cones.T) @ lab.T
