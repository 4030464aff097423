"""An agent's rounds: it pings its buddy, reviews it, and once an hour reports how things stand.

No round calls a model (I9). What is asked and what follows from the answers is `policy/buddy.py`'s.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mesh import clock
from mesh.errors import MeshError, PeerUnavailable
from mesh.models import Blocker, ReviewAnswer, TaskStatus
from mesh.policy import buddy as policy
from mesh.policy.buddy import Situation
from mesh.policy.schedule import hour_of
from mesh.service.buddy_client import BuddyClient
from mesh.service.core import Core

_REPEATED_ERRORS = "Repeated errors"


class Rounds:
    def __init__(self, core: Core, client: BuddyClient) -> None:
        self._core = core
        self._client = client
        #: What the last ping brought: the buddy's answer, or why there was none.
        self.buddy_answer: dict[str, Any] = {}

    async def ping(self) -> None:
        """Ask the buddy how it is, and note when it answered."""
        core = self._core
        buddy = core.registry.entry(core.agent).buddy
        try:
            answer = await self._client.ping(buddy, self._ping_body())
        except PeerUnavailable as error:
            self.buddy_answer = {"agentId": buddy, "healthy": False, "problem": error.detail}
            core.event("buddy_silent", error.detail, buddy=buddy, how=error.facts.get("reason"))
            return
        except MeshError as error:
            core.event("ping_failed", error.detail, buddy=buddy)
            return
        core.state.buddy_seen = clock.iso(core.time.wall())
        core.state.stamps.buddy_answer_s = core.time.boottime()
        self.buddy_answer = {"agentId": buddy, "healthy": answer.status != "unhealthy", **answer.dump()}
        reason = "; ".join(answer.concerns) or answer.status
        core.event("buddy_pinged", reason, buddy=buddy)

    async def review(self) -> None:
        """Check the buddy's state file by the four checks and tell it the outcome."""
        core = self._core
        buddy = core.registry.entry(core.agent).buddy
        try:
            situation = await self._look_at(buddy)
            if situation is None:
                core.event("review_skipped", f"{buddy} has never written its state", buddy=buddy)
                return
            checks = policy.review(situation, core.limits)
            core.state.buddy_review = checks
            answer = await self._client.review(buddy, checks)
        except (MeshError, ValueError) as error:
            core.event("review_failed", str(error), buddy=buddy)
            return
        failed = [name for name, good in checks.items() if not good]
        reason = f"not well: {', '.join(failed)}" if failed else "all well"
        core.event("buddy_reviewed", reason, buddy=buddy, actions=answer.actions)

    async def sync(self) -> None:
        """The hourly sync: a report on oneself, one's buddy and the surroundings into `system/syncs/`."""
        core = self._core
        await self.ping()
        now, mesh_now = core.time.wall(), core.mesh_now
        report = await self._report()
        name = clock.iso(mesh_now).replace(":", "")[:17]
        await core.io(core.store.write_sync, core.agent, name, report)
        core.state.last_sync = clock.iso(now)
        core.state.last_sync_hour = hour_of(mesh_now)
        questions = [entry["question"] for entry in report["selfCheck"] if not entry["ok"]]
        core.event("synced", "; ".join(questions) or "all well", file=f"system/syncs/{name}-{core.agent}.json")
        if report["self"]["idleMinutes"] > core.limits.idle_sync_min and report["self"]["currentTask"] is None:
            core.event("needs_work", f"idle for {report['self']['idleMinutes']:.0f} min with an empty queue")
            core.wake_worker()
        await self.review()

    async def act_on_review(self, giver: str, checks: dict[str, bool]) -> ReviewAnswer:
        """What the reviewed agent does about what its watcher found."""
        core = self._core
        actions = policy.review_actions(checks)
        for action in actions:
            if action == "look_for_work":
                core.wake_worker()
            elif action == "report_errors":
                await core.io(core.store.knowledge.report, self._errors_blocker())
        if checks.get("noRepeatedErrors") is True:
            await core.io(core.store.knowledge.resolve_blockers, core.agent, _REPEATED_ERRORS)
        core.event("reviewed", f"by {giver}: {', '.join(actions) or 'nothing to do'}", watcher=giver, checks=checks)
        return ReviewAnswer(acknowledged=True, actions=actions)

    async def _report(self) -> dict[str, Any]:
        core = self._core
        buddy = core.registry.entry(core.agent).buddy
        alerts = [alert.title for alert in await core.io(core.store.alerts.open)]
        core.open_alerts = len(alerts)
        own = core.situation()
        open_tasks = await core.io(core.store.tasks.open)
        blockers = [b.dump() for b in await core.io(core.store.knowledge.blockers) if b.agent == core.agent]
        last = core.state.last_sync or ""
        completed = [e for e in core.recent if e["status"] == TaskStatus.COMPLETED and str(e["at"]) > last]
        seen = await self._look_at(buddy)
        task = core.state.current_task
        return {
            "schemaVersion": 1,
            "agentId": core.agent,
            "timestamp": clock.iso(core.time.wall()),
            "tick": core.clock.tick,
            "self": {
                "tasksCompleted": len(completed),
                "currentTask": task.dump() if task else None,
                "blockers": blockers,
                "contextUsage": round(core.state.context_tokens / core.state.context_limit, 4),
                "idleMinutes": round(own.idle_min or 0.0, 1),
            },
            "buddy": self.buddy_answer,
            "environment": {
                "globalQueueLength": sum(entry.owner == "any" for entry in open_tasks),
                "myInboxLength": core.queue_length,
                "systemAlerts": alerts,
            },
            "selfCheck": [asdict(question) for question in policy.self_questions(own, core.limits)],
            "buddyCheck": [
                asdict(question) for question in policy.buddy_questions(seen, own.buddy_answer_min, core.limits)
            ],
        }

    async def _look_at(self, other: str) -> Situation | None:
        core = self._core
        state = await core.io(core.store.state, other)
        if state is None:
            return None
        waiting = [task for task in await core.io(core.store.tasks.open) if task.owner == other]
        return core.situation(state, sum(task.status is not TaskStatus.WORKING for task in waiting))

    def _ping_body(self) -> dict[str, Any]:
        state = self._core.state
        status = {
            "taskQueueLength": self._core.queue_length,
            "currentTask": state.current_task.title if state.current_task else None,
            "lastCompletedTask": state.last_completed_task,
            "contextTokens": state.context_tokens,
            "errors24h": state.metrics.errors24h,
        }
        return {"from": self._core.agent, "timestamp": clock.iso(self._core.time.wall()), "myStatus": status}

    def _errors_blocker(self) -> Blocker:
        core = self._core
        errors = [entry for entry in core.recent if entry.get("error")]
        last = errors[-1] if errors else {"title": "unknown", "error": "unknown"}
        return Blocker(
            id=f"repeated-errors-{core.agent}",
            agent=core.agent,
            topic=_REPEATED_ERRORS,
            description=f"{len(errors)} failed attempts in 24 h; the last: {last['title']}: {last['error']}",
            severity="high",
            since=clock.iso(core.time.wall()),
        )
