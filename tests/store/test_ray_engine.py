# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The engine `ray` around Ray: workers by themselves, lost workers, choices, refusals.

In place of Ray, `Inline` calls a worker where it is; `tests/faults/test_ray.py` has a real cluster.
"""

import dataclasses
import importlib
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from whole_stores import content

import flaxattn as fa
from flaxattn.corpus.input_files import find_inputs
from flaxattn.errors import CheckpointError, InputError, StoreError, UnavailableError
from flaxattn.pipeline.extraction import Options
from flaxattn.store import ray_engine
from flaxattn.store.commit_shards import ShardReport, commit_shards
from flaxattn.store.extract_to import Watcher, engine_of
from flaxattn.store.plan import read_plan
from flaxattn.store.ray_engine import Errand, RayOptions, Worker, connected, share
from flaxattn.store.verify_store import verify

TEXTS = ["the cat is sad", "a b", "very very sad", "c d e", "the end .", "a", "b c"]


class RayError(Exception):
    """As in Ray: the base of its errors."""


class RayActorError(RayError):
    """A worker that is lost."""


class RayTaskError(RayError):
    """An error that a worker raised, which is its cause."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Inline:
    """Ray, as far as the engine uses it: calls of actors run here when they are waited for."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RayActorError=RayActorError
    )

    def __init__(self, machines: int = 2) -> None:
        self.machines = machines
        self.tasks: list[list[int]] = []
        self.actors = self.down = 0
        self.known: dict[str, Any] = {}
        self.fail: Callable[[str, Sequence[int]], object] = lambda method, numbers: None

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        self.known = options
        return lambda kind: SimpleNamespace(remote=lambda errand: self._actor(kind(errand)))

    def _actor(self, worker: Any) -> Any:
        self.actors += 1

        def method(name: str) -> Any:
            return SimpleNamespace(remote=lambda *numbers: (worker, name, tuple(*numbers)))

        return SimpleNamespace(ready=method("ready"), commit=method("commit"))

    def wait(self, answers: list[Any]) -> tuple[list[Any], list[Any]]:
        return answers[-1:], answers[:-1]  # Ray promises no order

    def get(self, answer: Any) -> Any:
        worker, name, numbers = answer
        self.fail(name, numbers)
        if numbers:
            self.tasks.append([*numbers])
        try:
            return getattr(worker, name)(*([numbers] if numbers else []))
        except Exception as error:
            raise RayTaskError(error) from error

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.known = options
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def shutdown(self) -> None:
        self.down += 1

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0}}] * self.machines


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Inline:
    found = Inline()
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture(scope="module")
def extract(bert, corpus: Path) -> Callable[..., Any]:
    def called(store: Path, model: Any = bert, **options: Any) -> Any:
        return fa.extract_to(store, model, corpus, **{"shard_texts": 2, **options})

    return called


@pytest.fixture(scope="module")
def undisturbed(extract: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    extract(store)
    return store


@pytest.fixture
def errand(bert, corpus: Path, undisturbed: Path, tmp_path: Path) -> Errand:
    """Of a store with a plan and no shards."""
    store = tmp_path / "planned"
    store.mkdir()
    for name in ("plan.json", "plan.sha256"):
        (store / name).write_bytes((undisturbed / name).read_bytes())
    bert.save_pretrained(tmp_path / "model")
    plan = read_plan(store)
    assert plan is not None
    files = tuple(find_inputs([corpus]))
    return Errand((str(store),), (plan.sha256,), (str(tmp_path / "model"),), Options(), files)


def committed(errand: Errand, *numbers: int) -> list[tuple[int, ShardReport]]:
    worker = Worker(errand)
    worker.ready()
    return worker.commit(numbers)


@pytest.mark.slow
def test_a_store_of_workers_is_the_store_of_this_process(
    extract, undisturbed: Path, tmp_path: Path, ray: Inline
) -> None:
    seen: list[int] = []

    class Seen(Watcher):
        def committed(self, shard: Any, reports: Any) -> None:
            seen.append(reports[0].number)

    report = extract(tmp_path / "s", engine="ray", watcher=Seen())
    plain = extract(tmp_path / "plain")
    assert content(tmp_path / "s") == content(undisturbed)
    same = {"store": Path(), "seconds": 0.0}
    assert dataclasses.replace(report, **same) == dataclasses.replace(plain, **same)
    assert sorted(seen) == [0, 1, 2, 3] and sorted(ray.tasks) == [[0], [1], [2], [3]]
    assert (ray.known["num_cpus"], ray.known["num_gpus"]) == (1.0, 0)
    assert ray.actors == 2 and ray.down == 1
    assert not list((tmp_path / "s").glob(".ray.*"))
    assert extract(tmp_path / "s", engine="ray").written == 0
    assert ray.actors == 2, "no worker starts where nothing is missing"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", pytest.param("seq2seq", marks=pytest.mark.slow)])
def test_other_families_and_several_models(
    extract, family: str, tmp_path: Path, ray: Inline, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(family).save_pretrained(tmp_path / "model")
    model = fa.from_pretrained(tmp_path / "model")
    other = dataclasses.replace(
        model, params=jax.tree.map(lambda p: p * 2, model.params), name="twice"
    )
    models = {"one": model, "two/b": other}
    settings = {"pair_column": None} if family == "gpt2" else {"limit": 2}
    if family == "seq2seq":  # several write no targets
        models = model
    extract(tmp_path / "local", models, **settings)
    report = extract(tmp_path / "ray", models, engine="ray", **settings)
    assert report.missing == 0
    stores = [path.parent for path in (tmp_path / "local").rglob("plan.json")]
    assert len(stores) == (2 if family == "gpt2" else 1)
    for store in stores:
        assert content(store) == content(tmp_path / "ray" / store.relative_to(tmp_path / "local"))
    (hurt, *_) = sorted(path.parent for path in (tmp_path / "ray").rglob("plan.json"))
    lost = sum(p.stat().st_size for p in (hurt / "shards/00000").rglob("*") if p.is_file())
    shutil.rmtree(hurt / "shards/00000")
    report = extract(tmp_path / "ray", models, engine="ray", **settings)
    assert (report.written, report.written_bytes) == (1, lost), "only what one store lacked"


@pytest.mark.slow
def test_of_two_workers_that_hold_one_shard_one_writes_it(
    errand: Errand, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both compute it before either commits; the rename wins once, and both tell the same."""
    start, written = threading.Barrier(2), []
    write = importlib.import_module("flaxattn.store.commit_shards").write_shard

    def together(*given: Any, **more: Any) -> ShardReport:
        start.wait(60)
        written.append(write(*given, **more))
        return written[-1]

    monkeypatch.setattr("flaxattn.store.commit_shards.write_shard", together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: committed(errand, 1), range(2))
    assert sorted(report.written for report in written) == [False, True]
    assert one == other
    store, name = Path(errand.stores[0]), "shards/00001/manifest.json"
    assert content(store)[name] == content(undisturbed)[name]
    assert [p.name for p in (store / "shards").iterdir()] == ["00001"]
    assert not verify(store).damage


