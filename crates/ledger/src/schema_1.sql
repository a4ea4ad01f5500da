-- Version 1 of the ledger. docs/ledger-format.md part B says what each column means. Never changed once released.
CREATE TABLE ledger (
    only     INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT,
    flushes  INTEGER NOT NULL
) STRICT;
INSERT INTO ledger (only, identity, flushes) VALUES (1, NULL, 0);

CREATE TABLE jobs (
    job               INTEGER PRIMARY KEY AUTOINCREMENT,
    id                BLOB    NOT NULL CHECK (length(id) = 16),
    role              TEXT    NOT NULL CHECK (role IN ('sender', 'receiver')),
    peer              TEXT    NOT NULL,
    source            TEXT    NOT NULL,
    destination       TEXT    NOT NULL,
    options           TEXT    NOT NULL,
    state             TEXT    NOT NULL CHECK (state IN ('queued', 'planning', 'running', 'paused', 'succeeded', 'failed', 'cancelled')),
    attempts          INTEGER NOT NULL,
    created_unix_ms   INTEGER NOT NULL,
    updated_unix_ms   INTEGER NOT NULL,
    finished_unix_ms  INTEGER,
    files_listed      INTEGER NOT NULL DEFAULT 0,
    bytes_listed      INTEGER NOT NULL DEFAULT 0,
    files_done        INTEGER NOT NULL DEFAULT 0,
    bytes_done        INTEGER NOT NULL DEFAULT 0,
    files_skipped     INTEGER NOT NULL DEFAULT 0,
    bytes_skipped     INTEGER NOT NULL DEFAULT 0,
    files_failed      INTEGER NOT NULL DEFAULT 0,
    directories       INTEGER NOT NULL DEFAULT 0,
    bytes_sent        INTEGER NOT NULL DEFAULT 0,
    bytes_resumed     INTEGER NOT NULL DEFAULT 0,
    failures_listed   INTEGER NOT NULL DEFAULT 0,
    failures_unlisted INTEGER NOT NULL DEFAULT 0,
    UNIQUE (id, role, peer),
    CHECK ((finished_unix_ms IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled')))
) STRICT;

CREATE TABLE bundles (
    job              INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    number           INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    files            INTEGER NOT NULL,
    bytes            INTEGER NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('started', 'durable', 'failed')),
    digest           TEXT,
    recorded_unix_ms INTEGER NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE failures (
    job        INTEGER NOT NULL REFERENCES jobs (job) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    path       BLOB    NOT NULL,
    kind       TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    at_unix_ms INTEGER NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
