"""Why a workload is pending, and the smallest changes that would admit it.

Facts are read from the engine; every change is verified by deciding on a fork of it, with one unit less as
well. Two assumptions: the workload at the head of its queue with nothing else pending, and at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pykueue.api import kueue
from pykueue.api.meta import find_condition
from pykueue.api.pending_reasons import NOT_EVALUATED
from pykueue.engine import Engine, Explanation, Upsert
from pykueue.engine.explain.render import reason_text
from pykueue.engine.quota.usage import units
from pykueue.questions import facts, mutations
from pykueue.questions.answers import Change, ChangeKind, Position, Prospect, State, Why
from pykueue.questions.candidates import Candidate, candidates, higher_priority
from pykueue.questions.mutations import Mutations
from pykueue.questions.policy_candidates import policy_candidates
from pykueue.questions.rights import EVERYTHING, Rights
from pykueue.questions.smallest import Amounts, Smallest, bisected, smallest
from pykueue.questions.trials import Outcome, Trials, TrialsExhausted

#: Decisions in trials in place for one question: each trial decides about all pending workloads concerned.
PLACE_DECISIONS_MAX: Final = 2_500

Try = Callable[[Sequence[Upsert]], Outcome]
#: A change to try, and the amounts that are probably its smallest, if any are known.
Guess = tuple[Candidate, Amounts | None]


def why(
    engine: Engine,
    key: str,
    now: float,
    *,
    rights: Rights = EVERYTHING,
    place: bool = True,
    place_decisions_max: int = PLACE_DECISIONS_MAX,
) -> Why:
    """Why the workload `key` (`namespace/name`) is pending at `now` (seconds since 1970).

    `place` asks for the second answer too, for which at most about `place_decisions_max` decisions are tried.
    The engine is as it was afterwards. Raises KeyError for a workload that the engine does not know: finished
    ones are forgotten.
    """
    workload = engine.workload_object(key)
    view = engine.workload(key)
    if workload is None or view is None:
        raise KeyError(key)
    answer = Why(
        workload=key,
        job=job_of(workload),
        state=_state(workload, view.state, view.admitted),
        local_queue=workload.spec.queue_name or "",
        cluster_queue=_cluster_queue(engine, workload),
        priority=engine.priority(key),
        requests={
            name: {each: str(value) for each, value in amounts.items()} for name, amounts in view.requests
        },
        blocks=facts.blocks(engine, workload, rights),
    )
    if view.state == "reserved":
        return answer
    answer.reason, answer.message = _reason(engine, workload)
    answer.position = position(engine, key, answer.cluster_queue)
    _Inquiry(engine, workload, answer, Trials(engine, key, now, place_decisions_max), rights).ask(place)
    return answer


def _reason(engine: Engine, workload: kueue.Workload) -> tuple[str, str]:
    """Why it is pending: by the engine, or as its condition says where the engine has not evaluated it."""
    found = engine.pending_reason(workload.metadata.key)
    told = find_condition(workload.status.conditions, "QuotaReserved")
    if found == NOT_EVALUATED and told is not None and told.status == "False":
        return told.reason, told.message
    return found


def _state(workload: kueue.Workload, place: str, admitted: bool) -> State:
    if place != "reserved":
        return "Pending"
    if workload.condition_is("Evicted"):
        return "Evicted"
    return "Admitted" if admitted else "QuotaReserved"


def job_of(workload: kueue.Workload) -> str:
    """`Kind name` of the job that a workload stands for; empty where no object owns it."""
    owners = workload.metadata.owner_references
    owner = workload.metadata.controller() or (owners[0] if owners else None)
    return f"{owner.kind} {owner.name}" if owner is not None else ""


def _cluster_queue(engine: Engine, workload: kueue.Workload) -> str:
    _, queue = engine.queues_of(workload)
    return queue.name if queue is not None else ""


def position(engine: Engine, key: str, cluster_queue: str) -> Position | None:
    """Where a workload stands in its ClusterQueue; None if it is not pending there."""
    active, inadmissible = engine.in_line(cluster_queue)
    order = [*active, *inadmissible]
    if key not in order:
        return None
    index = order.index(key)
    return Position(index=index, pending=len(order), inadmissible=index >= len(active))


class _Inquiry:
    """The search for changes that admit one workload."""

    def __init__(
        self, engine: Engine, workload: kueue.Workload, answer: Why, trials: Trials, rights: Rights
    ) -> None:
        self.engine = engine
        self.workload = workload
        self.answer = answer
        self.trials = trials
        self.rights = rights
        #: Changes without which no other is of use: queues that are stopped, a workload that is not active.
        self.base = tuple(self._resumptions())
        #: What happens without any change.
        self.unchanged = Outcome(False, 0)

    def ask(self, place: bool) -> None:
        """Completes the answer."""
        found: list[Guess] = [(candidate, None) for candidate in self._candidates()]
        self.answer.head = Prospect(outcome="Pending")
        solved = self._prospect(self.answer.head, self.trials.alone, found)
        if place:
            self.answer.place = Prospect(outcome="Pending")
            demand = self._demand()
            # What fits as the head can lack quota at its place: then every change is tried there.
            tried: Sequence[Guess] = found if self.answer.head.outcome == "Admitted" else solved
            wider: list[Guess] = [
                (_widened(candidate, demand), amounts)
                for candidate, amounts in tried
                if candidate.kind != "Priority"
            ]
            higher = higher_priority(self.engine, self.workload, self._priorities())
            if higher is not None:
                wider.insert(0, (higher, None))
            self._prospect(self.answer.place, self.trials.in_place, wider)

    def _priorities(self) -> set[int]:
        """Priorities of all workloads that this one competes with."""
        priorities, name = self.engine.priorities, self.answer.cluster_queue
        return priorities(name, pending=False) | priorities(name, pending=True)

    def _resumptions(self) -> Iterator[mutations.Mutation]:
        workload = self.workload
        if not workload.spec.active:
            yield mutations.activated(workload)
        local, queue = self.engine.queues_of(workload)
        for each in (local, queue):
            if each is not None and each.obj is not None and each.obj.spec.stop_policy != "None":
                yield mutations.resumed(each.obj)

    def _candidates(self) -> list[Candidate]:
        """Changes to try, and the facts they follow from."""
        engine, key = self.engine, self.workload.metadata.key
        with engine.fork() as fork:
            for event in mutations.events(fork, self.base):
                fork.apply(event)
            explanation = fork.explain(key, self.trials.now)
            found = [
                *candidates(fork, self.workload, explanation, self.rights),
                *policy_candidates(fork, self.workload, explanation, self.trials.now),
            ]
        self.answer.flavors = facts.flavor_facts(engine, self.answer.cluster_queue, explanation, self.rights)
        if explanation is not None and not self.answer.message:
            self.answer.message = reason_text(explanation)
        return found

    def _demand(self) -> dict[str, int]:
        """What all pending workloads that share quota with this one request, by resource."""
        total: dict[str, int] = {}
        for name in self.engine.members(self.answer.cluster_queue):
            for resource, quantity in self.engine.pending_requests(name).items():
                total[resource] = total.get(resource, 0) + units(resource, quantity)
        return total

    # --- trying -----------------------------------------------------------------------------------------

    def _prospect(
        self, prospect: Prospect, attempt: Try, found: Sequence[Guess]
    ) -> list[tuple[Candidate, Amounts]]:
        """Fills in what becomes of the workload, and the changes that admit it; those found, with amounts."""
        try:
            now = attempt(())
        except TrialsExhausted:
            prospect.outcome = "NotDetermined"
            return []
        self.unchanged = now
        prospect.cycles = now.cycles if now.admitted else 0
        if now.admitted:
            prospect.outcome = "Admitted"
            prospect.preempted, prospect.hidden = self.rights.names(now.preempted)
            return []
        prospect.message = _message(now.explanation)
        solved: list[tuple[Candidate, Amounts]] = []
        if self.base:
            resumed = attempt(mutations.events(self.engine, self.base))
            if resumed.admitted:
                resumed = self._to_end(attempt, self.base, resumed)
                text = " and ".join(_resume_text(each) for each in self.base)
                prospect.changes.append(self._change("Resume", text, self.base, resumed))
                return []
        for candidate, guess in found:
            try:
                amounts = self._solve(prospect, attempt, candidate, guess)
            except TrialsExhausted:
                prospect.undecided.append(candidate.kind)
                continue
            if amounts is not None:
                solved.append((candidate, amounts))
        if not prospect.changes and not prospect.undecided:
            prospect.beyond_quota = self._beyond_quota(prospect, attempt, found)
        return solved

    def _beyond_quota(self, prospect: Prospect, attempt: Try, found: Sequence[Guess]) -> str:
        """Why it is pending besides quota: the reason with the largest raise of nominalQuota."""
        for candidate, _ in found:
            if candidate.kind == "Quota":
                change = (*self.base, *candidate.make(candidate.ceiling))
                try:
                    message = _message(attempt(mutations.events(self.engine, change)).explanation)
                except TrialsExhausted:
                    return ""
                if message and message != prospect.message:
                    return message
        return ""

    def _solve(
        self, prospect: Prospect, attempt: Try, candidate: Candidate, guess: Amounts | None
    ) -> Amounts | None:
        """Adds the smallest change of this kind that admits the workload, if any does."""
        outcomes: dict[Amounts, Outcome] = {}

        def outcome(amounts: Amounts) -> Outcome:
            found = outcomes.get(amounts)
            if found is None:
                change = (*self.base, *candidate.make(amounts))
                found = outcomes[amounts] = attempt(mutations.events(self.engine, change))
            return found

        def admits(amounts: Amounts) -> bool:
            return outcome(amounts).admitted

        first = [guess] if guess is not None else []
        thresholds = candidate.thresholds
        if thresholds:
            found = _lowest(admits, thresholds)
        else:
            found = smallest(admits, [*first, *candidate.guesses], candidate.ceiling, candidate.grid)
        if found is None:
            return None
        prospect.changes.append(self._solved(attempt, candidate, found, outcome(found.amounts)))
        if candidate.kind == "Quota" and outcome(found.amounts).preempted:

            def admits_alone(amounts: Amounts) -> bool:
                return outcome(amounts).admitted and not outcome(amounts).preempted

            gentle = smallest(admits_alone, candidate.guesses, candidate.ceiling, candidate.grid)
            if gentle is not None:
                change = self._solved(attempt, candidate, gentle, outcome(gentle.amounts))
                change.without_preemption = True
                prospect.changes.append(change)
        return found.amounts

    def _solved(self, attempt: Try, candidate: Candidate, found: Smallest, outcome: Outcome) -> Change:
        change = (*self.base, *candidate.make(found.amounts))
        outcome = self._to_end(attempt, change, outcome)
        text = candidate.text(found.amounts)
        if self.base:
            text = " and ".join([*map(_resume_text, self.base), text])
        answer = self._change(candidate.kind, text, change, outcome)
        answer.smallest = found.is_smallest
        return answer

    def _to_end(self, attempt: Try, change: Mutations, outcome: Outcome) -> Outcome:
        """The outcome with what happens to others after the workload is admitted."""
        if attempt != self.trials.in_place:
            return outcome
        return self.trials.in_place(mutations.events(self.engine, change), to_end=True)

    def _concerned(self, keys: Sequence[str], outcome: Outcome) -> Iterator[str]:
        """The workloads that an outcome says something of."""
        for key in keys:
            view = self.engine.workload(key)
            if outcome.queues is None or (view is not None and view.cluster_queue in outcome.queues):
                yield key

    def _change(self, kind: ChangeKind, text: str, change: Mutations, outcome: Outcome) -> Change:
        """A change with its side effects."""
        unchanged = self.unchanged
        others, anyway = set(outcome.others), set(self._concerned(unchanged.others, outcome))
        gone = [each for each in outcome.preempted if each not in unchanged.preempted]
        preempted, hidden = self.rights.names(gone)
        delayed, more = self.rights.names(sorted(anyway - others))
        admits, most = self.rights.names(sorted(others - anyway))
        return Change(
            kind=kind,
            text=text,
            edits=[mutation.edit() for mutation in change],
            cycles=outcome.cycles,
            preempted=preempted,
            delayed=delayed,
            admits=admits,
            hidden=hidden + more + most,
        )


def _lowest(admits: Callable[[Amounts], bool], thresholds: Sequence[int]) -> Smallest | None:
    """The lowest threshold that admits, by bisection; one less must not."""
    if not admits((thresholds[-1],)):
        return None
    _, index = bisected(lambda each: admits((thresholds[each],)), -1, len(thresholds) - 1)
    return smallest(admits, [(thresholds[index],)], (thresholds[index],))


def _widened(candidate: Candidate, demand: dict[str, int]) -> Candidate:
    """With room for what others take of a raised quota before the workload comes to its turn."""
    ceiling = tuple(
        most + demand.get(resource, 0)
        for most, resource in zip(candidate.ceiling, candidate.resources, strict=False)
    )
    return candidate._replace(ceiling=ceiling or candidate.ceiling)


def _resume_text(mutation: mutations.Mutation) -> str:
    return f"set {mutation.field} of {mutation.ref} to {mutation.after}"


def _message(explanation: Explanation | None) -> str:
    return reason_text(explanation) if explanation is not None else ""


def from_status(workload: kueue.Workload, unread: Sequence[str] = (), notes: Sequence[str] = ()) -> Why:
    """What the Workload itself says, without a verdict: if it is finished, or not all could be read."""
    conditions = workload.status.conditions
    state: State = "Pending"
    told = find_condition(conditions, "QuotaReserved")
    if workload.condition_is("Finished"):
        state, told = "Finished", find_condition(conditions, "Finished")
    elif workload.condition_is("Evicted") and workload.status.admission is not None:
        state, told = "Evicted", find_condition(conditions, "Evicted")
    elif workload.condition_is("QuotaReserved"):
        state = "Admitted" if workload.condition_is("Admitted") else "QuotaReserved"
    admission = workload.status.admission
    return Why(
        workload=workload.metadata.key,
        job=job_of(workload),
        state=state,
        reason=told.reason if told is not None else "",
        message=told.message if told is not None else "",
        local_queue=workload.spec.queue_name or "",
        cluster_queue=admission.cluster_queue if admission is not None else "",
        priority=workload.spec.priority or 0,
        blocks=list(facts.checks(workload)) if state == "QuotaReserved" else [],
        unread=list(unread),
        notes=list(notes),
    )