@pytest.mark.slow
def test_a_second_try_computes_what_the_first_one_left(
    errand: Errand, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = committed(errand, 0, 1)
    computed: list[int] = []

    def noted(works: Any, numbers: list[int], how: Any) -> Any:
        computed.extend(n for n in numbers if works[0].lacks(n))
        return commit_shards(works, numbers, how)

    monkeypatch.setattr(ray_engine, "commit_shards", noted)
    again = committed(errand, 0, 1, 2, 3)
    assert computed == [2, 3] and again[:2] == first
    sizes = [
        sum(len(b) for k, b in content(undisturbed).items() if f"/{n:05d}/" in k) for n in range(4)
    ]
    expected = [(0, (n, min(2, 7 - 2 * n), size, True)) for n, size in enumerate(sizes)]
    assert again == expected


@pytest.mark.float16
@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"stores": ("elsewhere",)}, ["does not see the store elsewhere", "it finds no plan.json"]),
        ({"plans": ("0" * 64,)}, ["does not see the store", "it finds another plan.json there"]),
        ({"versions": "jax 0"}, ["has other versions than the job", "expected jax 0; it has"]),
        ({"models": ("tiny",)}, ["No model 'tiny' was found", "cannot be a Hub id"]),
    ],
    ids=["no store", "other plan", "versions", "no model"],
)
def test_a_worker_that_cannot_do_it_says_why(errand: Errand, change: Any, messages: Any) -> None:
    with pytest.raises((UnavailableError, CheckpointError)) as error:
        Worker(errand._replace(**change)).ready()
    message = str(error.value)
    assert all(part in message for part in messages) and len(message.splitlines()) <= 3, message


