"""Draft tensors that a checkpoint lacks or stores wrongly, restored from its base checkpoint.

    base and checkpoint ──> fit ──> selection ──> layout ──> the checkpoint as it will be ──> analysis ──> GraftPlan
                                                                                              (pure so far)
    GraftPlan ──> copy ──> store

`plan` reads headers and JSON files only; `write` is where bytes of weights are touched.
"""
