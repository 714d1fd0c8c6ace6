"""The chart's values as models, and what is generated from them; `python -m deploy.chart` writes them again."""
