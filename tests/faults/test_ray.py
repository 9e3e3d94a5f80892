# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Extraction by a real Ray cluster of this machine: workers are killed, then the driver.

`make ray` runs it; `make all` makes more trials.
"""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from whole_stores import check_whole

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.xdist_group("ray")]
WORDS = [a + b for a in ("ba", "do", "ki", "lu", "me") for b in ("n", "r", "s", "t", "lo", "ma")]
TEXTS, SHARD = 480, 15
SHARDS = TEXTS // SHARD
ON_RAY = ("--engine", "ray", "--ray-address", "local", "--ray-workers", "2")
# A driver whose workers end by SIGKILL before a shard gets its name: as often as there are files
# to remove. Ray's workers find this module on their path.
FRAGILE = """
import os, signal, sys
from pathlib import Path
from flaxattn import cli
from flaxattn.store import ray_engine
from flaxattn.store import commit_shards as writer

named = writer.named

def dying(store, number, part):
    for lives in sorted(Path(os.environ["FRAGILE"]).glob(f"{number}.*")):
        try:
            lives.unlink()
        except FileNotFoundError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    return named(store, number, part)

class Fragile(ray_engine.Worker):
    def commit(self, numbers):
        devices = Path(os.environ["FRAGILE"]).with_name("devices")
        (devices / str(os.getpid())).write_text(str(os.environ.get("CUDA_VISIBLE_DEVICES")))
        writer.named = dying
        return super().commit(numbers)

if __name__ == "__main__":
    import fragile
    ray_engine.Worker = fragile.Fragile
    sys.exit(cli.main(sys.argv[1:]))
"""

# Two machines; one is lost when there are argv[1] shards in the store argv[2]. Each has argv[3].
MACHINES = """
import json, os, subprocess, sys, time
from pathlib import Path
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from ray.cluster_utils import Cluster

head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 2**27}
cluster = Cluster(initialize_head=True, head_node_args=head)
has = {"object_store_memory": 2**27, **json.loads(sys.argv[3])}
one, two = (cluster.add_node(**has) for _ in range(2))
command = [*sys.argv[4:], "--ray-address", cluster.address]
with subprocess.Popen(command) as job:
    shards = Path(sys.argv[2]) / "shards"
    while job.poll() is None and len(list(shards.glob("[0-9]*"))) < int(sys.argv[1]):
        time.sleep(0.01)
    if job.poll() is None:
        cluster.remove_node(two, allow_graceful=False)
cluster.shutdown()
sys.exit(job.returncode)
"""


class Cluster:
    """Starts `flaxattn extract` on a generated corpus of 32 shards."""

    def __init__(self, folder: Path) -> None:
        rng = random.Random(0)
        self.folder, self.corpus = folder, folder / "corpus.txt"
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(TEXTS)]
        self.corpus.write_text("\n".join(lines) + "\n")
        (folder / "fragile.py").write_text(FRAGILE)
        (folder / "lives").mkdir()
        (folder / "devices").mkdir()
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        self.environment = {  # what one process compiled, the next one need not
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "FRAGILE": str(folder / "lives"),
        }

    def start(self, store: Path, *words: Any, module: str = "flaxattn") -> "subprocess.Popen[str]":
        """A process that extracts."""
        return self.begin([*self.command(store, module), *map(str, words)])

    def command(self, store: Path, module: str = "flaxattn") -> list[str]:
        """What a person types."""
        command = [sys.executable, "-P", "-m", module, "extract", str(self.corpus), "--json"]
        command += ["--out", str(store), "--shard-texts", str(SHARD), "--batch-tokens", "256"]
        return command

    def begin(self, command: list[str]) -> "subprocess.Popen[str]":
        """A process that knows where things are."""
        return subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, store: Path, *words: Any, module: str = "flaxattn") -> dict[str, Any]:
        """Extract to the end, and see that it went well and that Ray kept quiet."""
        code, out, stderr = ended(self.start(store, *words, module=module))
        assert code == 0, stderr
        assert "ray" not in stderr.lower(), stderr
        return json.loads(out)

    def kill(self, number: int, times: int = 1) -> None:
        """Let so many workers die over a shard."""
        for life in range(times):
            (self.folder / "lives" / f"{number}.{life}").touch()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process that ends by itself."""
    out, stderr = process.communicate(timeout=400)
    return process.returncode, out, stderr


def shards(store: Path) -> list[str]:
    """Names of the shards that are there."""
    found = (store / "shards").iterdir() if (store / "shards").is_dir() else []
    return sorted(path.name for path in found if not path.name.startswith("."))


