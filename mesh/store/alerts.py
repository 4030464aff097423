"""Alerts: one file each in `system/human/`, for what a person must know or decide."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError

from mesh import clock
from mesh.models import Alert, is_id
from mesh.store.codec import decode, encode
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks


class Alerts:
    """Raises, lists and resolves alerts. The same trouble of the same agent is one alert with a count."""

    def __init__(self, files: Files, locks: Locks, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._time = time

    def raise_alert(
        self,
        type_: str,
        agent: str,
        title: str,
        detail: str,
        *,
        about: str = "",
        severity: str = "medium",
        tried: list[str] | None = None,
        next_: str = "",
        once: bool = False,
    ) -> bool:
        """Raise the alert, or count it again if it is open already. True if it is new. `about` tells two
        troubles of one type and agent apart (a task, a file). With `once` one that was raised before, whatever
        became of it, is left as it is."""
        name = _name(type_, agent, about)
        now = clock.iso(self._time.wall())
        with self._locks.hold("system/human"):
            known = self._read(name)
            if once and known is not None:
                return False
            fresh = known is None or known.status == "resolved"
            since, count = (now, 1) if fresh or known is None else (known.since, known.count + 1)
            status = "open" if fresh or known is None else known.status
            fields: dict[str, Any] = {
                "id": name,
                "at": now,
                "severity": severity,
                "agentId": agent,
                "type": type_,
            }
            fields |= {"title": title, "detail": detail, "tried": tried or [], "next": next_}
            alert = Alert.model_validate({**fields, "since": since, "count": count, "status": status})
            self._files.replace(self._layout.alert(name), encode(alert.dump()))
        return fresh

    def resolve(self, type_: str, agent: str, about: str = "") -> bool:
        """The trouble is over. True if there was an open alert of it."""
        return self.set_status(_name(type_, agent, about), "resolved")

    def set_status(self, alert_id: str, status: Literal["acked", "resolved"]) -> bool:
        """A person has seen it, or it is over. True if it was open and is now otherwise."""
        if not is_id(alert_id) or not self._files.exists(self._layout.alert(alert_id)):
            return False
        with self._locks.hold("system/human"):
            known = self._read(alert_id)
            if known is None or known.status in ("resolved", status):
                return False
            known.status = status
            known.at = clock.iso(self._time.wall())
            self._files.replace(self._layout.alert(alert_id), encode(known.dump()))
        return True

    def all(self) -> list[Alert]:
        """Every alert, oldest first."""
        names = [name.removesuffix(".json") for name in self._files.names(self._layout.human) if name.endswith(".json")]
        found = [alert for name in names if (alert := self._read(name))]
        return sorted(found, key=lambda alert: (alert.since, alert.id))

    def open(self) -> list[Alert]:
        """The alerts that are not resolved, oldest first."""
        return [alert for alert in self.all() if alert.status != "resolved"]

    def _read(self, name: str) -> Alert | None:
        data = self._files.read(self._layout.alert(name))
        try:
            return None if data is None else Alert.model_validate(decode(data))
        except (ValueError, ValidationError):
            return None  # a damaged alert is raised anew


def _name(type_: str, agent: str, about: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in f"{type_}-{agent}-{about}")
    return kept.strip("-")[:120]
