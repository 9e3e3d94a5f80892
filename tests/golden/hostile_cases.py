# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every parser that reads bytes somebody else may have written: a valid file of each, and how it
is read. What is done to the files is in `mutations`.
"""

import base64
import functools
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import store_cases


class Parser(NamedTuple):
    """A parser and a file for it.

    Attributes:
        write: Writes valid files into a folder; the path of the one that is changed.
        read: Reads that file, and returns what it found.
        sealed: Whether the file carries checksums, so that whatever is read must be right.
        lines: Whether rows before the first changed byte must be as they were.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    sealed: bool = False
    lines: bool = False


TEXTS = ["The cat is sad.", "é 漢字, a 😀!", 'He said "no", twice.', "x", "a b c d e f", "last one"]
TREES = """# sent_id = one
# text = The dog's bark
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2-3\tdog's\t_\t_\t_\t_\t_\t_\t_\t_
2\tdog\tdog\tNOUN\tNN\tNumber=Sing\t4\tnmod:poss\t_\t_
3\t's\t's\tPART\tPOS\t_\t2\tcase\t_\t_
4\tbark\tbark\tNOUN\tNN\t_\t0\troot\t_\tSpaceAfter=No

# sent_id = two
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
1.1\tleft\tleave\tVERB\tVB\t_\t_\t_\t0:root\t_
2\tnow\tnow\tADV\tRB\t_\t1\tadvmod\t_\t_

"""


def tensors() -> dict[str, np.ndarray]:
    """Some arrays."""
    rng = np.random.default_rng(0)
    return {name: rng.random((3, 4), np.float32) for name in ("a.bias", "b.weight")}


def plain(value: Any) -> Any:
    """What can be compared with ==."""
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


# Tensors and what is said about them


def write_model(folder: Path, part: str = "model.safetensors") -> Path:
    from flaxattn.trace import tensor_file

    tensor_file.write(folder / "model.safetensors", tensors())
    if part != "model.safetensors":
        (folder / "model.safetensors").rename(folder / "part")
        (folder / part).write_text(json.dumps({"weight_map": dict.fromkeys(tensors(), "part")}))
    return folder / part


def read_model(path: Path) -> Any:
    from flaxattn.trace.tensor_file import TensorFiles

    files = TensorFiles(path.parent)
    return [(name, plain(files.read(name))) for name in sorted(files.shapes)]


def write_foreign_model(folder: Path) -> Path:
    import safetensors.numpy

    safetensors.numpy.save_file(tensors(), folder / "model.safetensors")
    return folder / "model.safetensors"


def write_config(kind: str, folder: Path) -> Path:
    import flaxattn as fa

    made = {
        "bert": lambda: fa.BertConfig(labels=("no", "yes"), pruned_heads=((1,), *[()] * 11)),
        "gpt2": fa.GPT2Config,
        "seq2seq": fa.Seq2SeqConfig,
        "rnn": fa.RnnConfig,
    }[kind]()
    (folder / "config.json").write_text(json.dumps(made.to_hf(), indent=1))
    return folder / "config.json"


def read_config(path: Path) -> Any:
    from flaxattn.pretrained.model_directory import read_config as read

    return read(path.parent)


def write_generation(folder: Path) -> Path:
    settings = {"num_beams": 4, "eos_token_id": [1, 2], "max_length": 20, "bad_words_ids": [[3]]}
    settings |= {"length_penalty": 1.0, "pad_token_id": 0, "repetition_penalty": 1.0, "top_k": 50}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder / "generation_config.json"


def read_generation(path: Path) -> Any:
    from flaxattn.pretrained.decoding_settings import read, settled

    return settled({"max_new_tokens": 5}, read(path.parent), {}, 3, 40)


def write_trace(folder: Path) -> Path:
    return store_cases.traces("seq2seq", 1)[0].save(folder / "trace.safetensors")


def read_trace(path: Path) -> Any:
    from flaxattn.trace.trace import Trace

    trace = Trace.load(path)
    sides = [getattr(trace, side) for side in ("encoder", "decoder", "cross")]
    arrays = [(plain(s.weights), {n: plain(a) for n, a in s.stats.items()}) for s in sides]
    return arrays, trace.tokens, trace.written, plain(trace.mask), trace.model


