"""Continuous batching around the step: admission, prompts in chunks, decoding, reading back.

One call of `step()` admits what fits, computes up to max_num_batched_tokens prompt tokens, runs one
speculative step over all requests whose prompt is done, and returns what reached the host. The host
reads `readback_lag` steps behind: 0 on the CPU, 1 on CUDA, where it handles the record of step t-1
while step t runs. A request that finished in step t-1 then runs once more as a zombie, emitting
nothing; its record, and any record of a slot's former owner, is told apart by the slot's epoch.

Not thread-safe: call everything from one thread.
"""

import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

import torch
from torch import Tensor

from specsim.decoder.attention import AttentionBackend, PagedAttention, SlotAttention
from specsim.decoder.build import build_drafter
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.graphs import Capture, CudaCapture, EagerRunner, GraphRunner
from specsim.decoder.kernels import verify_attention
from specsim.decoder.kv_cache import BlockTable, PageAllocator
from specsim.decoder.options import MAX_STOP_IDS, DecoderOptions, SamplingParams
from specsim.decoder.slots import (
    EngineRequest,
    EngineStats,
    InFlight,
    Readback,
    RequestResult,
    RunningSlot,
    StepOutput,
    graph_mode,
    sampling_mode,
    seed_for,
)
from specsim.decoder.state import SlotState
from specsim.decoder.step import ACCEPTED, EMITTED, FINISHED, HEADER, PROPOSED, Step
from specsim.decoder.timing import PhaseClock, StepTiming
from specsim.decoder.transformer import Transformer
from specsim.errors import CapacityError, UsageError, require
from specsim.speculation.acceptance import Acceptance


