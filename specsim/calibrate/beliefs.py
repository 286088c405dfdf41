"""What is believed of several settings of one server together, before and after some were run.

A setting is a method with a draft length at a load. The logarithm of its speed lies around
the prediction, with these independent causes, each in standard deviations of its prior:

    engine      the parameters of `fewshot`, with the widths of `fewshot_priors`: common to all
    acceptance  level and slope of each drafter's curve (`AcceptanceSpread`): common to its lengths
    row         what a run's acceptance lies off that curve: of the setting alone
    scatter     what a right model still misses (`Priors.scatter` and `Priors.settings`): of all
                settings at a load, of a drafter, of draft lengths alike, of the setting alone

so a run tells of all other settings as far as they share causes with it: its acceptance at k of
every shorter k, its speed of the scale of costs. All is jointly t distributed, as the widths of the
priors were fitted; the prediction is taken as linear around the most likely causes, found by
Gauss-Newton steps. A run is read twice:
its speed, and the acceptance that it counted, as z (`flat_logit`) at its own and shorter lengths.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specsim.analytic.system import System
from specsim.calibrate.fewshot import FewShotPoint, engine_at, on_engine, parameters, predict_point
from specsim.calibrate.fewshot_priors import PRIORS, TIMES, Priors
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_model import flat_logit, gain_at, tokens_at
from specsim.speculation.acceptance_posterior import (
    QUANTILE_90,
    AcceptanceSpread,
    fitted_acceptance,
)
from specsim.speculation.trees import TREE_ERROR_90

Floats = NDArray[np.float64]
FREEDOM = 4.0  # as in validation/scripts/fewshot_priors.py
STEP = 0.1  # standard deviations (of z: logits) over which slopes are taken
CURVED = 0.3  # move of a cause from which on slopes are taken anew
MOST_STEPS = 8
CLOSE = 0.02  # standard deviations that causes move by in the last step, at most
FAR = 2.5  # most that a cause moves in one step
LENGTH_REACH = 1.0  # difference of ln(k + 1) over which what is missed together falls by e
REPEAT = 0.01  # standard deviation of ln speed between two runs of one setting (assumed)


@dataclass(frozen=True)
class Setting:
    """A choice at a load. point: as it would be served, with its expected acceptance. metric: what
    is told of it, of `fewshot.METRICS`. drafter: whose acceptance it shares ('' for plain
    decoding), spread: of that. row_sd: of z, what stands on this setting alone."""

    point: FewShotPoint
    metric: str
    drafter: str = ""
    spread: AcceptanceSpread | None = None
    row_sd: float = 0.0

    @property
    def k(self) -> int:
        return self.point.system.setup.k if self.point.speculative else 0

    @property
    def sign(self) -> float:
        """-1 where less is better."""
        return -1.0 if self.metric in ("tpot_s", "ttft_s") else 1.0

    @property
    def by_definition(self) -> bool:
        """Whether its value is known: plain decoding is 1 times as fast as itself."""
        return self.metric == "speedup" and not self.k

    @property
    def lengths_read(self) -> range:
        """Draft lengths at which a run of it may tell z."""
        chain = self.spread is not None and self.point.system.setup.tree_topk == 1
        return range(1, self.k + 1 if chain else 1)

    def expected(self, k: int) -> float:
        """Tokens of a step with k drafts."""
        found = self.point.system.acceptance
        return found.expected_tokens(k) if found is not None and k else 1.0

    def accepting(self, shift: float) -> System:
        """The system with z at its draft length moved."""
        system = self.point.system
        if not shift or system.acceptance is None:
            return system
        tokens = tokens_at(flat_logit(self.expected(self.k), self.k) + shift, self.k)
        fresh = Acceptance.from_mean_length(tokens, self.k)
        share = system.acceptance.draft_probability
        return system.with_(acceptance=replace(fresh, draft_probability=share))


def drafting_setting(
    point: FewShotPoint, metric: str, drafter: str, spread: AcceptanceSpread
) -> Setting:
    """A setting that drafts, with the expected acceptance of its point."""
    setup, k = point.system.setup, point.system.setup.k
    z = flat_logit(Setting(point, metric).expected(k), k)
    row_sd = math.sqrt(fitted_acceptance().noise(z, k))
    if setup.tree_topk > 1:
        error = TREE_ERROR_90 / QUANTILE_90 * tokens_at(z, k) / gain_at(z, k)
        row_sd = math.hypot(row_sd, error)
    return Setting(point, metric, drafter, spread, row_sd)


@dataclass(frozen=True)
class SeenRun:
    """A setting that was run. speed: of its metric. lengths: acceptance length by draft length, of
    those that the run counted."""

    setting: int
    speed: float
    lengths: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Joint:
    """A joint t distribution of ln speed of every setting (its sign turned where less is better),
    then of what runs read of z, then of the common causes. root: [quantities, causes], a
    factor of the covariance, which may have thousands of rows. noise: variance that a run adds to
    each. readings: by setting, the places of what a run of it reads, its speed first. causes: their
    places by name. freedom: degrees of it; few leave room for servers that are unlike all others.
    """

    mean: Floats
    root: Floats
    noise: Floats
    readings: tuple[tuple[int, ...], ...]
    causes: Mapping[str, int]
    freedom: float = FREEDOM

    @property
    def covariance(self) -> Floats:
        """Of all quantities, [quantities, quantities]."""
        return np.asarray(self.root @ self.root.T)

    def read(self, places: Sequence[int]) -> Floats:
        """Covariance of what is read of these."""
        rows = self.root[list(places)]
        return np.asarray(rows @ rows.T + np.diag(self.noise[list(places)]))

    def gain(self, of: Sequence[int] | slice, places: Sequence[int]) -> Floats:
        """How far each of some quantities follows a surprise in those read, [of, read]."""
        rows = self.root[list(places)]
        return np.asarray(self.root[of] @ np.linalg.solve(self.read(places), rows).T)

    def after(self, places: Sequence[int]) -> "Joint":
        """What is expected to be left to know after these are read."""
        rows = self.root[list(places)]
        left = np.eye(rows.shape[1]) - rows.T @ np.linalg.solve(self.read(places), rows)
        values, vectors = np.linalg.eigh((left + left.T) / 2)
        return replace(self, root=self.root @ (vectors * np.sqrt(np.clip(values, 0.0, None))))

    def left(self, before: "Joint", places: Sequence[int]) -> float:
        """Share of the standard deviation of some quantities before that is left, together."""
        now, then = (float((joint.root[list(places)] ** 2).sum()) for joint in (self, before))
        return float((now / then) ** 0.5)

    def told(self, places: Sequence[int], values: Sequence[float]) -> "Joint":
        """After these were read. Where they lie further from what was expected than they should,
        all else is less certain too; nearer, more."""
        if not places:
            return self
        at, count, known = list(places), len(places), self.after(places)
        surprise = np.array(values) - self.mean[at]
        size = float(surprise @ np.linalg.solve(self.read(at), surprise))
        scale = (self.freedom + size) / (self.freedom + count)
        return replace(
            known, mean=self.mean + self.gain(slice(None), at) @ surprise,
            noise=scale * self.noise, root=scale**0.5 * known.root, freedom=self.freedom + count,
        )


class Beliefs:
    """Of `settings`, which share one engine profile."""

    def __init__(self, settings: Sequence[Setting], priors: Priors = PRIORS) -> None:
        self.settings, self.priors = tuple(settings), priors
        self.engine = settings[0].point.system.engine
        asked = [replace(s.point, measured={s.metric: 1.0}) for s in settings]
        self.names = parameters(asked, self.engine, priors)
        drafters = dict.fromkeys(s.drafter for s in settings if s.spread is not None)
        self._columns = {name: len(self.names) + 2 * i for i, name in enumerate(drafters)}
        self.causes = (*self.names, *(f"{part}:{name}" for name in drafters
                                      for part in ("acceptance", "acceptance slope")))
        self.width = len(self.causes) + len(settings)
        # What runs read besides speeds: change of z with every cause, [readings, causes].
        rows: list[Floats] = []
        noise = [REPEAT**2] * len(settings)
        self.readings: list[dict[int, int]] = []  # by setting: draft length to place; 0: its speed
        for place, setting in enumerate(settings):
            self.readings.append({0: place})
            for k in setting.lengths_read:
                self.readings[place][k] = len(settings) + len(rows)
                rows.append(self._z_weights(place, k))
                noise.append(fitted_acceptance().noise(flat_logit(setting.expected(k), k), k))
        self._rows, self._noise = np.array(rows).reshape(-1, self.width), np.array(noise)

    def _z_weights(self, place: int, k: int) -> Floats:
        """Change of z at k of the drafter of a setting with every cause."""
        setting, row = self.settings[place], np.zeros(self.width)
        if setting.spread is not None:
            at = self._columns[setting.drafter]
            row[at : at + 2] = setting.spread.weights(k)
            row[len(self.causes) + place] = setting.row_sd
        return row

    def _value(self, setting: Setting, system: System, causes: Sequence[float]) -> float:
        """ln of how good a setting is, higher is better."""
        engine = engine_at(self.engine, self.names, causes, self.priors)
        point = replace(setting.point, measured={setting.metric: 1.0})
        found = predict_point(point, on_engine(system, engine))
        return setting.sign * math.log(found[setting.metric])

    def _values(self, x: Floats, places: Sequence[int]) -> Floats:
        """Of some settings at the causes x."""
        own = x[: len(self.names)].tolist()
        return np.array([
            self._value(s, s.accepting(float(self._z_weights(place, s.k) @ x)), own)
            for place in places for s in [self.settings[place]]
        ])

    def _slopes(self, x: Floats, places: Sequence[int], values: Floats) -> Floats:
        """How the values change over every cause, [places, causes]."""
        count = len(self.names)
        own, slopes = x[:count].tolist(), np.zeros((len(places), self.width))
        for row, place in enumerate(places):
            setting, weights = self.settings[place], self._z_weights(place, self.settings[place].k)
            if setting.by_definition:
                continue
            shift = float(weights @ x)
            system = setting.accepting(shift)
            for i in range(count):
                moved = [*own[:i], own[i] + STEP, *own[i + 1 :]]
                slopes[row, i] = (self._value(setting, system, moved) - values[row]) / STEP
            if setting.spread is not None:
                more = self._value(setting, setting.accepting(shift + STEP), own)
                slopes[row] += (more - values[row]) / STEP * weights
        return slopes

    def scatter(self) -> Floats:
        """Covariance of what the prediction misses of each setting besides its causes."""
        return np.array([[self._both_miss(one, other) for other in self.settings]
                         for one in self.settings])

    def _both_miss(self, one: Setting, other: Setting) -> float:
        if one.by_definition or other.by_definition:
            return 0.0
        sds, found = self.priors.settings, 0.0
        loads = abs(math.log(one.point.concurrency / other.point.concurrency))
        near = math.exp(-loads / self.priors.reach)
        if one.metric in TIMES and other.metric in TIMES:
            found += self.priors.shared**2 * near
        if one.drafter == other.drafter:
            apart = abs(math.log((one.k + 1) / (other.k + 1)))
            found += near * (
                sds["drafter"] ** 2 + sds["length"] ** 2 * math.exp(-apart / LENGTH_REACH))
        return found + (sds["own"] ** 2 if one is other else 0.0)

    def joint(self, seen: Sequence[SeenRun] = ()) -> Joint:
        """What is believed after these runs."""
        return self.prior_at(self.most_likely(seen)).told(*self.reads(seen))

    def prior_at(self, x: Floats) -> Joint:
        """What is believed before any run, with predictions taken as linear around causes x."""
        count, common = len(self.settings), len(self.causes)
        values = self._values(x, range(count))
        slopes = self._slopes(x, range(count), values)
        maps = np.concatenate([slopes, self._rows, np.eye(self.width)[:common]])
        mean = np.concatenate([values - slopes @ x, np.zeros(len(maps) - count)])
        values, vectors = np.linalg.eigh(self.scatter())
        missed = np.zeros((len(maps), count))
        missed[:count] = vectors * np.sqrt(np.clip(values, 0.0, None))
        noise = np.concatenate([self._noise, np.zeros(common)])
        return Joint(
            mean, np.hstack([maps, missed]), noise,
            tuple(tuple(found.values()) for found in self.readings),
            {name: len(self._noise) + i for i, name in enumerate(self.causes)},
        )

    def reads(self, seen: Sequence[SeenRun]) -> tuple[list[int], list[float]]:
        """(places, values) of what runs read: ln speed, z as the difference to what was expected.
        """
        places, values = [], []
        for run in seen:
            setting, own = self.settings[run.setting], self.readings[run.setting]
            places.append(run.setting)
            values.append(setting.sign * math.log(run.speed))
            for k, length in run.lengths.items():
                if k in own:
                    places.append(own[k])
                    values.append(flat_logit(length, k) - flat_logit(setting.expected(k), k))
        return places, values

    def most_likely(self, seen: Sequence[SeenRun]) -> Floats:
        """The causes that explain the runs best."""
        x, count = np.zeros(self.width), len(self.settings)
        places, told = self.reads(seen)
        if not places:
            return x
        at, runs = np.array(places), [place for place in places if place < count]
        cover = np.zeros((len(self._noise),) * 2)
        cover[:count, :count] = self.scatter()
        cover = cover[np.ix_(at, at)] + np.diag(self._noise[at])
        slopes, move = np.zeros((len(runs), self.width)), np.full(self.width, FAR)
        for _ in range(MOST_STEPS):
            values = self._values(x, runs)
            if float(np.abs(move).max()) > CURVED:
                slopes = self._slopes(x, runs, values)
            maps, wanted = np.zeros((len(at), self.width)), np.array(told)
            maps[at < count], maps[at >= count] = slopes, self._rows[at[at >= count] - count]
            wanted[at < count] += slopes @ x - values
            best = maps.T @ np.linalg.solve(maps @ maps.T + cover, wanted)
            move = np.clip(best - x, -FAR, FAR)
            x = x + move
            if float(np.abs(move).max()) < CLOSE:
                break
        return x
