-- A store as layout 2 wrote it. Never edited: files like this one are out there.
BEGIN TRANSACTION;
PRAGMA application_id = 1398228818;
PRAGMA user_version = 2;
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
INSERT INTO "circuits" VALUES(2,'story/x',1,'closed','auto',1750000100.0,0,'{"schema":1,"key":"story/x","memories":{"total_cost":120000},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1750000100.0,"heat":0.06,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":1,"late":0,"refused":0,"overruled":0,"cost_micros":120000}}','{"detectors":[{"kind":"total_cost","budget_micros":2000000,"threshold":0.99999975}],"recovery":{"kind":"latched"},"combine":{"kind":"any"},"tripping_at":0.75,"strict":false}');
INSERT INTO "circuits" VALUES(3,'lock/db',1,'closed','auto',1750000100.0,0,'{"schema":1,"key":"lock/db","memories":{"lock_wait":0.0},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1750000100.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":1,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0}}','{"detectors":[{"kind":"lock_wait","limit_s":60.0}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":3600.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        circuit TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        UNIQUE (circuit, seq)
    );
INSERT INTO "events" VALUES(1,'provider/anthropic',1,'{"schema":1,"circuit":"provider/anthropic","seq":1,"at_s":1750000000.0,"kind":"moved","before":"closed","after":"open","mode":"auto","generation":2,"reason":"3 failures in a row (threshold 3)","by":"","why":"","retry_after_s":60.0}');
CREATE TABLE ledger_lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        line TEXT NOT NULL
    );
INSERT INTO "ledger_lines" VALUES(1,'budget','atlas','[1,1750000100.0,"opened","atlas",5000000,""]');
INSERT INTO "ledger_lines" VALUES(2,'budget','atlas','[2,1750000100.0,"opened","atlas/wave-1",2000000,""]');
INSERT INTO "ledger_lines" VALUES(3,'budget','atlas','[3,1750000100.0,"reserved","atlas/wave-1/~0f0e3640fcbc5899",500000,"coder"]');
INSERT INTO "ledger_lines" VALUES(4,'budget','atlas','[4,1750000100.0,"charged","atlas/wave-1/~0f0e3640fcbc5899",120000,"coder"]');
INSERT INTO "ledger_lines" VALUES(5,'budget','atlas','[5,1750000100.0,"closed","atlas/wave-1/~0f0e3640fcbc5899",380000,"coder"]');
INSERT INTO "ledger_lines" VALUES(6,'budget','atlas','[6,1750000100.0,"reserved","atlas/wave-1/~af6de8ea0493da0e",300000,"tester"]');
CREATE TABLE ledger_values (
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (shelf, key)
    );
INSERT INTO "ledger_values" VALUES('budget','atlas','{"schema":1,"lines":6,"charged_micros":120000,"settled":[["atlas/wave-1/~0f0e3640fcbc5899",120000,true]],"expires_s":1750001000.0,"seen_s":1750000100.0,"nodes":{"atlas":[5000000,120000,1880000,"","",null,"spent",0,1750000100.0],"atlas/wave-1":[2000000,120000,300000,"story/x","",null,"spent",0,1750000100.0],"atlas/wave-1/~af6de8ea0493da0e":[300000,0,0,"","tester",null,"spent",0,1750000100.0]}}');
INSERT INTO "ledger_values" VALUES('lock','db','{"schema":1,"token":1,"holder":["22f079ee3f5f9350","ada",1750000100.0,1750000160.0],"waiting":[],"seen_s":1750000100.0}');
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE unreadable (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        at_s REAL NOT NULL,
        why TEXT NOT NULL,
        state BLOB,
        policy BLOB
    );
CREATE INDEX ledger_lines_by_key ON ledger_lines (shelf, key, number);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',1);
INSERT INTO "sqlite_sequence" VALUES('ledger_lines',6);
COMMIT;
