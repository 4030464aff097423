"""An account that can't be used now parks every agent that spends from it: a usage limit until it ends, a missing
login or program until it is there. One alert an account; nothing is restarted for it."""

from __future__ import annotations

from datetime import timedelta

from mesh import clock
from mesh.errors import MeshError, RunnerUnfit
from mesh.models import MESH
from mesh.models.running import Account, RunnerHealth
from mesh.service.core import Core, log

ALERT = "runner_unfit"
_TITLES = {
    "limited": "{account} has reached its usage limit",
    "logged_out": "{account} is logged out",
    "missing": "{account}: the program is not installed",
}
_NEXT = {
    "limited": "nothing: its agents go on when the limit ends, or after `mesh wake`",
    "logged_out": "log in, or set its key; its agents go on by themselves, at once after `mesh wake`",
    "missing": "install it, or choose another runner in registry.json",
}


class Parking:
    """Whether this agent's account can be used. `account` is None for who spends nothing."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.account: str | None = None
        self.unfit: Account | None = None
        #: Whether an alert may be open that a success should close.
        self._troubled = True
        #: The account that looking found unfit.
        self._marked: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the agent's runner rests, for people."""
        if self.unfit is None:
            return None
        until = f" until {self.unfit.until}" if self.unfit.until else ""
        return f"parked{until}: {self.unfit.detail}"

    async def look(self, health: RunnerHealth | None) -> bool:
        """Bring what is known up to date; True if the agent may go on now and couldn't before."""
        core, before = self._core, self.unfit
        if self._marked not in (None, self.account):
            await self._clear(self._marked)  # the registry chose another: nobody looks at that one any more
        if self.account is None:
            self.unfit = None
            return before is not None
        found = (await core.io(core.store.accounts.unfit)).get(self.account)
        if found is not None and (self._is_over(found) or (found.by_look and health and health.state == "ok")):
            if found.by_look or found.state == "limited":
                await self._clear(self.account)
            else:
                await core.io(core.store.accounts.clear, self.account)
            found = None
        if found is None and health is not None and health.state in ("missing", "logged_out"):
            found = await self._mark(Account(
                state=health.state, detail=health.detail, agent=core.agent, at=self._now(), by_look=True
            ))  # fmt: skip
        self._take(found)
        return before is not None and self.unfit is None

    async def note(self, error: RunnerUnfit) -> None:
        """The runner itself has said that it can't work."""
        state = error.facts.get("state")
        if self.account is None or state not in _TITLES:
            return
        account = Account(
            state=state, detail=error.detail, agent=self._core.agent, at=self._now(), until=error.facts.get("until")
        )
        self._take(await self._mark(account))

    async def note_success(self) -> None:
        """It worked: whatever was wrong with the account is over."""
        core = self._core
        if self.account is not None and self._troubled:
            self._troubled = False
            try:
                await self._clear(self.account)
            except MeshError as error:
                self._troubled = True
                log.warning("%s: %s", core.agent, error.detail)
            self._take(None)

    async def forget(self) -> None:
        """A person says that it is worth a try (`mesh wake`)."""
        if self.account is not None and self.unfit is not None:
            await self._core.io(self._core.store.accounts.clear, self.account)
            self._take(None)

    async def _clear(self, account: str) -> None:
        core = self._core
        await core.io(core.store.accounts.clear, account)
        await core.io(core.store.alerts.resolve, ALERT, MESH, account)
        self._marked = None if self._marked == account else self._marked

    async def _mark(self, account: Account) -> Account:
        core = self._core
        assert self.account is not None
        self._troubled = True
        self._marked = self.account if account.by_look else self._marked
        await core.io(core.store.accounts.mark, self.account, account)
        await core.io(
            core.store.alerts.raise_alert,
            ALERT,
            MESH,
            _TITLES[account.state].format(account=self.account),
            account.detail + (f" (until {account.until})" if account.until else ""),
            about=self.account,
            severity="medium" if account.state == "limited" else "high",
            next_=_NEXT[account.state],
        )
        return account

    def _take(self, found: Account | None) -> None:
        if (found is None) != (self.unfit is None):
            self._core.event("parked" if found else "unparked", found.detail if found else "", account=self.account)
        self.unfit = found
        self._core.parked = self.reason

    def _is_over(self, account: Account) -> bool:
        now = self._core.time.wall()
        try:
            if account.until is not None:
                return now >= clock.parse(account.until)
            waited = now - clock.parse(account.at)
        except ValueError:
            return True  # a broken hand edit: the next attempt finds out
        return not account.by_look and waited >= timedelta(seconds=self._core.limits.runner_retry_s)

    def _now(self) -> str:
        return clock.iso(self._core.time.wall())