def write_probe(folder: Path) -> Path:
    from flaxattn.probes.parsing_probe import ParsingProbe
    from flaxattn.probes.probe_file import save_probe

    heads = np.arange(6, dtype=np.float32).reshape(2, 3)
    bias = np.ones(2, np.float32)
    probe = ParsingProbe((0, 1), (0, 1, 2), heads, heads, heads, heads, bias, 0.5, 9, True)
    return save_probe(probe, folder / "probe.safetensors", {"model": "é", "scores": [1, 2.5]})


def read_probe(path: Path) -> Any:
    from flaxattn.probes.probe_file import load_probe

    return repr(load_probe(path))


# Tokenizers


@functools.cache
def wordpiece() -> Any:
    from flaxattn.text.vocabulary_training import train_wordpiece

    return train_wordpiece(TEXTS * 3, 60, True, 32)


def write_tokenizer(name: str, folder: Path) -> Path:
    wordpiece().save(folder)
    if name != "tokenizer.json":
        (folder / "tokenizer.json").unlink()
    return folder / name


def read_tokenizer(path: Path) -> Any:
    from flaxattn.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_dir(path.parent)
    return tokenizer.vocab_size, tokenizer.settings


def write_bpe(folder: Path) -> Path:
    from flaxattn.text.vocabulary_training import train_bpe

    train_bpe(TEXTS * 3, 60).save(folder)
    return folder / "tokenizer.json"


@functools.cache
def sentence_pieces() -> bytes:
    import sentencepiece

    rng, model = random.Random(0), io.BytesIO()
    lines = [" ".join(rng.choices(" ".join(TEXTS).split(), k=9)) for _ in range(100)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_pieces(name: str, folder: Path) -> Path:
    import sentencepiece

    model = sentence_pieces()
    (folder / "source.spm").write_bytes(model)
    (folder / "target.spm").write_bytes(model)
    reader = sentencepiece.SentencePieceProcessor(model_proto=model)
    names = [reader.id_to_piece(i) for i in range(reader.get_piece_size())]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(names)}))
    return folder / name


def read_pieces(path: Path) -> Any:
    from flaxattn.text.transformers_tokenizer import open_tokenizer

    readers = [open_tokenizer(path.parent, prefix) for prefix in ("", "target_")]
    return [reader.vocab_size for reader in readers if reader is not None]


# Rows of corpora