@pytest.mark.float16
def test_a_model_that_is_not_the_plans_is_refused(bert, errand: Errand, tmp_path: Path) -> None:
    changed = dataclasses.replace(bert, params=jax.tree.map(lambda p: p + 1, bert.params))
    changed.save_pretrained(tmp_path / "model")
    with pytest.raises(UnavailableError, match=r"'b' is another one .*\nthese differ: parameters"):
        Worker(errand).ready()


@pytest.mark.float16
@pytest.mark.parametrize("times", [4, 5])
@pytest.mark.parametrize("method", ["ready", "commit"])
def test_a_lost_worker_is_replaced_up_to_five_times(
    extract, undisturbed: Path, tmp_path: Path, ray: Inline, method: str, times: int
) -> None:
    left = [times]

    def fail(name: str, numbers: Sequence[int]) -> None:
        if name == method and (name == "ready" or 1 in numbers) and left[0]:
            left[0] -= 1
            raise RayActorError("the node is gone\nand more")

    ray.fail = fail
    store = tmp_path / "s"
    if times == 5:
        with pytest.raises(UnavailableError) as error:
            extract(store, engine="ray")
        lines = str(error.value).splitlines()
        where = "as they started" if method == "ready" else "over shards 1 to 1"
        assert lines[0] == f"5 workers were lost, one after the other, {where}"
        assert lines[1] == "the node is gone" and len(lines) == 3
        ray.fail = lambda name, numbers: None
    assert extract(store, engine="ray").missing == 0
    assert content(store) == content(undisturbed) and not list(store.glob(".ray.*"))


