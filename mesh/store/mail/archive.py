"""What becomes of mail that is done: into the month's archive, and deleted when that is old too."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mesh import clock
from mesh.errors import DurabilityLost, Fenced, StoreUnavailable
from mesh.limits import Limits
from mesh.models import SETTLED, DeliveryState
from mesh.store.codec import decode
from mesh.store.files import Files
from mesh.store.layout import Layout, MailFolders
from mesh.store.mail import months
from mesh.store.mail.ages import days_ago, lay_before, older
from mesh.store.mail.names import REASON, file_name, parse_name
from mesh.store.mail.reading import BadMail, parse_message

#: Of one address in one run, so that what is read at once fits into memory; the rest waits for the next run.
FILES_MAX, BYTES_MAX = 2_000, 50_000_000
#: The copy of a sent message is needed until nothing follows any more.
_DONE = SETTLED | {DeliveryState.UNCERTAIN}


class Archive:
    """`archive/YYYY-MM.jsonl.gz` of each address. What waits, in an inbox or with its sender, is never touched."""

    def __init__(self, files: Files, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._layout = layout
        self._time = time

    def run(self, address: str, limits: Limits) -> dict[str, int]:
        """Archive and delete what is old enough; returns how many of each sort, `notArchived` being those that
        could not be read or written. They stay for the next run and don't stop the others."""
        folders = self._layout.mail(address)
        mail_before = days_ago(self._time, limits.mail_retention_days)
        archive_before = days_ago(self._time, limits.archive_retention_days)
        dead_before = days_ago(self._time, limits.dead_retention_days)
        done: Counter[str] = Counter()
        # What frees space goes first: archiving needs some.
        done["archivesDeleted"] = self._delete_archives(folders.archive, archive_before)
        done["outboxDeleted"] = self._delete_copies(folders.outbox, mail_before)
        done["deadDeleted"] = sum(
            self._delete_dead(folders, place, dead_before) for place in (folders.dead, folders.rejected)
        )
        with self._alone(folders) as alone:
            if alone:
                self._archive(folders, mail_before, done)
        return {name: count for name, count in done.items() if count}

    def count(self, address: str) -> dict[str, int]:
        """How many archives there are, and how many messages they hold."""
        found = self._archives(address)
        return {"files": len(found), "messages": sum(1 for path in found for _ in self._lines(path))}

    def read(self, address: str, month: str | None = None) -> Iterator[dict[str, Any]]:
        """The archived messages, or those of one month (`2026-02`): oldest month first, else as they were archived.
        What was no message when it was archived is `{"damaged": text, "file": name}`."""
        for path in self._archives(address):
            if month is None or path.endswith(f"/{month}{months.SUFFIX}"):
                yield from (document for line in self._lines(path) if (document := _document(line)))

    # -- processed mail

    @contextmanager
    def _alone(self, folders: MailFolders) -> Iterator[bool]:
        """False if there is nothing to archive, or while another process does: two would write over each other's
        lines, and both delete the originals."""
        if not self._files.names(folders.processed):
            yield False
            return
        if not self._files.exists(folders.archive):
            self._files.make_folders(folders.archive)
        try:
            handle = self._files.disk.try_lock(f"{folders.archive}/.lock")
        except OSError as error:
            raise StoreUnavailable(f"Could not lock {folders.archive}: {error.strerror}.") from error
        try:
            yield handle is not None
        finally:
            if handle is not None:
                self._files.disk.unlock(handle)

    def _archive(self, folders: MailFolders, oldest: float, done: Counter[str]) -> None:
        by_month: defaultdict[str, list[months.Mail]] = defaultdict(list)
        for mail in self._due(folders, oldest, done):
            by_month[mail.month].append(mail)
        for month, mails in sorted(by_month.items()):
            try:
                months.append(self._files, f"{folders.archive}/{month}{months.SUFFIX}", [mail.line for mail in mails])
            except (DurabilityLost, Fenced):
                raise
            except StoreUnavailable:
                done["notArchived"] += len(mails)
            else:
                done["archived"] += self._delete_originals(folders, mails)

    def _due(self, folders: MailFolders, oldest: float, done: Counter[str]) -> Iterator[months.Mail]:
        count = size = 0
        for name, written in older(self._files, folders.processed, oldest):
            if self._is_in(folders.inbox, name):
                continue
            try:
                data = self._files.read(f"{folders.processed}/{name}")
            except StoreUnavailable:
                done["notArchived"] += 1
                continue
            if data is None:
                continue
            yield months.mail(name, data, written, self._time.wall())
            count, size = count + 1, size + len(data)
            if count >= FILES_MAX or size >= BYTES_MAX:
                return

    def _delete_originals(self, folders: MailFolders, mails: list[months.Mail]) -> int:
        """Ids first, durably: a message that a power cut brings back is archived again without doubling, while a
        marker would stay for good."""
        freed = [marker for mail in mails if (marker := self._free_id(folders, mail.name))]
        if freed:
            self._files.settle(freed[0])
        return sum(self._delete(f"{folders.processed}/{mail.name}") for mail in mails)

    def _free_id(self, folders: MailFolders, name: str) -> str | None:
        """Delete the marker of the message's id; its path if that was done. One that marks another message stays:
        the id was sent anew after a run that was killed halfway."""
        parsed = parse_name(name)
        if parsed is None:
            return None
        marker = f"{folders.ids}/{parsed.id}"
        try:
            data = self._files.read(marker)
            if data is None or file_name(parse_message(data)) != name:
                return None
        except (BadMail, StoreUnavailable):
            return None
        return marker if self._delete(marker) else None

    # -- what is deleted

    def _delete_archives(self, folder: str, oldest: float) -> int:
        """Those put aside as damaged too."""
        found = {name: months.month_in(name, damaged=True) for name in self._files.names(folder)}
        return sum(
            self._delete(f"{folder}/{name}") for name, month in found.items() if month and months.ended(month) < oldest
        )

    def _delete_copies(self, folder: str, oldest: float) -> int:
        names = [name for name, _ in older(self._files, folder, oldest) if name.endswith(".json")]
        return sum(self._delete(f"{folder}/{name}") for name in names if self._state(f"{folder}/{name}") in _DONE)

    def _delete_dead(self, folders: MailFolders, place: str, oldest: float) -> int:
        """By when they came to lie there: a file that somebody dropped may claim to be older. A reason goes with
        its message."""
        names = dict.fromkeys(self._files.names(place))
        deleted = 0
        for name in names:
            is_reason = name.endswith(REASON)
            if is_reason and name.removesuffix(REASON) in names:
                continue
            if not lay_before(self._files, f"{place}/{name}", oldest) or self._is_in(folders.inbox, name):
                continue
            if place == folders.dead:
                self._free_id(folders, name)
            if self._delete(f"{place}/{name}") and not is_reason:
                deleted += 1
                self._delete(f"{place}/{name}{REASON}")
        return deleted

    def _is_in(self, inbox: str, name: str) -> bool:
        """A process that was killed while it took the message out left it there too. Where else it lies is then the
        only sign that it is done with."""
        return self._files.exists(f"{inbox}/{name}")

    def _delete(self, path: str) -> bool:
        try:
            self._files.disk.unlink(path)  # not flushed: what a power cut brings back is deleted again
        except OSError:
            return False
        return True

    # -- what is read

    def _state(self, path: str) -> str | None:
        try:
            document = _document(self._files.read(path) or b"") or {}
        except StoreUnavailable:
            return None
        delivery = document.get("delivery")
        state = delivery.get("state") if isinstance(delivery, dict) else None
        return state if isinstance(state, str) else None

    def _archives(self, address: str) -> list[str]:
        folder = self._layout.mail(address).archive
        return [f"{folder}/{name}" for name in self._files.names(folder) if months.month_in(name)]

    def _lines(self, path: str) -> Iterator[bytes]:
        """The lines, as far as the archive can be read."""
        try:
            yield from (line for line in months.lines(self._files.read(path) or b"") if line.strip())
        except months.Damaged:
            return


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        document = decode(data)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
