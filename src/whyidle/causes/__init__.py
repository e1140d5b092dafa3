"""One room a cause. A rule takes Evidence and returns a Finding or None; ``rules.find`` runs all."""
