/**
 * The tables of the host's notes, as steps from one version to the next. A step that was released is never
 * changed: what it made lies on hosts.
 */
export const migrations: ReadonlyArray<string> = [
  `
  CREATE TABLE document (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    host_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    text TEXT NOT NULL
  ) STRICT;
  CREATE TABLE app (
    app_id TEXT PRIMARY KEY,
    slot INTEGER NOT NULL UNIQUE CHECK (slot >= 0),
    record TEXT NOT NULL
  ) STRICT;
  CREATE TABLE volume (
    volume_id TEXT PRIMARY KEY,
    app_id TEXT NOT NULL,
    record TEXT NOT NULL
  ) STRICT;
  CREATE TABLE slot_cursor (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    slot INTEGER NOT NULL
  ) STRICT;
  INSERT INTO slot_cursor (id, slot) VALUES (1, -1);
  `,
  `
  CREATE TABLE meter (
    app_id TEXT PRIMARY KEY,
    record TEXT NOT NULL
  ) STRICT;
  `,
  `
  CREATE TABLE checkpoint (
    checkpoint_id TEXT PRIMARY KEY,
    record TEXT NOT NULL
  ) STRICT;
  CREATE TABLE export (
    export_id TEXT PRIMARY KEY,
    record TEXT NOT NULL
  ) STRICT;
  `
]
