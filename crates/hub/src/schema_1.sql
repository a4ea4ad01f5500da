CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;

CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    project TEXT NOT NULL,
    class TEXT NOT NULL,
    priority INTEGER NOT NULL,
    from_endpoint TEXT NOT NULL,
    to_endpoint TEXT NOT NULL,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- What changes.
    version INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    begun INTEGER,
    ended INTEGER,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    text TEXT NOT NULL,
    hint TEXT NOT NULL,
    until INTEGER,
    attempt INTEGER NOT NULL,
    role TEXT,
    goal TEXT,
    failures INTEGER NOT NULL,
    passes INTEGER NOT NULL,
    is_switched INTEGER NOT NULL,
    after TEXT NOT NULL,
    code INTEGER,
    files_listed INTEGER NOT NULL,
    bytes_listed INTEGER NOT NULL,
    is_listed INTEGER NOT NULL,
    files_done INTEGER NOT NULL,
    bytes_done INTEGER NOT NULL,
    -- Of the last attempt that ended.
    report TEXT
) STRICT;
CREATE INDEX open_jobs ON jobs (seq) WHERE ended IS NULL;
CREATE INDEX jobs_of_status ON jobs (status, seq);
CREATE INDEX jobs_of_owner ON jobs (owner, seq);

CREATE TABLE labels (
    seq INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_of_job ON labels (seq);

-- Of submissions, by who made them.
CREATE TABLE keys (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    job BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_of_job ON keys (job);

CREATE TABLE failures (
    seq INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    job BLOB NOT NULL,
    owner TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
