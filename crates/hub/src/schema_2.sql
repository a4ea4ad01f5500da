CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    -- When, and what: JSON.
    times TEXT NOT NULL,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- What changes.
    since INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    dealt TEXT NOT NULL,
    job BLOB,
    slot INTEGER,
    said TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who did what: each line names the digest of the one before it.
CREATE TABLE audit (n INTEGER PRIMARY KEY, line TEXT NOT NULL) STRICT;

-- Orders that may be out of which a copy that was put back knows nothing: nothing is given to these endpoints before they answered.
CREATE TABLE unheard (endpoint TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- What is still to be told to others.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    body TEXT NOT NULL,
    made INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    due INTEGER NOT NULL
) STRICT;
