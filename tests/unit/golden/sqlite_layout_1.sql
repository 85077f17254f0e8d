-- A store as layout 1 wrote it. Never edited: files like this one are out there.
BEGIN TRANSACTION;
PRAGMA application_id = 1398228818;
PRAGMA user_version = 1;
CREATE TABLE circuits (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        phase TEXT NOT NULL,
        mode TEXT NOT NULL,
        seen_s REAL NOT NULL,
        event_seq INTEGER NOT NULL,
        state TEXT NOT NULL,
        policy TEXT NOT NULL
    );
INSERT INTO "circuits" VALUES(1,'provider/anthropic',3,'open','auto',1750000000.0,1,'{"schema":1,"key":"provider/anthropic","memories":{"consecutive_failures":3},"phase":"open","mode":"auto","order":null,"generation":2,"version":3,"event_seq":1,"seen_s":1750000000.0,"heat":1.0,"outage":{"opened_at_s":1750000000.0,"retry_at_s":1750000060.0,"cooldown_s":60.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":"3 failures in a row (threshold 3)"},"probing":{"permits":[],"issued":0,"successes":0},"failures":[[1750000000.0,"529 overloaded"],[1750000000.0,"529 overloaded"],[1750000000.0,"529 overloaded"]],"totals":{"succeeded":0,"failed":3,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        circuit TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        UNIQUE (circuit, seq)
    );
INSERT INTO "events" VALUES(1,'provider/anthropic',1,'{"schema":1,"circuit":"provider/anthropic","seq":1,"at_s":1750000000.0,"kind":"moved","before":"closed","after":"open","mode":"auto","generation":2,"reason":"3 failures in a row (threshold 3)","by":"","why":"","retry_after_s":60.0}');
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE unreadable (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        at_s REAL NOT NULL,
        why TEXT NOT NULL,
        state BLOB,
        policy BLOB
    );
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',1);
COMMIT;
