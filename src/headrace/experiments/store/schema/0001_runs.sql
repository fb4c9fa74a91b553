-- One row for each run that has ended. parameters, phases and metrics are JSON objects; times are seconds since the epoch.
CREATE TABLE runs (
  cell TEXT NOT NULL,
  number INTEGER NOT NULL,
  warmup INTEGER NOT NULL,
  job TEXT NOT NULL,
  target TEXT NOT NULL,
  size INTEGER NOT NULL,
  machine TEXT NOT NULL,
  parameters TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  exit INTEGER,
  attempt INTEGER NOT NULL,
  position INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL NOT NULL,
  phases TEXT NOT NULL,
  metrics TEXT NOT NULL,
  nodes TEXT NOT NULL,
  node_seconds REAL NOT NULL,
  cost REAL,
  PRIMARY KEY (cell, number)
);

-- The same numbers, one row each, for tools that do not read JSON.
CREATE VIEW metrics AS
  SELECT cell, number, warmup, state, json_each.key AS metric, json_each.value AS value
  FROM runs, json_each(runs.metrics);

CREATE VIEW phases AS
  SELECT cell, number, warmup, state, json_each.key AS phase, json_each.value AS began
  FROM runs, json_each(runs.phases);
