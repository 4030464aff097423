"""Every timeout, cap and budget of the mesh: unit in the name, reason beside it.

Each is overridable in registry.json under `limits` (or `agents.<id>.limits`) by its camelCase name; `mesh limits`
prints them all. Ticks are mesh minutes and scale with `--tick-seconds`; `_s` is real seconds and never scales.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel


def _limit(default: Any, unit: str, reason: str, *, low: float = 0, high: float = 1e12) -> Any:
    extra: dict[str, Any] = {"unit": unit}
    return Field(default=default, description=reason, ge=low, le=high, json_schema_extra=extra)


class Limits(BaseModel):
    """The limits in force. Frozen: a registry edit makes a new one."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    # -- the clock and what hangs on it
    beat_interval_s: float = _limit(
        1.0, "s", "a stopped loop shows within seconds; a beat costs microseconds", low=0.1, high=30
    )
    ping_every_ticks: int = _limit(15, "ticks", "the protocol's buddy heartbeat", low=1, high=1440)
    ping_timeout_s: float = _limit(5.0, "s", "the protocol's ping time-out", low=0.1, high=60)
    ping_retries: int = _limit(3, "count", "one lost packet or slow moment is not a failure", high=10)
    ping_retry_pause_s: float = _limit(1.0, "s", "a restarting buddy is back within it", high=30)
    repair_every_ticks: int = _limit(
        5,
        "ticks",
        "the protocol's rhythm of stall checks; moves cut short by a crash end here",
        low=1,
        high=1440,
    )
    file_fresh_s: float = _limit(
        1.0, "s", "how often edited files are looked at; an edit must count within 2 s", low=0.05, high=2
    )

    # -- health
    stale_after_s: float = _limit(10, "s", "ten missed beats: shown as stale, nothing is decided from it", low=2)
    offline_after_s: float = _limit(60, "s", "a minute without a beat: shown as offline", low=2)
    activity_max_min: float = _limit(120, "min", "the protocol's lastActivityWithin2Hours", low=1)
    task_stuck_min: float = _limit(180, "min", "the protocol's three hours on one task", low=1)
    idle_sync_min: float = _limit(30, "min", "the protocol's idle time after which a sync asks for work", low=1)
    buddy_queue_max: int = _limit(100, "count", "the protocol's 'not 0, not 100+' question", low=1)
    error_rate_max: float = _limit(0.5, "ratio", "more failures than successes in a day is a spike", high=1)

    # -- tasks
    task_attempts_max: int = _limit(3, "count", "a task that failed three times needs a person", low=1, high=20)
    task_retry_delay_ticks: int = _limit(
        1, "ticks", "gives a passing fault time to pass; doubles with each attempt", high=1440
    )
    task_run_max_s: float = _limit(
        900, "s", "no skill that works on local facts needs longer: it hangs; the attempt is stopped", low=1
    )
    tasks_waiting_max: int = _limit(500, "count", "a queue is rewritten whole at each change", low=1, high=10_000)
    result_bytes_max: int = _limit(
        500_000,
        "bytes",
        "results lie in one JSON file each and are sent over HTTP",
        low=1_000,
        high=10_000_000,
    )

    # -- messages
    messages_per_minute: int | None = _limit(
        10, "count/min", "the mailbox document's rate, per sender and recipient; null lifts it", low=1, high=120
    )
    inbox_waiting_max: int = _limit(
        100, "count", "the mailbox document's cap on unprocessed mail", low=1, high=1_000_000
    )
    inbox_alert: int = _limit(50, "count", "the mailbox document's alert on a growing inbox", low=1)
    unacked_alert: int = _limit(10, "count", "the mailbox document's alert on unacknowledged messages", low=1)
    message_bytes_max: int = _limit(
        1_000_000,
        "bytes",
        "the mailbox document's cap; also the largest HTTP body",
        low=1_000,
        high=100_000_000,
    )
    attachment_bytes_max: int = _limit(
        10_000_000, "bytes", "a picture or a log fits; larger things belong in a repository", high=1_000_000_000
    )
    mail_sweep_s: float = _limit(
        5.0, "s", "the mailbox document's polling interval: what no file event told is noticed", low=0.05, high=60
    )
    mail_attempts_max: int = _limit(
        3, "count", "a message that was being handled in so many crashes is their likely cause", low=1, high=20
    )
    mail_future_s: float = _limit(300, "s", "clocks of one host agree; dated later is a mistake", low=1)
    mail_settle_s: float = _limit(
        2.0, "s", "a file that somebody is still writing gets so long to become valid", high=60
    )
    urgent_unacked_min: float = _limit(5, "min", "the mailbox document: then urgent mail goes to the human", low=0.1)
    stale_unacked_min: float = _limit(60, "min", "the mailbox document: then other mail is marked stale", low=0.1)
    mail_retry_s: float = _limit(
        0.25, "s", "before refused mail is tried again from the outbox; doubles to mailRetryMaxS", low=0.01, high=8
    )
    mail_retry_max_s: float = _limit(
        2.0, "s", "longest wait between two tries; who waits 10 s loses its place in the line", low=0.01, high=8
    )
    turn_messages_max: int = _limit(10, "count", "messages that an agent is shown in one turn", low=1, high=1000)
    turn_bytes_max: int = _limit(
        50_000, "bytes", "text of messages in one turn: about 12,000 tokens", low=500, high=10_000_000
    )
    mail_retention_days: float = _limit(30, "days", "the mailbox document: then processed mail is archived")
    archive_retention_days: float = _limit(90, "days", "the mailbox document: then archives are deleted")
    dead_retention_days: float = _limit(90, "days", "time to look at dead and rejected mail")
    max_running: int | None = _limit(
        None, "count", "how many agents' CLI programs run at once; none: from free memory", low=1
    )
    cli_memory_mb: float = _limit(1500, "MB", "what one CLI session takes: 1 to 2 GB", low=50)
    cli_run_max_s: float = _limit(
        14_400, "s", "four hours: a CLI's task takes long, and one that hangs must not hold its place for ever", low=1
    )
    runner_retry_s: float = _limit(
        1800, "s", "a limit that doesn't say when it ends, or a login, is tried again so often", low=1
    )
    run_retention_days: float = _limit(14, "days", "output of CLI programs that have ended")

    # -- context
    context_limit_tokens: int = _limit(180_000, "tokens", "the protocol's model limit", low=1_000)
    context_warn_ratio: float = _limit(0.70, "ratio", "the protocol's warning threshold", high=1)
    context_compress_ratio: float = _limit(0.85, "ratio", "the protocol's compression threshold", high=1)
    context_critical_ratio: float = _limit(0.95, "ratio", "the protocol's forced new session", high=1)

    # -- disk and files
    disk_free_min_mb: int = _limit(
        500, "MB", "below it nothing new starts, so that what runs can still be written down"
    )
    lock_wait_s: float = _limit(5.0, "s", "the protocol's lock time-out", low=0.1, high=60)
    events_bytes_max: int = _limit(10_000_000, "bytes", "one part of the journal; then it is rotated", low=10_000)
    events_files_kept: int = _limit(5, "count", "rotated parts of the journal", low=1, high=100)
    history_bytes_max: int = _limit(2_000_000, "bytes", "one part of an agent's history; then rotated", low=10_000)
    history_files_kept: int = _limit(3, "count", "rotated parts of an agent's history", low=1, high=100)
    log_bytes_max: int = _limit(10_000_000, "bytes", "output of a detached mesh; then rotated", low=10_000)
    task_retention_days: float = _limit(30, "days", "ended tasks; the journal still names them")
    sync_retention_days: float = _limit(30, "days", "hourly sync reports: 5,760 files with eight agents")
    alert_retention_days: float = _limit(90, "days", "resolved alerts and read notices to the human")
    quarantine_retention_days: float = _limit(90, "days", "time to look at damaged files")
    snapshot_retention_days: float = _limit(90, "days", "copies of older state files, from before a migration")

    # -- processes
    start_wait_s: float = _limit(15, "s", "eight agents are up in 3 s; a loaded host gets more", low=1, high=300)
    stop_grace_s: float = _limit(5.0, "s", "an agent saves its work within it; then it is killed", low=0.5, high=60)
    restarts_max: int = _limit(3, "count", "restarts of a crashed agent within the window", low=0, high=20)
    restarts_window_s: float = _limit(60, "s", "more crashes than the maximum within it: reported, left down", low=1)
    unavailable_retry_s: float = _limit(
        5.0, "s", "an agent that could not start for a full disk or a held lock tries again so often", low=0.1
    )
    restart_backoff_s: float = _limit(0.5, "s", "before the second restart; doubles each time", low=0.01, high=60)

    @model_validator(mode="after")
    def _must_not_contradict(self) -> Self:
        ladder = (self.context_warn_ratio, self.context_compress_ratio, self.context_critical_ratio)
        if not ladder[0] < ladder[1] < ladder[2]:
            raise ValueError(
                "contextWarnRatio < contextCompressRatio < contextCriticalRatio must hold, "
                f"but they are {ladder[0]}, {ladder[1]}, {ladder[2]}"
            )
        if self.stale_after_s >= self.offline_after_s:
            raise ValueError(
                f"staleAfterS ({self.stale_after_s:g}) must be below offlineAfterS ({self.offline_after_s:g})"
            )
        if self.stale_after_s < 2 * self.beat_interval_s:
            raise ValueError(
                f"staleAfterS ({self.stale_after_s:g}) must be at least twice beatIntervalS "
                f"({self.beat_interval_s:g}), or healthy agents look stale"
            )
        if self.result_bytes_max > 10 * self.message_bytes_max:
            raise ValueError("resultBytesMax must not exceed ten times messageBytesMax")
        return self

    def with_overrides(self, overrides: dict[str, Any]) -> Limits:
        """These limits with some replaced (keys in camelCase), validated again. Raises pydantic's error."""
        if not overrides:
            return self
        return Limits.model_validate({**self.model_dump(by_alias=True), **overrides})

    def rows(self) -> list[dict[str, Any]]:
        """One row a limit: name, unit, default, value in force, reason."""
        rows = []
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            assert isinstance(extra, dict)
            rows.append(
                {
                    "name": to_camel(name),
                    "unit": extra["unit"],
                    "default": field.default,
                    "value": getattr(self, name),
                    "reason": field.description,
                }
            )
        return rows


DEFAULT = Limits()