@pytest.mark.float16
def test_what_a_worker_raises_is_raised_here_and_the_rest_is_kept(
    extract, undisturbed: Path, tmp_path: Path, ray: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, write = (
        tmp_path / "s",
        importlib.import_module("flaxattn.store.commit_shards").write_shard,
    )

    def full(folder: Path, mark: str, number: int, *rest: Any, **more: Any) -> ShardReport:
        if number == 1:
            raise StoreError("could not write\nno space\nfree some")
        return write(folder, mark, number, *rest, **more)

    monkeypatch.setattr("flaxattn.store.commit_shards.write_shard", full)
    with pytest.raises(StoreError, match="could not write\nno space\nfree some"):
        extract(store, engine="ray")
    kept = sorted(path.name for path in (store / "shards").iterdir())
    assert kept and "00001" not in kept
    assert ray.down == 1 and not list(store.glob(".ray.*"))
    monkeypatch.undo()
    assert extract(store).written == 4 - len(kept)
    assert content(store) == content(undisturbed)


def test_when_ray_gives_up_the_error_has_three_lines(extract, tmp_path: Path, ray: Inline) -> None:
    errors = iter([RayError("the node is gone\nand more"), RayTaskError(KeyError("a mistake"))])

    def fail(name: str, numbers: Sequence[int]) -> None:
        raise next(errors)

    ray.fail = fail
    with pytest.raises(UnavailableError) as error:
        extract(tmp_path / "s", engine="ray")
    assert str(error.value).splitlines() == [
        "Ray gave up: RayError",
        "the node is gone",
        "finished shards are in the store, and the same call continues the job",
    ]
    with pytest.raises(RayTaskError, match="a mistake"):
        extract(tmp_path / "s", engine="ray")


@pytest.mark.parametrize(
    ("machines", "options", "expected"),
    [
        ([{"CPU": 8}], {}, (1, 0, 1)),
        ([{"CPU": 8}, {"CPU": 4}, {"CPU": 0}], {"cpus": 4}, (2, 0, 4)),
        ([{"CPU": 64, "GPU": 8}, {"CPU": 2, "GPU": 4}, {"CPU": 8}], {}, (10, 1, 1)),
        ([{"CPU": 64, "GPU": 8}], {"gpus": 3}, (2, 3, 1)),
        ([{"CPU": 64, "GPU": 8}], {"gpus": 0, "workers": 5}, (5, 0, 1)),
        ([{"CPU": 1, "GPU": 2}], {"cpus": 0}, (2, 1, 0)),
    ],
)
def test_one_worker_for_each_gpu_or_each_machine(machines, options, expected) -> None:
    nodes = [{"Alive": True, "Resources": machine} for machine in machines]
    dead = {"Alive": False, "Resources": {"CPU": 512, "GPU": 64}}
    found = share([*nodes, dead], RayOptions(**options))
    assert (found.workers, found.gpus, found.cpus) == expected


@pytest.mark.float16
def test_workers_without_gpus_leave_them_alone(
    errand: Errand, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[Any] = []
    config = SimpleNamespace(update=lambda *setting: settings.append(setting))
    monkeypatch.setattr(
        ray_engine, "jax", SimpleNamespace(config=config, device_put=jax.device_put)
    )
    Worker(errand).ready()
    assert not settings
    Worker(errand._replace(on_cpu=True)).ready()
    assert settings == [("jax_platforms", "cpu")]


def test_no_room_for_a_worker() -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}]
    for options in ({"gpus": 2}, {"cpus": 3}):
        with pytest.raises(UnavailableError) as error:
            share(nodes, RayOptions(**options))
        assert str(error.value).splitlines()[1] == "of 1, the largest has 1 GPUs, 2 CPUs"


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("spark", {}, "engine 'spark' is unknown\nchoose one of local, ray"),
        ("ray", {"gpu": 1}, "ray_options has no field 'gpu'\nknown: address, workers, gpus, cpus"),
        ("local", {"workers": 2}, "Ray are given, but the engine is local\nreceived workers\n"),
        ("ray", {"workers": 0}, "workers of Ray is 0\nexpected a whole number, at least 1"),
        ("ray", {"gpus": 0.5}, "gpus of Ray is 0.5\nexpected a whole number, at least 0"),
        ("ray", {"cpus": -1}, "cpus of Ray is -1\nexpected a number, at least 0"),
        ("ray", {"address": "a b"}, "'a b' is not an address of a Ray cluster\nexpected HOST:PORT"),
        ("ray", {"address": "ray://h:1"}, "'ray://h:1' is not an address of a Ray cluster\n"),
    ],
)
def test_options_that_make_no_sense(
    extract, tmp_path: Path, ray: Inline, engine: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        extract(tmp_path / "s", engine=engine, ray_options=options)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3
    assert not (tmp_path / "s/plan.json").exists()


def test_devices_of_this_process_are_none_of_a_workers(extract, tmp_path: Path, ray) -> None:
    with pytest.raises(InputError, match='engine="ray" takes no mesh and no devices\n'):
        extract(tmp_path / "s", engine="ray", devices=jax.devices()[:1])


def test_without_ray_the_extra_is_named(extract, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnavailableError) as error:
        extract(tmp_path / "s", engine="ray")
    lines = str(error.value).splitlines()
    assert lines[0] == "the engine ray needs Ray, which is not installed"
    assert lines[2] == "pip install 'flaxattn[ray]'"
    assert not (tmp_path / "s/plan.json").exists()


def test_an_address_at_which_nobody_answers(ray: Inline, monkeypatch) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnavailableError) as error, connected(RayOptions(address=address)):
            pass
    lines = str(error.value).splitlines()
    assert lines[0] == f"no Ray cluster answers at {address}"
    assert "refused" in lines[1] and "ray start --head" in lines[2]
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UnavailableError, match=f"no Ray cluster answers at {address}\n"):
        connected(RayOptions()).__enter__()

    def refuse(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nmore")

    ray.init = refuse
    with pytest.raises(UnavailableError, match="answers at auto\nCould not find any running"):
        connected(RayOptions(address="auto")).__enter__()


@pytest.mark.parametrize("logs", [False, True])
def test_a_connection_keeps_the_handler_of_sigterm_and_standard_output(
    ray: Inline, capfd: pytest.CaptureFixture[str], logs: bool
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with connected(RayOptions(logs=logs)):
        assert signal.getsignal(signal.SIGTERM) == handler
        chatter = threading.Thread(target=print, args=("chatter",), name="ray_listen")
        chatter.start()
        chatter.join()
        print("ours")
    assert capfd.readouterr() == ("ours\n", "chatter\n" if logs else "")
    assert ray.known["address"] == "local" and ray.down == 1
    assert ray.known["log_to_driver"] == logs


def test_a_process_that_is_connected_stays_connected(ray: Inline) -> None:
    ray.is_initialized = lambda: True
    with connected(RayOptions()) as found:
        assert found is ray
    assert not ray.down
    with pytest.raises(InputError, match="connected to Ray already\nreceived address 'auto'"):
        connected(RayOptions(address="auto")).__enter__()


@pytest.mark.slow
def test_the_local_engine_is_the_default() -> None:
    with engine_of("local", None, Options()) as commit:
        assert commit is commit_shards
