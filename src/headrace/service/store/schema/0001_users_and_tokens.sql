-- Times are seconds since the epoch. Earlier development versions of Headrace made the same tables with Alembic. Such a
-- store keeps its tables, except for the table of Alembic.

-- The row of a removed user stays. The user's jobs still have the userid, so it must not be assigned to another user,
-- unless passwd does so.
CREATE TABLE IF NOT EXISTS users (
    userid INTEGER NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL UNIQUE,
    password VARCHAR(256) NOT NULL,
    admin BOOLEAN NOT NULL,
    added FLOAT NOT NULL,
    removed FLOAT
);

-- The text of a token is not stored, only its hash; users name a token by its `id`. A session is the token of a
-- browser's cookie.
CREATE TABLE IF NOT EXISTS tokens (
    id VARCHAR(16) NOT NULL PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    userid INTEGER NOT NULL REFERENCES users (userid),
    note VARCHAR(200) NOT NULL,
    session BOOLEAN NOT NULL,
    issued FLOAT NOT NULL,
    ends FLOAT NOT NULL
);

CREATE INDEX IF NOT EXISTS tokens_userid ON tokens (userid);

DROP TABLE IF EXISTS alembic_version;
