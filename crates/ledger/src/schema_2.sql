-- Version 2 of the ledger: what came of the earlier runs of each job. Never changed once released.
CREATE TABLE runs (
    job               INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    attempts          INTEGER NOT NULL,
    state             TEXT    NOT NULL CHECK (state IN ('queued', 'paused', 'succeeded', 'failed', 'cancelled')),
    updated_unix_ms   INTEGER NOT NULL,
    finished_unix_ms  INTEGER,
    files_listed      INTEGER NOT NULL,
    bytes_listed      INTEGER NOT NULL,
    files_done        INTEGER NOT NULL,
    bytes_done        INTEGER NOT NULL,
    files_skipped     INTEGER NOT NULL,
    bytes_skipped     INTEGER NOT NULL,
    files_failed      INTEGER NOT NULL,
    directories       INTEGER NOT NULL,
    bytes_sent        INTEGER NOT NULL,
    bytes_resumed     INTEGER NOT NULL,
    failures_listed   INTEGER NOT NULL,
    failures_unlisted INTEGER NOT NULL,
    PRIMARY KEY (job, attempts)
) STRICT, WITHOUT ROWID;
