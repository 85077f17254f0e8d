BEGIN TRANSACTION;
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
INSERT INTO "circuits" VALUES(1,'calm',1,'closed','auto',1790000000.0,0,'{"schema":1,"key":"calm","memories":{"consecutive_failures":0},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1790000000.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":1,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":1,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(2,'provider/open',6,'open','auto',1790000000.0,1,'{"schema":1,"key":"provider/open","memories":{"consecutive_failures":3},"phase":"open","mode":"auto","order":null,"generation":2,"version":6,"event_seq":1,"seen_s":1790000000.0,"heat":1.0,"outage":{"opened_at_s":1790000000.0,"retry_at_s":1790000060.0,"cooldown_s":60.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":"3 failures in a row (threshold 3)"},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[[1790000000.0,"529 overloaded"],[1790000000.0,"529 overloaded"],[1790000000.0,"529 overloaded"]],"totals":{"succeeded":0,"failed":3,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":6,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(3,'provider/probing',8,'half_open','auto',1790000000.0,3,'{"schema":1,"key":"provider/probing","memories":{"consecutive_failures":3},"phase":"half_open","mode":"auto","order":null,"generation":3,"version":8,"event_seq":3,"seen_s":1790000000.0,"heat":1.0,"outage":{"opened_at_s":1790000000.0,"retry_at_s":null,"cooldown_s":60.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":"3 failures in a row (threshold 3)"},"probing":{"permits":[[3,1,1790000060.0]],"issued":1,"successes":0,"expired":[]},"failures":[[1790000000.0,"529 overloaded"],[1790000000.0,"529 overloaded"],[1790000000.0,"529 overloaded"]],"totals":{"succeeded":0,"failed":3,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":8,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(4,'op/tripping',3,'tripping','auto',1790000000.0,1,'{"schema":1,"key":"op/tripping","memories":{"consecutive_failures":2},"phase":"tripping","mode":"auto","order":null,"generation":1,"version":3,"event_seq":1,"seen_s":1790000000.0,"heat":0.6666666666666666,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":"2 failures in a row (threshold 3)"},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[[1790000000.0,"529 overloaded"],[1790000000.0,"529 overloaded"]],"totals":{"succeeded":0,"failed":2,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":3,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":0.5,"strict":false}');
INSERT INTO "circuits" VALUES(5,'op/held',1,'closed','held_open',1790000000.0,1,'{"schema":1,"key":"op/held","memories":{"consecutive_failures":0},"phase":"closed","mode":"held_open","order":["ada","the provider is down","held_open",false],"generation":1,"version":1,"event_seq":1,"seen_s":1790000000.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(6,'op/shadow',1,'closed','shadow',1790000000.0,1,'{"schema":1,"key":"op/shadow","memories":{"consecutive_failures":0},"phase":"closed","mode":"shadow","order":["ada","the provider is down","shadow",false],"generation":1,"version":1,"event_seq":1,"seen_s":1790000000.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0}}','{"detectors":[{"kind":"consecutive_failures","threshold":3}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":300.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(7,'story/x',1,'closed','auto',1790000000.0,0,'{"schema":1,"key":"story/x","memories":{"total_cost":120000},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1790000000.0,"heat":0.03999998666667111,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":1,"late":0,"refused":0,"overruled":0,"cost_micros":120000},"recent":{"version":1,"base":{"key":"story/x","memories":{"total_cost":0},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1790000000.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"schema":1},"tells":[[1790000000.0,[null,null,null,null,1,0,120000,null,null,null,null,null,null,null,null,null,null,null],null]],"final":1,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"total_cost","budget_micros":2000000,"threshold":1.5}],"recovery":{"kind":"latched"},"combine":{"kind":"any"},"tripping_at":0.75,"strict":false}');
INSERT INTO "circuits" VALUES(8,'rules/coder',1,'open','auto',1790000000.0,1,'{"schema":1,"key":"rules/coder","memories":{"violation":"rule deletes/outside"},"phase":"open","mode":"auto","order":null,"generation":2,"version":1,"event_seq":1,"seen_s":1790000000.0,"heat":1.0,"outage":{"opened_at_s":1790000000.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":"rule deletes/outside"},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":0,"failed":0,"ignored":1,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":1,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"violation"}],"recovery":{"kind":"latched"},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
INSERT INTO "circuits" VALUES(9,'lock/db',1,'closed','auto',1790000000.0,0,'{"schema":1,"key":"lock/db","memories":{"lock_wait":0.0},"phase":"closed","mode":"auto","order":null,"generation":1,"version":1,"event_seq":0,"seen_s":1790000000.0,"heat":0.0,"outage":{"opened_at_s":0.0,"retry_at_s":null,"cooldown_s":0.0,"failed_probes":0,"admit":0.0,"asked":0,"reason":""},"probing":{"permits":[],"issued":0,"successes":0,"expired":[]},"failures":[],"totals":{"succeeded":1,"failed":0,"ignored":0,"late":0,"refused":0,"overruled":0,"cost_micros":0},"recent":{"version":1,"base":null,"tells":[],"final":0,"reports":[["f72dbc78",1790000000.0]]}}','{"detectors":[{"kind":"lock_wait","limit_s":60.0}],"recovery":{"kind":"cooldown","base_s":60.0,"max_s":3600.0,"factor":2.0,"jitter":0.0,"probes":1,"successes":1,"lease_s":null,"retry_after_max_s":3600.0,"of":null},"combine":{"kind":"any"},"tripping_at":null,"strict":false}');
CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        circuit TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        UNIQUE (circuit, seq)
    );
INSERT INTO "events" VALUES(1,'provider/open',1,'{"schema":1,"circuit":"provider/open","seq":1,"at_s":1790000000.0,"kind":"moved","before":"closed","after":"open","mode":"auto","generation":2,"reason":"3 failures in a row (threshold 3)","by":"","why":"","retry_after_s":60.0}');
INSERT INTO "events" VALUES(2,'provider/probing',1,'{"schema":1,"circuit":"provider/probing","seq":1,"at_s":1790000000.0,"kind":"moved","before":"closed","after":"open","mode":"auto","generation":2,"reason":"3 failures in a row (threshold 3)","by":"","why":"","retry_after_s":60.0}');
INSERT INTO "events" VALUES(3,'provider/probing',2,'{"schema":1,"circuit":"provider/probing","seq":2,"at_s":1790000000.0,"kind":"ordered","before":"open","after":"open","mode":"auto","generation":2,"reason":"probe","by":"ada","why":"the provider is down","retry_after_s":60.0}');
INSERT INTO "events" VALUES(4,'provider/probing',3,'{"schema":1,"circuit":"provider/probing","seq":3,"at_s":1790000000.0,"kind":"moved","before":"open","after":"half_open","mode":"auto","generation":3,"reason":"probe asked for by ada","by":"","why":"","retry_after_s":null}');
INSERT INTO "events" VALUES(5,'op/tripping',1,'{"schema":1,"circuit":"op/tripping","seq":1,"at_s":1790000000.0,"kind":"moved","before":"closed","after":"tripping","mode":"auto","generation":1,"reason":"2 failures in a row (threshold 3)","by":"","why":"","retry_after_s":null}');
INSERT INTO "events" VALUES(6,'op/held',1,'{"schema":1,"circuit":"op/held","seq":1,"at_s":1790000000.0,"kind":"ordered","before":"closed","after":"closed","mode":"held_open","generation":1,"reason":"mode held_open","by":"ada","why":"the provider is down","retry_after_s":null}');
INSERT INTO "events" VALUES(7,'op/shadow',1,'{"schema":1,"circuit":"op/shadow","seq":1,"at_s":1790000000.0,"kind":"ordered","before":"closed","after":"closed","mode":"shadow","generation":1,"reason":"mode shadow","by":"ada","why":"the provider is down","retry_after_s":null}');
INSERT INTO "events" VALUES(8,'rules/coder',1,'{"schema":1,"circuit":"rules/coder","seq":1,"at_s":1790000000.0,"kind":"moved","before":"closed","after":"open","mode":"auto","generation":2,"reason":"rule deletes/outside","by":"","why":"","retry_after_s":null}');
CREATE TABLE ledger_lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        line TEXT NOT NULL
    );
INSERT INTO "ledger_lines" VALUES(1,'budget','atlas','[1,1790000000.0,"opened","atlas",5000000,""]');
INSERT INTO "ledger_lines" VALUES(2,'budget','atlas','[2,1790000000.0,"opened","atlas/wave-1",2000000,""]');
INSERT INTO "ledger_lines" VALUES(3,'budget','atlas','[3,1790000000.0,"reserved","atlas/wave-1/~94ccd9f91ec60b81",500000,"coder"]');
INSERT INTO "ledger_lines" VALUES(4,'budget','atlas','[4,1790000000.0,"charged","atlas/wave-1/~94ccd9f91ec60b81",120000,"coder"]');
INSERT INTO "ledger_lines" VALUES(5,'budget','atlas','[5,1790000000.0,"closed","atlas/wave-1/~94ccd9f91ec60b81",380000,"coder"]');
INSERT INTO "ledger_lines" VALUES(6,'budget','atlas','[6,1790000000.0,"reserved","atlas/wave-1/~fc6afb4e078553d5",300000,"tester"]');
CREATE TABLE ledger_values (
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (shelf, key)
    );
INSERT INTO "ledger_values" VALUES('budget','atlas','{"schema":1,"lines":6,"charged_micros":120000,"settled":[["atlas/wave-1/~94ccd9f91ec60b81",120000,true]],"expires_s":1790000900.0,"seen_s":1790000000.0,"nodes":{"atlas":[5000000,120000,1880000,"","",null,"spent",0,1790000000.0],"atlas/wave-1":[2000000,120000,300000,"","",null,"spent",0,1790000000.0],"atlas/wave-1/~fc6afb4e078553d5":[300000,0,0,"","tester",1790000900.0,"spent",0,1790000000.0]}}');
INSERT INTO "ledger_values" VALUES('lock','db','{"schema":1,"token":1,"holder":["33e59ed2bed0ecf9","ada",1790000000.0,1790000600.0],"waiting":[],"seen_s":1790000000.0}');
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('clock:869d6e08-9160-49d9-8665-a5a040ed68d0/4026531834','1794819353.1477084');
INSERT INTO "meta" VALUES('commits','7');
INSERT INTO "meta" VALUES('note:session/s1','4943600000.0 {"agent":"claude-code","task":"fix the parser","works":true}');
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
INSERT INTO "sqlite_sequence" VALUES('events',8);
INSERT INTO "sqlite_sequence" VALUES('ledger_lines',6);
COMMIT;
PRAGMA application_id = 1398228818;
PRAGMA user_version = 2;
