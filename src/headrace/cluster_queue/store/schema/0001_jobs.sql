-- Times are seconds since the epoch.

-- A row a job; `uid` is that of its object, and `version` that of the FluxJob of which the row tells. `started_at` is its
-- first start.
CREATE TABLE jobs (
    uid TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    jobid BIGINT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority BIGINT NOT NULL,
    width BIGINT NOT NULL,
    duration DOUBLE PRECISION NOT NULL,
    state TEXT NOT NULL,
    nodes TEXT NOT NULL,
    queued_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION
);

CREATE INDEX jobs_by_end ON jobs (ended_at);

-- Events as RFC 18 has them; rows are only added. `occurrence` tells those of one name and job apart.
CREATE TABLE events (
    uid TEXT NOT NULL REFERENCES jobs (uid),
    name TEXT NOT NULL,
    occurrence TEXT NOT NULL,
    timestamp DOUBLE PRECISION NOT NULL,
    context TEXT NOT NULL,
    PRIMARY KEY (uid, name, occurrence)
);

-- From when to when a job has had places for so many pods; `attempt` is the start after which it had them.
CREATE TABLE usage (
    uid TEXT NOT NULL REFERENCES jobs (uid),
    since DOUBLE PRECISION NOT NULL,
    until DOUBLE PRECISION,
    attempt DOUBLE PRECISION NOT NULL,
    pods BIGINT NOT NULL,
    PRIMARY KEY (uid, since)
);

CREATE INDEX usage_by_end ON usage (until);
