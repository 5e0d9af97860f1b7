-- Keeps the working set from changing until the end of the transaction.
-- Locks: the table run, against all but readers.
LOCK TABLE scoop.run IN EXCLUSIVE MODE
