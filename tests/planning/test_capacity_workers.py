"""A study goes on where a worker process is lost."""

import os
import signal
from typing import cast

from specsim.planning.capacity_runs import Runner, Study, Trial


class DeadlyElsewhere:
    """A study whose runs end any process but this one, as a machine without memory does."""

    here = os.getpid()

    def run(self, trial: Trial) -> dict[str, int]:
        if os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": trial.seed}


def test_what_lost_workers_leave_undone_runs_here() -> None:
    heard = []
    study = cast("Study", DeadlyElsewhere())
    trials = [Trial("with", 0, 1.0, seed) for seed in range(4)]
    with Runner(study, 2, lambda trial, _: heard.append(trial)) as runner:
        found = runner.summaries(trials)
        assert runner.summaries(trials) == found
    assert found == [{"seed": seed} for seed in range(4)]
    assert heard == trials
