"""The smallest sound set of entries for one exclusion list (pure).

Candidates come from the module tree in the format's own dialect; every engine profile judges each of them over
every module. What is added never makes a module worse that was right before, and what can be left out is.

The order of work (solver.py): take out entries that make quantized modules plain or break an engine (removal.py); add
the faithful spelling (the checkpoint's own names) of what is then missing, the stripped spelling where the draft sits
under a wrapper (spelling.py); add aliases (an engine's own names) for what is still missing (aliases.py); drop every
alias that nothing needs. What a list makes of the modules is asked of trials.py, which alone asks the judges.
"""
