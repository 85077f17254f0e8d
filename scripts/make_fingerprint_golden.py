"""Write the golden file of fingerprints anew. Only after a decision that keys may change.

    python scripts/make_fingerprint_golden.py

Keys are stored with circuits: a key that changes makes every stored count start anew.
"""

import json
from pathlib import Path

from switchgear._text.fingerprint import documented, fingerprint, template

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "fingerprints-v2.json"


def main() -> None:
    """Keep the texts, renew what is made of them."""
    texts = [row["text"] for row in json.loads(GOLDEN.read_text())]
    rows = [
        {
            "text": text,
            "template": template(text),
            "default": fingerprint(text),
            "documented": documented(text),
        }
        for text in texts
    ]
    GOLDEN.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