class Engine:
    """A model, optionally a drafter, and the requests running on them.

    draft: the draft Transformer ('draft_model') or EagleWeights ('eagle'); None otherwise.
    acceptance: forced rates instead of the real test. clock: seconds, monotonic. use_graphs: the
    graph runner (default on CUDA; on the CPU its twin without graphs, for tests).
    """

    def __init__(
        self, target: Transformer, options: DecoderOptions, *,
        draft: Transformer | EagleWeights | None = None, acceptance: Acceptance | None = None,
        clock: Callable[[], float] = time.perf_counter, use_graphs: bool | None = None,
        use_triton: bool | None = None,
    ) -> None:
        self.options, self.target, self.clock = options, target, clock
        device, k = target.device, options.num_speculative_tokens
        cuda = device.type == "cuda"
        max_tokens = options.max_model_len + k + 1
        if target.max_positions < max_tokens:
            raise CapacityError(
                f"max_model_len {options.max_model_len} with {k} drafts needs {max_tokens} "
                f"positions, the model was loaded for {target.max_positions}; lower max_model_len"
            )
        page_size = options.page_size or (64 if cuda else max_tokens)
        self.table = BlockTable(options.max_num_seqs + 1, max_tokens, page_size, device)
        if self.table.whole_slots:
            pages = options.max_num_seqs + 1
            handed_out: Sequence[int] = range(options.max_num_seqs)
        else:
            pages = 1 + (options.kv_pages or options.max_num_seqs * self.table.max_pages)
            handed_out = range(1, pages)
        self.pages = PageAllocator(handed_out, page_size)
        attention: AttentionBackend
        if self.table.whole_slots and not cuda and not use_triton:
            attention = SlotAttention()
        else:
            attention = PagedAttention(verify_attention(cuda if use_triton is None else use_triton))
        cache = target.new_cache(pages, self.table, attention)
        hidden = target.config.hidden_size if options.method == "eagle" else 0
        self.state = SlotState.new(options.max_num_seqs, options.max_model_len, k, device, hidden,
                                   target.dtype)
        drafter = build_drafter(options, target, draft, self.state, cache)
        self._step = Step(target, drafter, self.state, cache)
        self._step.force(acceptance)

        lag = options.readback_lag
        self.lag = (1 if cuda and not drafter.host_side else 0) if lag is None else lag
        if drafter.host_side and self.lag:
            raise UsageError(
                f"method {options.method!r} drafts on the host and needs readback_lag 0, got "
                f"{self.lag}"
            )
        self._may_sync = not cuda and self.lag == 0
        trim = options.trim_drafts
        trim = (not cuda and self.lag == 0) if trim is None else trim
        if trim and self.lag:
            raise UsageError("trim_drafts needs readback_lag 0; switch one of them off")
        self.runner: EagerRunner | GraphRunner
        if use_graphs or (cuda and use_graphs is None):
            self.runner = GraphRunner(self._step, options.bucket, max_tokens,
                                      options.bucket(options.max_num_seqs),
                                      CudaCapture() if cuda else Capture())
        else:
            self.runner = EagerRunner(self._step, exact=self.lag == 0, trim=trim,
                                      bucket=options.bucket if cuda else None)
        self._readback = Readback(device, self.lag)
        self.stats = EngineStats(accepted_per_position=[0] * k)
        self.timings: deque[StepTiming] = deque(maxlen=100_000)
        self._waiting: list[tuple[float, EngineRequest, float]] = []  # due, request, arrival
        self._slots: dict[int, RunningSlot] = {}
        self._free = list(range(options.max_num_seqs))
        self._epochs = [0] * options.max_num_seqs
        self._in_flight: deque[InFlight] = deque()
        self._iteration = 0
        self._untimed: deque[tuple[StepTiming, PhaseClock]] = deque()
        self._cancelled: list[StepOutput] = []
        self.finished: dict[str, RequestResult] = {}

    # ------------------------------------------------------------------ requests

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._slots)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._slots or self._in_flight or self._cancelled)

    def add(
        self, request: EngineRequest, arrival_s: float | None = None, due_s: float | None = None
    ) -> None:
        """Queue a request behind those that are due no later; due_s: its arrival if not given.
        Raises UsageError or CapacityError when it can never run."""
        prompt, params = request.prompt_ids, request.params
        limit, vocab = self.options.max_model_len, self.target.config.vocab_size
        bad, stops = next((t for t in prompt if not 0 <= t < vocab), None), self._stops(params)
        require(
            (len(prompt) > 0, "the prompt has no tokens; give at least one"),
            (len(prompt) + params.max_tokens <= limit,
             f"prompt of {len(prompt)} tokens plus max_tokens {params.max_tokens} exceeds "
             f"max_model_len {limit}; shorten one of them"),
            (bad is None, f"prompt token id {bad} is outside the vocabulary 0..{vocab - 1}"),
            (len(stops) <= MAX_STOP_IDS,
             f"{len(stops)} stop tokens, the model's own among them; at most {MAX_STOP_IDS} are "
             "supported"),
        )
        known = {slot.request.request_id for slot in self._slots.values()}
        known |= {waiting.request_id for _, waiting, _ in self._waiting}
        if request.request_id in known:
            raise UsageError(f"request id {request.request_id!r} is already running")
        need = self.pages.pages_for(self._reserve_tokens(request))
        if need > self.pages.total:
            raise CapacityError(
                f"a request of {len(prompt)} + {params.max_tokens} tokens needs {need} cache pages "
                f"of {self.pages.page_size}, the cache has {self.pages.total}; raise kv_pages or "
                "shorten the request"
            )
        arrival = self.clock() if arrival_s is None else arrival_s
        due = arrival if due_s is None else due_s
        insort(self._waiting, (due, request, arrival), key=itemgetter(0))

    def cancel(self, request_id: str) -> bool:
        """Stop a request; its slot is free at once. False when it is not known (any more)."""
        for i, (_, request, _) in enumerate(self._waiting):
            if request.request_id == request_id:
                del self._waiting[i]
                break
        else:
            slot = next((s for s in self._slots.values()
                         if s.request.request_id == request_id), None)
            if slot is None:
                return False
            self._release(slot, "cancelled")
        self._cancelled.append(StepOutput(request_id, (), finish_reason="cancelled"))
        return True

    def _stops(self, params: SamplingParams) -> tuple[int, ...]:
        """The request's stop tokens, the model's end tokens among them unless ignored."""
        if params.ignore_eos:
            return params.stop_token_ids
        return tuple(dict.fromkeys((*params.stop_token_ids, *self.target.config.eos_token_ids)))

    def _reserve_tokens(self, request: EngineRequest) -> int:
        k = self.options.num_speculative_tokens
        return len(request.prompt_ids) + request.params.max_tokens + k + 1

    def _admit(self) -> None:
        while self._waiting and self._free:
            _, request, arrival = self._waiting[0]
            pages = self.pages.reserve(self._reserve_tokens(request))
            if pages is None:
                return
            del self._waiting[0]
            index = self._free.pop(0)
            result = RequestResult(request.request_id, len(request.prompt_ids),
                                   arrival_s=arrival, admitted_s=self.clock())
            slot = RunningSlot(index, self._epochs[index], request, pages, result)
            self._slots[index] = slot
            self.table.assign(index, pages)
            seed = request.params.seed
            if seed is None:
                seed = seed_for(request.request_id, self.options.seed)
            prompt = torch.tensor(request.prompt_ids, dtype=torch.int64)
            self.state.admit(index, prompt, request.params, seed, self._stops(request.params))
            self._step.drafter.admit(index, request.prompt_ids)

    def _release(self, slot: RunningSlot, reason: str) -> None:
        slot.result.finish_reason = reason
        slot.result.finished_s = self.clock()
        self.finished[slot.request.request_id] = slot.result
        del self._slots[slot.index]
        self._epochs[slot.index] += 1
        self._free.append(slot.index)
        self._free.sort()
        self.pages.release(slot.pages)
        answer = slot.result.token_ids if reason != "cancelled" else []
        self._step.drafter.finish(slot.index, answer)

    # ------------------------------------------------------------------ the loop

    @torch.inference_mode()
    def step(self) -> list[StepOutput]:
        """Run one iteration; the outputs that reached the host in it."""
        started = self.clock()
        self._iteration += 1
        outputs, self._cancelled = self._cancelled, []
        self._admit()
        decoding = sorted((s for s in self._slots.values() if s.decoding), key=lambda s: s.index)
        clock = PhaseClock(self.target.device, self.clock)
        clock.start()
        prompt_tokens = self._prompts(clock)
        context = self._decode(decoding, clock) if decoding else 0
        if prompt_tokens or decoding:
            self.stats.num_steps += 1
        keep = self.lag if self._slots else 0
        while self._in_flight and self._in_flight[0].iteration <= self._iteration - keep:
            outputs.extend(self._read())
        if prompt_tokens or decoding:
            timing = StepTiming(
                self.clock() - started, len(decoding),
                self.runner.last_q_len if decoding else 0, context, prompt_tokens,
            )
            self._untimed.append((timing, clock))
        while len(self._untimed) > keep:
            timing, clock = self._untimed.popleft()
            self.timings.append(replace(timing, phases_s=clock.resolve()))
        return outputs

    def _prompts(self, clock: PhaseClock) -> int:
        """Prompt chunks of this iteration, oldest request first; the tokens computed."""
        budget = self.options.max_num_batched_tokens
        done = 0
        pending = [s for s in self._slots.values() if not s.decoding]
        for slot in sorted(pending, key=lambda s: (s.result.admitted_s, s.index)):
            if done >= budget:
                break
            count = min(slot.prompt_len - slot.prompt_done, budget - done)
            last = slot.prompt_done + count == slot.prompt_len
            mode = sampling_mode([slot.request.params], self._may_sync)
            record = self._step.prompt(slot.index, slot.prompt_done, count, last, mode)
            slot.prompt_done += count
            done += count
            if record is not None:
                slot.known = slot.prompt_len
                slot.steps_in_flight += 1
                self._send(record, [slot], decode=False)
        if done:
            clock.mark("prompt")
            self.stats.num_prompt_tokens += done
        return done

    def _decode(self, slots: list[RunningSlot], clock: PhaseClock) -> int:
        """Launch one speculative step over `slots`; the context tokens the host knows of."""
        k = self.options.num_speculative_tokens
        bound = max(s.most_committed(k) for s in slots)
        mode = sampling_mode([s.request.params for s in slots], self._may_sync)
        if isinstance(self.runner, GraphRunner):
            mode = graph_mode(mode)
        record = self.runner.run([s.index for s in slots], bound, mode, clock)
        for slot in slots:
            slot.steps_in_flight += 1
        self._send(record, slots, decode=True)
        return sum(s.known for s in slots)

    def _send(self, record: Tensor, slots: list[RunningSlot], decode: bool) -> None:
        owners = [(s.index, s.epoch) for s in slots]
        ticket = self._readback.send(record)
        self._in_flight.append(InFlight(self._iteration, ticket, owners, decode))

    def _read(self) -> list[StepOutput]:
        flight = self._in_flight.popleft()
        rows = self._readback.receive(flight.ticket)
        now = self.clock()
        k = self.options.num_speculative_tokens if flight.decode else 0
        outputs = []
        for (index, epoch), row in zip(flight.owners, rows, strict=False):
            slot = self._slots.get(index)
            if slot is None or slot.epoch != epoch:
                continue  # a zombie step, or a cancelled request
            slot.steps_in_flight -= 1
            outputs.append(self._apply(slot, row, k, flight.decode, now))
        return outputs

    def _apply(
        self, slot: RunningSlot, row: list[int], k: int, decode: bool, now: float
    ) -> StepOutput:
        tokens = tuple(row[HEADER : HEADER + row[EMITTED]])
        drafts = tuple(row[HEADER + k + 1 : HEADER + k + 1 + row[PROPOSED]]) if decode else ()
        result = slot.result
        if not result.token_ids and tokens:
            result.first_token_s = now
        result.token_ids.extend(tokens)
        result.token_times_s.extend([now] * len(tokens))
        slot.known += len(tokens)
        self.stats.num_generation_tokens += len(tokens)
        if decode:
            self.stats.observe(row[PROPOSED], row[ACCEPTED])
            result.steps.append((row[PROPOSED], row[ACCEPTED]))
        self._step.drafter.commit(slot.index, tokens)
        reason = ""
        if row[FINISHED]:
            stopped = tokens[-1] in self._stops(slot.request.params)
            reason = "stop" if stopped else "length"
            self._release(slot, reason)
        return StepOutput(slot.request.request_id, tokens, drafts, row[ACCEPTED], reason)

    # ------------------------------------------------------------------ whole runs

    def run(
        self, arrivals: Iterable[tuple[float, EngineRequest]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[RequestResult]:
        """Serve requests that arrive at given seconds after the start; results in arrival order.

        Real time: the engine waits for an arrival when idle. Pass arrivals of 0 for a batch.
        """
        todo = deque(sorted(arrivals, key=lambda item: item[0]))
        order = [request.request_id for _, request in todo]
        start = self.clock()
        while todo or self.has_work:
            elapsed = self.clock() - start
            while todo and todo[0][0] <= elapsed:
                at, request = todo.popleft()
                self.add(request, start + at)
            if self.has_work:
                self.step()
            elif todo:
                sleep(max(0.0, todo[0][0] - (self.clock() - start)))
        return [self.finished.pop(name) for name in order]

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | None = None
    ) -> list[RequestResult]:
        """Run a batch of prompts to the end."""
        params = params or SamplingParams()
        return self.run((0.0, EngineRequest(str(i), ids, params)) for i, ids in enumerate(prompts))

    def check_integrity(self) -> None:
        """Raise RuntimeError unless an idle engine has every slot and page back."""
        if self.has_work:
            raise RuntimeError("the engine is not idle")
        if self._free != list(range(self.options.max_num_seqs)):
            raise RuntimeError(f"slots leaked: free {self._free}")
        if self.pages.free != self.pages.total:
            raise RuntimeError(f"pages leaked: {self.pages.free} of {self.pages.total} free")
