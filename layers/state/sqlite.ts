/** The host's notes in SQLite: `<state_dir>/state/state.db`. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite"
import { Effect, Layer, Option, type Result, Schema } from "effect"
import {
  AcceptedDocument,
  AppRecord,
  CheckpointRecord,
  ExportRecord,
  HostState,
  HostStateError,
  MeterRecord,
  VolumeRecord
} from "../../src/services/HostState.ts"
import { type Database, openDatabase } from "./database.ts"
import { layerHostDirectories } from "./directories.ts"

export interface SqliteStateOptions {
  /** Absolute. */
  readonly stateDir: string
}

/** For who holds the state directory. Records hold the apps' environments: the directory is 0700 and its files 0600. */
export const layerSqliteNotes = ({ stateDir }: SqliteStateOptions) =>
  Layer.effect(HostState, Effect.map(openDatabase(stateDir), hostState))

/** The same, and holds the state directory: a second daemon is refused. */
export const layerSqliteState = (options: SqliteStateOptions) =>
  layerSqliteNotes(options).pipe(
    Layer.provide(layerHostDirectories([{ key: "paths.state_dir", path: options.stateDir }]))
  )

/** The notes that lie in a database. */
export const hostState = ({ read, write }: Database): HostState["Service"] => ({
  document: read("read the accepted document", (db) =>
    db.prepare(`SELECT host_id AS hostId, digest, text FROM document`).get()
  ).pipe(
    Effect.flatMap((row) =>
      row === undefined
        ? Effect.succeedNone
        : Effect.map(decoded("the accepted document", decodeDocument, { ...row }), Option.some)
    )
  ),

  accept: (document) =>
    write("accept a document", (db) => {
      db.prepare(
        `INSERT INTO document (id, host_id, digest, text) VALUES (1, ?, ?, ?)
         ON CONFLICT (id) DO UPDATE SET host_id = excluded.host_id, digest = excluded.digest, text = excluded.text`
      ).run(document.hostId, document.digest, document.text)
    }),

  apps: read("read the apps", (db) =>
    db.prepare("SELECT app_id AS id, slot, record FROM app ORDER BY slot").all()
  ).pipe(
    Effect.flatMap((rows) =>
      Effect.forEach(rows, (row) =>
        decodedJson(`app ${row.id}`, decodeApp, row.record).pipe(
          Effect.filterOrFail(
            (record) => record.appId === row.id && record.slot === row.slot,
            () => unreadable(`app ${row.id}`, "it is about another app or slot than its row")
          )
        )
      )
    )
  ),

  saveApp: (record) => write(`save app ${record.appId}`, (db) => putApp(db, record)),

  deleteApp: (appId) =>
    write(`delete app ${appId}`, (db) => {
      db.prepare("DELETE FROM app WHERE app_id = ?").run(appId)
    }),

  volumes: read("read the volumes", (db) =>
    db.prepare("SELECT volume_id AS id, record FROM volume ORDER BY volume_id").all()
  ).pipe(
    Effect.flatMap((rows) =>
      Effect.forEach(rows, (row) =>
        decodedJson(`volume ${row.id}`, decodeVolume, row.record).pipe(
          Effect.filterOrFail(
            (record) => record.volumeId === row.id,
            () => unreadable(`volume ${row.id}`, "it is about another volume than its row")
          )
        )
      )
    )
  ),

  saveVolume: (record) =>
    write(`save volume ${record.volumeId}`, (db) => {
      db.prepare(
        `INSERT INTO volume (volume_id, app_id, record) VALUES (?, ?, ?)
         ON CONFLICT (volume_id) DO UPDATE SET app_id = excluded.app_id, record = excluded.record`
      ).run(record.volumeId, record.appId, JSON.stringify(record))
    }),

  deleteVolume: (volumeId) =>
    write(`delete volume ${volumeId}`, (db) => {
      db.prepare("DELETE FROM volume WHERE volume_id = ?").run(volumeId)
    }),

  checkpoints: read("read the checkpoints", (db) =>
    db.prepare("SELECT checkpoint_id AS id, record FROM checkpoint ORDER BY checkpoint_id").all()
  ).pipe(
    Effect.flatMap((rows) =>
      Effect.forEach(rows, (row) =>
        decodedJson(`checkpoint ${row.id}`, decodeCheckpoint, row.record).pipe(
          Effect.filterOrFail(
            (record) => record.checkpointId === row.id,
            () => unreadable(`checkpoint ${row.id}`, "it is about another checkpoint than its row")
          )
        )
      )
    )
  ),

  saveCheckpoint: (record) =>
    write(`save checkpoint ${record.checkpointId}`, (db) => {
      db.prepare(
        `INSERT INTO checkpoint (checkpoint_id, record) VALUES (?, ?)
         ON CONFLICT (checkpoint_id) DO UPDATE SET record = excluded.record`
      ).run(record.checkpointId, JSON.stringify(record))
    }),

  deleteCheckpoint: (checkpointId) =>
    write(`delete checkpoint ${checkpointId}`, (db) => {
      db.prepare("DELETE FROM checkpoint WHERE checkpoint_id = ?").run(checkpointId)
    }),

  exports: read("read the exports", (db) =>
    db.prepare("SELECT export_id AS id, record FROM export ORDER BY export_id").all()
  ).pipe(
    Effect.flatMap((rows) =>
      Effect.forEach(rows, (row) =>
        decodedJson(`export ${row.id}`, decodeExport, row.record).pipe(
          Effect.filterOrFail(
            (record) => record.exportId === row.id,
            () => unreadable(`export ${row.id}`, "it is about another export than its row")
          )
        )
      )
    )
  ),

  saveExport: (record) =>
    write(`save export ${record.exportId}`, (db) => {
      db.prepare(
        `INSERT INTO export (export_id, record) VALUES (?, ?)
         ON CONFLICT (export_id) DO UPDATE SET record = excluded.record`
      ).run(record.exportId, JSON.stringify(record))
    }),

  deleteExport: (exportId) =>
    write(`delete export ${exportId}`, (db) => {
      db.prepare("DELETE FROM export WHERE export_id = ?").run(exportId)
    }),

  meters: read("read the meters", (db) =>
    db.prepare("SELECT app_id AS id, record FROM meter ORDER BY app_id").all()
  ).pipe(
    Effect.flatMap((rows) =>
      Effect.forEach(rows, (row) =>
        decodedJson(`the meters of app ${row.id}`, decodeMeters, row.record).pipe(
          Effect.filterOrFail(
            (record) => record.appId === row.id,
            () => unreadable(`the meters of app ${row.id}`, "they are about another app than their row")
          )
        )
      )
    )
  ),

  saveMeters: (records, forgotten) =>
    write("save the meters", (db) => {
      const forget = db.prepare("DELETE FROM meter WHERE app_id = ?")
      for (const appId of forgotten) forget.run(appId)
      const save = db.prepare(
        `INSERT INTO meter (app_id, record) VALUES (?, ?)
         ON CONFLICT (app_id) DO UPDATE SET record = excluded.record`
      )
      for (const record of records) save.run(record.appId, JSON.stringify(record))
    }),

  slotCursor: read("read the slot cursor", (db) =>
    Number(db.prepare("SELECT slot FROM slot_cursor").get()?.slot)
  ),

  claimSlot: (record) =>
    write(`claim slot ${record.slot} for app ${record.appId}`, (db) => {
      putApp(db, record)
      db.prepare("UPDATE slot_cursor SET slot = ?").run(record.slot)
    })
})

