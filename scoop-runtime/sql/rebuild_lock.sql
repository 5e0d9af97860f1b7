-- Nobody changes the working set until the end of the transaction.
-- Locks: the table run, against all but readers.
LOCK TABLE scoop.run IN EXCLUSIVE MODE
