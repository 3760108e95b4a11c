"""Acting on the Hub: pull requests that carry a repair, and what pull requests of others change."""
