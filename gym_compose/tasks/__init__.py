"""Datasets to rows: what a config declares, what stands in the files, what becomes of a row before it is sent."""
