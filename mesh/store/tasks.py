"""Tasks: accepted, claimed, settled, cancelled, recovered; each call one durable step under one lock.

Where a body lies and how it moves is `board.py`'s; what becomes of a task is decided by policy and handed in as a
`Verdict`. The end is told before the open copy goes, so a crash can only tell it twice, into the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from mesh import clock
from mesh.errors import Conflict, Fenced, Invalid, QueueFull, TaskEnded, UnknownTask
from mesh.models import ENDED, IN_FAILED, TASK_TRANSITIONS, Claim, Task, TaskStatus, Verdict
from mesh.store.board import LOCK, Board, waits
from mesh.store.documents import Documents
from mesh.store.files import Files
from mesh.store.knowledge import Knowledge
from mesh.store.layout import Layout
from mesh.store.locks import Locks
from mesh.store.mailbox import MailStore
from mesh.store.quarantine import Quarantine
from mesh.store.telling import Telling

_HISTORY_MAX = 50

Decide = Callable[[Task], Verdict]
Pick = Callable[[list[Task], list[Task]], Task | None]


class TaskStore:
    def __init__(
        self,
        files: Files,
        documents: Documents,
        locks: Locks,
        layout: Layout,
        quarantine: Quarantine,
        knowledge: Knowledge,
        mail: MailStore,
        time: clock.Clock,
    ) -> None:
        self._files = files
        self._documents = documents
        self._locks = locks
        self._layout = layout
        self._quarantine = quarantine
        self._telling = Telling(files, documents, layout, knowledge, mail)
        self._time = time

    # -- looking

    def find(self, task_id: str) -> Task:
        """The task, wherever it lies. Raises UnknownTask."""
        task = self._look(self._board(held=False), task_id)
        if task is None:
            # It may have moved behind our back between two files: look again with everything held still.
            with self._hold() as board:
                task = self._look(board, task_id)
        if task is None:
            raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
        return task

    def open(self) -> list[Task]:
        """Every task that has not ended, first to be served first. Looking takes no lock."""
        board = self._board(held=False)
        for task in board.tasks.values():
            task.blocks = board.blocks(task.id)
        return sorted(board.tasks.values(), key=Task.order)

    def ended(
        self, limit: int, folder: str | None = None, fits: Callable[[Task], bool] = lambda task: True
    ) -> list[Task]:
        """The tasks that ended last and fit, newest first, out of `completed/` and `failed/` or one of them."""
        folders = [folder] if folder else [self._layout.completed, self._layout.failed]
        found = []
        for place in folders:
            for name in self._files.names(place):
                signature = self._files.signature(f"{place}/{name}")
                if signature and name.endswith(".json"):
                    found.append((signature.mtime_ns, name.removesuffix(".json")))
        board = self._board(held=False)
        newest = (board.ended(name) for _, name in sorted(found, reverse=True))
        return list(islice((task for task in newest if task and fits(task)), limit))

    # -- accepting and claiming

    def accept(self, task: Task, waiting_max: int) -> tuple[Task, bool]:
        """Take a new task in, durably; (task, True), or (the known one, False) for the same id and body again.

        `owner` says where to: an agent, or `any` for the global queue. Raises Conflict for a known id with
        another body, Invalid for an unknown id in `blockedBy`, QueueFull.
        """
        with self._hold() as board:
            known = board.tasks.get(task.id) or board.ended(task.id)
            if known is not None:
                if known.digest == task.digest:
                    board.settle(task.id)
                    return known, False
                raise Conflict(
                    f"The id {task.id!r} already names another task; send a new id, or the same body.",
                    taskId=task.id,
                )
            path = self._layout.queue if task.owner == "any" else self._layout.inbox(task.owner)
            if len(board.at(path)) >= waiting_max:
                raise QueueFull(f"{task.owner}'s queue holds {waiting_max} tasks; try again later.", owner=task.owner)
            for index, other in enumerate(task.blocked_by):
                if board.status_of(other) is None:
                    raise Invalid(
                        f"blockedBy names {other!r}, but there is no such task.",
                        errors=[{"field": f"blockedBy.{index}", "reason": f"there is no task {other!r}"}],
                    )
            if task.approval:
                task.status = TaskStatus.AWAITING_APPROVAL
            elif any(board.status_of(other) is not TaskStatus.COMPLETED for other in task.blocked_by):
                task.status = TaskStatus.BLOCKED
            self._note(task, task.status, "accepted", by=task.from_)
            board.put(task, path)
            self._telling.delegated(task)
            self._release_waiting(board)
            return board.tasks.get(task.id) or self._ended_or(board, task), True

    def claim(self, claim: Claim, pick: Pick, tick: int) -> Task | None:
        """Take the task that `pick(own queue, global queue)` chooses and mark it as worked on by the claim."""
        with self._hold() as board:
            ready = [self._ready(board, path, tick) for path in (self._layout.inbox(claim.agent), self._layout.queue)]
            task = pick(*ready)
            if task is None:
                return None
            now = clock.iso(self._time.wall())
            self._note(task, TaskStatus.WORKING, "claimed", by=claim.agent)
            task.owner, task.claim, task.attempts = claim.agent, claim, task.attempts + 1
            task.started_at, task.progress = now, 0.0
            board.put(task, self._layout.active)
            return task

    def progress(self, claim: Claim, task_id: str, progress: float, completion: str | None) -> Task:
        """Record how far a claimed task is; returns it as it stands, a request to cancel included."""
        with self._hold() as board:
            task = self._claimed(board, claim, task_id)
            task.progress = progress
            task.estimated_completion = completion
            task.updated_at = clock.iso(self._time.wall())
            board.put(task, self._layout.active)
            return task

    # -- ending

    def settle(self, claim: Claim, task_id: str, decide: Decide) -> Task:
        """End or requeue a claimed task as `decide` says of it as it stands now. Raises Fenced if the claim is
        no longer the task's: a newer incarnation has taken the task over, and nothing was changed."""
        with self._hold() as board:
            task = self._claimed(board, claim, task_id)
            self._carry_out(board, task, decide(task))
            return task

    def cancel(self, task_id: str, by: str, reason: str) -> Task:
        """Cancel a task. One that waits has ended when this returns; one that is worked on is marked, its worker
        stops, and whatever it still reports, it ends cancelled. Raises UnknownTask, TaskEnded."""
        with self._hold() as board:
            task = self._look(board, task_id)
            if task is None:
                raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
            if task is not board.tasks.get(task_id):
                raise TaskEnded(f"The task {task_id!r} has already ended: {task.status}.", taskId=task_id)
            if task.status is TaskStatus.WORKING:
                task.cancel_requested = by
                task.updated_at = clock.iso(self._time.wall())
                board.put(task, board.place[task_id])
            else:
                self._carry_out(board, task, Verdict(TaskStatus.CANCELLED, reason, error=reason))
            return task

    def resolve(self, task_id: str, verdict: Verdict, by: str) -> Task:
        """What a person says of a task whose outcome is unknown. Raises Conflict for any other task."""
        with self._hold() as board:
            task = board.ended(task_id)
            if task is None or task_id in board.tasks or task.status is not TaskStatus.OUTCOME_UNKNOWN:
                raise Conflict(f"{task_id!r} is not a task with an unknown outcome.", taskId=task_id)
            self._note(task, verdict.status, verdict.reason, by=by)
            task.error, task.result = verdict.error, verdict.result or task.result
            if verdict.status is TaskStatus.QUEUED:
                task.claim, task.attempts = None, 0
                board.put(task, self._layout.inbox(task.owner))
                board.remove_ended(task_id)
            else:
                task.finished_at = clock.iso(self._time.wall())
                board.end(task)
                self._telling.end(task)
                self._release_waiting(board)
            return task

    def approve(self, task_id: str, by: str, note: str) -> Task:
        """Let a task that waits for a person's approval go on. Raises Conflict for any other task."""
        with self._hold() as board:
            task = board.tasks.get(task_id)
            if task is None or task.status is not TaskStatus.AWAITING_APPROVAL:
                raise Conflict(f"{task_id!r} does not wait for approval.", taskId=task_id)
            open_ends = any(board.status_of(other) is not TaskStatus.COMPLETED for other in task.blocked_by)
            status = TaskStatus.BLOCKED if open_ends else TaskStatus.QUEUED
            self._note(task, status, f"approved{': ' + note if note else ''}", by=by)
            board.put(task, board.place[task_id])
            self._release_waiting(board)
            return task

    # -- after a crash

    def recover(
        self, agent: str, incarnation: int, decide: Callable[[Task], Verdict | None]
    ) -> list[tuple[Task, Verdict | None]]:
        """What an earlier incarnation of the agent left as worked on is settled as `decide` says; where it says
        None the work goes on without the daemon that began it, and is this incarnation's from now on."""
        with self._hold() as board:
            board.need(self._layout.inbox(agent))
            self._repair(board)
            settled: list[tuple[Task, Verdict | None]] = []
            for task in board.at(self._layout.active):
                claim = task.claim
                if claim is None or (claim.agent == agent and claim.incarnation < incarnation):
                    verdict = decide(task)
                    if verdict is None:
                        now = clock.iso(self._time.wall())
                        task.claim = Claim(agent=agent, incarnation=incarnation, since=claim.since if claim else now)
                        board.put(task, self._layout.active)
                    else:
                        self._carry_out(board, task, verdict)
                    settled.append((task, verdict))
            return settled

    def repair(self) -> None:
        """Finish moves that a crash cut short, and release what waits for tasks that have ended."""
        with self._hold() as board:
            self._repair(board)

    def reclaim(self, agents: Iterable[str]) -> list[Task]:
        """Give back what lies in queues of agents that are not among `agents` any more."""
        known = {self._layout.inbox(agent) for agent in agents} | {self._layout.queue, self._layout.active}
        with self._hold() as board:
            orphaned = sorted(set(board.place.values()) - known)
            return [task for path in orphaned for task in self._give_back(board, path)]

    def give_back(self, agent: str) -> list[Task]:
        """Put the queued tasks of an agent that is being removed into the global queue."""
        with self._hold() as board:
            return self._give_back(board, self._layout.inbox(agent))

    def hand_over(self, task_id: str, giver: str, taker: str, handoff: dict[str, Any]) -> Task:
        """Move a waiting task of the giver to the taker, what the giver knows of it with it. Done before: the same
        answer. Raises UnknownTask, or Conflict for a task that can't be handed over."""
        with self._hold() as board:
            task = board.tasks.get(task_id)
            if task is None:
                ended = board.ended(task_id)
                if ended is None:
                    raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
                raise TaskEnded(f"The task {task_id!r} has already ended: {ended.status}.", taskId=task_id)
            if task.owner == taker:
                return task
            if task.owner != giver or task.status is TaskStatus.WORKING:
                raise Conflict(f"{task_id!r} is {task.owner}'s and {task.status}: {giver} can't hand it over now.")
            task.owner, task.input = taker, {**task.input, "handoff": handoff}
            self._note(task, task.status, f"handed over by {giver}", by=giver)
            board.put(task, self._layout.inbox(taker))
            return task

    # -- inside

    def _board(self, *, held: bool) -> Board:
        return Board(self._files, self._documents, self._layout, self._quarantine, held=held)

    @contextmanager
    def _hold(self) -> Iterator[Board]:
        with self._locks.hold(LOCK):
            yield self._board(held=True)

    def _give_back(self, board: Board, path: str) -> list[Task]:
        board.need(path)
        moved = board.at(path)
        for task in moved:
            task.owner = "any"
            board.put(task, self._layout.queue)
        return moved

    def _look(self, board: Board, task_id: str) -> Task | None:
        task, ended = board.tasks.get(task_id), board.ended(task_id)
        if task is None or (ended is not None and ended.revision >= task.revision):
            task = ended
        if task is not None:
            task.blocks = board.blocks(task_id)
        return task

    def _ended_or(self, board: Board, task: Task) -> Task:
        return board.ended(task.id) or task

    def _ready(self, board: Board, path: str, tick: int) -> list[Task]:
        ready = []
        for task in board.at(path):
            if task.status is not TaskStatus.QUEUED or task.not_before_tick > tick:
                continue
            ended = board.ended(task.id)
            if ended is None or ended.revision < task.revision:
                ready.append(task)
        return ready

    def _claimed(self, board: Board, claim: Claim, task_id: str) -> Task:
        task = board.tasks.get(task_id)
        held = task.claim if task is not None else None
        if task is None or held is None or (held.agent, held.incarnation) != (claim.agent, claim.incarnation):
            raise Fenced(
                f"{task_id!r} is no longer claimed by incarnation {claim.incarnation} of {claim.agent}.",
                taskId=task_id,
            )
        return task

    def _carry_out(self, board: Board, task: Task, verdict: Verdict) -> None:
        if verdict.status is not TaskStatus.QUEUED:
            self._end(board, task, verdict)
            board.drop(task.id)
            self._release_waiting(board)
        else:
            self._note(task, verdict.status, verdict.reason, by=task.owner)
            task.claim, task.error = None, verdict.error
            task.not_before_tick = verdict.not_before_tick
            task.attempts -= 0 if verdict.counts else 1
            board.put(task, self._layout.inbox(task.owner))

    def _end(self, board: Board, task: Task, verdict: Verdict) -> None:
        """Write the end and tell it; the caller drops the open copy."""
        self._note(task, verdict.status, verdict.reason, by=task.owner)
        task.claim, task.error = None, verdict.error
        task.result = verdict.result
        task.finished_at = clock.iso(self._time.wall())
        task.progress = 1.0 if verdict.status is TaskStatus.COMPLETED else task.progress
        board.end(task)
        self._telling.end(task, blocker=verdict.blocker)

    def _release_waiting(self, board: Board) -> None:
        """Let go on what waited for ended tasks; what waited for one that failed fails, and so on down."""
        while self._release_once(board):
            pass

    def _release_once(self, board: Board) -> bool:
        """True if a task failed, which others may have waited for."""
        fallen = []
        for task in list(board.tasks.values()):
            if task.status is not TaskStatus.BLOCKED or not task.blocked_by:
                continue
            found = {other: board.status_of(other) for other in task.blocked_by}
            bad = [other for other, status in found.items() if status in IN_FAILED and status in ENDED]
            if bad:
                error = f"it waited for {bad[0]!r}, which ended {found[bad[0]]}"
                self._end(board, task, Verdict(TaskStatus.FAILED, error, error=error))
                fallen.append(task.id)
            elif not any(waits(status) for status in found.values()):
                self._note(task, TaskStatus.QUEUED, "everything it waited for has ended", by="mesh")
                board.put(task, board.place[task.id])
        board.drop(*fallen)
        return bool(fallen)

    def _repair(self, board: Board) -> None:
        board.drop_resolved()
        for task, ended in board.stale_copies():
            board.settle(task.id)
            if ended.revision >= task.revision:
                self._telling.end(ended, blocker=ended.status is TaskStatus.FAILED and ended.attempts > 0)
                board.drop(task.id)
            else:
                board.remove_ended(task.id)
        self._release_waiting(board)

    def _note(self, task: Task, status: TaskStatus, reason: str, *, by: str) -> None:
        assert status is task.status or status in TASK_TRANSITIONS[task.status], (
            task.id,
            task.status,
            status,
        )
        now = clock.iso(self._time.wall())
        task.history = [*task.history, {"at": now, "status": status, "by": by, "reason": reason}][-_HISTORY_MAX:]
        task.status = status
        task.updated_at = now
