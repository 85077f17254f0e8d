"""One configuration with every section, in each syntax."""

WHOLE_YAML = """
store: sqlite:///.switchgear/state.db
operator_token_sha256: "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789"
retention: {events: 500, idle_days: 1.5}
policies:
  patient:
    extends: provider
    detectors:
      - consecutive_failures: {threshold: 8}
      - failure_rate: {window: 20, threshold: 0.5}
    recovery: {cooldown: {base_s: 60, max_s: 300, jitter: 0.1}}
    combine: {weighted_sum: {weights: {consecutive_failures: 40, failure_rate: 20}, threshold: 60}}
    tripping_at: 0.8
    strict: true
circuits:
  - match: "provider/*"
    policy: patient
  - match: op/git
    policy: operation
  - match: "rules/*"
    policy: {detectors: [consecutive_failures], recovery: latched}
sinks:
  - log: {level: warning}
  - jsonl: {path: .switchgear/events.jsonl}
"""

WHOLE_TOML = """
store = "sqlite:///.switchgear/state.db"
operator_token_sha256 = "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789"
retention = {events = 500, idle_days = 1.5}
sinks = [
  {log = {level = "warning"}},
  {jsonl = {path = ".switchgear/events.jsonl"}},
]

[policies.patient]
extends = "provider"
detectors = [
  {consecutive_failures = {threshold = 8}},
  {failure_rate = {window = 20, threshold = 0.5}},
]
recovery.cooldown = {base_s = 60, max_s = 300, jitter = 0.1}
tripping_at = 0.8
strict = true

[policies.patient.combine.weighted_sum]
weights = {consecutive_failures = 40, failure_rate = 20}
threshold = 60

[[circuits]]
match = "provider/*"
policy = "patient"

[[circuits]]
match = "op/git"
policy = "operation"

[[circuits]]
match = "rules/*"
[circuits.policy]
detectors = ["consecutive_failures"]
recovery = "latched"
"""

WHOLE_PROJECT = "[project]\nname = 'x'\n[tool.switchgear]\n" + WHOLE_TOML.replace(
    "\n[", "\n[tool.switchgear."
).replace("[tool.switchgear.[", "[[tool.switchgear.")
