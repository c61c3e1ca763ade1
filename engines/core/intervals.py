"""Half widths of intervals that hold a normal number with some probability, in standard deviations."""

NORMAL_90 = 1.6448536269514722
NORMAL_95 = 1.959963984540054
