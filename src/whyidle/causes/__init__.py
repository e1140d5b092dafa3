"""One room a cause. A rule takes Evidence and gives a Finding or None; ``rules.find`` runs all."""
