-- Headrace's own tables in the database. Each statement may be run again.
-- Jobs whose usage has been booked, by the decimal job id. A row is deleted some time after its job ended: see usage.py.
CREATE TABLE IF NOT EXISTS headrace_booked (
    id text PRIMARY KEY NOT NULL,
    bank text NOT NULL,
    t_inactive real NOT NULL
);

CREATE INDEX IF NOT EXISTS headrace_booked_end ON headrace_booked (t_inactive);

-- When the last job ended that was booked here, in one row.
CREATE TABLE IF NOT EXISTS headrace_last_end (
    place integer PRIMARY KEY NOT NULL,
    t_inactive real NOT NULL
);
