"""The rules: one file and one line here each."""

from __future__ import annotations

from mtpfix.rules import (
    mtp001_not_excluded,
    mtp002_spelling_misses,
    mtp003_files_disagree,
    mtp004_too_broad,
    mtp005_excluded_but_quantized,
    mtp006_draft_missing,
    mtp007_misexported,
    mtp008_engine_cannot,
    mtp009_mixed_schemes,
    mtp010_partial_fusion,
    mtp011_index_out_of_step,
    mtp012_scales_missing,
    mtp013_count_wrong,
    mtp014_draft_inherits,
    mtp015_not_representable,
    mtp016_malformed_entry,
)
from mtpfix.rules.base import Rule

RULES: tuple[Rule, ...] = (
    mtp001_not_excluded.RULE,
    mtp002_spelling_misses.RULE,
    mtp003_files_disagree.RULE,
    mtp004_too_broad.RULE,
    mtp005_excluded_but_quantized.RULE,
    mtp006_draft_missing.RULE,
    mtp007_misexported.RULE,
    mtp008_engine_cannot.RULE,
    mtp009_mixed_schemes.RULE,
    mtp010_partial_fusion.RULE,
    mtp011_index_out_of_step.RULE,
    mtp012_scales_missing.RULE,
    mtp013_count_wrong.RULE,
    mtp014_draft_inherits.RULE,
    mtp015_not_representable.RULE,
    mtp016_malformed_entry.RULE,
)
BY_CODE = {rule.code: rule for rule in RULES}
