"""Building blocks: ready-made parts of applications, each with an extra of its own."""

from mainspring.contrib import codes as codes  # known wherever one of them is