const putApp = (db: DatabaseSync, record: AppRecord): void => {
  const holder = db
    .prepare("SELECT app_id FROM app WHERE slot = ? AND app_id <> ?")
    .get(record.slot, record.appId)
  if (holder !== undefined) throw new Error(`slot ${record.slot} belongs to app ${holder.app_id}`)
  db.prepare(
    `INSERT INTO app (app_id, slot, record) VALUES (?, ?, ?)
     ON CONFLICT (app_id) DO UPDATE SET slot = excluded.slot, record = excluded.record`
  ).run(record.appId, record.slot, JSON.stringify(record))
}

const decodeDocument = Schema.decodeUnknownResult(AcceptedDocument)
const decodeApp = Schema.decodeUnknownResult(AppRecord)
const decodeCheckpoint = Schema.decodeUnknownResult(CheckpointRecord)
const decodeExport = Schema.decodeUnknownResult(ExportRecord)
const decodeMeters = Schema.decodeUnknownResult(MeterRecord)
const decodeVolume = Schema.decodeUnknownResult(VolumeRecord)

const unreadable = (name: string, reason: string) =>
  new HostStateError({
    operation: `read ${name}`,
    cause: new Error(`its record is not readable: ${reason}`)
  })

/** What was written by us is read back as it was; anything else fails by name and never with a value of it. */
const decoded = <A>(
  name: string,
  decode: (input: unknown) => Result.Result<A, Schema.SchemaError>,
  input: unknown
): Effect.Effect<A, HostStateError> =>
  Effect.fromResult(decode(input)).pipe(Effect.mapError((error) => unreadable(name, error.message)))

const decodedJson = <A>(
  name: string,
  decode: (input: unknown) => Result.Result<A, Schema.SchemaError>,
  text: SQLOutputValue | undefined
): Effect.Effect<A, HostStateError> =>
  Effect.try({
    try: (): unknown => JSON.parse(String(text)),
    // The parser's own message quotes the text.
    catch: () => unreadable(name, "it is not JSON")
  }).pipe(Effect.flatMap((input) => decoded(name, decode, input)))
