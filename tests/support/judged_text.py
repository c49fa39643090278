"""A run whose text is judged, on completers that are given instead of engines."""

import math
from contextlib import contextmanager
from dataclasses import replace

from launch_plan import planned
from nixwulf.core.schema import check
from nixwulf.plugins.runtime.openai import Position
from nixwulf.plugins.runtime.run import RunFailure
from nixwulf.sweep.recording import Findings
from nixwulf.sweep.references import ReferenceFolder
from nixwulf.sweep.sanity import check_text
from record_factory import case, ok

# no output: the axes of a sweep
LONG_CASE = {
    "nodes": [2],
    "fabric": ["gbe5"],
    "parallelism": ["tensor"],
    "parameters": {"n_prompt": [5000], "n_gen": [16]},
}


def distribution(place, tilt=0.0):
    """Two likely tokens at a place, of which the second has more with a tilt."""
    share = 0.3 - tilt
    return {2 * place: math.log(0.6 - share + 0.25), 2 * place + 1: math.log(share), 1000: -3.0}


def damaged_from(length, first):
    """Another text after prompts of that length, from a place on."""

    def change(tokens, place, repeated):
        return {5: -0.01} if tokens >= length and place >= first else None

    return change


class Model:
    """A completer whose tokens depend on the prompt's length and the place."""

    context = 1_000_000

    def __init__(self, seconds=lambda count: None, **changes):
        self.changes, self.seconds, self.prompts = changes, seconds, []

    def prompt(self, tokens):
        """Of that length."""
        return [0] * tokens

    def complete(self, prompt, given, count):
        """Counts what it is asked first."""
        if not given and count > 1:
            self.prompts.append(len(prompt))
        self.seconds(len(prompt))
        return tuple(self._at(len(prompt), len(given) + n, bool(given)) for n in range(count))

    def _at(self, tokens, place, repeated):
        change = self.changes.get("change", lambda *_: None)
        top = change(tokens, place, repeated) or distribution(place)
        return Position(max(top, key=top.get), top)


class Of:
    """An engine that one completer answers for one node, another for more, and one for the CPU."""

    elsewhere = False

    def __init__(self, one, several, cpu=None):
        self.one, self.several, self.cpu = one, several, cpu

    def on_cpu(self, run):
        """A run of another name, where there is a completer for it."""
        return replace(run.on_first(1), name="cpu") if self.cpu else None

    @contextmanager
    def completer(self, run, context):
        """By the run's name and number of nodes; what it should raise is raised."""
        assert context >= 64 + 32
        if run.name == "cpu":
            if isinstance(self.cpu, Exception):
                raise self.cpu
            yield self.cpu
        else:
            yield self.one if run.case.nodes == 1 else self.several


def judging(folder):
    """What judges engines on a run of a folder: its findings and its warnings."""
    run = planned(folder, "lab", {"path": "/m.gguf"}, LONG_CASE)

    def judge(one, several, cpu=None, *, model=None, long_prompts=True, references="references"):
        run.warnings.clear()
        found = Findings()
        texts = ReferenceFolder(folder / references, long_prompts=long_prompts)
        try:
            check_text(Of(one, several, cpu), run, model, found, texts)
        except RunFailure as failure:
            found.outcome, found.failure = failure.outcome, {"reason": failure.reason}
        record = {**ok(case(1), {"decode": [20.0]}), "sanity": found.sanity}
        check(record, "record", "a test's record")
        return found, list(run.warnings)

    return judge
