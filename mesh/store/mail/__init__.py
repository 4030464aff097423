"""Mail as it lies in files; `mesh.store.mailbox` is the door."""