def table(name: str) -> bytes:
    """The texts as a file of that name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": f"n{i}", "text": text, "n": i} for i, text in enumerate(TEXTS)]
    kind, _, packed = name.partition(".")
    if kind in ("parquet", "arrow", "feather"):
        sink, whole = pa.BufferOutputStream(), pa.Table.from_pylist(rows)
        if kind == "parquet":
            pq.write_table(whole, sink, compression="zstd", write_page_checksum=True)
        else:
            new = pa.ipc.new_stream if kind == "arrow" else pa.ipc.new_file
            with new(sink, whole.schema) as writer:
                writer.write_table(whole)
        return sink.getvalue().to_pybytes()
    quoted = {
        "txt": lambda row: row["text"],
        "jsonl": json.dumps,
        "tsv": lambda row: "\t".join(map(str, row.values())),
        "csv": lambda row: ",".join('"' + str(v).replace('"', '""') + '"' for v in row.values()),
    }[kind]
    head = [] if kind in ("txt", "jsonl") else [{"csv": ",", "tsv": "\t"}[kind].join(rows[0])]
    data = "".join(f"{line}\n" for line in [*head, *map(quoted, rows)]).encode()
    if packed == "zst":
        return pa.compress(data, "zstd", asbytes=True)
    return gzip.compress(data, mtime=0) if packed else data


def write_table(name: str, folder: Path) -> Path:
    path = folder / f"a.{name.replace('feather', 'arrow')}"
    path.write_bytes(table(name))
    return path


def read_table(path: Path) -> Any:
    """All that can be read; each text must be one that may be encoded."""
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.input_files import find_inputs
    from flaxattn.corpus.texts import Columns, read_texts

    found = []
    for policy in ("skip", "fail"):
        bad = BadRows(policy)
        id_column = None if ".txt" in path.name else "id"
        found = list(read_texts(find_inputs([path]), Columns(id=id_column), bad))
        assert [text.index for text in found] == list(range(len(found)))
        assert all(text.text.strip() and text.text.encode() for text in found)
        assert bad.rows_read - bad.lost == len(found), bad.summary()
    return [(text.id, text.text, text.line) for text in found]


def write_trees(folder: Path) -> Path:
    (folder / "a.conllu").write_text(TREES, encoding="utf-8")
    return folder / "a.conllu"


def read_trees(path: Path) -> Any:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.dependency_trees import read_sentences

    bad = BadRows("skip")
    found = list(read_sentences([path], bad))
    for sentence in found:
        assert all(0 <= w.start <= w.stop <= len(sentence.text) for w in sentence.words)
        assert sum(w.governor < 0 for w in sentence.words) == 1
    list(read_sentences([path], BadRows("fail")))
    return found


PRONOUNS = {
    "gap": "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
    "one\tAnn met Bea; she left.\tshe\t13\tAnn\t0\tTRUE\tBea\t8\tFALSE\tx\n"
    "two\tBob saw Tim and his dog.\this\t16\tBob\t0\tFALSE\tTim\t8\tTRUE\tx\n",
    "winobias": "1 [The guard] called the cook because [he] was late.\n"
    "2 The guard called [the cook] because [she] was late.\n",
    "winogender": "sentid\tsentence\ncook.guest.0.male.txt\tThe cook met the guest as he left.\n",
}


def write_pronouns(form: str, folder: Path) -> Path:
    (folder / f"{form}.tsv").write_text(PRONOUNS[form])
    return folder / f"{form}.tsv"


def read_pronouns(path: Path) -> Any:
    from flaxattn.corpus import mentions
    from flaxattn.corpus.bad_rows import BadRows

    found = list(mentions.read_pronouns([path], path.stem, BadRows("skip")))
    for pronoun in found:
        assert all(0 <= a < b <= len(pronoun.text) for a, b in pronoun.candidates), pronoun
    list(mentions.read_pronouns([path], path.stem, BadRows("fail")))
    return found


def write_saved(folder: Path) -> Path:
    (folder / "a.arrow").write_bytes(table("arrow"))
    state = {"_data_files": [{"filename": "a.arrow"}], "_fingerprint": "0", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    return folder / "state.json"


def read_saved(path: Path) -> Any:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.input_files import find_inputs
    from flaxattn.corpus.texts import Columns, read_texts

    return list(read_texts(find_inputs([path.parent]), Columns(), BadRows("skip")))


# Plans, stores and indexes


def some_plan() -> Any:
    from flaxattn.corpus.bad_rows import Problem
    from flaxattn.corpus.input_files import Fingerprint
    from flaxattn.corpus.texts import Columns
    from flaxattn.kernels.contract import Capture, Sieve
    from flaxattn.store.plan import JobPlan, ModelFingerprint, Rows, Settings, ShardPlan

    return JobPlan(
        files=(Fingerprint("a.txt", 10, "0" * 64), Fingerprint("é.txt", 12, "1" * 64)),
        columns=Columns("text", "pair", "../id"),
        model=ModelFingerprint("tiny", "BertModel", "float32", "a" * 64, "b" * 64, "c" * 64),
        capture=Capture(weights=True, stats=("entropy", Sieve("next", offsets=(1, 1)))),
        settings=Settings(truncate=True),
        texts=5,
        tokens=50,
        bytes=500,
        problems=(Problem("b.txt", 0, "", "empty-file", "the file is empty"),),
        shards=(
            ShardPlan(0, 3, 30, 300, (Rows(0, 0, 2), Rows(1, 0, 1))),
            ShardPlan(3, 5, 20, 200, (Rows(1, 1, 3, 40),)),
        ),
    )


def write_plan(folder: Path) -> Path:
    (folder / "plan.json").write_text(some_plan().text, encoding="utf-8")
    return folder / "plan.json"


def read_plan(path: Path) -> Any:
    """As a job that continues, a reader and a verification read it."""
    from flaxattn.errors import InputError
    from flaxattn.store import plan
    from flaxattn.store.open_store import open_store
    from flaxattn.store.verify_store import verify

    try:
        found = plan.read_plan(path.parent)
        assert found is not None
        found.compare(some_plan())
    except InputError as error:
        assert len(str(error).splitlines()) <= 3
    store = open_store(path.parent)
    assert len(store) >= 0 and not store.examples and store.missing is not None
    return verify(path.parent)


def write_capture(folder: Path) -> Path:
    from flaxattn.trace.trace import capture_to_json

    (folder / "capture.json").write_text(json.dumps(capture_to_json(some_plan().capture)))
    return folder / "capture.json"


def read_capture(path: Path) -> Any:
    from flaxattn.trace.trace import capture_from_json

    return hash(capture_from_json(loaded(path)))


def loaded(path: Path) -> Any:
    """JSON; what is none is not the matter of the parser behind it."""
    from flaxattn.errors import InputError

    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(str(error).splitlines()[0]) from error


def write_store(file: str, folder: Path) -> Path:
    store_cases.write(folder, store_cases.traces("seq2seq", 3, seed=1), per_shard=2)
    return folder / file


def read_store(path: Path) -> Any:
    """Everything of a store; damage is named by its verification too."""
    from flaxattn.store.verify_store import verify

    store = next(p for p in path.parents if (p / "shards").is_dir())
    findings = verify(store)
    found = [store_cases.plainly(trace) for trace in store_cases.read_everything(store)]
    assert not findings.damage, findings
    return found


def write_errors(folder: Path) -> Path:
    from flaxattn.corpus.bad_rows import Problem
    from flaxattn.store.commit_shards import list_problems, write_shard

    items = store_cases.items(store_cases.traces("encoder", 1))
    (shard,), sha256 = store_cases.plan(folder, 2, 2)
    problems = [Problem("a.txt", 2, "text", "empty", "the text is empty")]
    write_shard(folder, sha256, 0, shard, items, problems=problems)
    list_problems(folder, 0o666)
    return folder / "errors.jsonl"


def read_errors(path: Path) -> Any:
    from flaxattn.errors import StoreError
    from flaxattn.store.verify_store import verify

    if damage := verify(path.parent).damage:
        raise StoreError(str(damage[0]))
    return "whole"


# What pages, recipes and other programs write


def write_recipe(folder: Path) -> Path:
    from flaxattn.train.recipe import PretrainRecipe
    from flaxattn.train.settings import to_yaml

    (folder / "recipe.yaml").write_text(to_yaml(PretrainRecipe()))
    return folder / "recipe.yaml"


def read_recipe(path: Path) -> Any:
    from flaxattn.train.recipe import PretrainRecipe
    from flaxattn.train.settings import read_recipe as read
    from flaxattn.train.settings import to_yaml

    return to_yaml(read(PretrainRecipe, path))


def write_state(folder: Path) -> Path:
    state = {"level": "head", "layer": 3, "heads": [1], "query": 1, "mass": 90, "side": "encoder"}
    state |= {"attention": "all", "opacity": "row", "theme": "dark", "unit": "tokens"}
    (folder / "state.json").write_text(json.dumps(state))
    return folder / "state.json"


@functools.cache
def one_trace() -> Any:
    return store_cases.traces("encoder", 1)[0]


def read_state(path: Path) -> Any:
    """As a page takes it, and as a figure does."""
    import matplotlib.pyplot as plt

    from flaxattn import head_view, plot_state
    from flaxattn.errors import InputError

    text = path.read_bytes().decode("utf-8", "replace")
    for take in (
        lambda: plt.close(plot_state(one_trace(), text)),
        lambda: head_view(one_trace(), state=loaded(path)),
    ):
        try:
            take()
        except InputError as error:
            assert len(str(error).splitlines()) <= 3, str(error)


def write_inseq(how: str, folder: Path) -> Path:
    import safetensors.numpy

    def instance(name: str, **attributes: Any) -> dict[str, Any]:
        return {"__instance_type__": ["inseq.data", name], "attributes": attributes}

    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 2, 2)).astype(np.float32)
    scores = np.ascontiguousarray(weights.transpose(3, 2, 0, 1))
    packed = base64.b64encode(safetensors.numpy.save({"attribution": scores})).decode()
    raw = "b64.gz:" + base64.b64encode(gzip.compress(scores.tobytes())).decode()
    old = {"__ndarray__": raw, "dtype": "float32", "shape": list(scores.shape), "Corder": True}
    tokens = [instance("TokenWithId", token=word, id=n) for n, word in enumerate("abcde")]
    spans = {"attr_pos_start": 3, "attr_pos_end": 5, "source_attributions": None}
    given = {"target_attributions": old if how == "old" else packed}
    text = instance("Sequence", source=tokens[:3], target=tokens, **spans, **given)
    data = json.dumps(instance("Output", sequence_attributions=[text], info={"model_name": "m"}))
    path = folder / "out.json"
    path.write_bytes(gzip.compress(data.encode(), mtime=0) if how == "zipped" else data.encode())
    return path


def read_inseq(path: Path) -> Any:
    from flaxattn.trace.other_libraries import from_inseq

    return store_cases.plainly(from_inseq(path))


def write_alignment(folder: Path) -> Path:
    (folder / "a.pharaoh").write_text("0-0 1?2 3p4\n0-1 2-2\n\n5-5\n")
    return folder / "a.pharaoh"


def read_alignment(path: Path) -> Any:
    from flaxattn.commands.text_arguments import read_texts
    from flaxattn.measures.word_alignment import read_pharaoh

    return [read_pharaoh(line) for line in read_texts(path)]


_MAPS = "shards/00000/maps.zarr/cross.weights"
STORE_FILES = (
    "shards/00000/manifest.json",
    "shards/00001/texts.parquet",
    "shards/00000/tokens.parquet",
    "shards/00000/heads.parquet",
    f"{_MAPS}/zarr.json",
    f"{_MAPS}/c/0/0/0",
    "plan.json",
)
TABLES = (
    *("txt", "txt.gz", "tsv", "csv", "jsonl", "jsonl.gz", "jsonl.zst", "csv.gz"),
    *("parquet", "arrow", "feather"),
)


def case(write: Any, read: Any, *given: Any, **how: Any) -> Parser:
    return Parser(functools.partial(write, *given), read, **how)


PARSERS: dict[str, Parser] = {
    "safetensors of ours": Parser(write_model, read_model, sealed=True),
    "safetensors of others": Parser(write_foreign_model, read_model),
    "index of parts": Parser(
        lambda folder: write_model(folder, "model.safetensors.index.json"), read_model
    ),
    **{
        f"config of {kind}": case(write_config, read_config, kind)
        for kind in ("bert", "gpt2", "seq2seq", "rnn")
    },
    "generation config": Parser(write_generation, read_generation),
    "trace": Parser(write_trace, read_trace, sealed=True),
    "probe": Parser(write_probe, read_probe, sealed=True),
    **{
        name: case(write_tokenizer, read_tokenizer, name)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
    },
    "tokenizer.json of BPE": Parser(write_bpe, read_tokenizer),
    **{name: case(write_pieces, read_pieces, name) for name in ("source.spm", "vocab.json")},
    **{
        f"table {name}": case(
            write_table, read_table, name, lines=name in ("txt", "tsv", "csv", "jsonl")
        )
        for name in TABLES
    },
    "trees": Parser(write_trees, read_trees),
    **{f"pronouns {form}": case(write_pronouns, read_pronouns, form) for form in PRONOUNS},
    "saved data set": Parser(write_saved, read_saved),
    "plan": Parser(write_plan, read_plan),
    "capture": Parser(write_capture, read_capture),
    **{f"store {file}": case(write_store, read_store, file, sealed=True) for file in STORE_FILES},
    "list of errors": Parser(write_errors, read_errors, sealed=True),
    "recipe": Parser(write_recipe, read_recipe),
    "state of a page": Parser(write_state, read_state),
    **{f"inseq {how}": case(write_inseq, read_inseq, how) for how in ("new", "old", "zipped")},
    "alignment": Parser(write_alignment, read_alignment),
}
