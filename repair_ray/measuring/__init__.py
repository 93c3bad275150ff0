"""Retrievers measured on any data, outside a run's job: retrieval, many right answers, composition, zero-shot, WiSE-FT.

In one process, on the GPU where there is one. A retriever is that of a run, before and after repair, or an open_clip
model. Every figure comes with what it was measured on.
"""
