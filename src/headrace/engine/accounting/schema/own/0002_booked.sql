-- Jobs whose usage has been booked, by the decimal job id. A row is deleted an hour after its job ended.
CREATE TABLE headrace_booked (
    id TEXT PRIMARY KEY,
    bank TEXT NOT NULL,
    t_inactive DOUBLE PRECISION NOT NULL
);

CREATE INDEX headrace_booked_end ON headrace_booked (t_inactive);

-- When the last job ended that was booked here, in one row.
CREATE TABLE headrace_last_end (
    place INTEGER PRIMARY KEY,
    t_inactive DOUBLE PRECISION NOT NULL
);
