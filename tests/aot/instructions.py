# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions that a Hopper kernel spends on each score, in its machine code.

The listing is that of nvdisasm. A forward kernel has one loop over tiles of keys for each sweep;
a loop at the edge of a band runs in place of the plain one. The shortest way around a loop is
counted, with one look at each barrier; and, as "every branch", all of the loop: what only some
tiles need too, such as a sieve of offsets that most of them do not meet. Nothing is timed here.
"""

import re
from collections import Counter
from dataclasses import dataclass

CLASSES = {
    "exp and log": ("MUFU",),
    "float": ("FFMA", "FADD", "FMUL"),
    "max": ("FMNMX",),
    "select": ("FSEL", "SEL"),
    "compare": ("ISETP", "FSETP"),
    "shared memory": ("LDS", "STS"),
    "products": ("HGMMA",),
}
"""Opcodes by class, without their suffixes; others are counted as "other"."""

THREADS, ROWS = 128, 64
"""Of a warpgroup: its threads, and the query rows of its products."""

_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z]\w*)(.*)")
_TARGET = re.compile(r"\((\.L_\w+)\)")
# A product with nothing to add to begins the scores of a tile.
_FRESH = re.compile(r"\.\d+x(\d+)x\d+\S* .*\bRZ, !UPT")


@dataclass(frozen=True)
class Loop:
    """A loop over tiles of keys.

    Attributes:
        opcodes: how often each occurs on the shortest way around, without suffixes.
        scores: computed by a warpgroup each time around.
        instructions: number of all in the loop.
    """

    opcodes: Counter[str]
    scores: int
    instructions: int

    def per_score(self) -> dict[str, float]:
        """Instructions of a thread for each score, by class, in total as "all", and whole."""
        found = {name: sum(self.opcodes[x] for x in codes) for name, codes in CLASSES.items()}
        found["other"] = self.opcodes.total() - sum(found.values())
        found["all"] = self.opcodes.total()
        found["every branch"] = self.instructions
        return {name: count * THREADS / self.scores for name, count in found.items()}


class Listing:
    """The instructions of a kernel, and where each may continue.

    Attributes:
        opcodes: without suffixes.
        rest: the suffixes and operands of each.
        next: indices of the instructions that may follow each.
    """

    def __init__(self, text: str):
        self.opcodes: list[str] = []
        self.rest: list[str] = []
        conditions, labels = [], {}
        for line in text.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(self.opcodes)
            elif found := _INSTRUCTION.search(line):
                conditions.append(found[1])
                self.opcodes.append(found[2])
                self.rest.append(found[3])
        self.next: list[list[int]] = [[] for _ in self.opcodes]
        for index, (opcode, rest) in enumerate(zip(self.opcodes, self.rest, strict=True)):
            target = _TARGET.search(rest) if opcode == "BRA" else None
            if target:
                self.next[index].append(labels[target[1]])
            # A branch may name its condition among the operands.
            always = opcode == "EXIT" or (target and rest.strip().startswith("`"))
            if (conditions[index] or not always) and index + 1 < len(self.opcodes):
                self.next[index].append(index + 1)

    def scores(self, index: int) -> int:
        """Scores of a warpgroup that the instruction begins to compute, 0 for any other."""
        fresh = _FRESH.match(self.rest[index]) if self.opcodes[index] == "HGMMA" else None
        return ROWS * int(fresh[1]) if fresh else 0

    def loop_around(self, index: int) -> range:
        """The loop that an instruction is in, empty when it is in none.

        Waits that take long are moved behind the kernel by the assembler; they are left out.
        """
        before: list[list[int]] = [[] for _ in self.next]
        for source, targets in enumerate(self.next):
            for target in targets:
                before[target].append(source)
        around = _reached(index, self.next) & _reached(index, before)
        if not around:
            return range(0)
        start = min(around)
        return range(start, max(source for source in before[start] if source in around) + 1)

    def way_around(self, index: int) -> list[int]:
        """The instructions on the shortest way from one back to itself inside of its loop."""
        before, pending = {}, [index]
        loop = self.loop_around(index)
        while index not in before:
            # In the order of the listing where ways are as short.
            found = {}
            for source in pending:
                for target in self.next[source]:
                    if target in loop and target not in before:
                        found.setdefault(target, source)
            before |= found
            pending = list(found)
        way = [index]
        while (source := before[way[-1]]) != index:
            way.append(source)
        return way


def _reached(start: int, edges: list[list[int]]) -> set[int]:
    """What can be reached in one step or more."""
    found: set[int] = set()
    pending = list(edges[start])
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            pending += edges[index]
    return found


def loops_over_keys(text: str) -> list[Loop]:
    """The loops of a listing in which products of queries and keys begin.

    Args:
        text: the listing of one forward kernel, by nvdisasm.

    Returns:
        The loops, in the order of the listing.
    """
    listing = Listing(text)
    starts = [index for index in range(len(listing.opcodes)) if listing.scores(index)]
    # Several products begin in a loop that works on several tiles; one way around meets them all.
    around = {listing.loop_around(index): index for index in reversed(starts)}
    found = []
    for loop in sorted((loop for loop in around if loop), key=lambda loop: loop.start):
        way = listing.way_around(around[loop])
        scores = sum(map(listing.scores, way))
        found.append(Loop(Counter(listing.opcodes[n] for n in way), scores, len(loop)))
    return found


def most_of(counts: dict[str, float], plain: dict[str, float]) -> float:
    """The most that a call can take of the plain one's time, if memory and waiting take none.

    A scheduler starts an instruction in each cycle, but the unit that compares and selects takes
    two cycles for one, and that of exponentials eight. Whether such times overlap or add up, no
    call takes more of the other's time than it takes of one of these.
    """

    def cycles(of: dict[str, float]) -> float:
        return max(of["all"], 2 * (of["max"] + of["select"] + of["compare"]))

    return max(cycles(counts) / cycles(plain), counts["exp and log"] / plain["exp and log"])


def table(rows: dict[str, dict[str, float]]) -> str:
    """Counts as Markdown, with the most that a call can take of the time of the first.

    Args:
        rows: counts by name, the plain call first.

    Returns:
        A table for BENCHMARKS.md.
    """
    plain = next(iter(rows.values()))
    columns = ["all", *CLASSES, "other", "every branch"]
    lines = [f"| forward with | {' | '.join(columns)} | of plain's time, at most |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name, counts in rows.items():
        numbers = [f"{counts[column]:.2f}" for column in columns]
        lines.append(f"| {name} | {' | '.join(numbers)} | {most_of(counts, plain):.2f} |")
    return "\n".join(lines)


def instructions_per_score(text: str) -> dict[str, float]:
    """Instructions for each score of all sweeps of a forward kernel.

    Loops with as many products for each score belong to one sweep, of which a tile of keys meets
    one: the dearest counts. The other sweeps come on top.

    Args:
        text: the listing of one forward kernel, by nvdisasm.

    Returns:
        Instructions by class, in total as "all" and whole as "every branch"; empty without a loop
        over keys.
    """
    sweeps: dict[float, dict[str, float]] = {}
    for loop in loops_over_keys(text):
        found = loop.per_score()
        dearest = sweeps.get(found["products"], found)
        sweeps[found["products"]] = max(dearest, found, key=lambda counts: counts["all"])
    total: Counter[str] = Counter()
    for found in sweeps.values():
        total.update(found)
    return dict(total)