def wait_for(process: "subprocess.Popen[str]", store: Path, count: int) -> None:
    """Return when so many shards are there, or the process has ended."""
    deadline = time.monotonic() + 300
    while process.poll() is None and len(shards(store)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def check_finished(store: Path, undisturbed: Path) -> None:
    """The store is that of one process, and nothing is left behind."""
    check_whole(store, undisturbed, TEXTS)
    assert not list(store.glob(".ray.*")) and not list((store / "shards").glob(".*"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    return Cluster(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that one process without Ray makes."""
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    assert cluster.finish(store)["written"] == SHARDS
    return store


@pytest.mark.parametrize("trial", range(10 if FULL else 1))
def test_workers_that_are_killed_lose_nothing_and_repeat_nothing(
    cluster: Cluster, undisturbed: Path, tmp_path: Path, trial: int
) -> None:
    """F20: killed in the middle of a commit, with the shards before it committed."""
    victims = random.Random(trial).sample(range(SHARDS), 2)
    for number in victims:
        cluster.kill(number)
    report = cluster.finish(tmp_path / "store", *ON_RAY, module="fragile")
    assert not list((cluster.folder / "lives").iterdir())
    assert (report["written"], report["missing"]) == (SHARDS, 0)
    assert report["written_texts"] == TEXTS
    check_finished(tmp_path / "store", undisturbed)


@pytest.mark.parametrize("trial", range(10 if FULL else 1))
def test_a_driver_that_is_killed_is_no_loss(
    cluster: Cluster, undisturbed: Path, tmp_path: Path, trial: int
) -> None:
    """F21: its workers end with it, and the same command does the rest."""
    store = tmp_path / "store"
    process = cluster.start(store, *ON_RAY)
    wait_for(process, store, random.Random(trial).randint(1, SHARDS - 8))
    process.kill()
    process.communicate()
    assert list(store.glob(".ray.*")), "it was killed in the middle"
    report = cluster.finish(store, *ON_RAY)
    assert report["there"] + report["written"] == SHARDS and report["there"]
    check_finished(store, undisturbed)


def test_a_machine_that_is_lost_is_no_loss(
    cluster: Cluster, undisturbed: Path, tmp_path: Path
) -> None:
    """By default each machine has a worker; the one that is left does the rest."""
    store = tmp_path / "store"
    command = [sys.executable, "-P", "-c", MACHINES, "8", str(store), json.dumps({"num_cpus": 1})]
    code, out, stderr = ended(cluster.begin([*command, *cluster.command(store), *ON_RAY[:2]]))
    assert code == 0, stderr
    assert json.loads(out[out.index("{") :])["written"] == SHARDS
    check_finished(store, undisturbed)


def test_each_worker_has_a_gpu_of_its_own(
    cluster: Cluster, undisturbed: Path, tmp_path: Path
) -> None:
    """Two machines with two GPUs each, as Ray counts them, and three workers."""
    store, devices = tmp_path / "store", cluster.folder / "devices"
    for path in devices.iterdir():
        path.unlink()
    has = json.dumps({"num_cpus": 2, "num_gpus": 2})
    command = [sys.executable, "-P", "-c", MACHINES, str(SHARDS + 1), str(store), has]
    job = [*cluster.command(store, "fragile"), *ON_RAY[:2], "--ray-workers", "3"]
    code, _, stderr = ended(cluster.begin([*command, *job]))
    assert code == 0, stderr
    seen = {path.read_text() for path in devices.iterdir()}
    assert seen and seen <= {"0", "1"}, "a worker that comes up late may find nothing to do"
    check_finished(store, undisturbed)


def test_when_stopped_it_exits_as_the_local_engine_does(
    cluster: Cluster, undisturbed: Path, tmp_path: Path
) -> None:
    """Ray's own handler of SIGTERM would exit with 15."""
    store = tmp_path / "store"
    process = cluster.start(store, *ON_RAY)
    wait_for(process, store, 2)
    process.send_signal(signal.SIGTERM)
    code, out, stderr = ended(process)
    assert (code, out) == (75, ""), stderr
    message = "error: stopped; finished shards are in the store, and the same command continues"
    assert stderr.splitlines()[-1] == message
    assert not list(store.glob(".ray.*"))
    cluster.finish(store)  # by the local engine
    check_finished(store, undisturbed)


def test_a_shard_that_ends_every_worker_ends_the_job(
    cluster: Cluster, undisturbed: Path, tmp_path: Path
) -> None:
    """Ray itself would try for ever."""
    store = tmp_path / "store"
    cluster.kill(1, times=20)
    code, out, stderr = ended(cluster.start(store, *ON_RAY, module="fragile"))
    assert code == 2 and not out, stderr
    lines = stderr[stderr.index("error: ") :].splitlines()
    assert lines[0].startswith("error: 5 workers were lost, one after the other, over shards ")
    assert len(lines) == 3
    assert "00001" not in shards(store)
    for life in (cluster.folder / "lives").iterdir():
        life.unlink()
    cluster.finish(store)
    check_finished(store, undisturbed)
