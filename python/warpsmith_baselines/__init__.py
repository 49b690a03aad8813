"""The process that holds the baselines: what people use today, timed by the method and on the inputs of the candidates.

`serve` answers requests (docs/baselines.md); `peers` calls each implementation; `subject` keeps it resident in copies and times it;
`nvml` reads clocks; `fake` stands in for all of them where there is no PyTorch. It is sent to `python3` by the one who asks, and needs
nothing installed of its own. It holds no oracle and no limits, and judges nothing.
"""
