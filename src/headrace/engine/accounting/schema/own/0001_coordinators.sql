-- Users who may change banks below a bank, and its users and theirs.
CREATE TABLE headrace_coordinator (
    username TEXT NOT NULL,
    bank TEXT NOT NULL,
    PRIMARY KEY (username, bank)
);
