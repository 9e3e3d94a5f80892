# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn patch` writes what `fa.patch` finds, and refuses tables and options it cannot use."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import flaxattn as fa
from flaxattn.attribution.patch_effects import PatchReport

TEXT = "the old {0} and the {1} were happy . the old {0} and the"
WORDS = ("king", "lady", "girl", "horse", "dog", "house", "river", "man", "woman", "boy", "door")
WORDS += ("garden", "tree", "child")
HEADER = "clean,corrupted,answer,wrong"


def rows() -> list[tuple[str, str, str, str]]:
    turned = [WORDS[n:] + WORDS[:n] for n in range(len(WORDS))]
    return [(TEXT.format(w[0], w[1]), TEXT.format(w[0], w[2]), w[1], w[2]) for w in turned]


PAIRS = [fa.TextPair(*row, source=f"pairs.csv:{n}") for n, row in enumerate(rows(), 2)]


def table(*lines: str) -> str:
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    files = {
        "pairs.csv": table(HEADER, *(",".join(row) for row in rows())),
        "empty.csv": table(HEADER),
        "plain.csv": table("clean,corrupted,answer", *(",".join(row[:3]) for row in rows())),
        "longer.csv": table(HEADER, "the cat,the old cat,a,b", "the cat,the dog,a,b"),
        "single.csv": table(HEADER, "the cat,the dog,a,b"),
        "blank.csv": table(HEADER, "the cat,the dog,,b", *(",".join(row) for row in rows())),
        "years.csv": table(
            f"{HEADER},begun",
            *(f"0{a}.11.1985,0{b}.11.1985,{a},{b},1985-11-0" for a, b in ((1, 4), (4, 7), (7, 1))),
        ),
        "texts.txt": table("the cat"),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model() -> Any:
    return fa.from_pretrained("tiny-gpt2")


def check(report: Path, found: PatchReport) -> list[dict[str, Any]]:
    """The table of a report has the numbers of Python; return it."""
    written = pq.read_table(report / "patch.parquet").to_pylist()
    expected = list(found.rows())
    assert len(written) == len(expected) == sum(e.means.size for e in found.effects)
    for row, one in zip(written, expected, strict=True):
        assert row.keys() == one.keys()
        for name, value in one.items():
            if isinstance(value, float):
                value = pytest.approx(value, abs=1e-5) if np.isfinite(value) else None
            assert row[name] == value, name
    return written


@pytest.mark.slow
def test_a_report_has_the_numbers_of_python(run: Any, model: Any, tmp_path: Path) -> None:
    words = ("--metric", "logit", "--correction", "holm", "--seed", "3", "--controls", "4")
    code, out, err = run("patch", "pairs.csv", *words)
    assert code == 0, err
    request = fa.PatchRequest(metric="logit")
    found = fa.patch(model, PAIRS, request, correction="holm", seed=3, controls=4)
    report = tmp_path / "report"
    written = check(report, found)
    (effects,) = found.effects
    for row in written:
        place = row["layer"], row["head"], 0
        assert row["effect"] == pytest.approx(effects.each[place].mean(), abs=1e-5)
        assert row["causal"] == (row["p_corrected"] <= 0.05)
    assert {row["causal"] for row in written} == {True, False}
    assert f"decoder: {effects.causal.sum()} of 24 causal (p at most 0.05, holm)" in out
    pairs = pq.read_table(report / "pairs.parquet").to_pandas()
    assert len(pairs) == 24 * len(PAIRS)
    one = pairs[(pairs.layer == 3) & (pairs["head"] == 4) & (pairs.pair == 2)]
    assert one.effect.item() == pytest.approx(effects.each[3, 4, 0, 2], abs=1e-5)
    facts = fa.read_report(report / "patch.json")
    assert facts["flaxattn"] == fa.__version__ and facts["seed"] == 3
    assert facts["data"]["pairs"] == len(PAIRS)
    assert len(facts["data"]["files"][0]["sha256"]) == 64
    assert len(facts["fingerprint"]["parameters"]) == 64
    assert facts["settings"]["correction"] == "holm" and facts["settings"]["metric"] == "logit"
    assert facts["metric"]["clean"] == pytest.approx(found.clean.mean(), abs=1e-5)
    assert facts["metric"]["pairs"][2]["source"] == "pairs.csv:4"
    control = effects.control
    assert control is not None
    assert facts["effects"][0]["control"]["effect"] == pytest.approx(control.effect, abs=1e-5)
    assert (report / "patch.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_page_leads_from_causal_heads_to_the_pairs_that_show_them(
    run: Any, model: Any, tmp_path: Path
) -> None:
    code, _, err = run("patch", "pairs.csv", "--controls", "0", "--evidence", "2")
    assert code == 0, err
    facts = fa.read_report(tmp_path / "report" / "patch.json")
    (effects,) = fa.patch(model, PAIRS, controls=0).effects
    claims = facts["evidence"]["claims"]
    assert len(claims) == min(10, effects.causal.sum())
    for claim in claims:
        each = effects.each[claim["layer"], claim["head"], 0]
        order = np.argsort(-each * np.sign(each.mean()))[:2]
        assert [text["text"] for text in claim["texts"]] == order.tolist()
        assert [text["score"] for text in claim["texts"]] == pytest.approx(each[order], abs=1e-5)
    shown = facts["evidence"]["texts"][str(claims[0]["texts"][0]["text"])]
    assert shown["text"] in {pair.clean for pair in PAIRS}
    assert shown["text_b"] in {pair.corrupted for pair in PAIRS}
    page = (tmp_path / "report" / "patch.html").read_text(encoding="utf-8")
    assert "Effects of patching heads" in page and "activation effect" in page


@pytest.mark.slow
def test_first_order_effects_are_written_with_their_error(
    run: Any, model: Any, tmp_path: Path
) -> None:
    words = ("--method", "attribution", "--positions", "segment")
    code, out, err = run("patch", "pairs.csv", *words, "--no-page")
    assert code == 0, err
    found = fa.patch(model, PAIRS, fa.PatchRequest(method="attribution", positions="segment"))
    written = check(tmp_path / "report", found)
    checked = [row for row in written if row["patched"] is not None]
    assert len(checked) == 32 and "32 checked" in out
    exact = fa.patch(model, PAIRS, fa.PatchRequest(positions="segment"), controls=0).effects[0]
    for row in checked:
        place = row["layer"], row["head"], found.positions.index(row["positions"])
        assert row["patched"] == pytest.approx(exact.means[place], abs=1e-4)
        estimate = found.effects[0].each[place]
        error = np.abs(estimate - exact.each[place]).mean()
        assert row["approximation_error"] == pytest.approx(error, abs=1e-4)


@pytest.mark.slow
def test_layers_paths_and_mediation_are_reported(run: Any, model: Any, tmp_path: Path) -> None:
    words = ("--by", "layer", "--site", "layer_output", "--positions", "token")
    code, out, err = run("patch", "pairs.csv", *words, "--controls", "0", out="layers")
    assert code == 0, err
    request = fa.PatchRequest(by="layer", site="layer_output", positions="token")
    written = check(tmp_path / "layers", fa.patch(model, PAIRS, request, controls=0))
    assert {row["head"] for row in written} == {-1} and "decoder 3 at 13" in out
    assert not (tmp_path / "layers" / "patch.html").exists()
    words = ("--method", "path", "--receivers", "3.1,3.4", "--into", "value")
    code, out, err = run("patch", "pairs.csv", *words, "--controls", "0", out="path")
    assert code == 0, err
    request = fa.PatchRequest(method="path", receivers=((3, 1), (3, 4)), into=("value",))
    check(tmp_path / "path", fa.patch(model, PAIRS, request, controls=0))
    words = ("--method", "mediation", "--alpha", "0.5", "--correction", "none")
    code, out, err = run("patch", "pairs.csv", *words, out="both")
    assert code == 0, err
    rows = pq.read_table(tmp_path / "both" / "patch.parquet").to_pylist()
    assert {row["kind"] for row in rows} == {"indirect", "direct"}
    claims = fa.read_report(tmp_path / "both" / "patch.json")["evidence"]["claims"]
    assert {claim["name"] for claim in claims} == {"indirect effect"}


@pytest.mark.slow
def test_digits_of_a_target_continue_its_beginning(run: Any, tmp_path: Path) -> None:
    words = ("--model", "tiny-dates", "--prefix-column", "begun", "--controls", "0")
    code, _, err = run("patch", "years.csv", *words)
    assert code == 0, err
    facts = fa.read_report(tmp_path / "report" / "patch.json")
    assert [one["side"] for one in facts["effects"]] == ["encoder", "decoder", "cross"]
    assert facts["metric"]["clean"] > 3 > 0 > facts["metric"]["corrupted"]
    rows = pq.read_table(tmp_path / "report" / "patch.parquet").to_pylist()
    largest = max(rows, key=lambda row: abs(row["effect"]))
    assert largest["side"] == "cross" and largest["layer"] == 1


@pytest.mark.slow
def test_json_is_printed_for_programs(run: Any, tmp_path: Path) -> None:
    code, out, err = run("patch", "pairs.csv", "--limit", "2", "--no-page", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts == json.loads((tmp_path / "report" / "patch.json").read_text(encoding="utf-8"))
    assert facts["data"]["pairs"] == 2 and facts["settings"]["by"] == "head"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pairs.csv", "--metric", "accuracy"), "There is no metric 'accuracy'.\nChoose one of lo"),
        (("pairs.csv", "--positions", "word"), "There is no kind of positions 'word'.\nChoose one"),
        (("pairs.csv", "--by", "model"), "There is no unit to patch by 'model'.\nChoose one of he"),
        (("pairs.csv", "--correction", "fdr"), "There is no correction 'fdr'.\nChoose one of none"),
        (("pairs.csv", "--alpha", "5"), "alpha is 5.0, expected a number above 0 and at most 1."),
        (("pairs.csv", "--window", "2"), "window is 2 layers, expected an odd number from 1 on."),
        (("pairs.csv", "--receivers", "3"), "'3' is not a list of heads, layer.head, such as 3.1"),
        (("pairs.csv", "--into", "keys"), "'keys' is not one of query, key, value."),
        (("pairs.csv", "--side", "encoder"), "'tiny-gpt2' has no side encoder.\nIt has decoder."),
        (
            ("pairs.csv", "--method", "path", "--donor", "zero"),
            "The method path has the donor pair; received 'zero'.\nLeave donor out, or choose",
        ),
        (
            ("pairs.csv", "--method", "path", "--receivers", "9.0"),
            "There is no head 9.0 to receive a path: the decoder has layers 0 to 3 and heads 0 to",
        ),
        (
            (
                "years.csv",
                "--model",
                "tiny-dates",
                "--prefix-column",
                "begun",
                "--positions",
                "token",
            ),
            "Positions are those of the source; the side decoder has targets.\nChoose side encoder",
        ),
        (
            ("years.csv", "--model", "tiny-dates", "--prefix-column", "start"),
            "years.csv, line 1, column 'start': no such column; there are: clean, corrupted, answ",
        ),
        (
            ("plain.csv",),
            "plain.csv, line 1, column 'wrong': no such column; there are: clean, corrupted, answ",
        ),
        (
            ("longer.csv",),
            "longer.csv:2: the clean text has 2 tokens, the corrupted one 3.\nPatching goes posi",
        ),
        (("empty.csv",), "There is no pair of texts in empty.csv.\nName tables with the columns"),
        (("texts.txt",), "texts.txt, column 'corrupted': a text file has one column"),
        (("absent.csv",), "absent.csv: there is no such file"),
        (("blank.csv",), "blank.csv, line 2, column 'answer': the text is empty"),
        (
            ("single.csv",),
            "Patching needs two pairs or more, in batches of one or more; received 1",
        ),
        (
            ("pairs.csv", "--model", "tiny-bert"),
            "pairs.csv:2 has 0 masks in its clean text, expected one.\nPut [MASK] in place of",
        ),
    ],
)
def test_what_cannot_be_patched_is_refused(
    words: tuple[str, ...], message: str, run: Any, tmp_path: Path
) -> None:
    code, out, err = run("patch", *words)
    assert code == 2 and not out
    assert message in err
    assert len(err[err.index("error: ") :].strip().splitlines()) <= 3
    assert not (tmp_path / "report").exists()


@pytest.mark.slow
def test_a_bad_row_is_left_out_and_counted(run: Any, tmp_path: Path) -> None:
    code, _, err = run("patch", "blank.csv", "--on-error", "skip", "--controls", "0", "--no-page")
    assert code == 0, err
    data = fa.read_report(tmp_path / "report" / "patch.json")["data"]
    assert data["pairs"] == len(PAIRS) and data["left_out"] == {"empty": 1}
