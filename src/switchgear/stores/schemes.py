"""What the URL of a store may begin with: one list for opening, configuration and their errors."""

REDIS = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
    "valkey+cluster": "redis",
    "valkeys+cluster": "rediss",
}
"""The schemes of a server, and what the redis package calls each."""

REDIS_URLS = tuple(f"{scheme}://" for scheme in REDIS)
STORE_URLS = ("memory:", "sqlite:///", *REDIS_URLS)
